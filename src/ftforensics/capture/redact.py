"""Takes secrets out of text before it is written anywhere: command lines, environment values, notes.

Three ways to be a secret, in this order:

  by name      `--api-key X`, `password=X`, `"hf_token": "X"`, `Authorization: X`, `https://user:X@host`
  by shape     a prefix its issuer chose to be recognised by (`hf_`, `ghp_`, `AKIA`, `sk-`), a JWT, a private key
  by disorder  a long run of letters and digits that no person would type

The third is a guess, so it is tuned to leave paths, names of models and of C++, run ids (UUIDs), digests and commits
readable; where it cannot tell (40 bare hex digits are a Weights & Biases key as well as a git commit) it hides. No
`re`: importing it costs 13 ms in a bare interpreter, more than all the rest of `install()` together.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

REDACTED = "[redacted]"

# A name is cut into words at anything that is not a letter or digit and at camelCase humps; these words decide.
_SECRET_WORDS = frozenset(
    """
    password passwords passwd passphrase passcode passkey pwd pw secret secrets credential credentials cred
    creds apikey apikeys accesskey secretkey privatekey accountkey authkey apitoken accesstoken authtoken
    hftoken auth authorization authentication authn bearer cookie cookies jwt oauth dsn webhook sas sig
    signature pat otp mfa kubeconfig netrc connectionstring userpass htpasswd pgpassword
    """.split()
)
# "token" is a vocabulary word as often as a secret here: these neighbours make it one.
_VOCABULARY_WORDS = frozenset(
    """
    pad padding eos bos unk mask sep cls image video audio vision special stop start end begin next prev
    previous max min num number n per id ids idx index len length size count type types embedding embeddings
    embed embd dropout limit budget drop rate ratio loss level parallel dispatcher dispatch capacity eot eod sot
    new total seq sequence batch prompt completion draft classification timestep time mean router routing expert
    shift mixer merging pruning side
    """.split()
)
# "key" likewise: attention keys, sort keys, dictionary keys. These neighbours make it a secret.
_KEY_OWNERS = frozenset(
    """
    api access secret private auth authentication encryption encrypt decryption crypto cipher signing signature
    hmac account ssh ssl tls gpg pgp rsa license licence service storage subscription shared master deploy
    session security client app application wandb openai anthropic huggingface hf hub cohere mistral groq gemini
    google gcp aws amazon azure comet neptune mlflow clearml swanlab kaggle ngc nvidia replicate together
    fireworks deepseek dashscope pinecone sendgrid stripe slack discord telegram github gitlab datadog dd sentry
    ray modal runpod lambda vast s3 minio oss cos registry docker admin root user write publishable symmetric
    """.split()
)
_PASS_OWNERS = frozenset(
    """
    user db database sql mysql postgres redis mongo smtp mail ssh login admin root proxy http ftp
    """.split()
)
# One of these is in every name that is_secret_name() takes for a secret's, in lower case.
_NAME_MARKS = (*_SECRET_WORDS, "token", "key", "pass")

# Issuers' own marks: (prefix, least number of characters after it, may the rest contain - _ .)
_PREFIXES = (
    ("sk-", 16, True),
    ("sk_live_", 8, False),
    ("sk_test_", 8, False),
    ("rk_live_", 8, False),
    ("pk_live_", 8, False),
    ("whsec_", 16, False),
    ("hf_", 16, False),
    ("api_org_", 16, False),
    ("ghp_", 16, False),
    ("gho_", 16, False),
    ("ghu_", 16, False),
    ("ghs_", 16, False),
    ("ghr_", 16, False),
    ("github_pat_", 16, True),
    ("glpat-", 12, True),
    ("gldt-", 12, True),
    ("AKIA", 12, False),
    ("ASIA", 12, False),
    ("AROA", 12, False),
    ("AIza", 24, True),
    ("ya29.", 16, True),
    ("GOCSPX-", 12, True),
    ("xoxb-", 8, True),
    ("xoxp-", 8, True),
    ("xoxa-", 8, True),
    ("xoxs-", 8, True),
    ("xapp-", 8, True),
    ("npm_", 24, False),
    ("pypi-", 24, True),
    ("nvapi-", 16, True),
    ("dckr_pat_", 12, True),
    ("dop_v1_", 16, False),
    ("hvs.", 16, True),
    ("gsk_", 16, False),
    ("r8_", 16, False),
    ("xai-", 16, True),
    ("pplx-", 16, True),
    ("tgp_v1_", 16, True),
    ("wandb_v1_", 8, True),
    ("SG.", 24, True),
    ("lin_api_", 16, False),
    ("shpat_", 16, False),
    ("dapi", 32, False),
    ("key-", 32, False),
    ("AGE-SECRET-KEY-", 16, False),
)
_PREFIX_STARTS = frozenset(prefix[0] for prefix, _, _ in _PREFIXES)

_DIGITS = frozenset("0123456789")
_CXX_STARTS = _DIGITS | frozenset("NTSZLG")  # a plain, nested, special or local name; an operator has two small letters
_NO_CODE = frozenset("HQWYku-.")  # they stand for nothing in such a name, or only in rare ones
_HEX = frozenset("0123456789abcdefABCDEF")
_LETTERS_DIGITS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TOKEN = _LETTERS_DIGITS | frozenset("-_.")
_OPAQUE = _LETTERS_DIGITS | frozenset("-_+/=.%~")
_NAME = _LETTERS_DIGITS | frozenset("-_.")
_SPACE = frozenset(" \t\r\n\v\f")
_VALUE_END = _SPACE | frozenset("\"',;&|)}]><`")
_LINE_END = frozenset("\r\n\"'`")
_QUOTES = frozenset("\"'`")
# What makes a bare run of hex digits a commit or a digest rather than a key.
_DIGEST_WORDS = frozenset(
    """
    commit commits sha sha1 sha256 sha512 md5 digest revision revisions rev git hash checksum tree blob blobs
    snapshots objects ref refs build buildid etag uuid
    """.split()
)


def redact(text: str) -> str:
    """The text without its secrets. Each is replaced by `[redacted]`; the rest stays as it was."""
    if len(text) < 4:
        return text
    if "-----BEGIN" in text:
        text = _without_private_keys(text)
    text = _without_url_credentials(text)
    text = _without_named_values(text)
    return _without_opaque_runs(text)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """A command line without its secrets, argument by argument: the value of `--token=X` or `--token X` goes whole."""
    out: list[str] = []
    owner = ""  # the flag whose value comes next
    for argument in arguments:
        if owner and not _is_flag(argument):
            out.append(REDACTED if is_secret_name(owner) else _redact_value(owner, argument))
            owner = ""
            continue
        owner = ""
        if argument.startswith("-"):
            name, equals, value = argument.partition("=")
            if not equals:
                owner = argument
                out.append(redact(argument))
            elif is_secret_name(name):
                out.append(f"{name}={REDACTED}")
            else:
                out.append(f"{name}={_redact_value(name, value)}")
        else:
            # Hydra's `trainer.api_key=X`, an `env NAME=X` prefix: the value may hold any character, so it goes whole.
            name, equals, value = argument.partition("=")
            if equals and name and _NAME.union("+/@~").issuperset(name):
                out.append(f"{name}={REDACTED if is_secret_name(name) else _redact_value(name, value)}")
            else:
                out.append(redact(argument))
    return out


def redact_named(name: str, value: str) -> str:
    """The value of an environment variable or setting called `name`."""
    return REDACTED if value and is_secret_name(name) else _redact_value(name, value)


def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or JSON member called so holds a secret: `--hub_token` does, `--pad_token` does not."""
    if name in ("PWD", "OLDPWD"):  # the shell's working directory
        return False
    words = _words(name)
    for index, word in enumerate(words):
        if word in _SECRET_WORDS:
            return word not in ("sig", "sas", "pw", "pat", "otp", "signature") or index == len(words) - 1
        if word == "token" and not _VOCABULARY_WORDS.intersection(words):
            return True
        if word == "key" and (len(words) == 1 or (index and words[index - 1] in _KEY_OWNERS)):
            return "public" not in words and words[-1] not in ("id", "ids", "name", "size", "len", "length", "dim")
        if word == "pass" and (len(words) == 1 or (index and words[index - 1] in _PASS_OWNERS)):
            return True
    return False


