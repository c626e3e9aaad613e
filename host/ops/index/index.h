/* Helpers shared by the view and join ops: shapes with one open extent (-1), ranges copied between
 * strided tensors, pieces along a dim. Called by the files of this folder, by random ops and by
 * optimizers (aci_elems_*).
 *
 * Map of the folder: ops that choose, move or rearrange elements. One op, one file of its name. A
 * .cu next to a .c holds the CUDA kernels of the same work. The other files are shared by several
 * ops:
 *
 *   views (no bytes move)   view reshape view_as reshape_as flatten unflatten squeeze unsqueeze
 *                           expand expand_as permute
 *                           transpose t movedim diagonal narrow select slice split chunk unbind meshgrid alias contiguous;
 *                           index_view.[ch] is t[{...}] without tensors, slice_backward the
 *                           gradient of all slices
 *   joining                 cat stack hstack vstack (cat_atleast.h: inputs brought to a least rank,
 *                           then cat)
 *   whole pieces moved      flip roll tile repeat_interleave pad: remap.[ch] copies runs by one
 *                           position map per dim (remap_plan.h), repeats.[ch] their gradient,
 *                           tile.cu and remap.cu on CUDA
 *   resizing                interpolate: resample.[ch] applies sparse matrices per dim, resize.h
 *                           has the modes' weights
 *   whole rows by index     embedding index_select index_add: rows.c, rows.cu
 *   elements by index       gather take_along_dim scatter scatter_add scatter_reduce:
 *                           gather_scatter.[ch], gather_scatter.cu. index_reduce is made of them
 *   tensors of pieces       cartesian_prod block_diag diag_embed rot90 fill_diagonal_
 *   several index tensors   index index_put index_copy index_fill: advanced_index.[ch],
 *                           advanced_index_plan.h, advanced_index.cu. index_last.[ch] finds which
 *                           of several writes to one position stays
 *   masks                   masked_select masked_scatter nonzero: mask.[ch], masks.cu
 *   order                   sort argsort topk median unique: sort_keys.[ch] (elements as integer
 *                           keys), radix_sort.c, sort_lines.c, unique_slices.c. order.cuh,
 *                           order.cu, sort.cu, unique.cu on CUDA
 *   search                  searchsorted bucketize: search.[ch], search.cu
 *   counting                bincount one_hot: counts.cu on CUDA
 *   matrices                diag trace tril triu (triangle.[ch], triangle.cu) diff slice_scatter
 *   copies                  range.c, range.cu, range.cuh: the functions that this header
 *                           declares */
#ifndef ACI_OPS_INDEX_H
#define ACI_OPS_INDEX_H
#include "ops/map/convert.h"
#include "ops/core/op.h"

/* want (n extents, at most one of them -1) as a shape of as many elements as x has. SHAPE names
 * both. */
ac_status aci_infer_shape(const ac_tensor *x, const int64_t *want, int n, int64_t *shape,
                          ac_err *e);

/* A range: the elements of a rectangular region of a tensor, in strided memory. ptr is borrowed.
 * Strides are in elements. The
 * shape is given with each call. */
typedef struct aci_range {
  void *ptr;
  ac_dtype dtype;
  int64_t stride[AC_MAX_DIMS];
} aci_range;
/* dst[i] := src[i] over shape, converted when the dtypes differ. src NULL writes zeros. dst and src
 * do not overlap. */
void aci_range_copy_cpu(ac_team *team, int ndim, const int64_t *shape, const aci_range *dst,
                        const aci_range *src);

/* The same on the frame's device. src NULL writes zeros. Kernels that serve every device copy with
 * it. */
ac_status aci_range_copy(ac_frame *f, int ndim, const int64_t *shape, const aci_range *dst,
                         const aci_range *src, ac_err *e);

/* y := x, of one shape. Converted when the dtypes differ. */
void aci_copy_into(ac_team *team, ac_tensor *y, const ac_tensor *x);

/* Elements [begin, begin + n) of t in row-major order, as rows of a compute type. t may have any
 * strides. */
void aci_elems_load(const ac_tensor *t, aci_ctype c, int64_t begin, int64_t n, void *dst);
void aci_elems_store(const ac_tensor *t, aci_ctype c, int64_t begin, int64_t n, const void *src);

/* The elements of t in a row-major run: its own memory when it is contiguous, otherwise a scratch
 * copy held by *block (to be freed by the caller, NULL is fine). */
ac_status aci_contiguous_data(ac_frame *f, const ac_tensor *t, const void **data, ac_block **block,
                              ac_err *e);

/* Pushes views of argument 0 cut along dim into n pieces of these extents. */
ac_status aci_split_views(ac_frame *f, int dim, int n, const int64_t *size, ac_err *e);
/* Their gradient: every piece's dy at its position, zeros for missing ones. */
void aci_split_grad(ac_grad *g, int dim, int n, const int64_t *size);

/* A dim as the caller gave it, valid already, made non-negative. */
static inline int aci_wrap_dim(int64_t dim, int ndim) {
  return (int)(dim < 0 ? dim + (ndim > 0 ? ndim : 1) : dim);
}

/* ---- index tensors ---- */
/* DTYPE unless t holds i64 or i32. */
ac_status aci_index_dtype(const ac_frame *f, int arg, ac_err *e);
/* The values of index argument arg in row-major order as i64, every one checked to lie in [0,
 * bound). Negative values are out of range as in PyTorch. what: names the things that bound counts.
 * Scratch, freed by the caller with ac_block_free(*block). */
ac_status aci_index_values(ac_frame *f, int arg, int64_t bound, const char *what,
                           const int64_t **values, ac_block **block, ac_err *e);

/* Shape rule of (x, dim, index, source, ...) index names m positions of x along dim, and source has
 * x's shape with m there: -> y like x. */
ac_status aci_rows_source_shape(ac_frame *f, ac_err *e);
/* out[o, j, :] := x[o, ids[j], :] - whole rows of `row` elements of es bytes. x and out contiguous,
 * x has n_src rows per o. */
void aci_rows_take(ac_team *team, void *out, const void *x, const int64_t *ids, int64_t outer,
                   int64_t n, int64_t n_src, int64_t row_bytes);
/* out[o, r, :] := (base ? base[o, r, :] : 0) + scale * (sum over j with ids[j] == r, in order of j,
 * of src[o, j, :]) for out (outer, n_dst, row) contiguous, src (outer, n, row) contiguous of the
 * same dtype. Id `skip` adds nothing. Sums run in the compute type and are rounded once. The order
 * does not depend on threads. base may be out. */
ac_status aci_rows_add(ac_frame *f, ac_dtype dt, void *out, const void *base, const void *src,
                       const int64_t *ids, int64_t outer, int64_t n, int64_t n_dst, int64_t row,
                       double scale, int64_t skip, ac_err *e);

#endif
