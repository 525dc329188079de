/* Field cases of conversions, reductions and the edges of elementwise functions. See cases.h. */
#include "tests/numeric/cases.h"

static const struct field_case cases[] = {
    {.id = "FC020",
     .graph = "graph @g(%c: f8e5m2[14] input) {\n"
              "%v = cast(%c) {dtype=f32}\n"
              "%r = cast(%v) {dtype=f8e5m2}\n"
              "%w = cast(%r) {dtype=f32}\n"
              "return v=%v, w=%w\n"
              "}",
     .inputs = {{"c",
                 {0.0, -0.0, 1.52587890625e-05, 3.0517578125e-05, 4.57763671875e-05,
                  6.103515625e-05, -4.57763671875e-05, 1.0, 57344.0, -57344.0, INF, -INF, NOT,
                  NOT}}},
     .outputs =
         {{"v",
           {0.0, -0.0, 1.52587890625e-05, 3.0517578125e-05, 4.57763671875e-05, 6.103515625e-05,
            -4.57763671875e-05, 1.0, 57344.0, -57344.0, INF, -INF, NOT, NOT}},
          {"w",
           {0.0, -0.0, 1.52587890625e-05, 3.0517578125e-05, 4.57763671875e-05, 6.103515625e-05,
            -4.57763671875e-05, 1.0, 57344.0, -57344.0, INF, -INF, NOT, NOT}}}},
    {.id = "FC021",
     .graph = "graph @g(%x: f32[12] input) {\n"
              "%a = cast(%x) {dtype=f8e4m3, saturate=true}\n"
              "%b = cast(%x) {dtype=f8e4m3}\n"
              "return a=%a, b=%b\n"
              "}",
     .inputs = {{"x",
                 {448.0, 463.989990234375, 464.0, 464.0000305175781, 465.0, 480.0, 1000.0, -1000.0,
                  INF, -INF, NOT, -448.0}}},
     .outputs = {{"a",
                  {448.0, 448.0, 448.0, 448.0, 448.0, 448.0, 448.0, -448.0, 448.0, -448.0, NOT,
                   -448.0},
                  .dtype = F8E4M3},
                 {"b",
                  {448.0, 448.0, 448.0, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, -448.0},
                  .dtype = F8E4M3}}},
    {.id = "FC024",
     .graph = "graph @g(%x: f32[7] input) {\n"
              "%y = cast(%x) {dtype=f16}\n"
              "return y=%y\n"
              "}",
     .inputs = {{"x",
                 {65504.0, 65519.99609375, 65520.0, 65536.0, -65520.0, 9.999999680285692e+37,
                  -65519.0}}},
     .outputs = {{"y", {65504.0, 65504.0, INF, INF, -INF, INF, -65504.0}, .dtype = F16}}},
    {.id = "FC025",
     .graph = "graph @g(%x: f32[13] input) {\n"
              "%y = cast(%x) {dtype=f16}\n"
              "return y=%y\n"
              "}",
     .inputs = {{"x",
                 {3.0517578125e-05, 5.960464477539063e-08, 2.9802322387695312e-08,
                  4.470348358154297e-08, 2.980232594040899e-08, 6.097555160522461e-05,
                  6.1005353927612305e-05, 6.0945749282836914e-05, -1.9999990463256836,
                  3.9999001026153564, 0.10000000149011612, -2.999999892949745e-08,
                  1.4901161193847656e-08}}},
     .outputs = {{"y",
                  {3.0517578125e-05, 5.960464477539063e-08, 0.0, 5.960464477539063e-08,
                   5.960464477539063e-08, 6.097555160522461e-05, 6.103515625e-05,
                   6.091594696044922e-05, -2.0, 4.0, 0.0999755859375, -5.960464477539063e-08, 0.0},
                  .dtype = F16}}},
    {.id = "FC027",
     .graph = "graph @g(%x: f32[3,2] input) {\n"
              "%b = abs(%x)\n"
              "%m = max(%b) {axes=[1], keepdims=true}\n"
              "%c = maximum(%m, 1.1754943508222875e-38)\n"
              "%s = div(448.0, %c)\n"
              "%f = minimum(%s, 1.7014118346046923e+38)\n"
              "%q0 = mul(%x, %f)\n"
              "%q = cast(%q0) {dtype=f8e4m3, saturate=true}\n"
              "%q32 = cast(%q) {dtype=f32}\n"
              "%d = div(%q32, %f)\n"
              "%ok = is_finite(%f)\n"
              "return q=%q32, d=%d, ok=%ok\n"
              "}",
     .inputs = {{"x", {0.0, 0.0, 1.0, -2.0, 0.0, -0.0}}},
     .outputs = {{"q", {0.0, 0.0, 224.0, -448.0, 0.0, 0.0}},
                 {"d", {0.0, 0.0, 1.0, -2.0, 0.0, 0.0}, .relative = 1e-06},
                 {"ok", {1.0, 1.0, 1.0}}}},
    {.id = "FC046",
     .graph = "graph @g(%x: f16[100000] input) {\n"
              "%m = mean(%x)\n"
              "return m=%m\n"
              "}",
     .inputs = {{"x", {1.0}, .count = 1}},
     .outputs = {{"m", {1.0}, .dtype = F16}}},
    {.id = "FC046",
     .graph = "graph @g(%x: f16[65520] input) {\n"
              "%m = mean(%x)\n"
              "return m=%m\n"
              "}",
     .inputs = {{"x", {1.0}, .count = 1}},
     .outputs = {{"m", {1.0}, .dtype = F16}}},
    {.id = "FC046",
     .graph = "graph @g(%x: f16[4096] input) {\n"
              "%m = mean(%x)\n"
              "return m=%m\n"
              "}",
     .inputs = {{"x", {0.5}, .count = 1}},
     .outputs = {{"m", {0.5}, .dtype = F16}}},
    {.id = "FC046",
     .graph = "graph @g(%x: f16[3] input) {\n"
              "%m = mean(%x)\n"
              "return m=%m\n"
              "}",
     .inputs = {{"x", {40000.0, 40000.0, 40000.0}}},
     .outputs = {{"m", {40000.0}, .dtype = F16}}},
    {.id = "FC048",
     .graph = "graph @g(%x: bf16[1000] input, %y: f16[4096] input, %z: bf16[512,2] input) {\n"
              "%s = sum(%x)\n"
              "%t = sum(%y)\n"
              "%u = sum(%z) {axes=[0]}\n"
              "return s=%s, t=%t, u=%u\n"
              "}",
     .inputs = {{"x", {1.0}, .count = 1}, {"y", {1.0}, .count = 1}, {"z", {1.0}, .count = 1}},
     .outputs = {{"s", {1000.0}, .dtype = BF16},
                 {"t", {4096.0}, .dtype = F16},
                 {"u", {512.0, 512.0}, .dtype = BF16}}},
    {.id = "FC049",
     .graph = "graph @g(%x: f32[4,4] input) {\n"
              "%i = argmax(%x)\n"
              "%j = argmin(%x)\n"
              "%m = max(%x) {axes=[-1]}\n"
              "return i=%i, j=%j, m=%m\n"
              "}",
     .inputs =
         {{"x", {3.0, NOT, 1.0, 5.0, 1.0, 2.0, NOT, 0.0, INF, NOT, -INF, 1.0, 2.0, 7.0, 7.0, 2.0}}},
     .outputs = {{"i", {1.0, 2.0, 1.0, 1.0}, .dtype = I64},
                 {"j", {1.0, 2.0, 1.0, 0.0}},
                 {"m", {NOT, NOT, NOT, 7.0}}}},
    {.id = "FC049",
     .graph = "graph @g(%x: f32[4,4] input) {\n"
              "%p = pad(%x) {axis=1, low=29, value=0.5}\n"
              "%i = argmax(%p)\n"
              "%j = argmin(%p)\n"
              "%m = max(%p) {axes=[-1]}\n"
              "return i=%i, j=%j, m=%m\n"
              "}",
     .inputs =
         {{"x", {3.0, NOT, 1.0, 5.0, 1.0, 2.0, NOT, 0.0, INF, NOT, -INF, 1.0, 2.0, 7.0, 7.0, 2.0}}},
     .outputs = {{"i", {30.0, 31.0, 30.0, 30.0}},
                 {"j", {30.0, 31.0, 30.0, 0.0}},
                 {"m", {NOT, NOT, NOT, 7.0}}}},
    {.id = "FC049",
     .graph = "graph @g(%x: f32[4,4] input) {\n"
              "%p = pad(%x) {axis=1, low=996, value=0.5}\n"
              "%i = argmax(%p)\n"
              "%j = argmin(%p)\n"
              "%m = max(%p) {axes=[-1]}\n"
              "return i=%i, j=%j, m=%m\n"
              "}",
     .inputs =
         {{"x", {3.0, NOT, 1.0, 5.0, 1.0, 2.0, NOT, 0.0, INF, NOT, -INF, 1.0, 2.0, 7.0, 7.0, 2.0}}},
     .outputs = {{"i", {997.0, 998.0, 997.0, 997.0}},
                 {"j", {997.0, 998.0, 997.0, 0.0}},
                 {"m", {NOT, NOT, NOT, 7.0}}}},
    {.id = "FC049",
     .graph = "graph @g(%x: f32[4,4] input) {\n"
              "%p = pad(%x) {axis=1, low=4996, value=0.5}\n"
              "%i = argmax(%p)\n"
              "%j = argmin(%p)\n"
              "%m = max(%p) {axes=[-1]}\n"
              "return i=%i, j=%j, m=%m\n"
              "}",
     .inputs =
         {{"x", {3.0, NOT, 1.0, 5.0, 1.0, 2.0, NOT, 0.0, INF, NOT, -INF, 1.0, 2.0, 7.0, 7.0, 2.0}}},
     .outputs = {{"i", {4997.0, 4998.0, 4997.0, 4997.0}},
                 {"j", {4997.0, 4998.0, 4997.0, 0.0}},
                 {"m", {NOT, NOT, NOT, 7.0}}}},
    {.id = "FC050",
     .graph = "graph @g(%x: i32[2] input, %b: bool[300] input, %u: u8[3] input) {\n"
              "%s = sum(%x)\n"
              "%t = sum(%b)\n"
              "%v = sum(%u)\n"
              "%p = prod(%u)\n"
              "%k = sum(%u) {axes=[0], keepdims=true}\n"
              "%m = mean(%u)\n"
              "return s=%s, t=%t, v=%v, p=%p, k=%k, m=%m\n"
              "}",
     .inputs = {{"x", {2147483647.0, 2147483647.0}},
                {"b", {1.0}, .count = 1},
                {"u", {200.0, 200.0, 100.0}}},
     .outputs = {{"s", {4294967294.0}, .dtype = I64},
                 {"t", {300.0}, .dtype = I64},
                 {"v", {500.0}, .dtype = I64},
                 {"p", {4000000.0}, .dtype = I64},
                 {"k", {500.0}, .dtype = I64},
                 {"m", {166.66666666666666}, .relative = 1e-07, .dtype = F32}}},
    {.id = "FC050 by columns",
     .graph = "graph @g(%b: bool[300,3] input, %u: u8[2,3] input) {\n"
              "%t = sum(%b) {axes=[0]}\n"
              "%v = sum(%u) {axes=[0]}\n"
              "%r = sum(%b) {axes=[1], dtype=i32}\n"
              "return t=%t, v=%v, r=%r\n"
              "}",
     .inputs = {{"b", {1.0, 0.0, 1.0}, .count = 3}, {"u", {200.0, 200.0, 100.0, 100.0, 2.0, 3.0}}},
     .outputs = {{"t", {300.0, 0.0, 300.0}, .dtype = I64},
                 {"v", {300.0, 202.0, 103.0}, .dtype = I64},
                 {"r", {2.0}, .count = 1, .dtype = I32}}},
    {.id = "FC052",
     .graph = "graph @g(%x: f32[4] param) {\n"
              "%loss = max(%x) {axes=[0]}\n"
              "return loss=%loss\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"x", {2.0, 7.0, 7.0, 1.0}}},
     .outputs = {{"grad:x", {0.0, 0.5, 0.5, 0.0}}}},
    {.id = "FC052",
     .graph = "graph @g(%p: f32[2] param, %q: f32[2] param) {\n"
              "%m = maximum(%p, %q)\n"
              "%loss = sum(%m)\n"
              "return loss=%loss\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"p", {1.0, 2.0}}, {"q", {1.0, 3.0}}},
     .outputs = {{"grad:p", {0.5, 0.0}}, {"grad:q", {0.5, 1.0}}}},
    {.id = "FC053",
     .graph = "graph @g(%a: f32[19] input, %b: f32[19] input) {\n"
              "%y = pow(%a, %b)\n"
              "%s = slice(%y) {start=16, stop=17}\n"
              "return y=%y, s=%s\n"
              "}",
     .inputs = {{"a",
                 {0.0, 0.0, NOT, 1.0, -0.0, -0.0, 0.0, -0.0, -8.0, -2.0, -2.0, -INF, -INF, 0.5, 2.0,
                  -1.0, 2.0, 1e-30, 1e+30}},
                {"b",
                 {0.0, -0.0, 0.0, NOT, -1.0, -2.0, 0.5, 3.0, 0.3333333432674408, 3.0, -3.0, 3.0,
                  -3.0, INF, -INF, INF, 0.5, 2.0, 2.0}}},
     .outputs = {{"y",
                  {1.0, 1.0, 1.0, 1.0, -INF, INF, 0.0, -0.0, NOT, -8.0, -0.125, -INF, -0.0, 0.0,
                   0.0, 1.0, ANY, 0.0, INF},
                  .has_signed_zeros = true},
                 {"s", {1.4142135381698608}, .ulps = 1, .dtype = F32}}},
    {.id = "FC055",
     .graph = "graph @g(%x: f32[12] param) {\n"
              "%y = gelu(%x) {form=\"tanh\"}\n"
              "%loss = sum(%y)\n"
              "return loss=%loss, y=%y\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"x",
                 {-3.0000000054977558e+38, -10000000000.0, -40.0, -13.239999771118164, -6.0, -3.0,
                  0.0, 3.0, 13.239999771118164, 40.0, 10000000000.0, 3.0000000054977558e+38}}},
     .outputs = {{"y",
                  {0.0, 0.0, -0.0, -1.0531782462391026e-80, -8.439646700762297e-11,
                   -0.003637392081773019, 0.0, 2.996362607918227, 13.239999771118164, 40.0,
                   10000000000.0, 3.0000000054977558e+38},
                  .relative = 2e-06,
                  .absolute = 5e-07},
                 {"grad:x",
                  {0.0, 0.0, 0.0, 0.0, -7.709973930953696e-10, -0.011584166630969726, 0.5,
                   1.0115841666309697, 1.0, 1.0, 1.0, 1.0},
                  .relative = 2e-06,
                  .absolute = 5e-07}}},
    {.id = "FC057",
     .graph = "graph @g(%x: f32[7] param, %w: f32[7] param) {\n"
              "%y = softplus(%x)\n"
              "%z = log_sigmoid(%w)\n"
              "%s = add(%y, %z)\n"
              "%loss = sum(%s)\n"
              "return loss=%loss, y=%y, z=%z\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"x", {-100.0, -20.0, -1.0, 0.0, 20.0, 100.0, 1000.0}},
                {"w", {-100.0, -20.0, -1.0, 0.0, 20.0, 100.0, 1000.0}}},
     .outputs = {{"y",
                  {3.720075976020836e-44, 2.061153620314381e-09, 0.3132616875182228,
                   0.6931471805599453, 20.000000002061153, 100.0, 1000.0},
                  .relative = 1e-06,
                  .absolute = 1e-38},
                 {"z",
                  {-100.0, -20.000000002061153, -1.3132616875182228, -0.6931471805599453,
                   -2.061153620314381e-09, -3.720075976020836e-44, -0.0},
                  .relative = 1e-06,
                  .absolute = 1e-38},
                 {"grad:x",
                  {3.720075976020836e-44, 2.0611536181902037e-09, 0.2689414213699951, 0.5,
                   0.9999999979388464, 1.0, 1.0},
                  .absolute = 2e-07},
                 {"grad:w",
                  {1.0, 0.9999999979388464, 0.7310585786300049, 0.5, 2.0611536181902037e-09,
                   3.720075976020836e-44, 0.0},
                  .absolute = 2e-07}}},
    {.id = "FC058",
     .graph = "graph @g(%a: f32[11] input, %b: f32[11] input, %h: f16[3] input) {\n"
              "%y = atan2(%a, %b)\n"
              "%n = neg(%h)\n"
              "%w = atan2(%h, %n)\n"
              "return y=%y, w=%w\n"
              "}",
     .inputs = {{"a", {0.0, -0.0, 0.0, -0.0, 1.0, -1.0, INF, INF, -0.0, NOT, 3.0}},
                {"b", {-0.0, -0.0, 0.0, 0.0, 0.0, -0.0, INF, -INF, -2.0, 0.0, -INF}},
                {"h", {0.0, 5.960464477539063e-08, -5.960464477539063e-08}}},
     .outputs = {{"y",
                  {3.1415927410125732, -3.1415927410125732, 0.0, -0.0, 1.5707963705062866,
                   -1.5707963705062866, 0.7853981852531433, 2.356194496154785, -3.1415927410125732,
                   NOT, 3.1415927410125732},
                  .ulps = 1,
                  .has_signed_zeros = true,
                  .dtype = F32},
                 {"w", {3.140625, 2.35546875, -0.78515625}, .dtype = F16}}},
    {.id = "FC058 gradient",
     .graph = "graph @g(%y: f32[4] param, %x: f32[4] param, %z: f32[4] param) {\n"
              "%a = atan2(%y, %x)\n"
              "%b = atan(%z)\n"
              "%s = add(%a, %b)\n"
              "%loss = sum(%s)\n"
              "return loss=%loss\n"
              "}",
     .wants_gradients = true,
     .inputs = {{"y", {3.0, -1.0, 0.0, 2.0}},
                {"x", {4.0, 2.0, 0.0, 0.0}},
                {"z", {0.0, 1.0, -3.0, INF}}},
     .outputs = {{"grad:y", {0.16, 0.4, 0.0, 0.0}, .relative = 3e-07},
                 {"grad:x", {-0.12, 0.2, 0.0, -0.5}, .relative = 3e-07},
                 {"grad:z", {1.0, 0.5, 0.1, 0.0}, .relative = 3e-07}}},
    {.id = "FC059",
     .graph = "graph @g(%x: f32[5] input) {\n"
              "%a = log(%x)\n"
              "%q = sqrt(%x)\n"
              "%b = rsqrt(%x)\n"
              "%d = log1p(%x)\n"
              "%m = expm1(%x)\n"
              "%p = mul(%x, 0x1p100)\n"
              "%c = add(%x, %x)\n"
              "return a=%a, q=%q, b=%b, d=%d, m=%m, p=%p, c=%c\n"
              "}",
     .inputs = {{"x",
                 {9.99994610111476e-41, 9.949219096706201e-44, 1.401298464324817e-45,
                  1.1754942106924411e-38, 9.999999350456404e-39}}},
     .outputs = {{"a",
                  {-92.10340910966488, -99.01625002639054, -103.27892990343184, -87.3365448697624,
                   -87.49823359872809},
                  .relative = 3e-07},
                 {"q",
                  {9.999973025467516e-21, 3.1542382414208695e-22, 3.743392066509216e-23,
                   1.0842021078620191e-19, 9.999999682655225e-20}},
                 {"b",
                  {1.0000026949551561e+20, 3.1703375355754457e+21, 2.671373890628154e+22,
                   9.223372586610639e+18, 1.0000000324771813e+19},
                  .relative = 3e-07},
                 {"d",
                  {9.99994610111476e-41, 9.949219096706201e-44, 1.401298464324817e-45,
                   1.1754942106924411e-38, 9.999999350456404e-39}},
                 {"m",
                  {9.99994610111476e-41, 9.949219096706201e-44, 1.401298464324817e-45,
                   1.1754942106924411e-38, 9.999999350456404e-39}},
                 {"p",
                  {1.2676437677328067e-10, 1.2612133559741778e-13, 1.7763568394002505e-15,
                   1.4901159417490817e-08, 1.2676505178887965e-08}},
                 {"c",
                  {1.999989220222952e-40, 1.9898438193412402e-43, 2.802596928649634e-45,
                   2.3509884213848822e-38, 1.9999998700912808e-38}}}},
    {.id = "FC061",
     .graph = "graph @g(%x: f32[4] input, %h: f32[] input) {\n"
              "%r = relu(%x)\n"
              "%c = clamp(%x) {low=0, high=1}\n"
              "%m = maximum(%x, %h)\n"
              "%n = minimum(%h, %x)\n"
              "return r=%r, c=%c, m=%m, n=%n\n"
              "}",
     .inputs = {{"x", {NOT, -1.0, 2.0, -0.0}, .count = 4}, {"h", {0.5}}},
     .outputs = {{"r", {NOT, 0.0, 2.0, 0.0}, .count = 4},
                 {"c", {NOT, 0.0, 1.0, 0.0}, .count = 4},
                 {"m", {NOT, 0.5, 2.0, 0.5}, .count = 4},
                 {"n", {NOT, -1.0, 0.5, -0.0}, .count = 4}}},
    {.id = "FC061",
     .graph = "graph @g(%x: f32[19] input, %h: f32[] input) {\n"
              "%r = relu(%x)\n"
              "%c = clamp(%x) {low=0, high=1}\n"
              "%m = maximum(%x, %h)\n"
              "%n = minimum(%h, %x)\n"
              "return r=%r, c=%c, m=%m, n=%n\n"
              "}",
     .inputs = {{"x", {NOT, -1.0, 2.0, -0.0}, .count = 4}, {"h", {0.5}}},
     .outputs = {{"r", {NOT, 0.0, 2.0, 0.0}, .count = 4},
                 {"c", {NOT, 0.0, 1.0, 0.0}, .count = 4},
                 {"m", {NOT, 0.5, 2.0, 0.5}, .count = 4},
                 {"n", {NOT, -1.0, 0.5, -0.0}, .count = 4}}},
    {.id = "FC061",
     .graph = "graph @g(%x: f32[4096] input, %h: f32[] input) {\n"
              "%r = relu(%x)\n"
              "%c = clamp(%x) {low=0, high=1}\n"
              "%m = maximum(%x, %h)\n"
              "%n = minimum(%h, %x)\n"
              "return r=%r, c=%c, m=%m, n=%n\n"
              "}",
     .inputs = {{"x", {NOT, -1.0, 2.0, -0.0}, .count = 4}, {"h", {0.5}}},
     .outputs = {{"r", {NOT, 0.0, 2.0, 0.0}, .count = 4},
                 {"c", {NOT, 0.0, 1.0, 0.0}, .count = 4},
                 {"m", {NOT, 0.5, 2.0, 0.5}, .count = 4},
                 {"n", {NOT, -1.0, 0.5, -0.0}, .count = 4}}},
};

