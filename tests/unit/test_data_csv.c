/* CSV loading: good files to exact values, every kind of broken file to one clear line. The tables
 * are the specification of the messages; numbers are checked against strtod and strtof. */
#include "runtime/data.h"
#include "runtime/data_formats.h"
#include "tests/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

static status load_text(const char *text, const struct dataset_options *o, struct dataset *d,
                        struct error *e)
{
    return dataset_read_bytes(DATA_CSV, text, strlen(text), "t.csv", o, d, e);
}

/* ---- good files ---- */

static const struct {
    const char *text;
    struct dataset_options o;
    int64_t rows, features;
    float x[6];
    bool labelled;
    int64_t y[3];
} good[] = {
    {"1,2,3\n4,5,6\n", {0}, 2, 2, {1, 2, 4, 5}, true, {3, 6}},
    {"1,2,3\r\n4,5,6", {0}, 2, 2, {1, 2, 4, 5}, true, {3, 6}},
    {"a,b,c\n1,2,3\n", {0}, 1, 2, {1, 2}, true, {3}},
    {"\xef\xbb\xbf"
     "1,2,3\n",
     {0},
     1,
     2,
     {1, 2},
     true,
     {3}},
    {"\n\n1,2,3\n\n\r\n4,5,6\n\n", {0}, 2, 2, {1, 2, 4, 5}, true, {3, 6}},
    {" 1 ,\t2, 3.0\n", {0}, 1, 2, {1, 2}, true, {3}},
    {"\"1\",\"2.5\",\"-3\"\n", {0}, 1, 2, {1, 2.5f}, true, {-3}},
    {"\"a,\"\"b\"\"\nc\",l\n1,2\n", {0}, 1, 1, {1}, true, {2}},
    {"1;2;3\n", {0}, 1, 2, {1, 2}, true, {3}},
    {"1\t2\t3\n", {0}, 1, 2, {1, 2}, true, {3}},
    {"1|2|3\n", {.separator = '|'}, 1, 2, {1, 2}, true, {3}},
    {"1,2,3\n4,5,6\n", {.label = LABEL_NONE}, 2, 3, {1, 2, 3, 4, 5, 6}, false, {0}},
    {"1\n2\n", {.label = LABEL_NONE}, 2, 1, {1, 2}, false, {0}},
    {"1,2,3\n4,5,6\n", {.label = LABEL_INDEX}, 2, 2, {2, 3, 5, 6}, true, {1, 4}},
    {"a,label,c\n1,2,3\n", {.label = LABEL_NAME, .label_name = "label"}, 1, 2, {1, 3}, true, {2}},
    {"a,\"x\"\"y\",c\n1,2,3\n",
     {.label = LABEL_NAME, .label_name = "x\"y"},
     1,
     2,
     {1, 3},
     true,
     {2}},
    {"0,1,label\n1,2,3\n", {.header = HEADER_YES}, 1, 2, {1, 2}, true, {3}},
    {"16,8,1\n", {.scale = 1.0f / 16}, 1, 2, {1, 0.5f}, true, {1}},
    {"inf,1e999,1\n", {.allow_nonfinite = true}, 1, 2, {INFINITY, INFINITY}, true, {1}},
    {"+1,.5,5.,1e2,-1E-2,0\n", {0}, 1, 5, {1, 0.5f, 5, 100, -0.01f}, true, {0}},
};

START_TEST(good_file)
{
    struct dataset d;
    struct error e = {0};
    ck_assert_msg(load_text(good[_i].text, &good[_i].o, &d, &e) == ATOLL_OK, "%s", e.text);
    const struct array *x = dataset_find(&d, "x"), *y = dataset_find(&d, "y");
    ck_assert_int_eq(x->dtype, F32);
    ck_assert_uint_eq(x->rank, 2);
    ck_assert_int_eq(x->shape[0], good[_i].rows);
    ck_assert_int_eq(x->shape[1], good[_i].features);
    ck_assert_mem_eq(x->data, good[_i].x, x->bytes);
    ck_assert(good[_i].labelled == (y != NULL));
    if (y != NULL) {
        ck_assert_int_eq(y->dtype, I64);
        ck_assert_uint_eq(y->rank, 1);
        ck_assert_int_eq(y->shape[0], good[_i].rows);
        ck_assert_mem_eq(y->data, good[_i].y, y->bytes);
    }
    dataset_close(&d);
    ck_assert_ptr_null(d.arena.blocks);
}
END_TEST

