/* Policies as data: the builtin names, the file's lines and its complaints, classes and the hash.
 */
#include "passes/policy.h"

#include "tests/suite.h"

#include <string.h>

static status load(struct arena *a, const char *text, const struct policy *base, struct policy *out,
                   struct error *e)
{
    return policy_load(a, text, strlen(text), "my.policy", base, out, e);
}

START_TEST(builtin_names)
{
    static const struct {
        const char *name;
        enum dtype low;
        enum policy_behaviour behaviour;
    } cases[] = {
        {"fp32", DTYPE_NONE, POLICY_ATOLL},
        {"bf16", BF16, POLICY_ATOLL},
        {"fp16", F16, POLICY_ATOLL},
        {"bf16@torch-cuda", BF16, POLICY_TORCH_CUDA},
        {"bf16@torch-cpu", BF16, POLICY_TORCH_CPU},
        {"fp16@torch-cuda", F16, POLICY_TORCH_CUDA},
        {"fp16@torch-cpu", F16, POLICY_TORCH_CPU},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct policy *p = policy_builtin(cases[i].name);
        ck_assert_ptr_nonnull(p);
        ck_assert_str_eq(p->name, cases[i].name);
        ck_assert_int_eq(p->low, cases[i].low);
        ck_assert_int_eq(p->behaviour, cases[i].behaviour);
    }
    ck_assert_ptr_null(policy_builtin("bf17"));
}
END_TEST

START_TEST(unknown_names_are_explained)
{
    const struct policy *p;
    struct error e = {0};
    ck_assert_int_eq(policy_named("bf17", &p, &e), ATOLL_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "bf17"));
    ck_assert_ptr_nonnull(strstr(e.text, "bf16@torch-cuda"));
    e = (struct error){0};
    ck_assert_int_eq(policy_named("fp8-tensor", &p, &e), ATOLL_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "fp8-rowwise-gw-hp"));
    ck_assert_int_eq(policy_named("fp16", &p, NULL), ATOLL_OK);
}
END_TEST

START_TEST(classes_by_behaviour)
{
    static const struct {
        enum op op;
        enum amp_class own, cuda, cpu;
    } cases[] = {
        {OP_linear, AMP_LOWER, AMP_LOWER, AMP_LOWER},
        {OP_exp, AMP_FP32, AMP_FP32, AMP_INHERIT},
        {OP_sum, AMP_FP32_OUT, AMP_FP32_OUT, AMP_INHERIT},
        {OP_mean, AMP_FP32_OUT, AMP_INHERIT, AMP_INHERIT},
        {OP_prod, AMP_FP32_OUT, AMP_FP32_OUT, AMP_FP32},
        {OP_layer_norm, AMP_INHERIT, AMP_FP32, AMP_INHERIT},
        {OP_cross_entropy, AMP_FP32, AMP_INHERIT, AMP_FP32},
        {OP_binary_cross_entropy, AMP_BANNED, AMP_BANNED, AMP_FP32},
        {OP_concat, AMP_PROMOTE, AMP_INHERIT, AMP_PROMOTE},
        {OP_add, AMP_INHERIT, AMP_INHERIT, AMP_INHERIT},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum op op = cases[i].op;
        ck_assert_int_eq(policy_class(policy_builtin("bf16"), op), cases[i].own);
        ck_assert_int_eq(policy_class(policy_builtin("fp16@torch-cuda"), op), cases[i].cuda);
        ck_assert_int_eq(policy_class(policy_builtin("fp16@torch-cpu"), op), cases[i].cpu);
        ck_assert_int_eq(policy_class(policy_builtin("fp32"), op), AMP_INHERIT);
    }
}
END_TEST

