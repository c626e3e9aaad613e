/* What the view and join ops share: shapes with one open extent (-1), ranges copied between strided tensors, pieces
 * along a dim. Called by the files of this folder, by random ops and by optimizers (aci_elems_*). */
#ifndef ACI_OPS_INDEX_H
#define ACI_OPS_INDEX_H
#include "ops/map/convert.h"
#include "ops/op.h"

/* want (n extents, at most one of them -1) as a shape of as many elements as x has. SHAPE names both. */
ac_status aci_infer_shape(const ac_tensor *x, const int64_t *want, int n, int64_t *shape, ac_err *e);

/* A range: the elements of a rectangular region of a tensor, in strided memory. ptr is borrowed; strides in elements; the shape
 * is given with each call. */
typedef struct aci_range {
  void *ptr;
  ac_dtype dtype;
  int64_t stride[AC_MAX_DIMS];
} aci_range;
/* dst[i] := src[i] over shape, converted when the dtypes differ; src NULL writes zeros. dst and src do not
 * overlap. */
void aci_range_copy_cpu(ac_team *team, int ndim, const int64_t *shape, const aci_range *dst, const aci_range *src);

/* The same on the frame's device. src NULL writes zeros. What kernels that serve every device copy with. */
ac_status aci_range_copy(ac_frame *f, int ndim, const int64_t *shape, const aci_range *dst, const aci_range *src, ac_err *e);

/* y := x, of one shape; converted when the dtypes differ. */
void aci_copy_into(ac_team *team, ac_tensor *y, const ac_tensor *x);

/* Elements [begin, begin + n) of t in row-major order, as rows of a compute type; t may have any strides. */
void aci_elems_load(const ac_tensor *t, aci_ctype c, int64_t begin, int64_t n, void *dst);
void aci_elems_store(const ac_tensor *t, aci_ctype c, int64_t begin, int64_t n, const void *src);

/* The elements of t in a row-major run: its own memory when it is contiguous, else a scratch copy held by
 * *block (to be freed by the caller; NULL is fine). */
ac_status aci_contiguous_data(ac_frame *f, const ac_tensor *t, const void **data, ac_block **block,
                              ac_err *e);

/* Pushes views of argument 0 cut along dim into n pieces of these extents. */
ac_status aci_split_views(ac_frame *f, int dim, int n, const int64_t *size, ac_err *e);
/* Their gradient: every piece's dy at its position, zeros where none came. */
void aci_split_grad(ac_grad *g, int dim, int n, const int64_t *size);

/* A dim as the caller gave it, valid already, made non-negative. */
static inline int aci_wrap_dim(int64_t dim, int ndim) {
  return (int)(dim < 0 ? dim + (ndim > 0 ? ndim : 1) : dim);
}

/* ---- index tensors ---- */
/* DTYPE unless t holds i64 or i32. */
ac_status aci_index_dtype(const ac_frame *f, int arg, ac_err *e);
/* The values of index argument arg in row-major order as i64, every one checked to lie in [0, bound);
 * negative values are out of range as in PyTorch (what: of which there are bound). Scratch, freed by the caller with ac_block_free(*block). */
ac_status aci_index_values(ac_frame *f, int arg, int64_t bound, const char *what, const int64_t **values,
                           ac_block **block, ac_err *e);

/* out[o, j, :] := x[o, ids[j], :] - whole rows of `row` elements of es bytes; x and out contiguous, x has
 * n_src rows per o. */
void aci_rows_take(ac_team *team, void *out, const void *x, const int64_t *ids, int64_t outer, int64_t n,
                   int64_t n_src, int64_t row_bytes);
/* out[o, r, :] := (base ? base[o, r, :] : 0) + scale * (sum over j with ids[j] == r, in order of j, of src[o,
 * j, :]) for out (outer, n_dst, row) contiguous, src (outer, n, row) contiguous of the same dtype. Id `skip`
 * adds nothing. Sums run in the compute type and are rounded once; the order does not depend on threads. base
 * may be out. */
ac_status aci_rows_add(ac_frame *f, ac_dtype dt, void *out, const void *base, const void *src,
                       const int64_t *ids, int64_t outer, int64_t n, int64_t n_dst, int64_t row, double scale,
                       int64_t skip, ac_err *e);

#endif