def _words(name: str) -> list[str]:
    words: list[str] = []
    word = ""
    last = ""
    for char in name:
        if char not in _LETTERS_DIGITS:
            if word:
                words.append(word.lower())
            word = ""
        elif char.isupper() and last.islower():
            words.append(word.lower())
            word = char
        else:
            word += char
        last = char
    if word:
        words.append(word.lower())
    return words


def _is_flag(argument: str) -> bool:
    """`-v` and `--lr` are flags; `-x9K...` may be the secret itself (base64 can begin with a dash)."""
    if argument.startswith("--"):
        return len(argument) > 2 and argument[2].isalpha() and all(c in _NAME for c in argument.partition("=")[0])
    return len(argument) == 2 and argument[0] == "-" and argument[1].isalpha()


def _redact_value(name: str, value: str) -> str:
    """The value of a name that is no secret by itself: a commit after `--revision` stays readable."""
    if value and _HEX.issuperset(value) and _DIGEST_WORDS.intersection(_words(name)):
        return value
    return redact(value)


def _without_private_keys(text: str) -> str:
    out = ""
    while True:
        begin = text.find("-----BEGIN")
        if begin < 0:
            return out + text
        close = text.find("-----END", begin)
        stop = len(text) if close < 0 else text.find("-----", close + 8) + 5
        if stop < 5:
            stop = len(text)
        block = text[begin:stop]
        # Certificates and public keys may stay; anything else in this armour is taken for a private key.
        public = "CERTIFICATE" in block[:40] or "PUBLIC" in block[:40]
        out += text[:begin] + (block if public else REDACTED)
        text = text[stop:]


