/* Several index tensors at once: x[i, :, j] names places (i[b], j[b]) for every b of the shape that the index tensors
 * broadcast to. Called by index, index_put, index_copy and index_fill. */
#ifndef ACI_OPS_PLACES_H
#define ACI_OPS_PLACES_H
#include "ops/index/index.h"

/* How a tensor is seen: (outer, batch, inner) in the result, the indexed dims of the tensor between outer and
 * inner. Where the indexed dims do not stand side by side, outer is empty and inner holds all other dims. */
typedef struct aci_places {
  int n_index; /* index tensors, in the order of their dims */
  int arg[AC_MAX_DIMS], dim[AC_MAX_DIMS];
  int n_outer, n_inner, outer[AC_MAX_DIMS], inner[AC_MAX_DIMS]; /* dims of the tensor */
  int n_batch;
  int64_t batch[AC_MAX_DIMS];
  int64_t n_outer_elems, n, n_inner_elems, n_dst; /* n_dst: product of the indexed extents */
  bool side_by_side;
} aci_places;

/* Dims and shapes of x[indices] with index tensors in argument `arg` (a list or one tensor) for dims `dims` (a
 * list, one dim, or NONE: the first ones). shape is x's. Checks dtypes, dims and broadcasting. */
ac_status aci_places_plan(const ac_frame *f, int arg, int dims, int ndim, const int64_t *shape, aci_places *p,
                          ac_err *e);
/* The shape of the result; returns its rank, which the plan has checked. */
int aci_places_shape(const aci_places *p, const int64_t *shape, int64_t *out);
/* For every b: sum over the index tensors of value * weight[dim]. Values are checked against shape; negative
 * ones count from the end. Scratch, freed with ac_block_free(*block). */
ac_status aci_places_offsets(ac_frame *f, const aci_places *p, int arg, const int64_t *shape,
                             const int64_t *weight, const int64_t **offsets, ac_block **block, ac_err *e);
/* out (contiguous, outer x batch x inner) := the places of x. */
void aci_places_take(ac_frame *f, const aci_places *p, ac_tensor *out, const ac_tensor *x,
                     const int64_t *offsets);
/* y's places := values, in the order of b: where two name one place, the last stays. values: outer x batch x
 * inner contiguous elements of y's dtype, or one for all of them (single). */
void aci_places_put(ac_frame *f, const aci_places *p, ac_tensor *y, const void *values, bool single,
                    const int64_t *offsets);
/* y's places += values, in the order of b; added in the compute type, rounded once. offsets as for y's own
 * strides. */
ac_status aci_places_add(ac_frame *f, const aci_places *p, int arg, ac_tensor *y, const void *values,
                         bool single, ac_err *e);

#endif