/* ---- broken files ---- */

static const struct {
    const char *text;
    struct dataset_options o;
    status code;
    const char *says;
} broken[] = {
    {"1,2,3\n4,abc,6\n", {0}, ATOLL_DATA, "t.csv:2, column 2: found \"abc\", expected a number"},
    {"1,2,3\n4,5\n", {0}, ATOLL_DATA, "t.csv:2: found 2 cells, expected 3 as in line 1"},
    {"1,2,3\n4,5,6,7\n", {0}, ATOLL_DATA, "t.csv:2: found 4 cells, expected 3"},
    {"1,2,3\n4,5,6,\n", {0}, ATOLL_DATA, "t.csv:2: found 4 cells, expected 3"},
    {"1,2,3\n4,,6\n", {0}, ATOLL_DATA, "t.csv:2, column 2: found \"\", expected a number; fill"},
    {"1,2,3\n4,5,\n", {0}, ATOLL_DATA, "t.csv:2, column 3: found \"\", expected a label; fill"},
    {"1,2,3\n4,5,nan\n",
     {0},
     ATOLL_DATA,
     "t.csv:2, column 3: found \"nan\", expected an integer label"},
    {"1,2,3\n4,5,-inf\n", {0}, ATOLL_DATA, "found \"-inf\", expected an integer label"},
    {"1,2,3\n4,5,2.5\n", {0}, ATOLL_DATA, "found \"2.5\", expected an integer label"},
    {"1,2,3\n4,5,1e300\n", {0}, ATOLL_DATA, "found \"1e300\", expected an integer label"},
    {"1,2,3\nNaN,5,6\n", {0}, ATOLL_DATA, "found \"NaN\", expected a finite number within f32"},
    {"1,2,3\n1e39,5,6\n", {0}, ATOLL_DATA, "found \"1e39\", expected a finite number within f32"},
    {"1,2,x\n4,5,6\n", {0}, ATOLL_DATA, "if this line is a header, load with header=yes"},
    {"1,0x10,3\n", {0}, ATOLL_DATA, "column 2: found \"0x10\""},
    {"1,1 2,3\n", {0}, ATOLL_DATA, "column 2: found \"1 2\""},
    {"1,\x01\xff\",3\n", {0}, ATOLL_DATA, "column 2: found \"\\x01\\xff\\x22\""},
    {"1,aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeee,3\n", {0}, ATOLL_DATA, "dddddddddd...\""},
    {"1,\"2,3\n4,5,6\n",
     {0},
     ATOLL_FORMAT,
     "t.csv:1, column 2: found a quote that is never closed"},
    {"1,\"2\"x,3\n", {0}, ATOLL_FORMAT, "t.csv:1, column 2: found \"x\" after a closing quote"},
    {"", {0}, ATOLL_DATA, "t.csv: found an empty file"},
    {"\n\r\n\n", {0}, ATOLL_DATA, "t.csv: found an empty file"},
    {"a,b,c\n", {0}, ATOLL_DATA, "t.csv: found a header of 3 cells and no line of numbers"},
    {"1\n2\n", {0}, ATOLL_DATA, "t.csv: found one column, which is the label"},
    {"1,2\n",
     {.label = LABEL_INDEX, .label_index = 2},
     ATOLL_NOT_FOUND,
     "found 2 columns, expected a label column of index 2; the last is 1"},
    {"1,2\n",
     {.label = LABEL_NAME, .label_name = "z"},
     ATOLL_NOT_FOUND,
     "by name, \"z\", but line 1 is no header"},
    {"a,b\n1,2\n",
     {.label = LABEL_NAME, .label_name = "z"},
     ATOLL_NOT_FOUND,
     "found no column \"z\" in the header of 2, \"a\" to \"b\""},
    {"\xff\xfe"
     "1",
     {0},
     ATOLL_FORMAT,
     "found UTF-16 text, expected UTF-8"},
    {"1,\"2\n\n\",3\n1,x,3\n", {0}, ATOLL_DATA, "t.csv:1, column 2: found \"2\\x0a\\x0a\""},
};

