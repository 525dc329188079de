/* NPY and NPZ: files built here byte by byte, good ones to exact arrays, every kind of broken one
 * to one clear line. */
#include "runtime/data.h"
#include "runtime/file.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

/* An NPY image; version 1 unless wide. */
static size_t make_npy(uint8_t *out, uint8_t version, const char *header, const void *data,
                       size_t size)
{
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = version;
    out[7] = 0;
    write_u32(out + 8, (uint32_t)length);
    memcpy(out + start, header, length);
    memcpy(out + start + length, data, size);
    return start + length + size;
}

static const float six[6] = {1, -2, 3.5f, 0, 1e-40f, 6};
static const char six_header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";

START_TEST(every_version)
{
    uint8_t bytes[256];
    size_t n = make_npy(bytes, (uint8_t)_i, six_header, six, sizeof six);
    struct dataset d;
    struct error e = {0};
    ck_assert_msg(dataset_read_bytes(DATA_AUTO, bytes, n, "a", NULL, &d, &e) == ATOLL_OK, "%s",
                  e.text);
    ck_assert_str_eq(d.arrays[0].name, "x");
    ck_assert_int_eq(d.arrays[0].dtype, F32);
    ck_assert_uint_eq(d.arrays[0].rank, 2);
    ck_assert_int_eq(d.arrays[0].shape[0], 2);
    ck_assert_int_eq(d.arrays[0].shape[1], 3);
    ck_assert_mem_eq(d.arrays[0].data, six, sizeof six);
    dataset_close(&d);
}
END_TEST

static const struct {
    const char *header;
    enum dtype dtype;
    uint32_t rank;
    int64_t first;
    size_t bytes;
} good[] = {
    {"{'descr': '|b1', 'fortran_order': False, 'shape': (8,), }", BOOL, 1, 8, 8},
    {"{'descr': '|u1', 'fortran_order': False, 'shape': (8,)}", U8, 1, 8, 8},
    {"{\"descr\": \"<i4\", \"fortran_order\": False, \"shape\": (2,)}", I32, 1, 2, 8},
    {"{'shape':(1,),'fortran_order':False,'descr':'<i8'}", I64, 1, 1, 8},
    {"{'descr': '<f2', 'fortran_order': False, 'shape': (4, 1, 1, 1, 1, 1, 1, 1)}", F16, 8, 4, 8},
    {"{'descr': '<f8', 'fortran_order': False, 'shape': ()}", F64, 0, 0, 8},
    {"{'descr': '<f8', 'fortran_order': False, 'shape': (0, 5)}", F64, 2, 0, 0},
    {"{'descr': '<f8', 'fortran_order': False, 'shape': (0, 999999999999999999)}", F64, 2, 0, 0},
};

START_TEST(every_dtype)
{
    static const uint8_t data[8] = {0, 1, 1, 0, 1, 1, 0, 1};
    uint8_t bytes[256];
    size_t n = make_npy(bytes, 1, good[_i].header, data, good[_i].bytes);
    struct dataset d;
    struct error e = {0};
    ck_assert_msg(dataset_read_bytes(DATA_NPY, bytes, n, "a", NULL, &d, &e) == ATOLL_OK, "%s",
                  e.text);
    ck_assert_int_eq(d.arrays[0].dtype, good[_i].dtype);
    ck_assert_uint_eq(d.arrays[0].rank, good[_i].rank);
    ck_assert_int_eq(d.arrays[0].shape[0], good[_i].first);
    ck_assert_uint_eq(d.arrays[0].bytes, good[_i].bytes);
    ck_assert(good[_i].bytes == 0 || memcmp(d.arrays[0].data, data, good[_i].bytes) == 0);
    dataset_close(&d);
}
END_TEST