START_TEST(later_lines_win)
{
    struct arena a = {0};
    struct error e = {0};
    struct policy p, over;
    const char *text = "# head\r\n\n  base bf16 # why\nop softmax fp32\nop softmax inherit\n"
                       "node \"block*.attn.*\" f32\n\tnode \"block1.*\" lower\nnode q bf16";
    ck_assert_int_eq(load(&a, text, NULL, &p, &e), ATOLL_OK);
    ck_assert_int_eq(p.low, BF16);
    ck_assert_int_eq(policy_class(&p, OP_softmax), AMP_INHERIT);
    ck_assert_uint_eq(p.n_nodes, 3);
    struct node n = {.op = OP_add, .name = "block0.attn.q"};
    ck_assert_int_eq(policy_override(&p, &n)->dtype, F32);
    n.name = "block1.attn.q";
    ck_assert_int_eq(policy_override(&p, &n)->dtype, DTYPE_NONE);
    ck_assert_int_eq(policy_override(&p, &n)->class, AMP_LOWER);
    n.name = "other";
    ck_assert_ptr_null(policy_override(&p, &n));
    n.name = NULL;
    ck_assert_ptr_null(policy_override(&p, &n));
    ck_assert_int_eq(load(&a, "base fp16\nop softmax lower", &p, &over, &e), ATOLL_OK);
    ck_assert_int_eq(over.low, F16);
    ck_assert_int_eq(policy_class(&over, OP_softmax), AMP_LOWER);
    ck_assert_uint_eq(over.n_nodes, 3);
    arena_free(&a);
}
END_TEST

static const struct bad_file {
    const char *text, *parts[4];
    status code;
} bad_files[] = {
    {"base bf16\nop sofmax fp32", {"my.policy:2", "sofmax", "ops.def"}, ATOLL_PARSE},
    {"op softmax f32", {"my.policy:1", "'f32'", "inherit lower fp32"}, ATOLL_PARSE},
    {"op input fp32", {"my.policy:1", "input"}, ATOLL_PARSE},
    {"node \"a*\" f64", {"my.policy:1", "f64", "f16 bf16 f32"}, ATOLL_PARSE},
    {"node \"a b f32", {"my.policy:1", "closing quote"}, ATOLL_PARSE},
    {"op add lower please", {"my.policy:1", "please", "end of the line"}, ATOLL_PARSE},
    {"op add", {"my.policy:1", "op NAME CLASS"}, ATOLL_PARSE},
    {"node a", {"my.policy:1", "node \"PATTERN\""}, ATOLL_PARSE},
    {"base", {"my.policy:1", "base NAME"}, ATOLL_PARSE},
    {"#\nbase bf17", {"my.policy:2", "bf17", "bf16@torch-cpu"}, ATOLL_USAGE},
    {"base fp8-row", {"my.policy:1", "fp8-row", "fp8-rowwise"}, ATOLL_USAGE},
    {"base bf16\nfp8 \"head\" off", {"my.policy:2", "no recipe", "base fp8-"}, ATOLL_PARSE},
    {"base fp8-rowwise\nfp8 head", {"my.policy:2", "on or off"}, ATOLL_PARSE},
    {"base fp8-rowwise\nfp8 head maybe", {"my.policy:2", "on or off"}, ATOLL_PARSE},
    {"fp8_set least many", {"my.policy:1", "least SIZE"}, ATOLL_PARSE},
    {"fp8_set margin -1", {"my.policy:1", "margin BITS"}, ATOLL_PARSE},
    {"fp8_set amax mean", {"my.policy:1", "max or most_recent"}, ATOLL_PARSE},
    {"fp8_set counts", {"my.policy:1", "counts on or off"}, ATOLL_PARSE},
    {"op add fp32\nbase bf16", {"my.policy:2", "before the first"}, ATOLL_PARSE},
    {"precision bf16", {"my.policy:1", "precision", "base, op, node"}, ATOLL_PARSE},
    {"base bf16\nop add lower\nbase fp32", {"my.policy:3", "before the first"}, ATOLL_PARSE},
    {"op add lower", {"my.policy:1", "lower", "base"}, ATOLL_PARSE},
};