START_TEST(broken_file)
{
    struct dataset d;
    struct error e = {0};
    ck_assert_int_eq(load_text(broken[_i].text, &broken[_i].o, &d, &e), broken[_i].code);
    ck_assert_int_eq(e.code, broken[_i].code);
    ck_assert_msg(strstr(e.text, broken[_i].says) != NULL, "\"%s\" lacks \"%s\"", e.text,
                  broken[_i].says);
    ck_assert_ptr_null(strchr(e.text, '\n'));
    ck_assert_ptr_null(d.arena.blocks);
}
END_TEST

/* ---- gzip ---- */

static size_t pack(const char *text, uint8_t *out, size_t room)
{
    z_stream z = {0};
    ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    uint8_t copy[8192];
    size_t n = strlen(text);
    memcpy(copy, text, n);
    z.next_in = copy;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t used = z.total_out;
    deflateEnd(&z);
    return used;
}

START_TEST(gzip_members_join)
{
    uint8_t packed[512];
    size_t n = pack("1,2,3\n4,", packed, sizeof packed);
    n += pack("5,6\n", packed + n, sizeof packed - n);
    struct dataset d;
    struct error e = {0};
    ck_assert_msg(dataset_read_bytes(DATA_AUTO, packed, n, "t.csv.gz", NULL, &d, &e) == ATOLL_OK,
                  "%s", e.text);
    ck_assert_int_eq(d.arrays[0].shape[0], 2);
    ck_assert_mem_eq(d.arrays[0].data, ((float[]){1, 2, 4, 5}), 16);
    dataset_close(&d);
}
END_TEST

START_TEST(every_cut_gzip_is_refused)
{
    uint8_t packed[512];
    size_t n = pack("1,2,3\n4,5,6\n", packed, sizeof packed);
    for (size_t cut = 2; cut < n; cut++) {
        struct dataset d;
        struct error e = {0};
        ck_assert_int_eq(dataset_read_bytes(DATA_AUTO, packed, cut, "t.csv.gz", NULL, &d, &e),
                         ATOLL_FORMAT);
        ck_assert_msg(strstr(e.text, "t.csv.gz: truncated: the compressed data ends after") != NULL,
                      "%s", e.text);
    }
    packed[n - 6] ^= 1; /* the CRC */
    struct dataset d;
    struct error e = {0};
    ck_assert_int_eq(dataset_read_bytes(DATA_AUTO, packed, n, "t.csv.gz", NULL, &d, &e),
                     ATOLL_CHECKSUM);
    ck_assert_ptr_nonnull(strstr(e.text, "damaged"));
}
END_TEST

START_TEST(a_bomb_meets_the_cap)
{
    char text[4001] = {0};
    for (int i = 0; i < 4000; i++) {
        text[i] = "1,2\n"[i % 4];
    }
    uint8_t packed[512];
    size_t n = pack(text, packed, sizeof packed);
    struct dataset_options o = {.max_bytes = 3999};
    struct dataset d;
    struct error e = {0};
    ck_assert_int_eq(dataset_read_bytes(DATA_AUTO, packed, n, "b.csv.gz", &o, &d, &e), ATOLL_DATA);
    ck_assert_str_eq(e.text, "b.csv.gz: unpacks to more than 3999 bytes, the limit");
    o.max_bytes = 4000;
    e = (struct error){0};
    ck_assert_int_eq(dataset_read_bytes(DATA_AUTO, packed, n, "b.csv.gz", &o, &d, &e), ATOLL_OK);
    ck_assert_int_eq(d.arrays[0].shape[0], 1000);
    dataset_close(&d);
}
END_TEST