static const struct {
    const char *header;
    status code;
    const char *says;
} broken[] = {
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", ATOLL_DTYPE,
     "found NPY dtype \">f4\", expected |b1, |u1, <i4, <i8, <f2, <f4 or <f8; it is big endian"},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", ATOLL_DTYPE,
     "it holds Python objects"},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", ATOLL_DTYPE,
     "found NPY dtype \"<c8\""},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", ATOLL_UNSUPPORTED,
     "found an NPY array of records"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", ATOLL_UNSUPPORTED,
     "in Fortran order, expected C order"},
    {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", ATOLL_FORMAT, "found \"Maybe"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", ATOLL_FORMAT,
     "truncated: found 8 bytes of data, expected 12 for 3 elements of f32"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", ATOLL_FORMAT,
     "too long: found 8 bytes of data, expected 4"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", ATOLL_FORMAT,
     "expected a dim"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999, 999999999999)}",
     ATOLL_FORMAT, "more elements than fit in memory"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", ATOLL_FORMAT, "expected a dim"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", ATOLL_FORMAT,
     "expected a comma or )"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", ATOLL_UNSUPPORTED,
     "more than 8 dims"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", ATOLL_FORMAT,
     "expected a shape such as"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", ATOLL_FORMAT, "expected a dim"},
    {"{'descr': '<f4", ATOLL_FORMAT, "expected a dtype such as"},
    {"{'descr': '<f4', 'fortran_order': False}", ATOLL_FORMAT, "NPY header: found no shape"},
    {"{'descr': '<f4', 'shape': (2,)}", ATOLL_FORMAT, "NPY header: found no fortran_order"},
    {"{'fortran_order': False, 'shape': (2,)}", ATOLL_FORMAT, "NPY header: found no descr"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", ATOLL_FORMAT,
     "expected nothing after }"},
    {"{'color': 1}", ATOLL_FORMAT, "found NPY header key \"color\""},
    {"{'descr' '<f4'}", ATOLL_FORMAT, "expected a key and a colon"},
    {"{'descr': '<f4' 'shape': (2,)}", ATOLL_FORMAT, "expected a comma or }"},
    {"", ATOLL_FORMAT, "found \"\", expected {"},
    {"{'descr': '|b1', 'fortran_order': False, 'shape': (8,)}", ATOLL_DATA,
     "array \"x\": found byte 2 as bool element 1, expected 0 or 1"},
};

START_TEST(broken_header)
{
    uint8_t bytes[256];
    size_t n = make_npy(bytes, 1, broken[_i].header, "\1\2\3\4\5\6\7\10", 8);
    struct dataset d;
    struct error e = {0};
    status s = dataset_read_bytes(DATA_NPY, bytes, n, "a.npy", NULL, &d, &e);
    ck_assert_msg(s == broken[_i].code, "%d %s", s, e.text);
    ck_assert_msg(strstr(e.text, broken[_i].says) != NULL, "\"%s\" lacks \"%s\"", e.text,
                  broken[_i].says);
    ck_assert_int_eq(strncmp(e.text, "a.npy: ", 7), 0);
    ck_assert_ptr_null(d.arena.blocks);
}
END_TEST

START_TEST(every_cut_is_refused)
{
    uint8_t bytes[256];
    size_t n = make_npy(bytes, 2, six_header, six, sizeof six);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, bytes, cut);
        struct dataset d;
        struct error e = {0};
        ck_assert_int_eq(dataset_read_bytes(DATA_NPY, copy, cut, "a.npy", NULL, &d, &e),
                         ATOLL_FORMAT);
        ck_assert(strstr(e.text, "truncated") != NULL || strstr(e.text, "NPY magic") != NULL);
        free(copy);
    }
    bytes[6] = 4;
    struct dataset d;
    struct error e = {0};
    ck_assert_int_eq(dataset_read_bytes(DATA_NPY, bytes, n, "a.npy", NULL, &d, &e), ATOLL_VERSION);
    ck_assert_str_eq(e.text, "a.npy: found NPY version 4.0, expected 1, 2 or 3");
}
END_TEST

START_TEST(scale_makes_f32)
{
    uint8_t bytes[256];
    size_t n = make_npy(bytes, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}",
                        "\x10\x08\x00", 3);
    struct dataset_options o = {.scale = 1.0f / 16};
    struct dataset d;
    struct error e = {0};
    ck_assert_int_eq(dataset_read_bytes(DATA_NPY, bytes, n, "a.npy", &o, &d, &e), ATOLL_OK);
    ck_assert_int_eq(d.arrays[0].dtype, F32);
    ck_assert_uint_eq(d.arrays[0].bytes, 12);
    ck_assert_mem_eq(d.arrays[0].data, ((float[]){1, 0.5f, 0}), 12);
    dataset_close(&d);
}
END_TEST

/* ---- NPZ ---- */

static void write_u16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static size_t deflate_raw(const uint8_t *from, size_t size, uint8_t *to, size_t room)
{
    uint8_t copy[512];
    memcpy(copy, from, size);
    z_stream z = {.next_in = copy, .avail_in = (uInt)size, .next_out = to, .avail_out = (uInt)room};
    ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t used = z.total_out;
    deflateEnd(&z);
    return used;
}

