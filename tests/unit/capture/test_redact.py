"""Secrets go, everything a person needs to understand a run stays."""

from __future__ import annotations

import base64
import random
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ftforensics.capture.redact import _NAME_MARKS, REDACTED, is_secret_name, redact, redact_arguments, redact_named

ALNUM = string.ascii_letters + string.digits
HEX40 = "3f786850e387550fdab836ed7e6dc881de23001b"


def rnd(seed: int, length: int, alphabet: str = ALNUM) -> str:
    source = random.Random(seed)
    return "".join(source.choice(alphabet) for _ in range(length))


ISSUED = {
    "openai": "sk-" + rnd(1, 48),
    "openai project": "sk-proj-" + rnd(2, 60) + "_" + rnd(3, 30) + "-" + rnd(4, 20),
    "anthropic": "sk-ant-api03-" + rnd(5, 80),
    "stripe": "sk_live_" + rnd(6, 24),
    "hugging face": "hf_" + rnd(7, 34),
    "github classic": "ghp_" + rnd(8, 36),
    "github app": "ghs_" + rnd(9, 36),
    "github fine-grained": "github_pat_" + rnd(10, 22) + "_" + rnd(11, 59),
    "gitlab": "glpat-" + rnd(12, 20),
    "aws key id": "AKIA" + "IOSFODNN7EXAMPLE"[:16],
    "aws secret": base64.b64encode(random.Random(13).randbytes(30)).decode(),
    "google": "AIza" + rnd(14, 35),
    "slack": "xoxb-123456789012-1234567890123-" + rnd(15, 24),
    "npm": "npm_" + rnd(16, 36),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + rnd(17, 80),
    "ngc": "nvapi-" + rnd(18, 64),
    "groq": "gsk_" + rnd(19, 52),
    "wandb": rnd(20, 40, "0123456789abcdef"),
    "wandb new": "wandb_v1_" + rnd(21, 40),
    "datadog": rnd(22, 32, "0123456789abcdef"),
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "base64 of 48 bytes": base64.b64encode(random.Random(23).randbytes(48)).decode(),
    "base64url of 48 bytes": base64.urlsafe_b64encode(random.Random(24).randbytes(48)).decode(),
    "fernet key": base64.urlsafe_b64encode(random.Random(25).randbytes(32)).decode(),
}


@pytest.mark.parametrize("kind", ISSUED)
@pytest.mark.parametrize("around", ["{}", "resuming with {} now", "x={}", "'{}'", "[{}]", "note:{},", "({})"])
def test_issued_secrets_go_by_their_shape(kind: str, around: str) -> None:
    secret = ISSUED[kind]
    out = redact(around.format(secret))
    assert secret not in out
    assert REDACTED in out
    # no long piece of it survives either
    assert not any(secret[at : at + 12] in out for at in range(len(secret) - 12))


