/* One flat JSON object on standard output, field by field: what --json prints. Numbers that JSON
 * cannot spell (NaN, infinities) become null. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli.h"

static void key(struct json *j, const char *name)
{
    printf("%s\"%s\": ", j->has_field ? ", " : "", name);
    j->has_field = true;
}

void json_open(struct json *j)
{
    j->has_field = false;
    putchar('{');
}

void json_text(struct json *j, const char *name, const char *text)
{
    key(j, name);
    putchar('"');
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') {
            printf("\\%c", *p);
        } else if (*p < 0x20) {
            printf("\\u%04x", *p);
        } else {
            putchar(*p);
        }
    }
    putchar('"');
}

void json_number(struct json *j, const char *name, double number, int digits)
{
    key(j, name);
    if (isfinite(number)) {
        printf("%.*g", digits, number);
    } else {
        printf("null");
    }
}

void json_numbers(struct json *j, const char *name, const double *numbers, int64_t n)
{
    key(j, name);
    putchar('[');
    for (int64_t i = 0; i < n; i++) {
        printf(i > 0 ? ", " : "");
        if (isfinite(numbers[i])) {
            printf("%.9g", numbers[i]);
        } else {
            printf("null");
        }
    }
    putchar(']');
}

void json_whole(struct json *j, const char *name, uint64_t whole)
{
    key(j, name);
    printf("%" PRIu64, whole);
}

void json_truth(struct json *j, const char *name, bool truth)
{
    key(j, name);
    printf(truth ? "true" : "false");
}

void json_close(const char *end)
{
    printf("}%s", end);
}
