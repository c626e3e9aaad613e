/* gather, scatter, scatter_add and scatter_reduce: single elements moved along one dim by an index tensor of the
 * same rank. Called by the files of those names. */
#ifndef ACI_OPS_GATHER_SCATTER_H
#define ACI_OPS_GATHER_SCATTER_H
#include "ops/index/index.h"

/* SHAPE unless index fits into x everywhere but along dim, and has its rank. */
ac_status aci_gather_check(const ac_frame *f, const ac_tensor *x, const ac_tensor *index, int dim,
                           ac_err *e);
/* out[p] := x[p with p[dim] = index[p]], out of index's shape. index is argument `arg`. */
ac_status aci_gather(ac_frame *f, ac_tensor *out, const ac_tensor *x, int dim, int arg, ac_err *e);
/* out[p with p[dim] = index[p]] := src[p], or one number (an element in out's dtype, src NULL), for
 * p in index's shape in ascending order along dim: if a position is named twice, the last one
 * stays. Nothing is written when a value is out of range. */
ac_status aci_scatter(ac_frame *f, ac_tensor *out, const ac_tensor *src, const void *number,
                      int dim, int arg, ac_err *e);
/* out[p with p[dim] = index[p]] joined with src[p] for p in index's shape, in ascending order along
 * dim. Joined in the compute type and rounded once. */
typedef enum aci_scatter_join {
  ACI_SCATTER_SUM,
  ACI_SCATTER_PROD,
  ACI_SCATTER_MAX,
  ACI_SCATTER_MIN
} aci_scatter_join;
ac_status aci_scatter_join_run(ac_frame *f, ac_tensor *out, const ac_tensor *src, int dim, int arg,
                               aci_scatter_join join, ac_err *e);
/* Kernel of scatter_add and scatter_join on the CPU: (x, dim, index, src) -> y. */
ac_status aci_scatter_join_cpu(ac_frame *f, aci_scatter_join join, ac_err *e);

/* Of scatter and scatter_add, (x, dim, index, src) -> y like x: checks of index (argument 2) and of
 * src (3), a tensor of x's dtype that is at least as large as index. */
ac_status aci_scatter_check(const ac_frame *f, ac_err *e);
/* The gradient of src from the gradient of the elements that index used: zeros at the others. */
ac_tensor *aci_scatter_source_grad(ac_grad *g, ac_tensor *d);

#endif
