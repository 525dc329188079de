/* Collects findings, hands them out and writes them when the process ends. The environment says
 * where to: ATOLL_EMULATOR_REPORT=FILE (default: stderr, only if there are any),
 * ATOLL_EMULATOR_STRICT=1 makes the process end with status 86 if there were findings.
 * Invariant: a kind at a place has one record. */
#include "findings.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "export.h"

#define MAX_FINDINGS 256
#define STRICT_EXIT  86

struct finding {
    enum finding_kind kind;
    uint64_t place, times;
    char text[600];
};
static struct {
    pthread_mutex_t lock;
    struct finding list[MAX_FINDINGS];
    int n;
    uint64_t left_out; /* findings that found no room */
} findings = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const names[] = {
#define X(id, name) name,
#include "findings.def"
#undef X
};

static struct finding *find(enum finding_kind kind, uint64_t place)
{
    for (int i = 0; i < findings.n; i++) {
        if (findings.list[i].kind == kind && findings.list[i].place == place) {
            return &findings.list[i];
        }
    }
    return NULL;
}

bool finding_again(enum finding_kind kind, uint64_t place)
{
    pthread_mutex_lock(&findings.lock);
    struct finding *f = find(kind, place);
    bool is_full = !f && findings.n == MAX_FINDINGS;
    if (f) {
        f->times++;
    }
    findings.left_out += is_full;
    pthread_mutex_unlock(&findings.lock);
    return f || is_full;
}

void finding_report(enum finding_kind kind, uint64_t place, const char *format, ...)
{
    if (finding_again(kind, place)) {
        return;
    }
    pthread_mutex_lock(&findings.lock);
    if (!find(kind, place) && findings.n < MAX_FINDINGS) {
        struct finding *f = &findings.list[findings.n++];
        *f = (struct finding){.kind = kind, .place = place, .times = 1};
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(f->text, sizeof f->text, format, arguments);
        va_end(arguments);
    }
    pthread_mutex_unlock(&findings.lock);
}

EXPORT int atoll_emulator_findings(char *text, size_t size)
{
    pthread_mutex_lock(&findings.lock);
    size_t used = 0;
    if (text && size) {
        text[0] = 0;
    }
    for (int i = 0; text && i < findings.n; i++) {
        const struct finding *f = &findings.list[i];
        int n = snprintf(text + used, size - used, "%s: %s (seen %llu times)\n", names[f->kind],
                         f->text, (unsigned long long)f->times);
        if (n < 0 || (size_t)n >= size - used) {
            text[used] = 0;
            break;
        }
        used += (size_t)n;
    }
    int n = findings.n;
    pthread_mutex_unlock(&findings.lock);
    return n;
}

EXPORT void atoll_emulator_forget_findings(void)
{
    pthread_mutex_lock(&findings.lock);
    findings.n = 0;
    findings.left_out = 0;
    pthread_mutex_unlock(&findings.lock);
}

/* Runs when the process ends (the library is linked nodelete, so never before). */
__attribute__((destructor)) static void write_report(void)
{
    const char *path = getenv("ATOLL_EMULATOR_REPORT");
    const char *strict = getenv("ATOLL_EMULATOR_STRICT");
    static char text[MAX_FINDINGS * 700];
    int n = atoll_emulator_findings(text, sizeof text);
    FILE *file = path ? fopen(path, "w") : n ? stderr : NULL;
    if (file) {
        fprintf(file, "%sCUDA emulator: %d findings%s\n%s", path ? "" : "\n", n,
                findings.left_out ? ", more were left out" : "", text);
        if (file == stderr) {
            fflush(file);
        } else {
            fclose(file);
        }
    }
    if (n && strict && strcmp(strict, "0") != 0) {
        fflush(NULL);
        _exit(STRICT_EXIT);
    }
}