START_TEST(complaints)
{
    const struct bad_file *c = &bad_files[_i];
    struct arena a = {0};
    struct error e = {0};
    struct policy p;
    status code = load(&a, c->text, NULL, &p, &e);
    ck_assert_msg(code == c->code, "%s: %s", c->text, e.text);
    for (size_t i = 0; i < ARRAY_LEN(c->parts) && c->parts[i] != NULL; i++) {
        ck_assert_msg(strstr(e.text, c->parts[i]) != NULL, "%s: %s", c->text, e.text);
    }
    ck_assert_ptr_null(strchr(e.text, '\n'));
    arena_free(&a);
}
END_TEST

START_TEST(zero_bytes_are_refused)
{
    static const char text[] = "op a\0dd fp32\n";
    struct arena a = {0};
    struct error e = {0};
    struct policy p;
    ck_assert_int_eq(policy_load(&a, text, sizeof text - 1, "p", NULL, &p, &e), ATOLL_PARSE);
    arena_free(&a);
}
END_TEST

/* Any bytes: a status, one line of text, no crash. */
START_TEST(damaged_files_are_refused_or_read)
{
    const char *text = "base bf16\nop softmax fp32\nnode \"a*\" f32 # why\n";
    for (uint64_t seed = 0; seed < 20000; seed++) {
        char damaged[64];
        struct arena a = {0};
        struct error e = {0};
        struct policy p;
        size_t length = strlen(text);
        memcpy(damaged, text, length);
        for (uint64_t i = 0; i < 1 + seed % 3; i++) {
            uint64_t h = hash_u64(seed, i);
            damaged[h % length] = (char)(h >> 32);
        }
        status code = policy_load(&a, damaged, length - seed % 5, "p", NULL, &p, &e);
        ck_assert_int_eq(code, e.code);
        arena_free(&a);
    }
}
END_TEST

START_TEST(hash_follows_decisions)
{
    const char *const texts[] = {
        "",
        "base bf16",
        "base fp16",
        "base bf16@torch-cuda",
        "base bf16@torch-cpu",
        "base bf16\nop softmax fp32",
        "base bf16\nnode \"a\" f32",
        "base bf16\nnode \"b\" f32",
        "base bf16\nnode \"a\" fp32",
    };
    struct arena a = {0};
    struct policy p[ARRAY_LEN(texts)], again;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        ck_assert_int_eq(load(&a, texts[i], NULL, &p[i], NULL), ATOLL_OK);
        for (size_t k = 0; k < i; k++) {
            ck_assert_msg(policy_hash(&p[i]) != policy_hash(&p[k]), "%s", texts[i]);
        }
    }
    ck_assert_int_eq(load(&a, "base bf16 \n# a comment", NULL, &again, NULL), ATOLL_OK);
    ck_assert(policy_hash(&again) == policy_hash(&p[1]));
    ck_assert(policy_hash(policy_builtin("bf16")) == policy_hash(&p[1]));
    arena_free(&a);
}
END_TEST

START_TEST(every_op_off_the_plain_path_has_a_reason)
{
    const char *plain = precision_reason(OP_add);
    for (int op = 1; op < N_OPS; op++) {
        enum amp_class c = policy_class(policy_builtin("fp16"), (enum op)op);
        bool asks = c == AMP_FP32 || c == AMP_FP32_OUT || c == AMP_BANNED;
        ck_assert_msg(!asks || precision_reason((enum op)op) != plain, "%s", op_info[op].name);
    }
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, builtin_names);
    tcase_add_test(tc, unknown_names_are_explained);
    tcase_add_test(tc, classes_by_behaviour);
    tcase_add_test(tc, later_lines_win);
    tcase_add_loop_test(tc, complaints, 0, ARRAY_LEN(bad_files));
    tcase_add_test(tc, zero_bytes_are_refused);
    tcase_add_test(tc, damaged_files_are_refused_or_read);
    tcase_add_test(tc, hash_follows_decisions);
    tcase_add_test(tc, every_op_off_the_plain_path_has_a_reason);
}

int main(void)
{
    return run_suite("policy", fill);
}
