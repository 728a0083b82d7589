/* CONTEXT: ANY. See ftf_redact.h. Three kinds:

     scheme://user:password@host       the part between "//" and "@"
     token=..., "password": "...", Authorization: Bearer ...    the value
     hf_..., sk-..., ghp_..., AKIA...  tokens with their issuer's mark

   It errs towards hiding: the message keeps its words, and those are what an analysis needs. */
#include "ftf_redact.h"

#include <string.h>

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

static bool is_word(char c) { return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9'); }

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_token(char c)
{
    return is_word(c) || c == '-' || c == '_' || c == '.' || c == '/' || c == '+' || c == '~';
}

static size_t matches(const char *text, size_t left, const char *word)
{
    size_t i = 0;
    for (; word[i] != 0; i++)
        if (i == left || lower(text[i]) != word[i])
            return 0;
    return i;
}

static void hide(char *text, size_t from, size_t to) { memset(text + from, '*', to - from); }

static void url_credentials(char *text, size_t length)
{
    for (size_t i = 0; i + 3 <= length; i++) {
        if (memcmp(text + i, "://", 3) != 0)
            continue;
        size_t last = 0; /* a password may hold an "@" itself */
        for (size_t k = i + 3; k < length && !is_blank(text[k]) && text[k] != '/' && text[k] != '"'; k++)
            if (text[k] == '@')
                last = k;
        if (last)
            hide(text, i + 3, last);
    }
}

static size_t skip_blanks(const char *text, size_t at, size_t length)
{
    while (at < length && is_blank(text[at]))
        at++;
    return at;
}

/* From behind a secret's name: its value's first byte, or 0 when no value follows. */
static size_t value_start(const char *text, size_t at, size_t length)
{
    while (at < length && (is_word(text[at]) || text[at] == '_' || text[at] == '-')) /* "token_value", "passwords" */
        at++;
    if (at < length && (text[at] == '"' || text[at] == '\''))
        at++;
    at = skip_blanks(text, at, length);
    if (at == length || (text[at] != '=' && text[at] != ':'))
        return 0;
    at = skip_blanks(text, at + 1, length);
    if (at < length && (text[at] == '"' || text[at] == '\''))
        at++;
    static const char *const schemes[] = {"bearer ", "basic ", "token "};
    for (size_t i = 0; i < FTF_LENGTH(schemes); i++)
        at += matches(text + at, length - at, schemes[i]);
    return at;
}

static void named_values(char *text, size_t length)
{
    static const char *const names[] = {"password",   "passwd",     "passphrase",    "secret",     "token",
                                        "api_key",    "api-key",    "apikey",        "access_key", "access-key",
                                        "accesskey",  "credential", "authorization", "signature",  "private_key",
                                        "privatekey", "cookie",     "pwd",           "sig"};
    for (size_t i = 0; i < length; i++) {
        size_t found = 0;
        for (size_t k = 0; k < FTF_LENGTH(names) && found == 0; k++)
            found = matches(text + i, length - i, names[k]);
        size_t start = found ? value_start(text, i + found, length) : 0;
        if (start == 0)
            continue;
        size_t end = start;
        while (end < length && !is_blank(text[end]) && text[end] != '"' && text[end] != '\'' && text[end] != '&' &&
               text[end] != ',' && text[end] != ';')
            end++;
        if (end - start >= 4) /* "token == 3" in an assertion tells nothing that must be hidden */
            hide(text, start, end);
        i = end;
    }
}

static void issued_tokens(char *text, size_t length)
{
    static const char *const marks[] = {"hf_",    "sk-",  "ghp_",  "gho_", "ghs_",  "github_pat_",
                                        "glpat-", "akia", "asia",  "aiza", "xoxb-", "xoxp-",
                                        "nvapi-", "npm_", "pypi-", "gsk_", "ya29.", "eyj"};
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && is_word(text[i - 1]))
            continue;
        size_t found = 0;
        for (size_t k = 0; k < FTF_LENGTH(marks) && found == 0; k++)
            found = matches(text + i, length - i, marks[k]);
        size_t end = i + found;
        bool digit = false;
        while (found && end < length && is_token(text[end])) {
            digit |= text[end] >= '0' && text[end] <= '9';
            end++;
        }
        if (found && digit && end - i - found >= 12) /* "sk-learn-contrib" is a name; what is issued holds digits */
            hide(text, i + found, end);
    }
}

void ftf_redact(char *text, size_t length)
{
    url_credentials(text, length);
    named_values(text, length);
    issued_tokens(text, length);
}
