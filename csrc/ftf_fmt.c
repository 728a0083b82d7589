/* CONTEXT: ANY. See ftf_fmt.h. */
#include "ftf_fmt.h"

#include <string.h>

static const char digits[] = "0123456789abcdef";

void ftf_put(struct ftf_text *text, const void *bytes, size_t length)
{
    if (text->overflow || length > text->size - text->used) {
        text->overflow = true;
        return;
    }
    memcpy(text->data + text->used, bytes, length);
    text->used += length;
}

void ftf_puts(struct ftf_text *text, const char *string) { ftf_put(text, string, ftf_string_length(string)); }

void ftf_put_decimal(struct ftf_text *text, int64_t value)
{
    char reversed[24];
    size_t position = sizeof reversed;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        reversed[--position] = digits[rest % 10];
        rest /= 10;
    } while (rest != 0);
    if (value < 0)
        reversed[--position] = '-';
    ftf_put(text, reversed + position, sizeof reversed - position);
}

void ftf_put_address(struct ftf_text *text, uint64_t value)
{
    char reversed[24];
    size_t position = sizeof reversed;
    reversed[--position] = '"';
    do {
        reversed[--position] = digits[value & 15];
        value >>= 4;
    } while (value != 0);
    reversed[--position] = 'x';
    reversed[--position] = '0';
    reversed[--position] = '"';
    ftf_put(text, reversed + position, sizeof reversed - position);
}

void ftf_put_decimal_or_null(struct ftf_text *text, bool known, int64_t value)
{
    if (known)
        ftf_put_decimal(text, value);
    else
        ftf_puts(text, "null");
}

void ftf_put_address_or_null(struct ftf_text *text, bool known, uint64_t value)
{
    if (known)
        ftf_put_address(text, value);
    else
        ftf_puts(text, "null");
}

void ftf_put_hex_bytes(struct ftf_text *text, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char pair[2] = {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
        ftf_put(text, pair, 2);
    }
}

static void put_fraction(struct ftf_text *text, int64_t whole, int64_t fraction, int places)
{
    char tail[8];
    tail[0] = '.';
    for (int i = places; i > 0; i--) {
        tail[i] = digits[fraction % 10];
        fraction /= 10;
    }
    ftf_put_decimal(text, whole);
    ftf_put(text, tail, (size_t)places + 1);
}

void ftf_put_seconds(struct ftf_text *text, int64_t ns)
{
    if (ns < 0)
        ns = 0;
    put_fraction(text, ns / 1000000000, ns % 1000000000 / 1000, 6);
}

void ftf_put_milliseconds(struct ftf_text *text, int64_t ns)
{
    if (ns < 0)
        ns = 0;
    put_fraction(text, ns / 1000000, ns % 1000000 / 1000, 3);
}

void ftf_put_bool(struct ftf_text *text, bool value) { ftf_puts(text, value ? "true" : "false"); }

/* Length of the valid UTF-8 sequence at `bytes`, 0 when there is none (RFC 3629: no overlong forms, no surrogates). */
static size_t utf8_sequence(const uint8_t *bytes, size_t available)
{
    uint8_t first = bytes[0];
    size_t length = first < 0x80                    ? 1
                    : first >= 0xc2 && first < 0xe0 ? 2
                    : (first & 0xf0) == 0xe0        ? 3
                    : first >= 0xf0 && first < 0xf5 ? 4
                                                    : 0;
    if (length == 0 || length > available)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && bytes[1] < 0xa0) || (first == 0xed && bytes[1] > 0x9f) ||
        (first == 0xf0 && bytes[1] < 0x90) || (first == 0xf4 && bytes[1] > 0x8f))
        return 0;
    return length;
}

/* A byte that stands for itself in a JSON string. */
static bool is_plain(uint8_t byte) { return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\'; }

/* The same of eight bytes at once; may say no where the answer is yes (the usual zero-byte trick borrows). */
static bool all_plain(const uint8_t *bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones * 0x80;
    uint64_t word;
    memcpy(&word, bytes, 8);
    uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\', rubout = word ^ ones * 0x7f;
    return ((word | (word - ones * 0x20) | (quote - ones) | (backslash - ones) | (rubout - ones)) & highs) == 0;
}

bool ftf_put_json_string(struct ftf_text *text, const char *string, size_t length)
{
    const uint8_t *bytes = (const uint8_t *)string;
    bool valid = true;
    ftf_put(text, "\"", 1);
    for (size_t i = 0; i < length;) {
        size_t plain = i;
        while (plain + 8 <= length && all_plain(bytes + plain))
            plain += 8;
        while (plain < length && is_plain(bytes[plain]))
            plain++;
        if (plain > i) {
            ftf_put(text, bytes + i, plain - i);
            i = plain;
            continue;
        }
        uint8_t byte = bytes[i];
        size_t sequence = utf8_sequence(bytes + i, length - i);
        if (sequence == 0) {
            char escaped[5] = {'\\', '\\', 'x', digits[byte >> 4], digits[byte & 15]};
            ftf_put(text, escaped, sizeof escaped);
            valid = false;
            i++;
        } else if (sequence == 1 && (byte == '"' || byte == '\\')) {
            char escaped[2] = {'\\', (char)byte};
            ftf_put(text, escaped, sizeof escaped);
            i++;
        } else if (byte == '\n' || byte == '\t') {
            ftf_puts(text, byte == '\n' ? "\\n" : "\\t");
            i++;
        } else if (byte < 0x20 || byte == 0x7f) {
            char escaped[6] = {'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]};
            ftf_put(text, escaped, sizeof escaped);
            i++;
        } else {
            ftf_put(text, bytes + i, sequence);
            i += sequence;
        }
    }
    ftf_put(text, "\"", 1);
    return valid;
}

void ftf_put_base64(struct ftf_text *text, const uint8_t *bytes, size_t length)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t group = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                         (left > 2 ? (uint32_t)bytes[i + 2] : 0);
        char quad[4] = {alphabet[group >> 18], alphabet[group >> 12 & 63], left > 1 ? alphabet[group >> 6 & 63] : '=',
                        left > 2 ? alphabet[group & 63] : '='};
        ftf_put(text, quad, 4);
    }
}

size_t ftf_string_length(const char *string)
{
    size_t length = 0;
    while (string[length] != 0)
        length++;
    return length;
}

bool ftf_string_equal(const char *left, const char *right)
{
    while (*left != 0 && *left == *right) {
        left++;
        right++;
    }
    return *left == *right;
}

bool ftf_starts_with(const char *string, const char *prefix)
{
    while (*prefix != 0)
        if (*string++ != *prefix++)
            return false;
    return true;
}

uint64_t ftf_parse_hex(const char **cursor, const char *end)
{
    uint64_t value = 0;
    for (; *cursor < end; (*cursor)++) {
        char c = **cursor;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else
            break;
    }
    return value;
}

uint64_t ftf_parse_decimal(const char **cursor, const char *end)
{
    uint64_t value = 0;
    for (; *cursor < end && **cursor >= '0' && **cursor <= '9'; (*cursor)++)
        value = value * 10 + (uint64_t)(**cursor - '0');
    return value;
}