def _without_url_credentials(text: str) -> str:
    """`scheme://user:password@host` and `user:password@host`: the password goes, and a user that looks like a token."""
    if "@" not in text:
        return text
    out: list[str] = []
    for piece in _split_keeping(text, _SPACE | _QUOTES | frozenset(",;<>()")):
        out.append(_without_credentials(piece) if "@" in piece else piece)
    return "".join(out)


def _without_credentials(piece: str) -> str:
    scheme, mark, rest = piece.rpartition("://") if piece.count("://") == 1 else piece.partition("://")
    if not mark:
        scheme, rest = "", piece
        # NAME=user:password@host, or -u=user:...
        head, equals, tail = rest.rpartition("=")
        if equals and "@" in tail and ":" in tail.partition("@")[0]:
            scheme, rest = head + equals, tail
    userinfo, at, host = rest.rpartition("@")
    if not at or not host or not userinfo:
        return piece
    user, colon, password = userinfo.partition(":")
    if colon and password:
        if "/" in user or (mark and password.partition("/")[0].isdigit() and "/" in password):
            return piece  # a path with an @ in it, behind host:port
        if not mark and ("/" in userinfo or not host[0].isalnum()):
            return piece
        return f"{scheme}{mark}{REDACTED}@{host}"
    if mark and "/" not in userinfo and _is_opaque(userinfo.rstrip(":"), 16):
        return f"{scheme}{mark}{REDACTED}@{host}"
    return piece


