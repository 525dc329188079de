/* PTX as the emulator executes it: a module is global variables and kernels; a kernel is one flat
 * array of decoded instructions (device functions are expanded where they are called) over a file
 * of registers. A register is a slot of 32 lanes, 4 bytes each (predicates, 8 to 32 bits) or 8
 * bytes each (64 bits), so that one instruction is a loop over the lanes of a warp. Operands are
 * byte offsets of slots in the file; constants and special registers are slots too. */
#ifndef ATOLL_EMULATOR_PTX_H
#define ATOLL_EMULATOR_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES        32
#define MAX_OPERANDS 9
#define SLOT_UNIT    (LANES * 4u) /* slots start at multiples of it */

enum space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM, SPACE_CONST };

/* Generic addresses of the spaces that are not global memory. */
#define SHARED_WINDOW ((uint64_t)0x01 << 40)
#define LOCAL_WINDOW  ((uint64_t)0x02 << 40)
#define PARAM_WINDOW  ((uint64_t)0x03 << 40)
#define WINDOW_BYTES  ((uint64_t)1 << 24)

enum instruction_kind {
    KIND_PLAIN,     /* run() and on */
    KIND_BRANCH,    /* to target */
    KIND_EXIT,      /* the thread ends */
    KIND_BARRIER,   /* r[0]: barrier, r[1]: threads or 0 */
    KIND_WARP_SYNC, /* run() once the lanes of the member mask r[4] are there */
    KIND_TRAP,
};

struct warp;
struct instruction;
typedef void run_function(struct warp *w, const struct instruction *in);

struct instruction {
    run_function *run;
    uint32_t r[MAX_OPERANDS]; /* slots; 0: absent. Table rows: d, a, b, c. ld, st, atom: see exec */
    uint32_t guard;           /* slot of the predicate; 0: always */
    uint32_t line;            /* of the PTX text */
    uint32_t target;          /* branch */
    int64_t immediate;        /* address displacement, lop3 table, ... */
    uint8_t kind, is_guard_negated;
    uint8_t space, bytes, count, is_signed; /* ld, st, atom: of one element, elements */
    uint8_t is_address_narrow;              /* the address register has 32 bits */
    uint8_t is_noncoherent;                 /* ld.global.nc */
    uint8_t n_defs;                         /* r[0..n_defs) are written, the rest read, */
    uint8_t extra_def;                      /* but r[extra_def], if not 0, is written, too */
    uint8_t action;                         /* atom, shfl, vote, barrier: which */
    uint8_t from, to, rounding, saturate;   /* cvt: enum ptx_type, enum rounding */
};

struct constant_slot {
    uint32_t slot;
    uint8_t bytes;
    bool is_dynamic_shared; /* value is an offset behind static shared memory */
    uint64_t value;
};
/* Special registers: filled when a block starts. */
enum special {
#define X(id, name, width) SPECIAL_##id,
#include "special_registers.def"
#undef X
    N_SPECIALS
};
struct special_slot {
    uint32_t slot;
    enum special id;
};

struct parameter {
    uint32_t offset, bytes;
};

struct kernel {
    const char *name;
    struct module *module;
    struct instruction *code;
    uint32_t n_code, code_room;
    uint32_t file_bytes; /* of one warp's registers */
    bool *is_wide;       /* [slot / SLOT_UNIT] while decoding: has 8 bytes a lane */
    uint32_t wide_room;
    uint32_t carry_slot; /* while decoding: the carry flag; 0: not used */
    struct constant_slot *constants;
    uint32_t n_constants, constants_room;
    struct special_slot *specials;
    uint32_t n_specials, specials_room;
    struct parameter *parameters;
    uint32_t n_parameters, parameters_room, parameter_bytes;
    uint32_t shared_bytes, local_bytes;
    uint32_t shared_granule; /* smallest access to shared memory: 1, 2 or 4 bytes */
    uint32_t max_threads;    /* .maxntid, .reqntid; 0: none */
    uint32_t required[3];    /* .reqntid; 0: none */
    uint32_t n_registers;    /* named in the text */
    uint32_t dynamic_shared; /* most that a launch may ask for, set by cuFuncSetAttribute */
    bool is_function;        /* a .func: expanded at its calls, not launched */
    const char *body;        /* text behind the header's '(' or '{' */
    uint32_t body_line;
    bool is_decoded;
};

struct global_variable {
    const char *name;
    uint64_t address, bytes;
};

struct module {
    struct block_of_memory *memory; /* everything of the module, freed with it */
    char *text;
    struct kernel *kernels;
    uint32_t n_kernels, kernels_room;
    struct global_variable *globals;
    uint32_t n_globals, globals_room;
    unsigned target;  /* 80 of sm_80 */
    bool is_specific; /* sm_90a: runs on that device only */
};

/* Parses PTX text; NULL on error, with one line "ptx line N: ..." in error. */
struct module *module_load(const char *text, char *error, size_t error_size);
void module_unload(struct module *m);
struct kernel *module_kernel(struct module *m, const char *name);

/* registers.c: gives registers that do not live at the same time one slot. */
void pack_registers(struct kernel *k);

void module_release_memory(struct module *m);
void *module_alloc(struct module *m, size_t bytes);
void *module_grow(struct module *m, void *array, uint32_t n, uint32_t *room, size_t item);

#endif
