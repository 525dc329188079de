/* Field cases of normalisations, softmax and losses. See cases.h. */
#include "tests/numeric/cases.h"

static const struct field_case cases[] = {
    {.id = "FC030",
     .graph = "graph @g(%x: f32[1,4] param, %c: f32[1,4] input) {\n"
              "%y = layer_norm(%x) {eps=1e-5}\n"
              "%m = mul(%y, %c)\n"
              "%loss = sum(%m)\n"
              "return loss=%loss, y=%y\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"x", {65000.0, 65001.0, 65002.0, 65003.0}}, {"c", {1.0, 0.0, 0.0, 0.0}}},
     .outputs = {{"y",
                  {-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269},
                  .absolute = 3e-06},
                 {"grad:x",
                  {0.26833030389303414, -0.3577683720252976, -0.08944343463101137,
                   0.17888150276327486},
                  .absolute = 3e-06}}},
    {.id = "FC032",
     .graph = "graph @g(%x: bf16[1,4] input) {\n"
              "%y = rms_norm(%x)\n"
              "return y=%y\n"
              "}",
     .inputs = {{"x", {0.050048828125, -0.030029296875, 0.02001953125, 0.060546875}}},
     .outputs = {{"y", {1.15625, -0.6953125, 0.462890625, 1.3984375}, .ulps = 1, .dtype = BF16}}},
    {.id = "FC033",
     .graph = "graph @g(%x: f16[2,3] input) {\n"
              "%y = normalize(%x) {axis=1}\n"
              "return y=%y\n"
              "}",
     .inputs = {{"x", {0.0, 0.0, 0.0, 3.0, 4.0, 0.0}}},
     .outputs = {{"y", {0.0, 0.0, 0.0, 0.60009765625, 0.7998046875, 0.0}, .dtype = F16}}},
    {.id = "FC033 written out",
     .graph = "graph @g(%x: f16[2,3] input) {\n"
              "%n = norm(%x) {axes=[1], keepdims=true}\n%c = maximum(%n, 1e-12)\n"
              "%y = div(%x, %c)\nreturn y=%y\n}",
     .note = "%c = maximum: the number 1e-12 becomes 0 in f16",
     .inputs = {{"x", {0.0, 0.0, 0.0, 3.0, 4.0, 0.0}}},
     .outputs = {{"y", {NOT, NOT, NOT, 0.60009765625, 0.7998046875, 0.0}, .dtype = F16}}},
    {.id = "FC033 gradient",
     .graph = "graph @g(%x: f32[2,2] param, %c: f32[2,2] input) {\n"
              "%y = normalize(%x) {axis=1}\n"
              "%m = mul(%y, %c)\n"
              "%loss = sum(%m)\n"
              "return loss=%loss, y=%y\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"x", {0.0, 0.0, 3.0, 4.0}}, {"c", {0.0, 0.0, 1.0, 0.0}}},
     .outputs = {{"y", {0.0, 0.0, 0.6, 0.8}, .relative = 2e-07},
                 {"grad:x", {0.0, 0.0, 0.128, -0.096}, .relative = 1e-06}}},
    {.id = "FC035",
     .graph = "graph @g(%x: f32[2,3] param) {\n"
              "%y = logsumexp(%x) {axes=[1]}\n"
              "%row = slice(%y) {start=1}\n"
              "%loss = sum(%row)\n"
              "return loss=%loss, y=%y\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"x", {-INF, -INF, -INF, -INF, 1.0, 2.0}}},
     .outputs = {{"y", {-INF, 2.313261687518223}, .absolute = 3e-07},
                 {"grad:x",
                  {ANY, ANY, ANY, 0.0, 0.2689414213699951, 0.7310585786300049},
                  .absolute = 3e-07}}},
    {.id = "FC036",
     .graph = "graph @g(%z: f32[3,3] param, %t: i64[3] input) {\n"
              "%loss = cross_entropy(%z, %t) {label_smoothing=0.1}\n"
              "return loss=%loss\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"z", {2.0, -1.0, 0.5, 0.0, 3.0, -2.0, 1.0, 1.0, 1.0}}, {"t", {0.0, -100.0, 2.0}}},
     .outputs = {{"loss", {0.7449617926626334}, .relative = 2e-06, .absolute = 2e-07},
                 {"grad:z",
                  {-0.07386814937202874, 0.0028896199686770595, 0.07097852940335168, 0.0, 0.0, 0.0,
                   0.15, 0.15, -0.3},
                  .relative = 2e-06,
                  .absolute = 2e-07}}},
    {.id = "FC038",
     .graph = "graph @g(%z: f32[2,2] param, %t: i64[2] input) {\n"
              "%loss = cross_entropy(%z, %t) {reduction=\"sum\"}\n"
              "%n = cross_entropy(%z, %t) {reduction=\"none\"}\n"
              "%m = cross_entropy(%z, %t)\n"
              "return loss=%loss, n=%n, m=%m\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"z", {1.0, 2.0, 0.0, 3.0}}, {"t", {-100.0, -100.0}}},
     .outputs =
         {{"loss", {0.0}}, {"n", {0.0, 0.0}}, {"m", {NOT}}, {"grad:z", {0.0, 0.0, 0.0, 0.0}}}},
    {.id = "FC039",
     .graph = "graph @g(%x: f32[4] param, %t: f32[4] input, %w: f32[] input) {\n"
              "%loss = bce_with_logits(%x, %t, %w)\n"
              "return loss=%loss\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"x", {0.5, -150.0, 200.0, -3.0}}, {"t", {1.0, 1.0, 0.0, 0.0}}, {"w", {2.0}}},
     .outputs = {{"loss", {125.24918532998349}, .relative = 1e-06, .absolute = 1e-09},
                 {"grad:x",
                  {-0.18877033439907273, -0.5, 0.25, 0.011856468294391695},
                  .relative = 1e-06,
                  .absolute = 1e-09}}},
    {.id = "FC041",
     .graph = "graph @g(%z: f32[2,3] input, %t: i64[2] input) {\n"
              "%l = cross_entropy(%z, %t)\n"
              "return l=%l\n"
              "}",
     .inputs = {{"z", {30000000.0, 30000000.0, 30000000.0, -30000000.0, -30000000.0, -30000000.0}},
                {"t", {1.0, 2.0}}},
     .outputs = {{"l", {1.0986122886681098}, .relative = 2e-07}}},
    {.id = "FC062 a computed target out of range",
     .graph = "graph @g(%z: f32[3,2] param, %f: f32[3] input) {\n"
              "%t = cast(%f) {dtype=i64}\n"
              "%n = cross_entropy(%z, %t) {reduction=\"none\"}\n"
              "%lp = log_softmax(%z)\n"
              "%q = nll_loss(%lp, %t) {reduction=\"none\"}\n"
              "%loss = cross_entropy(%z, %t)\n"
              "return loss=%loss, n=%n, q=%q\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"z", {1.0, 1.0, 1.0, 1.0, 1.0, 1.0}}, {"f", {2.0, 0.0, -100.0}}},
     .outputs = {{"n", {NOT, 0.6931471805599453, 0.0}, .relative = 2e-07},
                 {"q", {NOT, 0.6931471805599453, 0.0}, .relative = 2e-07},
                 {"loss", {NOT}},
                 {"grad:z", {NOT, NOT, -0.25, 0.25, 0.0, 0.0}}}},
    {.id = "FC043",
     .graph = "graph @g(%a: f32[2,3] param, %v: f32[3,2] param, %mask: bool[2,3] input) {\n"
              "%s = where(%mask, %a, -inf)\n"
              "%p = softmax(%s) {masked=true}\n"
              "%o = matmul(%p, %v)\n"
              "%loss = sum(%o)\n"
              "return loss=%loss, o=%o\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"a", {0.0, 1.0986123085021973, 7.0, 1.0, 2.0, 3.0}},
                {"v", {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}},
                {"mask", {1.0, 1.0, 0.0, 0.0, 0.0, 0.0}}},
     .outputs = {{"o", {2.500000007437783, 3.500000007437783, 0.0, 0.0}, .absolute = 1e-06},
                 {"grad:v",
                  {0.2499999962811086, 0.2499999962811086, 0.7500000037188914, 0.7500000037188914,
                   0.0, 0.0},
                  .absolute = 1e-06},
                 {"grad:a", {-0.75, 0.75, 0.0, 0.0, 0.0, 0.0}, .absolute = 1e-06}}},
    {.id = "FC043 bare softmax",
     .graph = "graph @g(%x: f32[2,2] input) {\n"
              "%p = softmax(%x)\n"
              "%q = softmax(%x) {masked=true}\n"
              "return p=%p, q=%q\n"
              "}",
     .inputs = {{"x", {-INF, -INF, 0.0, NOT}}},
     .outputs = {{"p", {NOT, NOT, NOT, NOT}}, {"q", {0.0, 0.0, NOT, NOT}}}},
    {.id = "FC044",
     .graph = "graph @g(%x: f32[4,1] param, %rm: f32[1] buffer, %rv: f32[1] buffer, %c: f32[4,1] "
              "input) {\n"
              "%y = batch_norm(%x)\n"
              "%k = mean(%x) {axes=[0]}\n"
              "%v = variance(%x) {axes=[0]}\n"
              "%rm0 = mul(%rm, 0.9)\n"
              "%rm1 = mul(%k, 0.1)\n"
              "%rm2 = add(%rm0, %rm1)\n"
              "%rv0 = mul(%rv, 0.9)\n"
              "%rv1 = mul(%v, 0.1)\n"
              "%rv2 = add(%rv0, %rv1)\n"
              "%m = mul(%y, %c)\n"
              "%loss = sum(%m)\n"
              "update %rm <- %rm2\n"
              "update %rv <- %rv2\n"
              "return loss=%loss, y=%y, rm=%rm2, rv=%rv2\n"
              "}",
     .wants_gradients = true,
     .inputs =
         {{"x", {1.0, 2.0, 3.0, 6.0}}, {"rm", {0.0}}, {"rv", {1.0}}, {"c", {1.0, 0.0, 0.0, 0.0}}},
     .outputs = {{"y",
                  {-1.0690434404458735, -0.5345217202229368, 0.0, 1.6035651606688102},
                  .relative = 1e-06,
                  .absolute = 1e-06},
                 {"rm", {0.3}, .relative = 1e-06, .absolute = 1e-06},
                 {"rv", {1.3666666666666667}, .relative = 1e-06, .absolute = 1e-06},
                 {"grad:x",
                  {0.24817123501794963, -0.20999045763036064, -0.1336304300557342,
                   0.09544965266814524},
                  .absolute = 2e-06}}},
    {.id = "FC044 channels in the middle",
     .graph = "graph @g(%x: f32[2,2,2] input, %w: f32[2] input, %b: f32[2] input) {\n"
              "%y = batch_norm(%x, %w, %b)\n"
              "return y=%y\n"
              "}",
     .inputs = {{"x", {1.0, 2.0, 10.0, 20.0, 3.0, 6.0, 10.0, 20.0}},
                {"w", {1.0, 2.0}},
                {"b", {0.0, 1.0}}},
     .outputs = {{"y",
                  {-1.0690434404458735, -0.5345217202229368, -0.9999996, 2.9999996, 0.0,
                   1.6035651606688102, -0.9999996, 2.9999996},
                  .relative = 1e-06,
                  .absolute = 1e-06}}},
    {.id = "FC045",
     .graph = "graph @g(%x: bf16[1,4] input) {\n"
              "%y = layer_norm(%x) {eps=1e-5}\n"
              "return y=%y\n"
              "}",
     .inputs = {{"x", {0.71484375, -1.8984375, -3.96875, -0.6484375}}},
     .outputs = {{"y", {1.2578125, -0.259765625, -1.4609375, 0.46484375}, .dtype = BF16}}},
};

START_TEST(field_case)
{
    check_case(&cases[_i]);
}
END_TEST

START_TEST(fc044_one_value_per_channel_is_refused)
{
    struct graph *g = graph_create("norm");
    graph_op1(g, OP_batch_norm, graph_leaf(g, OP_input, "x", F32, (int64_t[]){1, 3}, 2));
    ck_assert_msg(strstr(g->error.text, "one value per channel") != NULL, "FC044: %s",
                  g->error.text);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, fc044_one_value_per_channel_is_refused);
    tcase_add_loop_test(tc, field_case, 0, ARRAY_LEN(cases));
}

int main(void)
{
    return run_suite("field cases, norms and losses", fill);
}
