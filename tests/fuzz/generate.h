/* Random cases for atoll-fuzz: a model graph and how to compile, feed and step it. One seed and one
 * number give one case, on every machine. A case prints as a .graph file whose first comment line
 * holds everything but the graph. */
#ifndef ATOLL_TESTS_FUZZ_GENERATE_H
#define ATOLL_TESTS_FUZZ_GENERATE_H

#include "ir/graph.h"

struct draw {
    uint64_t state;
};
uint64_t draw_u64(struct draw *d);
uint32_t draw_below(struct draw *d, uint32_t n); /* 0 to n - 1; 0 when n is 0 */
bool draw_chance(struct draw *d, uint32_t percent);

enum { MAX_CASE_STEPS = 8, N_DATA_STYLES = 6 };

struct fuzz_case {
    struct graph *graph;
    char policy[32]; /* "none": no policy */
    bool is_trained;
    char optimizer[96], schedule[64];
    char params[200];    /* how parameters are kept, NAME=FORM,...; empty: as they are */
    double clip, scaler; /* 0: none; scaler: the first scale */
    int64_t accumulate;
    bool skips, low; /* skips_nonfinite, allows_low_params */
    uint64_t data;   /* seed of the tensors */
    uint32_t style;  /* which numbers they hold */
    uint32_t n_steps;
    int64_t sizes[MAX_CASE_STEPS]; /* what each symbol is bound to, step by step */
};

/* The caller destroys out->graph. */
void generate_case(uint64_t seed, uint64_t number, struct fuzz_case *out);

void case_print(const struct fuzz_case *c, struct text *t);
/* Reads what case_print writes. */
status case_parse(const char *text, size_t size, const char *file, struct fuzz_case *out,
                  struct error *e);

#endif
