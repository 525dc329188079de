/* The system C compiler, as a child process: C text in, bytes of a shared object out. */
#ifndef ATOLL_CODEGEN_CC_H
#define ATOLL_CODEGEN_CC_H

#include "ir/base.h"

struct cc_options {
    const char *compiler;  /* NULL: "cc" from the PATH */
    const char *temporary; /* directory for the build's files; NULL: /tmp */
    const char *march;     /* NULL: "native" */
    const char *optimise;  /* NULL: "-O2"; changes no value */
    const char *policy;    /* "bf16 strict": what the code was made under; NULL: nothing said */
    const char *model;     /* whose code it is, to explain a miss of the cache; NULL: nobody's */
};

/* Compiles n translation units (each of size sizes[i]) at once and links one shared object; *out is
 * malloc'ed, the caller frees it. ATOLL_COMPILER with the compiler's first error line when it
 * fails, or when none is found. */
status cc_compile(const struct cc_options *o, const char *const *units, const size_t *sizes,
                  uint32_t n, void **out, size_t *out_size, struct error *e);
/* The flags, as one line: part of every cache key. */
const char *cc_flags(void);
/* First line of `cc --version`, or "" (allocated in arena). */
const char *cc_version(const struct cc_options *o, struct arena *arena);

#endif
