/* atoll finfo, data and devices: the small ones. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* ---- finfo ---- */

static const struct option finfo_options[] = {{"json", NULL, "print as JSON"}};

/* JSON: an array of objects. */
static void show_dtype(const struct dtype_row *row, bool is_json, bool is_first)
{
    double subnormal = row->smallest_normal * row->epsilon;
    struct json j;
    if (!is_json) {
        printf("%-7s %5u %14.8g %14.8g %14.8g %16.8g\n", row->name, row->bytes, row->epsilon,
               row->max, row->smallest_normal, subnormal);
        return;
    }
    printf(is_first ? "[" : ", ");
    json_open(&j);
    json_text(&j, "dtype", row->name);
    json_whole(&j, "bytes", row->bytes);
    json_number(&j, "epsilon", row->epsilon, 17);
    json_number(&j, "max", row->max, 17);
    json_number(&j, "min_normal", row->smallest_normal, 17);
    json_number(&j, "min_subnormal", subnormal, 17);
    json_close("");
}

static status finfo(const struct arguments *a, struct context *c, struct error *e)
{
    bool is_json = argument_flag(a, "json");
    const char *wanted = a->n_positional > 0 ? a->positional[0] : NULL;
    (void)c;
    if (a->n_positional > 1) {
        return fail(e, ATOLL_USAGE, "expected one DTYPE or none, found %u", a->n_positional);
    }
    enum dtype only = wanted != NULL ? dtype_named(wanted, strlen(wanted)) : DTYPE_NONE;
    if (wanted != NULL && !dtype_is_float(only)) {
        return fail(e, ATOLL_USAGE,
                    "no float dtype '%s'; there are f8e4m3, f8e5m2, f16, bf16, f32, f64", wanted);
    }
    if (!is_json) {
        printf("%-7s %5s %14s %14s %14s %16s\n", "dtype", "bytes", "epsilon", "max", "min normal",
               "min subnormal");
    }
    bool is_first = true;
    for (int t = 1; t < N_DTYPES; t++) {
        if (dtype_is_float((enum dtype)t) && (only == DTYPE_NONE || only == (enum dtype)t)) {
            show_dtype(&dtype_info[t], is_json, is_first);
            is_first = false;
        }
    }
    printf("%s", is_json ? "]\n" : "");
    return ATOLL_OK;
}

const struct command command_finfo = {"finfo",
                                      "[DTYPE] [--json]",
                                      "range and resolution of the float dtypes",
                                      "  atoll finfo\n  atoll finfo bf16 --json\n",
                                      finfo_options,
                                      ARRAY_LEN(finfo_options),
                                      finfo};

/* ---- data ---- */

static const struct option data_options[] = {
    {"scale", "X", "factor on the features: a number or A/B"},
    READ_OPTION,
    {"label", "COLUMN", "CSV label column: name, index, last or none"},
    {"npy", "PREFIX", "write each array as PREFIX_NAME.npy"}};

static status write_npy(const char *prefix, const struct array *a, struct error *e)
{
    static const char *const codes[N_DTYPES] = {
        [BOOL] = "|b1", [U8] = "|u1",  [I32] = "<i4", [I64] = "<i8",
        [F16] = "<f2",  [F32] = "<f4", [F64] = "<f8"};
    char path[4096], header[512];
    if (codes[a->dtype] == NULL) {
        return fail(e, ATOLL_DTYPE, "array '%s' is %s, which NPY has no type for", a->name,
                    dtype_info[a->dtype].name);
    }
    snprintf(path, sizeof path, "%s_%s.npy", prefix, a->name);
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                     codes[a->dtype]);
    for (uint32_t i = 0; i < a->rank; i++) {
        n += snprintf(header + n, sizeof header - (size_t)n, "%lld, ", (long long)a->shape[i]);
    }
    n += snprintf(header + n, sizeof header - (size_t)n, "), }");
    while ((n + 11) % 64 != 0) {
        header[n++] = ' ';
    }
    header[n++] = '\n';
    FILE *f = fopen(path, "wb");
    unsigned char length[2] = {(unsigned char)(n & 255), (unsigned char)(n >> 8)};
    bool ok = f != NULL && fwrite("\x93NUMPY\x01\x00", 1, 8, f) == 8 &&
              fwrite(length, 1, 2, f) == 2 && fwrite(header, 1, (size_t)n, f) == (size_t)n &&
              fwrite(a->data, 1, a->bytes, f) == a->bytes;
    ok = f != NULL && fclose(f) == 0 && ok;
    return ok ? ATOLL_OK : fail(e, ATOLL_IO, "%s: cannot be written", path);
}

