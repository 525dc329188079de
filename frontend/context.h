/* The environment, read once: the rows of env.def. */
#ifndef ATOLL_FRONTEND_CONTEXT_H
#define ATOLL_FRONTEND_CONTEXT_H

#include "frontend/compile.h"

struct context {
#define X(name, member, doc) const char *member;
#include "frontend/env.def"
#undef X
    char cache_path[1024];
    char dump_path[1024];
    uint32_t n_dumped;
    void (*print)(const char *line); /* where log lines and warnings go; NULL: nowhere */
    uint64_t warned;                 /* hash of the last warning: each is printed once */
};

void context_read(struct context *c);
/* Compiler, cache, warnings (on stderr) and dumping of a compilation as the environment asks for.
 * IO when ATOLL_DUMP is no directory that can be written. */
status context_apply(struct context *c, struct compile_options *o, struct error *e);
/* Where the CUDA libraries are, and what their devices log to. */
struct device_options context_devices(struct context *c);
/* One line a knob, into t. */
void context_help(struct text *t);

#endif
