/* Planted faults: models of which one node makes a NaN or an infinity, for every executor to find.
 */
#ifndef ATOLL_TESTS_FAULTS_H
#define ATOLL_TESTS_FAULTS_H

#include "frontend/nonfinite.h"
#include "ir/parse.h"

#include "tests/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct fault {
    const char *body; /* nodes and return, over the leaves of head */
    double x;         /* every element of %x, 4 x 8 */
    const char *optimizer;
    const char *node, *op;
    enum nonfinite_kind kind;
    enum step_phase phase;
    uint32_t least_in_kernel; /* fused: ops of the kernel it is inside of */
};

/* %p holds a parameter of ones, %tiny one of 1e-41, %zero one of zeros. */
static const char fault_head[] =
    "graph @g(%x: f32[4,8] input, %p: f32[8] param {init=\"ones\"}, %tiny: f32[8] param "
    "{init=\"1e-41\"},\n  %zero: f32[8] param {init=\"zeros\"}, %big: f32[8,8] param "
    "{init=\"3e38\"}, %bad: f32[8] buffer {init=\"ones\"}) {\n  %k = mul(%x, %p)\n";

#define MEAN(v) "  %loss = mean(" v ")\n  return loss=%loss\n"
#define CHAIN4(a, b, c, d, e)                                                                      \
    "  %" b " = add(%" a ", 0.5)\n  %" c " = tanh(%" b ")\n  %" d " = mul(%" c ", 3)\n  %" e       \
    " = relu(%" d ")\n"

/* Twenty ops before the fault and twenty behind it, which hide it: the end is finite again. */
#define LONG_BEFORE                                                                                \
    CHAIN4("k", "a1", "a2", "a3", "a4")                                                            \
    CHAIN4("a4", "a5", "a6", "a7", "a8")                                                           \
    CHAIN4("a8", "a9", "a10", "a11", "a12")                                                        \
    CHAIN4("a12", "a13", "a14", "a15", "a16") CHAIN4("a16", "a17", "a18", "a19", "a20")
#define LONG_BEHIND                                                                                \
    CHAIN4("t", "b1", "b2", "b3", "b4")                                                            \
    CHAIN4("b4", "b5", "b6", "b7", "b8")                                                           \
    CHAIN4("b8", "b9", "b10", "b11", "b12")                                                        \
    CHAIN4("b12", "b13", "b14", "b15", "b16") CHAIN4("b16", "b17", "b18", "b19", "b20")

