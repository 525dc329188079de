/* atoll-fuzz: random graphs, fused against eager, bit for bit. Graph numbers are dealt to child
 * processes, so that a crash or a hang is one failed graph and the run goes on. One seed and one
 * number give the same graph on every machine. */
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shrink.h"

enum { MAX_JOBS = 16, SECONDS_A_GRAPH = 120 };

struct options {
    uint64_t graphs, first, seed;
    double minutes;
    const char *keep, *replay;
    bool shrinks, shows_coverage;
    uint32_t n_jobs;
    struct check_options check;
    int level; /* -1: mixed */
};

/* Shared by parent and children. */
struct shared {
    _Atomic uint64_t next, passed, failed, refused, values, kernels, compiler_ms;
    _Atomic uint64_t current[MAX_JOBS];
    _Atomic uint32_t covered[256];
};

static const char help[] =
    "usage: atoll-fuzz [--graphs N] [--seed S] [--threads 1,2,3] [--minutes M] [--keep DIR]\n"
    "                  [--shrink] [--coverage] [--jobs J] [--level 0..3] [--first N]\n"
    "       atoll-fuzz --replay FILE.graph [--shrink]\n"
    "Runs random graphs fused and eager and compares all outputs and leaves bit for bit.\n"
    "Exit status: 0 all equal, 1 a difference, 2 usage.\n";

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool read_threads(const char *text, struct check_options *o)
{
    o->n_threads = 0;
    while (*text != '\0' && o->n_threads < 8) {
        char *end;
        long n = strtol(text, &end, 10);
        if (n < 1 || n > 256 || end == text) {
            return false;
        }
        o->threads[o->n_threads++] = (int)n;
        text = *end == ',' ? end + 1 : end;
    }
    return o->n_threads > 0;
}

static bool read_options(int argc, char **argv, struct options *o)
{
    *o = (struct options){.graphs = 100, .seed = 1, .n_jobs = 2, .level = -1};
    o->check = (struct check_options){.threads = {1, 2, 3}, .n_threads = 3};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(a, "--shrink") == 0) {
            o->shrinks = true;
            continue;
        }
        if (strcmp(a, "--coverage") == 0) {
            o->shows_coverage = true;
            continue;
        }
        i++;
        if (i >= argc) {
            return false;
        }
        if (strcmp(a, "--graphs") == 0) {
            o->graphs = strtoull(v, NULL, 10);
        } else if (strcmp(a, "--first") == 0) {
            o->first = strtoull(v, NULL, 10);
        } else if (strcmp(a, "--seed") == 0) {
            o->seed = strtoull(v, NULL, 10);
        } else if (strcmp(a, "--minutes") == 0) {
            o->minutes = strtod(v, NULL);
        } else if (strcmp(a, "--keep") == 0) {
            o->keep = v;
        } else if (strcmp(a, "--replay") == 0) {
            o->replay = v;
        } else if (strcmp(a, "--level") == 0) {
            o->level = (int)strtol(v, NULL, 10);
        } else if (strcmp(a, "--jobs") == 0) {
            o->n_jobs = (uint32_t)strtoul(v, NULL, 10);
        } else if (strcmp(a, "--threads") != 0 || !read_threads(v, &o->check)) {
            return false;
        }
    }
    return o->n_jobs >= 1 && o->n_jobs <= MAX_JOBS;
}

/* ---- reports ---- */

static void print_case(const struct fuzz_case *c, FILE *to)
{
    struct arena scratch = {0};
    struct text t = {.arena = &scratch};
    case_print(c, &t);
    fputs(t.data, to);
    arena_free(&scratch);
}

static void keep_case(const struct options *o, uint64_t number, const struct fuzz_case *c)
{
    char path[600];
    if (o->keep == NULL) {
        return;
    }
    snprintf(path, sizeof path, "%s/%" PRIu64 "_%" PRIu64 ".graph", o->keep, o->seed, number);
    FILE *f = fopen(path, "w");
    if (f == NULL) {
        fprintf(stderr, "atoll-fuzz: %s: cannot write\n", path);
        return;
    }
    print_case(c, f);
    fclose(f);
}

static void report(const struct options *o, uint64_t number, struct fuzz_case *c, struct verdict *v)
{
    printf("seed %" PRIu64 " graph %" PRIu64 ": %s\n", o->seed, number, v->text);
    keep_case(o, number, c);
    if (o->shrinks) {
        alarm(0);
        shrink_case(c, &o->check, 60.0, v);
        printf("shrunk: %s\n", v->text);
        keep_case(o, number, c);
    }
    print_case(c, stdout);
    printf("\n");
    fflush(stdout);
}

/* ---- children ---- */

/* The level may change no bit; low ones compile five times faster. */
static int mixed_level(uint64_t number)
{
    static const int levels[8] = {3, 0, 1, 0, 0, 0, 1, 0};
    return levels[number % 8];
}

static void one_graph(struct options *o, struct shared *s, uint64_t number)
{
    struct fuzz_case c;
    struct verdict v;
    generate_case(o->seed, number, &c);
    o->check.optimise = o->level >= 0 ? o->level : mixed_level(number);
    o->check.is_unfused = number % 16 == 9;
    alarm(SECONDS_A_GRAPH);
    check_case(&c, &o->check, &v);
    s->values += v.n_values;
    s->kernels += v.n_kernels;
    s->compiler_ms += (uint64_t)(v.seconds_compiler * 1e3);
    for (uint32_t i = 0; i < ARRAY_LEN(v.is_covered) && v.kind == VERDICT_SAME; i++) {
        s->covered[i] += v.is_covered[i];
    }
    if (v.kind == VERDICT_DIFFERENT) {
        report(o, number, &c, &v);
        s->failed++;
    } else if (v.kind == VERDICT_REFUSED) {
        if (o->shows_coverage) {
            printf("refused %" PRIu64 ": %s\n", number, v.text);
            fflush(stdout);
        }
        s->refused++;
    } else {
        s->passed++;
    }
    alarm(0);
    graph_destroy(c.graph);
}