static status data(const struct arguments *a, struct context *c, struct error *e)
{
    struct dataset_options o = {0};
    struct dataset d;
    (void)c;
    if (a->n_positional != 1) {
        return fail(e, ATOLL_USAGE, "expected one FILE; hint: atoll data FILE --npy PREFIX");
    }
    if (argument(a, "npy", "x")[0] == '\0') {
        return fail(e, ATOLL_USAGE,
                    "--npy: found nothing, expected what the files' names begin with");
    }
    TRY(read_data_options(a, &o, e));
    TRY(dataset_open(a->positional[0], &o, &d, e));
    status code = ATOLL_OK;
    for (uint32_t i = 0; i < d.n_arrays && code == ATOLL_OK; i++) {
        printf("%s: %s [", d.arrays[i].name, dtype_info[d.arrays[i].dtype].name);
        for (uint32_t k = 0; k < d.arrays[i].rank; k++) {
            printf("%s%lld", k > 0 ? "," : "", (long long)d.arrays[i].shape[k]);
        }
        printf("] %zu bytes\n", d.arrays[i].bytes);
        if (argument(a, "npy", NULL) != NULL) {
            code = write_npy(argument(a, "npy", ""), &d.arrays[i], e);
        }
    }
    dataset_close(&d);
    return code;
}

const struct command command_data = {
    "data",
    "FILE [options]",
    "check a data file, list its arrays, write them as NPY",
    "  atoll data examples/data/digits.csv.gz --scale 0.0625 --npy /tmp/digits\n",
    data_options,
    ARRAY_LEN(data_options),
    data};

/* ---- devices ---- */

static const struct option device_options[] = {{"json", NULL, "print as JSON"}};

static void describe_nvrtc(const char *path, struct text *t)
{
    struct nvrtc *n = NULL;
    struct error e = {0};
    int major, minor;
    char newest[16];
    if (nvrtc_open(path, &n, &e) != ATOLL_OK) {
        text_add(t, "CUDA compiler: not available: %s\n", e.text);
        return;
    }
    nvrtc_version(n, &major, &minor);
    nvrtc_newest_arch(n, newest);
    text_add(t, "CUDA compiler: NVRTC %d.%d, up to %s\n", major, minor, newest);
    nvrtc_close(n);
}

static status devices(const struct arguments *a, struct context *c, struct error *e)
{
    struct arena arena = {0};
    struct compile_options o = {0};
    struct text features = {.arena = &arena};
    if (a->n_positional != 0) {
        return fail(e, ATOLL_USAGE, "expected no argument, found '%s'", a->positional[0]);
    }
    TRY(context_apply(c, &o, e));
    plan_features(&features);
    const char *compiler = cc_version(&o.cc, &arena);
    const char *none = "none found: eager only, or load a compiled plan";
    struct device_options where = context_devices(c);
    struct text others = {.arena = &arena};
    devices_describe(&where, &others);
    describe_nvrtc(o.libnvrtc, &others);
    if (argument_flag(a, "json")) {
        struct json j;
        json_open(&j);
        json_text(&j, "cpu", features.data);
        json_text(&j, "compiler", compiler);
        json_text(&j, "contractions", contraction_library());
        json_text(&j, "cuda", others.data);
        json_close("\n");
    } else {
        printf("cpu            %s\n  compiler     %s\n  contractions %s\n%s", features.data,
               compiler[0] != '\0' ? compiler : none, contraction_library(), others.data);
    }
    arena_free(&arena);
    return ATOLL_OK;
}

const struct command command_devices = {"devices",
                                        "[--json]",
                                        "the devices and libraries this machine has",
                                        "  atoll devices\n",
                                        device_options,
                                        ARRAY_LEN(device_options),
                                        devices};
