/* Runs the system C compiler: units compile side by side, then one link. The flags pin the
 * floating-point contract: no contraction, no value-changing maths. All files live in one private
 * temporary directory that is removed before returning. */
#include "cc.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Compilers take half of a 512-bit processor's width by default; rows of arithmetic want all. */
#if defined(__x86_64__)
#define VECTOR_WIDTH "-mprefer-vector-width=512"
#else
#define VECTOR_WIDTH "-fno-plt"
#endif

/* -fno-trapping-math and -fno-math-errno change no value; they let comparisons and square roots
 * vectorise. -O2 with the vectoriser and unrolled lanes makes loops as fast as those of -O3 in
 * two thirds of the time: the prelude's functions are always inlined. */
static const char *const flags[] = {"-std=c17",
                                    "-ftree-vectorize",
                                    "-fvect-cost-model=dynamic",
                                    "-fpeel-loops",
                                    "-ffp-contract=off",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-fopenmp",
                                    "-fPIC",
                                    "-w",
                                    "-fno-ident",
                                    "-fno-stack-protector",
                                    VECTOR_WIDTH};
enum { MAX_UNITS = 16, MAX_TEMPORARY = 1000 };

const char *cc_flags(void)
{
    return "-std=c17 -O2 -ftree-vectorize -fvect-cost-model=dynamic -fpeel-loops -ffp-contract=off "
           "-fno-math-errno -fno-trapping-math -fopenmp -fPIC " VECTOR_WIDTH;
}

static status spawn_compiler(const char *const *args, const char *log, pid_t *pid, struct error *e)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    union {
        const char *const *in;
        char *const *out;
    } argv = {.in = args};
    int code = posix_spawnp(pid, args[0], &actions, NULL, argv.out, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) {
        return fail(e, ATOLL_COMPILER,
                    "C compiler '%s' cannot be started: %s; hint: install gcc or set ATOLL_CC, or "
                    "load a compiled plan",
                    args[0], strerror(code));
    }
    return ATOLL_OK;
}

