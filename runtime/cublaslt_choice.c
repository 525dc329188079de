/* Algorithms across processes: what cuBLASLt chose, as plans record it, and a recorded one taken
 * again. Invariant: a recorded algorithm is used only for the same product on the same architecture
 * with the same version of the library, and only after the library has accepted it; otherwise the
 * heuristic chooses anew, and the log says why. */
#include "cublaslt_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(struct cublaslt *b, const char *what, const char *why)
{
    char line[480];
    if (b->device->log != NULL) {
        (void)snprintf(line, sizeof line,
                       "cuBLASLt: the recorded algorithm for %s is chosen again: %s", what, why);
        b->device->log(b->device->log_context, "kernels", line);
    }
}

/* Why a recorded algorithm does not hold here, or false. */
static bool is_outdated(struct cublaslt *b, const struct lt_plan *p,
                        const struct contraction_choice *choice, struct lt_heuristic *result,
                        char *why, size_t size)
{
    uint64_t version = b->cublasLtGetVersion();
    if (strcmp(choice->arch, b->device->arch) != 0) {
        (void)snprintf(why, size, "it is for %s, this is %s", choice->arch, b->device->arch);
        return true;
    }
    if (choice->library != version) {
        (void)snprintf(why, size,
                       "it is of cuBLASLt %" PRIu64 ", this is cuBLASLt %" PRIu64
                       "; hint: compile the plan here",
                       choice->library, version);
        return true;
    }
    int code = b->cublasLtMatmulAlgoCheck(b->handle, p->desc, p->a, p->b, p->d, p->d,
                                          choice->algorithm, result);
    if (code != 0 || result->state != 0 || result->workspace > WORKSPACE_BYTES) {
        (void)snprintf(why, size, "cublasLtMatmulAlgoCheck gives status %d",
                       code != 0 ? code : result->state);
        return true;
    }
    return false;
}

bool lt_recall(struct cublaslt *b, struct lt_plan *p)
{
    char why[200];
    for (uint32_t i = 0; i < b->n_recalled; i++) {
        const struct contraction_choice *choice = &b->recalled[i];
        struct lt_heuristic result = {0};
        if (strcmp(choice->what, p->what) != 0) {
            continue;
        }
        if (is_outdated(b, p, choice, &result, why, sizeof why)) {
            say(b, p->what, why);
            return false;
        }
        memcpy(p->heuristic.algo, choice->algorithm, sizeof p->heuristic.algo);
        p->heuristic.workspace = result.workspace;
        return true;
    }
    return false;
}

status cublaslt_choices(struct cublaslt *b, const struct contraction_choice **out, uint32_t *n,
                        struct error *e)
{
    free(b->told);
    b->told = calloc(b->n_plans + 1, sizeof *b->told);
    if (b->told == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < b->n_plans; i++) {
        struct contraction_choice *choice = &b->told[i];
        const struct lt_plan *p = &b->plans[i];
        memcpy(choice->what, p->what, sizeof choice->what);
        memcpy(choice->arch, b->device->arch, sizeof choice->arch);
        choice->library = b->cublasLtGetVersion();
        memcpy(choice->algorithm, p->heuristic.algo, sizeof choice->algorithm);
        choice->workspace = p->heuristic.workspace;
    }
    *out = b->told;
    *n = b->n_plans;
    return ATOLL_OK;
}

status cublaslt_recall(struct cublaslt *b, const struct contraction_choice *choices, uint32_t n,
                       struct error *e)
{
    struct contraction_choice *more =
        realloc(b->recalled, (b->n_recalled + n + 1) * sizeof *b->recalled);
    if (more == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    b->recalled = more;
    if (n > 0) {
        memcpy(more + b->n_recalled, choices, n * sizeof *choices);
    }
    b->n_recalled += n;
    return ATOLL_OK;
}
