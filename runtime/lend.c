/* Views of tensors and refusals by name, for the public calls. Allocates nothing. */
#include "lend.h"

#include <string.h>

atoll_status lend_error(const struct error *from, atoll_error *to)
{
    if (from->code != ATOLL_OK && to != NULL && to->code == ATOLL_OK) {
        to->code = from->code;
        memcpy(to->text, from->text, sizeof to->text);
    }
    return from->code;
}

void lend_view(const char *name, const struct tensor *t, atoll_view *out)
{
    *out = (atoll_view){.name = name,
                        .dtype = dtype_info[t->dtype].name,
                        .element_bytes = dtype_info[t->dtype].bytes,
                        .rank = t->rank,
                        .data = t->data,
                        .bytes = tensor_bytes(t)};
    memcpy(out->shape, t->shape, sizeof out->shape);
}

static bool is_of_kind(enum op op, enum lent kind)
{
    switch (kind) {
    case LENT_INPUT:
        return op == OP_input;
    case LENT_SCALAR:
        return op == OP_scalar;
    case LENT_STATE:
        return op == OP_param || op == OP_buffer || op == OP_state;
    case LENT_OUTPUT:
        break;
    }
    return false;
}

status lend_missing(const char *who, const struct graph *g, enum lent kind, const char *name,
                    struct error *e)
{
    static const char *const kinds[] = {"input", "scalar", "parameter, buffer or state", "output"};
    char names[600] = "";
    size_t at = 0;
    uint32_t n = kind == LENT_OUTPUT ? g->n_outputs : g->n_nodes - 1;
    for (uint32_t i = 0; i < n; i++) {
        const struct node *node = &g->nodes[kind == LENT_OUTPUT ? 0 : i + 1];
        const char *one = kind == LENT_OUTPUT          ? g->outputs[i].name
                          : is_of_kind(node->op, kind) ? node->name
                                                       : NULL;
        size_t length = one != NULL ? strlen(one) : 0;
        if (one != NULL && at + length + 6 < sizeof names) {
            memcpy(names + at, " ", 1);
            memcpy(names + at + 1, one, length + 1);
            at += length + 1;
        }
    }
    return fail(e, ATOLL_NOT_FOUND, "%s has no %s '%s'; it has:%s", who, kinds[kind], name,
                at > 0 ? names : " none");
}