def _without_named_values(text: str) -> str:
    """`name=value`, `name: value`, `"name": "value"`, `--name value`, `Bearer value`, where the name says what the
    value is."""
    lowered = text.lower()
    if not any(mark in lowered for mark in ("=", ":", "--", "bearer", "basic ")):
        return text
    if "basic" not in lowered and not any(mark in lowered for mark in _NAME_MARKS):
        return text
    out: list[str] = []
    done = 0  # text[:done] has been copied to out
    at = 0
    length = len(text)
    while at < length:
        if text[at] not in _LETTERS_DIGITS:
            at += 1
            continue
        start = at
        while at < length and text[at] in _NAME:
            at += 1
        name = text[start:at]
        mark = at
        while mark < length and text[mark] in _QUOTES:
            mark += 1
        while mark < length and text[mark] in " \t":
            mark += 1
        follows = text[mark : mark + 1]
        scheme = name.lower()
        if scheme in ("bearer", "basic") and mark > at and follows in _OPAQUE and follows:
            stop = _run_end(text, mark, _OPAQUE)
            # "basic training" is prose; base64 of user:password hardly comes out as one lower-case word
            if scheme == "bearer" or (stop - mark >= 8 and not text[mark:stop].islower()):
                out.append(text[done:mark] + REDACTED)
                done = at = stop
            continue
        if mark > at and follows and follows not in "-:=" and text[max(0, start - 2) : start] == "--":
            # A command line within a text: a shell's -c, what a launcher says that it starts.
            if is_secret_name(name):
                if follows == "," and text[at] in _QUOTES:  # a list as Python prints it: ['--password', 'x']
                    mark += 1
                begin, stop = _value(text, mark, whole_line=False)
                out.append(text[done:begin] + REDACTED)
                done = at = stop
            continue
        if follows not in (":", "=") or not follows or text[mark : mark + 3] == "://" or not is_secret_name(name):
            continue
        begin, stop = _value(text, mark + 1, whole_line="authorization" in scheme or "cookie" in scheme)
        if stop > begin:
            out.append(text[done:begin] + REDACTED)
            done = at = stop
    if not done:
        return text
    out.append(text[done:])
    return "".join(out)


def _value(text: str, at: int, whole_line: bool) -> tuple[int, int]:
    """Where the value behind `name=` or `name:` begins and ends. A header's value may hold blanks and runs to the end
    of its line or of the quotes around it."""
    length = len(text)
    while at < length and (text[at] in " \t" or text[at] in "=>"):
        at += 1
    if at < length and text[at] in _QUOTES:
        quote = text[at]
        stop = at + 1
        while stop < length and text[stop] != quote:
            stop += 2 if text[stop] == "\\" else 1
        return at + 1, min(stop, length)
    if text.startswith(REDACTED, at):
        return at, at
    ends = _LINE_END if whole_line else _VALUE_END
    stop = at
    while stop < length and text[stop] not in ends:
        stop += 1
    if text.endswith(REDACTED, at, stop + 1):  # a part of the value has gone already
        stop += 1
    return at, stop


def _without_opaque_runs(text: str) -> str:
    if len(text) < 12:
        return text
    out: list[str] = []
    for piece in _split_keeping(text, _SPACE | frozenset("\"'`,;:=&|()[]{}<>?#!*\\@")):
        out.append(_redact_run(piece, "".join(out[-4:])) if len(piece) >= 12 else piece)
    return "".join(out)


def _redact_run(run: str, before: str) -> str:
    if _is_uuid(run):
        return run
    if "/" in run:
        # Base64 may hold slashes, and so do paths; a path has words between them.
        if not run.startswith(("/", "./", "../", "~")) and len(run) >= 32 and _is_opaque(run, 32, 0.4):
            return REDACTED
        file_path = run.startswith(("/", "./", "../", "~"))
        out: list[str] = []
        for part in run.split("/"):
            keep = file_path or (out and out[-1].lower() in _DIGEST_WORDS)
            out.append(_redact_word(part, bool(keep)))
        return "/".join(out)
    return _redact_word(run, bool(_DIGEST_WORDS.intersection(_words(before[-24:]))))


def _redact_word(word: str, digest: bool) -> str:
    """One run without slashes. digest: hex, or lower case with digits, is expected here (a commit, a store path)."""
    if len(word) < 12:
        return word
    found = _prefixed(word)
    if found is not None:
        return found
    if digest and word.islower():
        return word
    if _is_uuid(word) or _is_cxx_name(word):
        return word
    whole = word.rstrip("=")
    if len(whole) >= 32 and _is_opaque(whole, 32, 0.42):
        return REDACTED
    if "-" in word or "_" in word or "." in word:
        out: list[str] = []
        hidden = False
        for part in _split_keeping(word, frozenset("-_.")):
            bad = _is_opaque(part, 20)
            hidden = hidden or bad
            out.append(REDACTED if bad else part)
        return "".join(out) if hidden else word
    return REDACTED if _is_opaque(whole, 20) else word