START_TEST(the_digits)
{
    const char *path = ATOLL_SOURCE_DIR "/examples/data/digits.csv.gz";
    struct dataset_options o = {.scale = 1.0f / 16};
    struct dataset d;
    struct error e = {0};
    ck_assert_msg(dataset_open(path, &o, &d, &e) == ATOLL_OK, "%s", e.text);
    const struct array *x = dataset_find(&d, "x"), *y = dataset_find(&d, "y");
    ck_assert_int_eq(x->shape[0], 1797);
    ck_assert_int_eq(x->shape[1], 64);
    ck_assert_int_eq(y->shape[0], 1797);
    const float *pixels = x->data;
    const int64_t *labels = y->data;
    ck_assert(pixels[2] == 5.0f / 16 && pixels[3] == 13.0f / 16);
    for (size_t i = 0; i < 1797; i++) {
        ck_assert(labels[i] >= 0 && labels[i] <= 9);
    }
    for (size_t i = 0; i < 1797 * 64; i++) {
        ck_assert(pixels[i] >= 0 && pixels[i] <= 1);
    }
    dataset_close(&d);
}
END_TEST

/* ---- the rest ---- */

START_TEST(options_are_read_from_text)
{
    struct dataset_options o = {0};
    struct error e = {0};
    const char *text =
        "label=class,scale=1/16,header=yes,separator=semicolon,nonfinite=allow,format=npz";
    ck_assert_msg(dataset_options_parse(text, &o, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(o.label, LABEL_NAME);
    ck_assert_str_eq(o.label_name, "class");
    ck_assert(o.scale == 0.0625f);
    ck_assert_int_eq(o.header, HEADER_YES);
    ck_assert_int_eq(o.separator, ';');
    ck_assert(o.allow_nonfinite);
    ck_assert_int_eq(o.format, DATA_NPZ);
    ck_assert_int_eq(dataset_options_parse("", &o, &e), ATOLL_OK);
    ck_assert_int_eq(dataset_options_parse("label=12", &o, &e), ATOLL_OK);
    ck_assert_int_eq(o.label, LABEL_INDEX);
    ck_assert_int_eq(o.label_index, 12);
    ck_assert_int_eq(dataset_options_parse("label=-1,scale=2,separator=|", &o, &e), ATOLL_OK);
    ck_assert_int_eq(o.label, LABEL_NONE);
    ck_assert(o.scale == 2);
    ck_assert_int_eq(o.separator, '|');
    ck_assert_int_eq(dataset_options_parse("label=last", &o, &e), ATOLL_OK);
    ck_assert_int_eq(o.label, LABEL_LAST);
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"colour=red", "data options: found \"colour=red\", expected label=, header="},
        {"label", "data options: found \"label\", expected label="},
        {"label=",
         "data options: label: found \"\", expected last, none, an index from 0 or a name"},
        {"header=maybe", "data options: header: found \"maybe\", expected detect, yes or no"},
        {"separator=ab", "data options: separator: found \"ab\", expected detect, comma"},
        {"scale=1/0", "data options: scale: found \"1/0\", expected a number or A/B, not 0"},
        {"scale=x", "data options: scale: found \"x\""},
        {"scale=0", "data options: scale: found \"0\""},
        {"nonfinite=", "expected refuse or allow"},
        {"header=yes,,", "data options: found \"\", expected label="},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        e = (struct error){0};
        ck_assert_int_eq(dataset_options_parse(wrong[i].text, &o, &e), ATOLL_USAGE);
        ck_assert_msg(strstr(e.text, wrong[i].says) != NULL, "%s", e.text);
    }
}
END_TEST