/* Members of the given names: the first stored, the others deflated. */
static size_t make_npz(uint8_t *out, const char *const *names, size_t n)
{
    uint8_t image[256], directory[512];
    size_t at = 0, listed = 0, size = make_npy(image, 1, six_header, six, sizeof six);
    for (size_t i = 0; i < n; i++) {
        uint8_t packed[512], *local = out + at, *entry = directory + listed;
        size_t length = strlen(names[i]);
        size_t used = i == 0 ? size : deflate_raw(image, size, packed, sizeof packed);
        memset(local, 0, 30);
        memset(entry, 0, 46);
        write_u32(local, 0x04034b50);
        write_u16(local + 26, length);
        memcpy(local + 30, names[i], length);
        memcpy(local + 30 + length, i == 0 ? image : packed, used);
        write_u32(entry, 0x02014b50);
        write_u16(entry + 10, i == 0 ? 0 : 8);
        write_u32(entry + 16, (uint32_t)crc32_z(0, image, size));
        write_u32(entry + 20, (uint32_t)used);
        write_u32(entry + 24, (uint32_t)size);
        write_u16(entry + 28, length);
        write_u32(entry + 42, (uint32_t)at);
        memcpy(entry + 46, names[i], length);
        at += 30 + length + used;
        listed += 46 + length;
    }
    memcpy(out + at, directory, listed);
    uint8_t *end = out + at + listed;
    memset(end, 0, 22);
    write_u32(end, 0x06054b50);
    write_u16(end + 8, n);
    write_u16(end + 10, n);
    write_u32(end + 12, (uint32_t)listed);
    write_u32(end + 16, (uint32_t)at);
    return at + listed + 22;
}

START_TEST(npz_keeps_names)
{
    uint8_t bytes[2048];
    size_t n = make_npz(bytes, (const char *[]){"images.npy", "labels.npy"}, 2);
    struct dataset d;
    struct error e = {0};
    ck_assert_msg(dataset_read_bytes(DATA_AUTO, bytes, n, "a.npz", NULL, &d, &e) == ATOLL_OK, "%s",
                  e.text);
    ck_assert_uint_eq(d.n_arrays, 2);
    ck_assert_str_eq(d.arrays[0].name, "images");
    ck_assert_mem_eq(dataset_find(&d, "labels")->data, six, sizeof six);
    dataset_close(&d);
}
END_TEST

START_TEST(broken_npz)
{
    static const struct {
        const char *names[2];
        const char *says;
    } cases[] = {
        {{"a.npy", "a.npy"}, "a.npz: found two arrays called \"a\""},
        {{"a.npy", "b.txt"}, "a.npz: found member \"b.txt\" packed by method 8"},
    };
    uint8_t bytes[2048];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t n = make_npz(bytes, cases[i].names, 2);
        struct dataset d;
        struct error e = {0};
        ck_assert_int_ne(dataset_read_bytes(DATA_NPZ, bytes, n, "a.npz", NULL, &d, &e), ATOLL_OK);
        ck_assert_msg(strstr(e.text, cases[i].says) != NULL, "%s", e.text);
    }
    size_t n = make_npz(bytes, (const char *[]){"a.npy", "b.npy"}, 2);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, bytes, cut);
        struct dataset d;
        struct error e = {0};
        ck_assert_int_eq(dataset_read_bytes(DATA_NPZ, copy, cut, "a.npz", NULL, &d, &e),
                         ATOLL_FORMAT);
        free(copy);
    }
    for (size_t i = 0; i < n;
         i++) { /* some flips hit unused fields: no crash is all that is asked */
        bytes[i] ^= 0x40;
        struct dataset d;
        struct error e = {0};
        if (dataset_read_bytes(DATA_NPZ, bytes, n, "a.npz", NULL, &d, &e) == ATOLL_OK) {
            dataset_close(&d);
        }
        bytes[i] ^= 0x40;
    }
    bytes[100] ^= 1; /* in the first member's data */
    struct dataset d;
    struct error e = {0};
    ck_assert_int_eq(dataset_read_bytes(DATA_NPZ, bytes, n, "a.npz", NULL, &d, &e), ATOLL_CHECKSUM);
    ck_assert_ptr_nonnull(strstr(e.text, "a.npz(a.npy): damaged"));
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, every_version, 1, 4);
    tcase_add_loop_test(tc, every_dtype, 0, ARRAY_LEN(good));
    tcase_add_loop_test(tc, broken_header, 0, ARRAY_LEN(broken));
    tcase_add_test(tc, every_cut_is_refused);
    tcase_add_test(tc, scale_makes_f32);
    tcase_add_test(tc, npz_keeps_names);
    tcase_add_test(tc, broken_npz);
}

int main(void)
{
    return run_suite("data_npy", fill);
}