def _prefixed(word: str) -> str | None:
    if word.startswith("eyJ") and word.count(".") >= 1 and len(word) >= 20:
        return REDACTED
    for start in range(len(word)):
        if word[start] not in _PREFIX_STARTS or (start and word[start - 1] in _LETTERS_DIGITS):
            continue
        for prefix, least, dashes in _PREFIXES:
            if word.startswith(prefix, start):
                stop = _run_end(word, start + len(prefix), _TOKEN if dashes else _LETTERS_DIGITS)
                rest = word[start + len(prefix) : stop]
                # "sk-learn-contrib-metrics" and "hf_transformers" are names; issued tokens hold digits.
                if len(rest) >= least and any(c.isdigit() for c in rest):
                    return word[:start] + REDACTED + word[stop:]
    return None


def _is_opaque(run: str, least: int, share: float = 0.3) -> bool:
    """Whether a run looks drawn from a hat: its characters change class (digit, upper, lower) all the time.

    Random base62 changes at 62 % of its characters, base36 at 40 %, hex at 47 %; names of models and experiments
    at 10 to 25 %. The share is a judgement, not a theorem: see the near misses in the tests.
    """
    if len(run) < least:
        return False
    if len(run) >= 32 and _HEX.issuperset(run):
        return any(c.isdigit() for c in run) and any(c.isalpha() for c in run)
    changes = 0
    letters = 0
    digits = 0
    last = ""
    for char in run:
        kind = _class(char)
        if kind == "d":
            digits += 1
        elif kind:
            letters += 1
        if kind and last and kind != last:
            changes += 1
        last = kind or ""
    if not letters or (not digits and least < 32 and len(run) < 32):
        return False
    return changes >= share * len(run)


def _is_uuid(run: str) -> bool:
    parts = run.split("-")
    return [len(part) for part in parts[-5:]] == [8, 4, 4, 4, 12] and all(_HEX.issuperset(part) for part in parts[-5:])


def _is_cxx_name(word: str) -> bool:
    """A C++ name as the loader prints it, `_ZN3c105ErrorC2ERKSs`. It looks drawn from a hat, and is all that tells what
    an extension was built for. Names in it stand behind their length (Itanium C++ ABI, 5.1.2) and are made of words.
    A judgement as well: of torch's own names 3 % are hidden, of random runs that begin so 1 % are not."""
    if not word.startswith("_Z") or not (word[2:3] in _CXX_STARTS or word[2:4].islower()):
        return False
    names = codes = ""
    at = 2
    while at < len(word):
        stop = _run_end(word, at, _DIGITS)
        counted = at < stop < at + 4 and codes[-1:] not in ("S", "T")  # S5_ and T0_ are what was said before
        length = int(word[at:stop]) if counted else 0
        name = word[stop : stop + length]
        if length > 2 and len(name) == length and not name[0].isdigit():
            names += name
            codes += " "
            at = stop + length
        else:
            codes += word[at]
            at = max(stop, at + 1)
    changes = sum(_class(names[i]) != _class(names[i - 1]) for i in range(1, len(names)))
    return 3 * len(names) >= len(word) and changes <= 0.5 * len(names) and _NO_CODE.isdisjoint(codes)


def _class(char: str) -> str:
    return "d" if char.isdigit() else "u" if char.isupper() else "l" if char.islower() else ""


def _run_end(text: str, at: int, members: frozenset[str]) -> int:
    while at < len(text) and text[at] in members:
        at += 1
    return at


def _split_keeping(text: str, ends: frozenset[str]) -> list[str]:
    """The text cut at each of `ends`, which are kept as pieces of their own: joining gives the text back."""
    pieces: list[str] = []
    start = 0
    for at, char in enumerate(text):
        if char in ends:
            if at > start:
                pieces.append(text[start:at])
            pieces.append(char)
            start = at + 1
    if start < len(text):
        pieces.append(text[start:])
    return pieces