@pytest.mark.parametrize(
    "text, gone",
    [
        ("password=hunter2", "hunter2"),
        ("password = hunter2", "hunter2"),
        ("Password: hunter2", "hunter2"),
        ("sh -c 'python train.py --password hunter2 --lr 3'", "hunter2"),
        ("['python', 'train.py', '--password', 'hunter2', '--lr', '3'] exits with return code = 1", "hunter2"),
        ('["--hub_token","hunter2"]', "hunter2"),
        ('running: train --hub_token  "hunter2" now', "hunter2"),
        ("db_password=hunter2;x=1", "hunter2"),
        ('{"api_key": "hunter2", "lr": 0.1}', "hunter2"),
        ("{'hf_token': 'hunter2'}", "hunter2"),
        ("{apiKey: hunter2}", "hunter2"),
        ("wandb.api_key=hunter2", "hunter2"),
        ("++logger.wandb.apiKey=hunter2", "hunter2"),
        ("export HF_TOKEN=hunter2 && python train.py", "hunter2"),
        ("HUGGING_FACE_HUB_TOKEN=hunter2 python train.py", "hunter2"),
        ("curl -H 'Authorization: Bearer hunter2'", "hunter2"),
        ("Authorization: Basic dTpw", "dTpw"),
        ("Authorization: token hunter2", "hunter2"),
        ('{"Authorization": "Bearer hun ter2"}', "ter2"),
        ("Cookie: session=hunter2; id=3", "hunter2"),
        ("bearer hunter2.abc", "hunter2"),
        ("https://user:hunter2@host/path", "hunter2"),
        ("https://user:hun/ter2@host/path", "ter2"),
        ("https://user:h@nter2@host/path", "nter2"),
        ("postgres://u:hunter2@10.0.0.1:5432/db", "hunter2"),
        ("redis://:hunter2@cache:6379/0", "hunter2"),
        ("git+https://" + ISSUED["github classic"] + "@github.com/org/repo", ISSUED["github classic"]),
        ("MLFLOW_TRACKING_URI=https://me:hunter2@mlflow.example", "hunter2"),
        ("root:hunter2@10.0.0.1", "hunter2"),
        ("https://bucket.s3.amazonaws.com/x?X-Amz-Signature=hunter2&y=1", "hunter2"),
        ("https://acct.blob.core.windows.net/c?sv=2022&sig=hunter2%3D", "hunter2"),
        ("https://api.example/v1?access_token=hunter2#top", "hunter2"),
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2==;", "hunter2"),
        ("https://hooks.slack.com/services/T024BE7LD/B024BE7LE/" + rnd(30, 24), rnd(30, 24)),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIhunter2\n-----END RSA PRIVATE KEY----- after", "hunter2"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2 cut", "hunter2"),
    ],
)
def test_secrets_go_by_their_name(text: str, gone: str) -> None:
    out = redact(text)
    assert gone not in out
    assert REDACTED in out