static void child(struct options *o, struct shared *s, uint32_t job, double until)
{
    for (;;) {
        uint64_t number = s->next++;
        if (number >= o->first + o->graphs || (o->minutes > 0 && now() > until)) {
            break;
        }
        s->current[job] = number;
        if (number % 500 == 0 && number > o->first) {
            fprintf(stderr, "graph %" PRIu64 "\n", number);
        }
        one_graph(o, s, number);
    }
    fflush(stdout);
    _exit(0);
}

static void crashed(struct options *o, struct shared *s, uint64_t number, int result)
{
    struct fuzz_case c;
    s->failed++;
    generate_case(o->seed, number, &c);
    printf("seed %" PRIu64 " graph %" PRIu64 ": %s (signal %d, exit status %d)\n", o->seed, number,
           WIFSIGNALED(result) && WTERMSIG(result) == SIGALRM ? "too slow" : "crashed",
           WIFSIGNALED(result) ? WTERMSIG(result) : 0, WIFEXITED(result) ? WEXITSTATUS(result) : 0);
    keep_case(o, number, &c);
    print_case(&c, stdout);
    fflush(stdout);
    graph_destroy(c.graph);
}

static void run_jobs(struct options *o, struct shared *s)
{
    pid_t pids[MAX_JOBS];
    double until = now() + 60.0 * o->minutes;
    uint32_t alive = 0;
    for (uint32_t i = 0; i < o->n_jobs; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            child(o, s, i, until);
        }
        alive += pids[i] > 0;
    }
    while (alive > 0) {
        int result;
        pid_t pid = wait(&result);
        alive--;
        for (uint32_t i = 0; i < o->n_jobs; i++) {
            if (pids[i] != pid || (WIFEXITED(result) && WEXITSTATUS(result) == 0)) {
                continue;
            }
            crashed(o, s, s->current[i], result);
            pids[i] = fork();
            if (pids[i] == 0) {
                child(o, s, i, until);
            }
            alive += pids[i] > 0;
            break;
        }
    }
}

static struct shared *new_shared(void)
{
    FILE *f = tmpfile();
    if (f == NULL || ftruncate(fileno(f), sizeof(struct shared)) != 0) {
        return NULL;
    }
    void *m = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
    return m == MAP_FAILED ? NULL : m;
}

static void print_coverage(struct shared *s)
{
    uint32_t never = 0;
    for (uint32_t op = 1; op < N_OPS; op++) {
        printf("%-22s %u\n", op_info[op].name, s->covered[op]);
        never += s->covered[op] == 0;
    }
    printf("%u of %d ops never ran:", never, N_OPS - 1);
    for (uint32_t op = 1; op < N_OPS; op++) {
        if (s->covered[op] == 0) {
            printf(" %s", op_info[op].name);
        }
    }
    printf("\n");
}

static int replay(struct options *o)
{
    static char text[1 << 20];
    struct fuzz_case c;
    struct verdict v;
    struct error e = {0};
    FILE *f = fopen(o->replay, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text, f) : 0;
    if (f == NULL || case_parse(text, n, o->replay, &c, &e) != ATOLL_OK) {
        fprintf(stderr, "atoll-fuzz: %s\n", f == NULL ? "cannot read the file" : e.text);
        return 3;
    }
    fclose(f);
    o->check.optimise = o->level >= 0 ? o->level : 3;
    check_case(&c, &o->check, &v);
    if (v.kind == VERDICT_DIFFERENT) {
        report(o, 0, &c, &v);
    } else {
        printf("%s%s\n", v.kind == VERDICT_REFUSED ? "refused: " : "same bits", v.text);
    }
    graph_destroy(c.graph);
    return v.kind == VERDICT_DIFFERENT;
}

int main(int argc, char **argv)
{
    struct options o;
    if (!read_options(argc, argv, &o)) {
        fputs(help, stderr);
        return 2;
    }
    /* More threads than cores must sleep, not spin; OpenMP reads this before main. */
    if (getenv("OMP_WAIT_POLICY") == NULL && setenv("OMP_WAIT_POLICY", "passive", 1) == 0) {
        execv("/proc/self/exe", argv);
    }
    if (o.replay != NULL) {
        return replay(&o);
    }
    struct shared *s = new_shared();
    if (s == NULL) {
        fputs("atoll-fuzz: no shared memory\n", stderr);
        return 4;
    }
    double start = now();
    s->next = o.first;
    run_jobs(&o, s);
    if (o.shows_coverage) {
        print_coverage(s);
    }
    printf("%.0f s, %" PRIu64 " values compared, %" PRIu64 " kernels, %.0f s in the compiler, "
           "%" PRIu64 " graphs refused by both\n",
           now() - start, (uint64_t)s->values, (uint64_t)s->kernels, (double)s->compiler_ms * 1e-3,
           (uint64_t)s->refused);
    printf("%" PRIu64 " passed, %" PRIu64 " failed\n", (uint64_t)s->passed, (uint64_t)s->failed);
    return s->failed != 0;
}