START_TEST(files_that_cannot_be_read)
{
    static const struct {
        const char *path;
        status code;
        const char *says;
    } cases[] = {
        {"/nonexistent/a.csv", ATOLL_NOT_FOUND, "/nonexistent/a.csv: cannot be read: No such file"},
        {"/tmp", ATOLL_FORMAT, "/tmp: found a directory, expected a regular file"},
        {"/dev/null", ATOLL_FORMAT, "/dev/null: found a device or pipe"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct dataset d;
        struct error e = {0};
        ck_assert_int_eq(dataset_open(cases[i].path, NULL, &d, &e), cases[i].code);
        ck_assert_msg(strstr(e.text, cases[i].says) != NULL, "%s", e.text);
    }
    struct dataset d;
    struct error e = {0};
    ck_assert_int_eq(dataset_read_bytes(DATA_AUTO, "x", 1, "a.xyz", NULL, &d, &e), ATOLL_FORMAT);
    ck_assert_ptr_nonnull(strstr(e.text, "a.xyz: found an unknown kind of file, expected a name"));
}
END_TEST

START_TEST(numbers_round_once)
{
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        seed = hash_u64(seed, 7);
        char text[64];
        int digits = 1 + (int)(seed % 19), exponent = (int)(seed >> 8 & 127) - 63;
        snprintf(text, sizeof text, "%s%.*se%d", seed & 128 ? "-" : "", digits,
                 (char[20]){(char)('0' + (seed >> 16) % 10), (char)('0' + (seed >> 20) % 10),
                            (char)('0' + (seed >> 24) % 10), (char)('0' + (seed >> 28) % 10),
                            (char)('0' + (seed >> 32) % 10), (char)('0' + (seed >> 36) % 10),
                            (char)('0' + (seed >> 40) % 10), '.', (char)('0' + (seed >> 44) % 10),
                            (char)('0' + (seed >> 48) % 10), (char)('0' + (seed >> 52) % 10),
                            (char)('0' + (seed >> 56) % 10), '1', '2', '3', '4', '5', '6', '7'},
                 exponent);
        double wide = 0;
        float single = 0;
        enum number_kind kind = number_parse(text, strlen(text), &wide, &single);
        ck_assert_msg(kind != NUMBER_NONE, "%s", text);
        double right = strtod(text, NULL);
        float right_single = strtof(text, NULL);
        ck_assert_msg(memcmp(&wide, &right, 8) == 0, "%s: %a, expected %a", text, wide, right);
        ck_assert_msg(memcmp(&single, &right_single, 4) == 0, "%s as f32", text);
        ck_assert(isfinite(right_single) == (kind == NUMBER_FINITE));
    }
    /* just above the midpoint of two floats; in double it is the midpoint */
    double wide;
    float single;
    const char *trap = "1.00000005960464477540";
    ck_assert_int_eq(number_parse(trap, strlen(trap), &wide, &single), NUMBER_FINITE);
    ck_assert(single == strtof(trap, NULL));
}
END_TEST

START_TEST(every_failed_allocation_is_reported)
{
    status s = ATOLL_OUT_OF_MEMORY;
    uint64_t n = 1;
    for (; s == ATOLL_OUT_OF_MEMORY; n++) {
        struct dataset d;
        struct error e = {0};
        arena_fail_after(n);
        s = load_text("a,b\n1,2\n", NULL, &d, &e);
        arena_fail_after(0);
        if (s == ATOLL_OUT_OF_MEMORY) {
            ck_assert_str_eq(e.text, "out of memory on the host");
            ck_assert_ptr_null(d.arena.blocks);
        } else {
            dataset_close(&d);
        }
    }
    ck_assert_int_eq(s, ATOLL_OK);
    ck_assert_uint_gt(n, 2);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, good_file, 0, ARRAY_LEN(good));
    tcase_add_loop_test(tc, broken_file, 0, ARRAY_LEN(broken));
    tcase_add_test(tc, gzip_members_join);
    tcase_add_test(tc, every_cut_gzip_is_refused);
    tcase_add_test(tc, a_bomb_meets_the_cap);
    tcase_add_test(tc, the_digits);
    tcase_add_test(tc, options_are_read_from_text);
    tcase_add_test(tc, files_that_cannot_be_read);
    tcase_add_test(tc, numbers_round_once);
    tcase_add_test(tc, every_failed_allocation_is_reported);
}

int main(void)
{
    return run_suite("data_csv", fill);
}
