/* Reverse mode, in two halves that train_step uses too: the forward graph is copied with composites
 * opened where that is their gradient rule, then gradients are appended behind it. */
#ifndef ATOLL_PASSES_AUTODIFF_H
#define ATOLL_PASSES_AUTODIFF_H

#include "pass.h"

/* The output to differentiate: the one named "loss", else the first. Refuses all but a float
 * scalar. */
status autodiff_loss(const struct graph *in, struct error *e, value *out_loss);
/* Copies `in` to `out` (empty, from graph_like), outputs and updates included. map: n_nodes of
 * `in`. wanted: of which leaves gradients will be asked, by node of `in`; NULL: of every param. */
status autodiff_forward(const struct graph *in, struct graph *out, const bool *wanted, value *map);
/* Appends the gradients of root (a float scalar, a value of g) with respect to wrt[0..n). grads[i]
 * has wrt[i]'s dtype and shape, or is 0 where root does not depend on it. */
status autodiff_backward(struct graph *g, value root, const value *wrt, uint32_t n, value *grads);

#endif
