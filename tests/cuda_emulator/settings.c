/* What the environment says; and the one source of random numbers, so that a seed
 * repeats a run: the order of streams and of blocks come from it. */
#define _DEFAULT_SOURCE /* _SC_NPROCESSORS_ONLN */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_types.h"

static struct {
    pthread_once_t once;
    int threads;
    uint64_t steps;
    uint64_t state;
} settings = {.once = PTHREAD_ONCE_INIT};

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static void read_settings(void)
{
    long threads = number("ATOLL_EMULATOR_THREADS", sysconf(_SC_NPROCESSORS_ONLN));
    settings.threads = threads < 1 ? 1 : threads > 256 ? 256 : (int)threads;
    settings.steps = (uint64_t)number("ATOLL_EMULATOR_STEPS", (long)1 << 33);
    settings.state = (uint64_t)number("ATOLL_EMULATOR_SEED", 1);
}

int emulator_threads(void)
{
    pthread_once(&settings.once, read_settings);
    return settings.threads;
}

int emulator_arch(void) /* not kept: a test may be several devices in turn */
{
    return (int)number("ATOLL_EMULATOR_ARCH", 90);
}

uint64_t emulator_step_limit(void)
{
    pthread_once(&settings.once, read_settings);
    return settings.steps;
}

uint64_t emulator_random(void)
{
    pthread_once(&settings.once, read_settings);
    /* splitmix64 */
    uint64_t z = __atomic_add_fetch(&settings.state, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
