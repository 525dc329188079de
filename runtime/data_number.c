/* Numbers of text files, read the same in every locale. Short decimals take an exact path (an
 * integer below 2^53 times or over an exact power of ten is rounded once by the machine); the rest
 * goes to strtod and strtof under the C locale. Invariant: each result is rounded exactly once. */
#include "runtime/data_formats.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                       1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                       1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

struct decimal {
    bool negative, exact; /* exact: mantissa holds every digit */
    uint64_t mantissa;
    int64_t exponent;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void add_digit(struct decimal *d, char c, bool fraction)
{
    if (d->mantissa > (UINT64_C(1) << 53) / 10) {
        d->exact = false; /* the slow path reads the text again */
        return;
    }
    d->mantissa = 10 * d->mantissa + (uint64_t)(c - '0');
    d->exponent -= fraction;
}

static bool split_decimal(const char *text, size_t length, struct decimal *d)
{
    size_t i = 0, digits = 0;
    *d = (struct decimal){.exact = true};
    if (i < length && (text[i] == '-' || text[i] == '+')) {
        d->negative = text[i++] == '-';
    }
    for (; i < length && is_digit(text[i]); i++, digits++) {
        add_digit(d, text[i], false);
    }
    if (i < length && text[i] == '.') {
        for (i++; i < length && is_digit(text[i]); i++, digits++) {
            add_digit(d, text[i], true);
        }
    }
    if (digits == 0) {
        return false;
    }
    if (i < length && (text[i] == 'e' || text[i] == 'E')) {
        i++;
        bool down = i < length && text[i] == '-';
        i += i < length && (text[i] == '-' || text[i] == '+');
        int64_t exponent = 0;
        size_t first = i;
        for (; i < length && is_digit(text[i]); i++) {
            exponent = exponent < 100000 ? 10 * exponent + (text[i] - '0') : exponent;
        }
        if (i == first) {
            return false;
        }
        d->exponent += down ? -exponent : exponent;
    }
    return i == length;
}

/* inf, infinity, nan, with a sign, in any case. */
static bool is_nonfinite_word(const char *text, size_t length)
{
    if (length > 0 && (text[0] == '-' || text[0] == '+')) {
        text++;
        length--;
    }
    return (length == 3 &&
            (strncasecmp(text, "inf", 3) == 0 || strncasecmp(text, "nan", 3) == 0)) ||
           (length == 8 && strncasecmp(text, "infinity", 8) == 0);
}

static bool parse_slowly(const char *text, size_t length, double *wide, float *single)
{
    char copy[512];
    if (length >= sizeof copy) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = plain != (locale_t)0 ? uselocale(plain) : (locale_t)0;
    *wide = strtod(copy, NULL);
    *single = strtof(copy, NULL);
    if (plain != (locale_t)0) {
        uselocale(before);
        freelocale(plain);
    }
    return true;
}

/* A double between two floats that is their exact midpoint may stand for a decimal on either side
 * of it; and floats below the normal range have their midpoints elsewhere. */
static bool narrows_safely(double wide)
{
    uint64_t bits;
    memcpy(&bits, &wide, sizeof bits);
    return wide == 0 || (fabs(wide) >= 0x1p-126 && (bits & 0x1fffffff) != 0x10000000);
}

enum number_kind number_parse(const char *text, size_t length, double *wide, float *single)
{
    struct decimal d;
    if (is_nonfinite_word(text, length)) {
        return parse_slowly(text, length, wide, single) ? NUMBER_NONFINITE : NUMBER_NONE;
    }
    if (!split_decimal(text, length, &d)) {
        return NUMBER_NONE;
    }
    bool quick = d.exact && d.exponent >= -22 && d.exponent <= 22;
    if (quick) {
        double value = (double)d.mantissa;
        value =
            d.exponent < 0 ? value / powers_of_ten[-d.exponent] : value * powers_of_ten[d.exponent];
        *wide = d.negative ? -value : value;
        quick = narrows_safely(*wide);
        *single = (float)*wide;
    }
    if (!quick && !parse_slowly(text, length, wide, single)) {
        return NUMBER_NONE;
    }
    return isfinite(*single) ? NUMBER_FINITE : NUMBER_NONFINITE;
}

bool integer_parse(const char *text, size_t length, int64_t *value)
{
    size_t i = length > 0 && (text[0] == '-' || text[0] == '+');
    int64_t sum = 0;
    if (length - i >= 1 && length - i <= 18) {
        size_t first = i;
        while (i < length && is_digit(text[i])) {
            sum = 10 * sum + (text[i++] - '0');
        }
        if (i == length && i > first) {
            *value = text[0] == '-' ? -sum : sum;
            return true;
        }
    }
    double wide;
    float single;
    if (number_parse(text, length, &wide, &single) == NUMBER_NONE || !(fabs(wide) < 0x1p53) ||
        floor(wide) != wide) {
        return false;
    }
    *value = (int64_t)wide;
    return true;
}
