/* CONTEXT: ANY. Text into a fixed buffer without stdio. A full buffer sets `overflow` and drops what does not fit: the
   sequencer then writes nothing of that line, so a record never holds half a member. */
#ifndef FTF_FMT_H
#define FTF_FMT_H

#include "ftf_context.h"

struct ftf_text {
    char *data;
    size_t size; /* capacity */
    size_t used;
    bool overflow;
};

void ftf_put(struct ftf_text *text, const void *bytes, size_t length);
void ftf_puts(struct ftf_text *text, const char *string);
void ftf_put_decimal(struct ftf_text *text, int64_t value);
/* "0x7f00" with quotes: addresses are JSON strings, because JSON numbers lose 64-bit values. */
void ftf_put_address(struct ftf_text *text, uint64_t value);
/* The number, or JSON's null when it is not known. */
void ftf_put_decimal_or_null(struct ftf_text *text, bool known, int64_t value);
void ftf_put_address_or_null(struct ftf_text *text, bool known, uint64_t value);
void ftf_put_hex_bytes(struct ftf_text *text, const uint8_t *bytes, size_t length);
/* Seconds with six decimals from nanoseconds. */
void ftf_put_seconds(struct ftf_text *text, int64_t ns);
/* Milliseconds with three decimals from nanoseconds. */
void ftf_put_milliseconds(struct ftf_text *text, int64_t ns);
void ftf_put_bool(struct ftf_text *text, bool value);
/* A quoted JSON string. Control characters and bytes that are not valid UTF-8 become visible ASCII `\xNN` text (in
   JSON: `\\xNN`), never surrogates. Returns true when every byte was valid UTF-8. */
bool ftf_put_json_string(struct ftf_text *text, const char *bytes, size_t length);
void ftf_put_base64(struct ftf_text *text, const uint8_t *bytes, size_t length);

size_t ftf_string_length(const char *string);
bool ftf_string_equal(const char *left, const char *right);
bool ftf_starts_with(const char *string, const char *prefix);
/* Parses hexadecimal digits at *cursor and moves it behind them. */
uint64_t ftf_parse_hex(const char **cursor, const char *end);
uint64_t ftf_parse_decimal(const char **cursor, const char *end);

#endif
