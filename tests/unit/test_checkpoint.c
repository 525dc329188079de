/* Safetensors and checkpoints: what is written reads back bit for bit, the bytes are deterministic,
 * a failed write leaves the old file, and every kind of broken file gets one clear line. */
#include "runtime/checkpoint.h"
#include "runtime/file.h"
#include "tests/suite.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

static void make_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/atoll_checkpoint_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

/* Removes the directory; returns how many files it held. */
static int remove_directory(void)
{
    int n = 0;
    DIR *list = opendir(directory);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] != '.') {
            n += unlink(path) == 0;
        }
    }
    closedir(list);
    rmdir(directory);
    return n;
}

static const char *in_directory(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static float weights[6] = {1, -0.0f, 3.5f, 1e-40f, 5, 6};
static uint8_t flags[3] = {1, 0, 1};
static double norm[1] = {0.1};
static uint16_t halves[2] = {0x7e01, 0x3c00};

static const struct array arrays[] = {
    {.name = "flags", .dtype = BOOL, .rank = 1, .shape = {3}, .data = flags, .bytes = 3},
    {.name = "layer.w \"\\\n\x7f\xc3\xa9",
     .dtype = F32,
     .rank = 2,
     .shape = {2, 3},
     .data = weights,
     .bytes = 24},
    {.name = "empty", .dtype = I64, .rank = 2, .shape = {0, 7}, .data = weights, .bytes = 0},
    {.name = "norm", .dtype = F64, .rank = 0, .data = norm, .bytes = 8},
    {.name = "halves", .dtype = BF16, .rank = 1, .shape = {2}, .data = halves, .bytes = 4},
};
static const char *const pairs[] = {"step", "17", "rng \"x\"", "philox\t1"};

START_TEST(round_trip)
{
    make_directory();
    struct error e = {0};
    const char *path = in_directory("a.safetensors");
    ck_assert_msg(checkpoint_write(path, arrays, ARRAY_LEN(arrays), pairs, 2, &e) == ATOLL_OK, "%s",
                  e.text);
    struct stat info;
    mode_t mask = umask(022);
    umask(mask);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0666 & ~mask); /* readable by whom the umask lets */
    struct dataset d;
    ck_assert_msg(checkpoint_read(path, &d, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_uint_eq(d.n_arrays, ARRAY_LEN(arrays));
    for (size_t i = 0; i < ARRAY_LEN(arrays); i++) {
        const struct array *a = &d.arrays[i], *b = &arrays[i];
        ck_assert_str_eq(a->name, b->name);
        ck_assert_int_eq(a->dtype, b->dtype);
        ck_assert_uint_eq(a->rank, b->rank);
        ck_assert_mem_eq(a->shape, b->shape, sizeof a->shape);
        ck_assert_uint_eq(a->bytes, b->bytes);
        ck_assert(memcmp(a->data, b->data, b->bytes) == 0);
    }
    ck_assert_uint_eq(d.n_metadata, 2);
    ck_assert_str_eq(dataset_metadata(&d, "step"), "17");
    ck_assert_str_eq(dataset_metadata(&d, "rng \"x\""), "philox\t1");
    ck_assert_ptr_null(dataset_metadata(&d, "other"));
    dataset_close(&d);
    ck_assert_int_eq(remove_directory(), 1);
}
END_TEST

START_TEST(bytes_are_deterministic_and_aligned)
{
    make_directory();
    struct error e = {0};
    struct arena a = {0};
    uint8_t *one, *two;
    size_t n, m;
    ck_assert_int_eq(checkpoint_write(in_directory("a"), arrays, 5, pairs, 2, &e), ATOLL_OK);
    ck_assert_int_eq(file_read(&a, in_directory("a"), &one, &n, &e), ATOLL_OK);
    ck_assert_int_eq(checkpoint_write(in_directory("a"), arrays, 5, pairs, 2, &e), ATOLL_OK);
    ck_assert_int_eq(file_read(&a, in_directory("a"), &two, &m, &e), ATOLL_OK);
    ck_assert_uint_eq(n, m);
    ck_assert_mem_eq(one, two, n);
    ck_assert_uint_eq(read_u64(one) % 8, 0);
    ck_assert_uint_eq(n, 8 + read_u64(one) + 3 + 24 + 8 + 4);
    arena_free(&a);
    ck_assert_int_eq(remove_directory(), 1);
}
END_TEST

START_TEST(nothing_at_all_is_a_checkpoint_too)
{
    make_directory();
    struct error e = {0};
    struct dataset d;
    ck_assert_int_eq(checkpoint_write(in_directory("a"), NULL, 0, NULL, 0, &e), ATOLL_OK);
    ck_assert_msg(checkpoint_read(in_directory("a"), &d, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_uint_eq(d.n_arrays, 0);
    dataset_close(&d);
    remove_directory();
}
END_TEST

START_TEST(bad_arrays_are_refused)
{
    float x[2] = {0};
    struct array two[] = {
        {.name = "a", .dtype = F32, .rank = 1, .shape = {2}, .data = x, .bytes = 8},
        {.name = "a", .dtype = F32, .rank = 1, .shape = {2}, .data = x, .bytes = 8},
    };
    struct error e = {0};
    ck_assert_int_eq(checkpoint_write("/tmp/never", two, 2, NULL, 0, &e), ATOLL_USAGE);
    ck_assert_str_eq(e.text, "/tmp/never: found two arrays called \"a\", expected different names");
    const struct {
        const char *name;
        size_t bytes;
        const char *says;
    } cases[] = {
        {"", 8, "array 1 has no name"},
        {NULL, 8, "array 1 has no name"},
        {"__metadata__", 8, "array 1 has no name that a checkpoint can hold"},
        {"b\xff", 8, "found name or metadata \"b\\xff\", expected UTF-8"},
        {"b\xc3", 8, "expected UTF-8"},
        {"b\xc0\x80", 8, "expected UTF-8"},
        {"b\xed\xa0\x80", 8, "expected UTF-8"},
        {"b", 7, "array \"b\": its 7 bytes do not fit its shape"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        two[1].name = cases[i].name;
        two[1].bytes = cases[i].bytes;
        e = (struct error){0};
        ck_assert_int_eq(checkpoint_write("/tmp/never", two, 2, NULL, 0, &e), ATOLL_USAGE);
        ck_assert_msg(strstr(e.text, cases[i].says) != NULL, "%s", e.text);
    }
    const char *const same[] = {"k", "1", "k", "2"};
    e = (struct error){0};
    ck_assert_int_eq(checkpoint_write("/tmp/never", two, 1, same, 2, &e), ATOLL_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "found two metadata keys called \"k\""));
    ck_assert_int_ne(access("/tmp/never", F_OK), 0);
}
END_TEST

START_TEST(a_failed_write_keeps_the_old_file)
{
    make_directory();
    struct error e = {0};
    ck_assert_int_eq(checkpoint_write(in_directory("a"), arrays, 2, NULL, 0, &e), ATOLL_OK);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t limit = 0; limit < 300; limit += 7) { /* the write fails at every place */
        small = before;
        small.rlim_cur = limit;
        setrlimit(RLIMIT_FSIZE, &small);
        e = (struct error){0};
        status s = checkpoint_write(in_directory("a"), arrays, 5, pairs, 2, &e);
        setrlimit(RLIMIT_FSIZE, &before);
        ck_assert_int_eq(s, ATOLL_IO);
        ck_assert_msg(strstr(e.text, "writing failed, the old file is kept: File too large") !=
                          NULL,
                      "%s", e.text);
    }
    struct dataset d;
    ck_assert_int_eq(checkpoint_read(in_directory("a"), &d, &e), ATOLL_OK);
    ck_assert_uint_eq(d.n_arrays, 2);
    dataset_close(&d);
    e = (struct error){0};
    ck_assert_int_eq(checkpoint_write("/nonexistent/a", arrays, 2, NULL, 0, &e), ATOLL_NOT_FOUND);
    e = (struct error){0};
    ck_assert_int_eq(checkpoint_write(directory, arrays, 2, NULL, 0, &e), ATOLL_IO);
    ck_assert_msg(strstr(e.text, "cannot be replaced: Is a directory") != NULL, "%s", e.text);
    ck_assert_int_eq(remove_directory(), 1); /* no temporary file is left */
}
END_TEST

START_TEST(every_failed_allocation_is_reported)
{
    make_directory();
    status s = ATOLL_OUT_OF_MEMORY;
    for (uint64_t n = 1; s == ATOLL_OUT_OF_MEMORY; n++) {
        struct error e = {0};
        arena_fail_after(n);
        s = checkpoint_write(in_directory("a"), arrays, 5, pairs, 2, &e);
        arena_fail_after(0);
    }
    ck_assert_int_eq(s, ATOLL_OK);
    s = ATOLL_OUT_OF_MEMORY;
    uint64_t n = 1;
    for (; s == ATOLL_OUT_OF_MEMORY; n++) {
        struct error e = {0};
        struct dataset d;
        arena_fail_after(n);
        s = checkpoint_read(in_directory("a"), &d, &e);
        arena_fail_after(0);
        dataset_close(&d);
    }
    ck_assert_int_eq(s, ATOLL_OK);
    ck_assert_uint_gt(n, 3);
    ck_assert_int_eq(remove_directory(), 1);
}
END_TEST

/* ---- broken files ---- */

#define TENSOR(dtype, shape, from, to)                                                             \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static const struct {
    const char *header;
    size_t data;
    status code;
    const char *says;
} broken[] = {
    {"[]", 0, ATOLL_FORMAT, "a.safetensors: found a safetensors header that is no JSON object"},
    {"{", 0, ATOLL_FORMAT, "a.safetensors: safetensors header, byte 1: "},
    {"{\"a\":" TENSOR("F32", "[1]", "0", "4") ",\"a\":" TENSOR("F32", "[1]", "4", "8") "}", 8,
     ATOLL_FORMAT, "duplicate object key"},
    {"{\"a\":1}", 0, ATOLL_FORMAT,
     "tensor \"a\": expected exactly dtype, shape and two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, ATOLL_FORMAT, "tensor \"a\": expected exactly"},
    {"{\"a\":" TENSOR("Q4", "[1]", "0", "4") "}", 4, ATOLL_DTYPE,
     "tensor \"a\": found dtype \"Q4\", expected BOOL"},
    {"{\"a\":" TENSOR("NONE", "[1]", "0", "4") "}", 4, ATOLL_DTYPE, "found dtype \"NONE\""},
    {"{\"a\":" TENSOR("F32", "[2]", "0", "4") "}", 4, ATOLL_FORMAT,
     "tensor \"a\": found 4 bytes, expected 8 for its shape"},
    {"{\"a\":" TENSOR("F32", "[-1]", "0", "4") "}", 4, ATOLL_FORMAT,
     "tensor \"a\": a dim is no integer from 0"},
    {"{\"a\":" TENSOR("F32", "[1.0]", "0", "4") "}", 4, ATOLL_FORMAT,
     "tensor \"a\": a dim is no integer from 0"},
    {"{\"a\":" TENSOR("F32", "[4294967296,4294967296]", "0", "4") "}", 4, ATOLL_FORMAT,
     "the shape is too large"},
    {"{\"a\":" TENSOR("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, ATOLL_UNSUPPORTED,
     "found 9 dims, expected at most 8"},
    {"{\"a\":" TENSOR("F32", "[1]", "0", "4") "}", 3, ATOLL_FORMAT,
     "found data_offsets 0 to 4, expected them to rise within the 3 bytes of data; the file is "
     "damaged or truncated"},
    {"{\"a\":" TENSOR("F32", "[1]", "4", "0") "}", 4, ATOLL_FORMAT, "found data_offsets 4 to 0"},
    {"{\"a\":" TENSOR("F32", "[1]", "-4", "0") "}", 4, ATOLL_FORMAT, "found data_offsets -4 to 0"},
    {"{\"a\":" TENSOR("F32", "[1]", "0", "4") "}", 5, ATOLL_FORMAT,
     "found 5 bytes of data, expected 4"},
    {"{\"a\":" TENSOR("F32", "[1]", "1", "5") "}", 5, ATOLL_FORMAT,
     "tensor \"a\": a gap lies before its bytes"},
    {"{\"a\":" TENSOR("F32", "[1]", "0", "4") ",\"b\":" TENSOR("F32", "[1]", "2", "6") "}", 6,
     ATOLL_FORMAT, "tensor \"b\": its bytes overlap"},
    {"{\"a\":" TENSOR("F32", "[1]", "0", "99999999999999999999") "}", 4, ATOLL_FORMAT,
     "too big integer"},
    {"{\"__metadata__\":[]}", 0, ATOLL_FORMAT, "found a __metadata__ that is no object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, ATOLL_FORMAT, "found no string as metadata \"k\""},
    {"{\"a\":" TENSOR("BOOL", "[2]", "0", "2") "}", 2, ATOLL_DATA,
     "array \"a\": found byte 7 as bool element 0, expected 0 or 1"},
};

static size_t make_file(uint8_t *out, const char *header, size_t data)
{
    size_t n = strlen(header);
    write_u64(out, n);
    memcpy(out + 8, header, n);
    memset(out + 8 + n, 7, data);
    return 8 + n + data;
}

START_TEST(broken_file)
{
    uint8_t bytes[512];
    size_t n = make_file(bytes, broken[_i].header, broken[_i].data);
    struct dataset d;
    struct error e = {0};
    status s = dataset_read_bytes(DATA_AUTO, bytes, n, "a.safetensors", NULL, &d, &e);
    ck_assert_msg(s == broken[_i].code, "%d %s", s, e.text);
    ck_assert_msg(strstr(e.text, broken[_i].says) != NULL, "\"%s\" lacks \"%s\"", e.text,
                  broken[_i].says);
    ck_assert_ptr_null(d.arena.blocks);
}
END_TEST

START_TEST(every_cut_and_a_lying_length_are_refused)
{
    uint8_t bytes[512];
    size_t n = make_file(bytes, "{\"a\":" TENSOR("F32", "[2]", "0", "8") "}", 8);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, bytes, cut);
        struct dataset d;
        struct error e = {0};
        ck_assert_int_eq(dataset_read_bytes(DATA_SAFETENSORS, copy, cut, "a", NULL, &d, &e),
                         ATOLL_FORMAT);
        ck_assert_ptr_nonnull(strstr(e.text, "truncated"));
        free(copy);
    }
    write_u64(bytes, UINT64_MAX);
    struct dataset d;
    struct error e = {0};
    ck_assert_int_eq(dataset_read_bytes(DATA_SAFETENSORS, bytes, n, "a", NULL, &d, &e),
                     ATOLL_FORMAT);
    ck_assert_ptr_nonnull(strstr(e.text, "and a header of 18446744073709551615"));
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, round_trip);
    tcase_add_test(tc, bytes_are_deterministic_and_aligned);
    tcase_add_test(tc, nothing_at_all_is_a_checkpoint_too);
    tcase_add_test(tc, bad_arrays_are_refused);
    tcase_add_test(tc, a_failed_write_keeps_the_old_file);
    tcase_add_test(tc, every_failed_allocation_is_reported);
    tcase_add_loop_test(tc, broken_file, 0, ARRAY_LEN(broken));
    tcase_add_test(tc, every_cut_and_a_lying_length_are_refused);
}

int main(void)
{
    return run_suite("checkpoint", fill);
}