@pytest.mark.parametrize(
    "text",
    [
        "epoch 3 step 500 loss 0.512 lr 3e-05",
        "meta-llama/Meta-Llama-3.1-70B-Instruct",
        "DeepSeek-R1-Distill-Qwen-32B-AWQ-INT4",
        "Qwen/Qwen2.5-VL-7B-Instruct-GPTQ-Int8",
        "TheBloke/Mixtral-8x7B-Instruct-v0.1-GGUF",
        "mistralai/Mixtral-8x22B-Instruct-v0.1",
        "openai/clip-vit-large-patch14-336",
        "qwen2_5_vl_7b_instruct_sft_v3_bf16_lr1e5_bs64_seed42",
        "llama3-8b-sft-2024-11-28T15-30-12-fsdp-bf16-8xH100",
        "sk-learn-contrib-metrics-package",
        "scikit-learn==1.5.2",
        "hf_transformers_model_cache_dir",
        "hf_hub_download",
        "npm_config_registry",
        "/root/.cache/huggingface/hub/models--meta-llama--Llama-2-7b-hf/snapshots/01c7f73d771dfac7d292323805ebc428287df4f9/x.bin",
        "https://github.com/org/repo/commit/01c7f73d771dfac7d292323805ebc428287df4f9",
        "commit 01c7f73d771dfac7d292323805ebc428287df4f9",
        "git sha: 01c7f73d771dfac7d292323805ebc428287df4f9",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "at 01c7f73d",
        "a8098c1a-f86e-11da-bd1a-00112444be1e",
        "GPU-5f6a3b1c-9a77-1d4e-8f2b-00112444be1e",
        "/nix/store/7mrxxlr2vb0ffzqcnwvx0fgxb2q5vrbc-glibc-2.35/lib:/usr/lib/x86_64-linux-gnu",
        "/opt/spack/linux-debian12-zen2/gcc-12.2.0/openmpi-4.1.5-abcdefghijklmnop234567qrstuvwxyz/lib",
        "/home/user/experiments/Llama3_8B_run17/checkpoint-12000/pytorch_model-00001-of-00004.safetensors",
        "/usr/local/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so",
        "libcudnn_cnn_infer.so.8.9.2",
        "git@github.com:org/repo.git",
        "ssh://git@github.com/org/repo.git",
        "user@host:/path/to/data",
        "mail to someone@example.com",
        "https://host:8080/path/@user",
        "tcp://10.0.0.1:29500",
        "env://",
        "expandable_segments:True,max_split_size_mb:512",
        "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128",
        "--max_tokens=2048 --tokenizer=gpt2 --pad_token=<pad>",
        "tokens: 2048, tokens_per_second: 1812.5",
        "num_key_value_heads=8 key_dim=64 sort_key=loss",
        "author=me authors: all",
        "monkey=3 keyboard: qwerty",
        "bypass=1 compass: north forward_pass=2",
        "2024-11-28T15:30:12.123456Z",
        "0123456789 0123456789012345678901234567890123456789",
        "basic training run",
        "flash_attn-2.6.3+cu123torch2.4cxx11abiFALSE-cp311-cp311-linux_x86_64.whl",
        "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7",
        "TORCH_CUDA_ARCH_LIST=7.0;7.5;8.0;8.6;9.0+PTX",
        "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert redact(text) == text


def test_forty_bare_hex_digits_are_taken_for_a_key() -> None:
    # A Weights & Biases key and a git commit look the same; only a word beside it tells, so the bare one goes.
    assert redact(HEX40) == REDACTED
    assert redact_arguments(["--revision", HEX40]) == ["--revision", HEX40]
    assert redact_arguments([f"--revision={HEX40}"]) == [f"--revision={HEX40}"]
    assert redact_named("GIT_COMMIT", HEX40) == HEX40
    assert redact_arguments(["--wandb_key", HEX40]) == ["--wandb_key", REDACTED]


SECRET_NAMES = [
    "--token",
    "--hf_token",
    "--hf-token",
    "--hub_token",
    "--hub-token",
    "--api-key",
    "--api_key",
    "--apikey",
    "--apiKey",
    "--openai-api-key",
    "--wandb_api_key",
    "--wandb-key",
    "--password",
    "--passwd",
    "--db-pass",
    "--db_password",
    "--secret",
    "--client-secret",
    "--aws_secret_access_key",
    "--aws_session_token",
    "--access-token",
    "--auth-token",
    "--use_auth_token",
    "--private-key",
    "--credentials",
    "--passphrase",
    "--cookie",
    "--authorization",
    "--bearer",
    "--webhook",
    "--logger.wandb.api_key",
    "-token",
]


@pytest.mark.parametrize("name", [*SECRET_NAMES, "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "PGPASSWORD"])
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "--tokenizer",
        "--max_tokens",
        "--pad_token",
        "--pad_token_id",
        "--eos-token-id",
        "--num_tokens_per_batch",
        "--tokens",
        "--token-dropout",
        "--key-dim",
        "--num_key_value_heads",
        "--sort-key",
        "--keys",
        "--author",
        "--forward-pass",
        "--compass",
        "--secretary",
        "--api-url",
        "--access-mode",
        "--public-key-file-name",
        "--aws-access-key-id-length",
        "--significance",
        "--pattern",
        "--patch-size",
        "MASTER_PORT",
        "PWD",
        "NCCL_DEBUG",
    ],
)
def test_near_misses_of_secret_names(name: str) -> None:
    assert not is_secret_name(name)


def plain_secrets() -> st.SearchStrategy[str]:
    """Anything a person may have as a password, but not what any option parser would take for the next flag."""
    return st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), min_size=5, max_size=60).filter(
        lambda s: not s.startswith("-") and s.strip() == s and s not in REDACTED and s != "train.py"
    )


@given(st.sampled_from(SECRET_NAMES), plain_secrets(), st.booleans())
@example("--password", "a=b", True)
@example("--token", "[redacted] tail", False)
@example("--token", "train", True)
def test_a_planted_secret_never_survives_its_flag(flag: str, secret: str, joined: bool) -> None:
    arguments = ["python", "run.py", *([f"{flag}={secret}"] if joined else [flag, secret]), "--lr", "3e-5"]
    out = redact_arguments(arguments)
    expected = [f"{flag}={REDACTED}"] if joined else [flag, REDACTED]
    assert out == ["python", "run.py", *expected, "--lr", "3e-5"]


@example("HF_TOKEN=", "-----BEGIN")
@given(
    st.sampled_from(["HF_TOKEN=", "password: ", '"api_key": "', "wandb.api_key=", "?access_token="]),
    st.text(alphabet=string.ascii_letters + string.digits + "-_.+/~", min_size=4, max_size=50),
)
def test_a_planted_secret_never_survives_in_text(before: str, secret: str) -> None:
    marked = "qZ7" + secret + "7Zq"
    out = redact(f"run 3 {before}{marked}")
    assert marked not in out
    assert out == f"run 3 {before}{REDACTED}"


