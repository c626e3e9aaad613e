/* Separable linear maps: y = (W1 x W2 x ...) x with one sparse matrix per dim, given by its rows.
 * Called by interpolate and by the gradients of interpolate and of paddings that show a position
 * more than once. */
#ifndef ACI_OPS_RESAMPLE_H
#define ACI_OPS_RESAMPLE_H
#include "ops/index/index.h"

/* One dim's matrix: y[o] = sum over t in [first[o], first[o + 1]) of weight[t] * x[col[t]]. first
 * NULL: the identity. */
typedef struct aci_taps {
  int64_t n_in, n_out, n; /* n: taps */
  int64_t *first, *col;
  double *weight;
  ac_block *block;
} aci_taps;

/* The identity. */
aci_taps aci_taps_identity(int64_t n);
/* Room for max taps. first[0] is 0. The caller fills the rest: aci_taps_add for each tap,
 * aci_taps_row after each row. */
ac_status aci_taps_new(ac_frame *f, int64_t n_in, int64_t n_out, int64_t max, aci_taps *out,
                       ac_err *e);
static inline void aci_taps_add(aci_taps *t, int64_t col, double weight) {
  t->col[t->n] = col;
  t->weight[t->n++] = weight;
}
static inline void aci_taps_row(aci_taps *t, int64_t o) { t->first[o + 1] = t->n; }
void aci_taps_free(aci_taps *t, int n);
/* t becomes its transpose, which the map's gradient applies. */
ac_status aci_taps_transpose(ac_frame *f, aci_taps *t, ac_err *e);

/* y (contiguous float) from x of the same dtype, both of ndim dims. Sums run in the compute type
 * and are rounded once. */
ac_status aci_resample(ac_frame *f, ac_tensor *y, const ac_tensor *x, const aci_taps *taps,
                       ac_err *e);

#endif