START_TEST(field_case)
{
    check_case(&cases[_i]);
}
END_TEST

/* Every kind of NaN narrows to a NaN, infinities stay, the largest f32 rounds to infinity. */
START_TEST(fc023_nan_narrows_to_nan)
{
    static const uint32_t bits[9] = {0x7F800001, 0xFF800001, 0x7FBFFFFF, 0x7FFFFFFF, 0x7F80FFFF,
                                     0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF};
    static const double right[9] = {NOT, NOT, NOT, NOT, NOT, NOT, INF, -INF, INF};
    const char *text = "graph @g(%x: f32[9] input) {\n%y = cast(%x) {dtype=bf16}\nreturn y=%y\n}";
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "FC023", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    for (int is_eager = 0; is_eager < 2; is_eager++) {
        struct runner r;
        struct compile_options o = {.is_eager = is_eager != 0, .cache = shared_kernels()};
        struct tensor x = {.dtype = F32, .rank = 1, .shape = {9}, .data = (void *)(uintptr_t)bits};
        ck_assert_msg(runner_open(&r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(runner_input(&r, "x", &x, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(runner_step(&r, &e) == ATOLL_OK, "%s", e.text);
        struct tensor y = runner_output(&r, "y");
        for (int k = 0; k < 9; k++) {
            double found = dtype_load(BF16, (const uint16_t *)y.data + k);
            ck_assert_msg(right[k] != right[k] ? found != found : found == right[k],
                          "FC023[%d]: %g", k, found);
        }
        runner_free(&r);
    }
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, fc023_nan_narrows_to_nan);
    tcase_add_loop_test(tc, field_case, 0, ARRAY_LEN(cases));
}

int main(void)
{
    return run_suite("field cases, values", fill);
}