@given(st.text(max_size=200))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(st.integers(0, 10_000), st.integers(32, 90))
def test_random_base62_is_found(seed: int, length: int) -> None:
    secret = rnd(seed, length)
    assert redact(f"with {secret} here") == f"with {REDACTED} here"


def test_the_value_goes_whole_in_an_argument_of_its_own() -> None:
    assert redact_arguments(['--password=a b&c;d"e']) == [f"--password={REDACTED}"]
    assert redact_arguments(["trainer.api_key=a b,c"]) == [f"trainer.api_key={REDACTED}"]


def test_a_flag_without_a_value_does_not_swallow_the_next_flag() -> None:
    assert redact_arguments(["--use_auth_token", "--lr", "3"]) == ["--use_auth_token", "--lr", "3"]
    assert redact_arguments(["--token", "-v", "x"]) == ["--token", "-v", "x"]
    assert redact_arguments(["--token"]) == ["--token"]


def test_a_secret_that_begins_with_a_dash_goes() -> None:
    assert redact_arguments(["--token", "-9xK2aa"]) == ["--token", REDACTED]


def test_short_and_empty_text() -> None:
    assert redact("") == ""
    assert redact("a") == "a"
    assert redact_named("HF_TOKEN", "") == ""
    assert redact_named("HF_TOKEN", "x") == REDACTED


CPP_NAMES = (
    "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKSs",
    "_ZNK2at10TensorBase8data_ptrIN3c104HalfEEEPT_v",
    "_ZNK3c1010TensorImpl36is_contiguous_nondefault_policy_implENS_12MemoryFormatE",
    "_ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEESt8optionalINS2_10ScalarTypeEES5_INS2_6LayoutEE",
    "_ZN3c104cuda14ExchangeDeviceEa",
    "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib",
    "_ZN5torch3jit17parseSchemaOrNameERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "_ZTIN3c105ErrorE",
    "_ZlsRSoRKN3c106DeviceE",
    "_Z24selective_scan_fwd_cudaI13__nv_bfloat16fEvR13SSMParamsBaseP11CUstream_st",
    "_ZNSs4_Rep20_S_empty_rep_storageE",
    "_ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb",
)


@pytest.mark.parametrize("name", CPP_NAMES)
def test_the_symbol_that_the_loader_misses_stays_readable(name: str) -> None:
    text = f"ImportError: /env/flash_attn_2_cuda.so: undefined symbol: {name}"
    assert redact(text) == text and redact(name) == name


def test_what_only_begins_as_a_cpp_name_does_goes() -> None:
    kept = [secret for seed in range(500) if redact(secret := f"_Z{rnd(seed, 40)}") == secret]
    assert len(kept) <= 5  # of those that begin so, which is one secret in 4,096
    token = ISSUED["github classic"]
    assert token not in redact(f"_ZN3c105{token}")


@given(st.lists(st.sampled_from([*_NAME_MARKS, "api", "user", "pad", "Xa", "-", "_", "1"]), max_size=5), st.booleans())
@example(["hub", "_", "Token"], False)
def test_a_text_without_any_mark_of_a_name_holds_no_secret_by_name(parts: list[str], humps: bool) -> None:
    name = "".join(part.capitalize() if humps else part for part in parts)
    assert not is_secret_name(name) or any(mark in name.lower() for mark in _NAME_MARKS)


@given(
    st.lists(st.sampled_from(["to", "ken", "Ken", "k", "ey", "K", "pa", "ss", "Ss", "pw", "d", "_", "api"]), max_size=6)
)
@example(["api", "K", "ey"])
def test_a_name_that_is_cut_in_odd_places_is_no_exception(parts: list[str]) -> None:
    name = "".join(parts)
    assert not is_secret_name(name) or any(mark in name.lower() for mark in _NAME_MARKS)


def test_a_quick_look_passes_no_secret_by() -> None:
    for name in SECRET_NAMES:
        assert redact(f"--{name.lstrip('-')} hunter2") == f"--{name.lstrip('-')} {REDACTED}"