static bool wait_ok(pid_t pid)
{
    int result = 0;
    while (waitpid(pid, &result, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

static status log_failure(const char *log, const char *compiler, struct error *e)
{
    char line[512] = "no message";
    FILE *f = fopen(log, "r");
    if (f != NULL) {
        char text[512];
        bool found = false;
        while (!found && fgets(text, sizeof text, f) != NULL) {
            bool is_summary = strncmp(text, "collect2:", 9) == 0; /* the linker said it before */
            found = strstr(text, "error") != NULL;
            text[strcspn(text, "\n")] = '\0';
            if (!is_summary) {
                memcpy(line, text, sizeof line);
            }
        }
        fclose(f);
    }
    return fail(e, ATOLL_COMPILER, "'%s' failed on generated code: %s", compiler, line);
}

static status read_file(const char *path, void **out, size_t *size, struct error *e)
{
    FILE *f = fopen(path, "rb");
    struct stat info;
    if (f == NULL || fstat(fileno(f), &info) != 0) {
        if (f != NULL) {
            fclose(f);
        }
        return fail(e, ATOLL_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    *size = (size_t)info.st_size;
    *out = malloc(*size + 1);
    if (*out == NULL) {
        fclose(f);
        return fail(e, ATOLL_OUT_OF_MEMORY, "%s: no memory for %zu bytes", path, *size);
    }
    bool ok = fread(*out, 1, *size, f) == *size;
    fclose(f);
    if (!ok) {
        free(*out);
        *out = NULL;
        return fail(e, ATOLL_IO, "%s: short read", path);
    }
    return ATOLL_OK;
}

static status write_file(const char *path, const char *data, size_t size, struct error *e)
{
    FILE *f = fopen(path, "wb");
    bool ok = f != NULL && fwrite(data, 1, size, f) == size;
    ok = f != NULL && fclose(f) == 0 && ok;
    return ok ? ATOLL_OK : fail(e, ATOLL_IO, "%s: cannot write: %s", path, strerror(errno));
}

struct build {
    const char *compiler, *march, *optimise;
    char directory[MAX_TEMPORARY + 24], log[MAX_TEMPORARY + 64];
    char sources[MAX_UNITS][MAX_TEMPORARY + 64], objects[MAX_UNITS][MAX_TEMPORARY + 64];
    char library[MAX_TEMPORARY + 64];
};

static status compile_units(struct build *b, const char *const *units, const size_t *sizes,
                            uint32_t n, struct error *e)
{
    pid_t pids[MAX_UNITS];
    uint32_t started = 0;
    status code = ATOLL_OK;
    for (uint32_t i = 0; i < n && code == ATOLL_OK; i++) {
        const char *args[ARRAY_LEN(flags) + 8];
        uint32_t at = 0;
        args[at++] = b->compiler;
        for (uint32_t k = 0; k < ARRAY_LEN(flags); k++) {
            args[at++] = flags[k];
        }
        args[at++] = b->optimise;
        args[at++] = b->march;
        args[at++] = "-c";
        args[at++] = b->sources[i];
        args[at++] = "-o";
        args[at++] = b->objects[i];
        args[at] = NULL;
        code = write_file(b->sources[i], units[i], sizes[i], e);
        if (code == ATOLL_OK) {
            code = spawn_compiler(args, b->log, &pids[i], e);
            started += code == ATOLL_OK;
        }
    }
    bool ok = true;
    for (uint32_t i = 0; i < started; i++) {
        ok = wait_ok(pids[i]) && ok;
    }
    return code == ATOLL_OK && !ok ? log_failure(b->log, b->compiler, e) : code;
}

static status link_units(struct build *b, uint32_t n, struct error *e)
{
    const char *args[MAX_UNITS + 8];
    uint32_t at = 0;
    pid_t pid;
    args[at++] = b->compiler;
    args[at++] = "-shared";
    args[at++] = "-fopenmp";
    for (uint32_t i = 0; i < n; i++) {
        args[at++] = b->objects[i];
    }
    args[at++] = "-o";
    args[at++] = b->library;
    args[at] = NULL;
    TRY(spawn_compiler(args, b->log, &pid, e));
    return wait_ok(pid) ? ATOLL_OK : log_failure(b->log, b->compiler, e);
}

/* Where the compiler's files go, made afresh. */
static status make_directory(struct build *b, const char *temporary, struct error *e)
{
    size_t length = strlen(temporary);
    if (length > MAX_TEMPORARY) {
        return fail(e, ATOLL_IO,
                    "temporary directory '%.40s...' has a name of %zu bytes, expected at most %d; "
                    "hint: set TMPDIR to a shorter path",
                    temporary, length, MAX_TEMPORARY);
    }
    snprintf(b->directory, sizeof b->directory, "%s/atoll-XXXXXX", temporary);
    if (mkdtemp(b->directory) == NULL) {
        return fail(e, ATOLL_IO,
                    "no temporary directory can be made in %s: %s; hint: set TMPDIR to a directory "
                    "that can be written",
                    temporary, strerror(errno));
    }
    return ATOLL_OK;
}

status cc_compile(const struct cc_options *o, const char *const *units, const size_t *sizes,
                  uint32_t n, void **out, size_t *out_size, struct error *e)
{
    struct build *b = calloc(1, sizeof *b);
    char march[64];
    if (b == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    snprintf(march, sizeof march, "-march=%s", o != NULL && o->march != NULL ? o->march : "native");
    b->compiler = o != NULL && o->compiler != NULL ? o->compiler : "cc";
    b->march = march;
    b->optimise = o != NULL && o->optimise != NULL ? o->optimise : "-O2";
    status code = n <= MAX_UNITS ? ATOLL_OK : fail(e, ATOLL_INTERNAL, "over %d units", MAX_UNITS);
    if (code == ATOLL_OK) {
        code = make_directory(b, o != NULL && o->temporary != NULL ? o->temporary : "/tmp", e);
    }
    if (code != ATOLL_OK) {
        free(b);
        return code;
    }
    snprintf(b->log, sizeof b->log, "%s/log", b->directory);
    snprintf(b->library, sizeof b->library, "%s/kernels.so", b->directory);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(b->sources[i], sizeof b->sources[i], "%s/unit%u.c", b->directory, i);
        snprintf(b->objects[i], sizeof b->objects[i], "%s/unit%u.o", b->directory, i);
    }
    code = compile_units(b, units, sizes, n, e);
    code = code == ATOLL_OK ? link_units(b, n, e) : code;
    code = code == ATOLL_OK ? read_file(b->library, out, out_size, e) : code;
    for (uint32_t i = 0; i < n; i++) {
        unlink(b->sources[i]);
        unlink(b->objects[i]);
    }
    unlink(b->library);
    unlink(b->log);
    rmdir(b->directory);
    free(b);
    return code;
}

const char *cc_version(const struct cc_options *o, struct arena *arena)
{
    const char *compiler = o != NULL && o->compiler != NULL ? o->compiler : "cc";
    int pipes[2];
    pid_t pid;
    char line[256] = "";
    if (pipe(pipes) != 0) {
        return "";
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    posix_spawn_file_actions_addclose(&actions, pipes[0]);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    union {
        const char *const *in;
        char *const *out;
    } argv = {.in = (const char *const[]){compiler, "--version", NULL}};
    int started = posix_spawnp(&pid, compiler, &actions, NULL, argv.out, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    if (started == 0) {
        size_t got = 0;
        for (ssize_t k; got + 1 < sizeof line &&
                        (k = read(pipes[0], line + got, sizeof line - 1 - got)) > 0;) {
            got += (size_t)k;
        }
        line[got] = '\0';
        line[strcspn(line, "\n")] = '\0';
        wait_ok(pid);
    }
    close(pipes[0]);
    return arena_copy_text(arena, line);
}