static const struct fault faults[] = {
    /* forward */
    {"  %z = exp(%k)\n" MEAN("%z"), 200, NULL, "z", "exp", NONFINITE_OVERFLOW, PHASE_FORWARD, 2},
    {"  %a = sub(%k, 1)\n  %z = log(%a)\n" MEAN("%z"), 1, NULL, "z", "log", NONFINITE_DIVISION,
     PHASE_FORWARD, 3},
    {"  %z = log(%k)\n" MEAN("%z"), -1, NULL, "z", "log", NONFINITE_INVALID, PHASE_FORWARD, 2},
    {"  %z = sqrt(%k)\n" MEAN("%z"), -4, NULL, "z", "sqrt", NONFINITE_INVALID, PHASE_FORWARD, 2},
    {"  %z = div(%k, %zero)\n" MEAN("%z"), 1, NULL, "z", "div", NONFINITE_DIVISION, PHASE_FORWARD,
     2},
    {"  %z = div(%k, %zero)\n" MEAN("%z"), 0, NULL, "z", "div", NONFINITE_INVALID, PHASE_FORWARD,
     2},
    {"  %z = pow(%k, -2)\n" MEAN("%z"), 0, NULL, "z", "pow", NONFINITE_DIVISION, PHASE_FORWARD, 2},
    {"  %z = cast(%k) {dtype=f16}\n  %s = cast(%z) {dtype=f32}\n" MEAN("%s"), 7e4, NULL, "z",
     "cast", NONFINITE_OVERFLOW, PHASE_FORWARD, 2},
    {"  %c = cast(%k) {dtype=f16}\n  %z = mul(%c, %c)\n  %s = cast(%z) {dtype=f32}\n" MEAN("%s"),
     300, NULL, "z", "mul", NONFINITE_OVERFLOW, PHASE_FORWARD, 3},
    {"  %z = cast(%k) {dtype=f8e4m3}\n  %s = cast(%z) {dtype=f32}\n" MEAN("%s"), 500, NULL, "z",
     "cast", NONFINITE_OVERFLOW, PHASE_FORWARD, 2},
    {"  %z = linear(%k, %big)\n  %t = tanh(%z)\n" MEAN("%t"), 2, NULL, "z", "linear",
     NONFINITE_OVERFLOW, PHASE_FORWARD, 0},
    {"  %z = sum(%k) {axes=[1]}\n  %t = tanh(%z)\n" MEAN("%t"), 1e38, NULL, "z", "sum",
     NONFINITE_OVERFLOW, PHASE_FORWARD, 2},
    {"  %m = lt(%k, 0)\n  %a = where(%m, %k, -inf)\n  %z = softmax(%a)\n" MEAN("%z"), 1, NULL, "z",
     "sub", NONFINITE_INVALID, PHASE_FORWARD, 4},
    {"  %i = cast(%k) {dtype=i64}\n  %r = reshape(%i) {shape=[32]}\n  %z = take(%p, %r)\n" MEAN(
         "%z"),
     99, NULL, "z", "take", NONFINITE_INVALID, PHASE_FORWARD, 0},
    /* inside one long kernel, and hidden behind it */
    {LONG_BEFORE
     "  %u = mul(%a20, 1e30)\n  %v = mul(%u, 1e30)\n  %t = tanh(%v)\n" LONG_BEHIND MEAN("%b20"),
     1, NULL, "v", "mul", NONFINITE_OVERFLOW, PHASE_FORWARD, 44},
    {LONG_BEFORE "  %e = exp(%k)\n  %t = reciprocal(%e)\n" LONG_BEHIND MEAN("%b20"), 150, NULL, "e",
     "exp", NONFINITE_OVERFLOW, PHASE_FORWARD, 23},
    /* backward */
    {"  %a = sub(%k, 1)\n  %r = sqrt(%a)\n" MEAN("%r"), 1, NULL, "r.grad", "div",
     NONFINITE_DIVISION, PHASE_BACKWARD, 2},
    {"  %a = sub(%k, 1)\n  %m = gt(%a, 0)\n  %r = sqrt(%a)\n  %z = where(%m, %r, 0)\n" MEAN("%z"),
     1, NULL, "r.grad", "div", NONFINITE_INVALID, PHASE_BACKWARD, 2},
    {"  %l = log(%tiny)\n  %a = mul(%l, %x)\n" MEAN("%a"), 1, NULL, "l.grad", "div",
     NONFINITE_OVERFLOW, PHASE_BACKWARD, 1},
    {"  %c = cast(%k) {dtype=f16}\n  %c1 = mul(%c, 1000)\n  %c2 = mul(%c1, 1000)\n"
     "  %c3 = mul(%c2, 1000)\n  %s = cast(%c3) {dtype=f32}\n  %loss = sum(%s)\n"
     "  return loss=%loss\n",
     1e-7, NULL, "c2.grad", "mul", NONFINITE_OVERFLOW, PHASE_BACKWARD, 2},
    {LONG_BEFORE
     "  %q = sub(%a20, %a20)\n  %r = sqrt(%q)\n  %t = mul(%r, 1)\n" LONG_BEHIND MEAN("%b20"),
     0.25, NULL, "r.grad", "div", NONFINITE_DIVISION, PHASE_BACKWARD, 20},
    /* update */
    {MEAN("%k"), 1e5, "sgd,lr=1e36", "", "mul", NONFINITE_OVERFLOW, PHASE_UPDATE, 1},
    {"  %o = mul(%k, 0)\n" MEAN("%o"), 1, "adam,eps=0", "", "div", NONFINITE_INVALID, PHASE_UPDATE,
     1},
    /* given */
    {MEAN("%k"), (double)NAN, NULL, "x", "input", NONFINITE_GIVEN, PHASE_FORWARD, 0},
};

static inline struct graph *fault_model(const char *body)
{
    static char text[8000];
    struct error e = {0};
    snprintf(text, sizeof text, "%s%s}\n", fault_head, body);
    struct graph *g = graph_parse_lines(text, strlen(text), "fault.graph", &e);
    ck_assert_msg(g != NULL, "%s\n%s", e.text, text);
    return g;
}

static inline void fault_feed(struct runner *r, double x)
{
    float values[32];
    struct error e = {0};
    for (int i = 0; i < 32; i++) {
        values[i] = (float)x;
    }
    struct tensor t = {.dtype = F32, .rank = 2, .shape = {4, 8}, .data = values};
    ck_assert_msg(runner_input(r, "x", &t, &e) == ATOLL_OK, "%s", e.text);
}

static inline void check_fault(const struct fault *f, const struct nonfinite *out)
{
    ck_assert_msg(out->kind == f->kind, "found %s (%s), expected %s",
                  nonfinite_kind_name[out->kind], out->text, nonfinite_kind_name[f->kind]);
    ck_assert_msg(strcmp(out->node, f->node) == 0 && strcmp(out->op, f->op) == 0,
                  "found %s, expected %s (%s)", out->text, f->node, f->op);
    ck_assert_msg(out->phase == f->phase, "%s", out->text);
    ck_assert(f->kind == NONFINITE_GIVEN || out->n_operands > 0);
    ck_assert(f->node[0] == '\0' || strcmp(out->location.file, "fault.graph") == 0);
}

#endif
