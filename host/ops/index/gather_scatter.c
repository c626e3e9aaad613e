/* Kernels of gather, scatter and scatter_add: see gather_scatter.h. The work is cut over everything
   but dim, so that no two pieces write to one position. */
#include "ops/index/gather_scatter.h"

#include "ops/core/ctx_impl.h"

enum { GATHER_BLOCK = 256 };

ac_status aci_gather_check(const ac_frame *f, const ac_tensor *x, const ac_tensor *index, int dim,
                           ac_err *e) {
  char a[128], b[128];
  bool ok = x->ndim == index->ndim;
  if (index->numel == 0 && ok) return AC_OK;
  for (int d = 0; ok && d < x->ndim; d++) ok = d == dim || index->shape[d] <= x->shape[d];
  if (!ok)
    return AC_FAIL(e, SHAPE,
                   "an index of shape %s does not fit a tensor of shape %s along dim %lld",
                   aci_shape_str(index->ndim, index->shape, a, sizeof a),
                   aci_shape_str(x->ndim, x->shape, b, sizeof b), (long long)ac_frame_show(f, dim));
  return AC_OK;
}

ac_status aci_scatter_check(const ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *index = ARG_T(f, 2);
  int d;
  char a[128], b[128];
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_index_dtype(f, 2, e));
  AC_TRY(aci_gather_check(f, x, index, d, e));
  if (f->args[3].kind == AC_T_SCALAR) return AC_OK;
  const ac_tensor *src = ARG_T(f, 3);
  if (src->dtype != x->dtype)
    return AC_FAIL(e, DTYPE, "src is %s and x is %s", ac_dtype_name((ac_dtype)src->dtype),
                   ac_dtype_name((ac_dtype)x->dtype));
  bool ok = src->ndim == index->ndim;
  for (int i = 0; ok && i < src->ndim; i++) ok = index->shape[i] <= src->shape[i];
  return ok ? AC_OK
            : AC_FAIL(e, SHAPE, "an index of shape %s is larger than src, %s",
                      aci_shape_str(index->ndim, index->shape, a, sizeof a),
                      aci_shape_str(src->ndim, src->shape, b, sizeof b));
}

ac_tensor *aci_scatter_source_grad(ac_grad *g, ac_tensor *d) {
  const int64_t *want = ac_grad_shape(g, 3, 0);
  const int nd = ac_grad_ndim(g, 3, 0);
  int64_t more[2 * AC_MAX_DIMS]; /* before and after, the last dim first */
  bool all = true;
  for (int i = 0; i < nd && d != NULL; i++) {
    more[2 * (nd - 1 - i)] = 0;
    more[2 * (nd - 1 - i) + 1] = want[i] - d->shape[i];
    all = all && want[i] == d->shape[i];
  }
  return all ? d : x_pad(&g->x, d, more, 2 * nd, AC_PAD_MODE_CONSTANT, 0);
}

typedef struct gather_job {
  const ac_tensor *index;
  int dim;
  aci_ctype ct; /* adding */
  size_t es;    /* moving */
  int64_t n, inner, blocks;
  const int64_t *ids;
  char *near; /* the tensor walked in index's own positions */
  char *far;  /* the tensor whose dim the ids address */
  int64_t near_stride[AC_MAX_DIMS], far_stride[AC_MAX_DIMS];
  enum { TAKE, PUT, JOIN } how; /* near = far, far = near, far joined with near */
  aci_scatter_join join;
} gather_job;

/* Offsets of flat position r over dims [lo, hi) of index. */
static void offsets(const gather_job *j, int lo, int hi, int64_t r, int64_t *near, int64_t *far) {
  *near = *far = 0;
  for (int d = hi - 1; d >= lo; d--) {
    int64_t i = r % j->index->shape[d];
    r /= j->index->shape[d];
    *near += i * j->near_stride[d];
    *far += i * j->far_stride[d];
  }
}

/* A task is one outer position and a block of up to GATHER_BLOCK inner ones. It walks the index
 * along dim in order. near, far: offsets of the block's elements in both tensors, without dim, in
 * elements. No two tasks write to the same element. */
static void gather_range(void *arg, int64_t begin, int64_t end) {
  const gather_job *j = arg;
  const int nd = j->index->ndim;
  const int64_t nd_near = nd ? j->near_stride[j->dim] : 0, nd_far = nd ? j->far_stride[j->dim] : 0;
  int64_t near[GATHER_BLOCK], far[GATHER_BLOCK];
  for (int64_t t = begin; t < end; t++) {
    int64_t o = t / j->blocks, b = t % j->blocks * GATHER_BLOCK,
            m = j->inner - b < GATHER_BLOCK ? j->inner - b : GATHER_BLOCK, no, fo;
    offsets(j, 0, nd ? j->dim : 0, o, &no, &fo);
    for (int64_t k = 0; k < m; k++) {
      offsets(j, nd ? j->dim + 1 : 0, nd, b + k, &near[k], &far[k]);
      near[k] += no;
      far[k] += fo;
    }
    for (int64_t i = 0; i < j->n; i++) {
      const int64_t *ids = j->ids + (o * j->n + i) * j->inner + b;
#define EACH(T, STATEMENT)                                                 \
  do {                                                                     \
    T *nt = (T *)(void *)j->near + i * nd_near, *ft = (T *)(void *)j->far; \
    for (int64_t k = 0; k < m; k++) {                                      \
      T *pn = nt + near[k], *pf = ft + far[k] + ids[k] * nd_far;           \
      STATEMENT;                                                           \
    }                                                                      \
  } while (0)
#define EACH_TYPE(INTEGER, STATEMENT)                     \
  do {                                                    \
    if (j->ct == ACI_C_F32) EACH(float, STATEMENT);       \
    else if (j->ct == ACI_C_F64) EACH(double, STATEMENT); \
    else EACH(INTEGER, STATEMENT);                        \
  } while (0)
      if (j->how == JOIN) {
        switch (j->join) { /* NaN stays */
          case ACI_SCATTER_SUM: EACH_TYPE(uint64_t, *pf += *pn); break;
          case ACI_SCATTER_PROD: EACH_TYPE(uint64_t, *pf *= *pn); break;
          case ACI_SCATTER_MAX:
            EACH_TYPE(int64_t, *pf = *pf >= *pn || *pf != *pf ? *pf : *pn);
            break;
          case ACI_SCATTER_MIN:
            EACH_TYPE(int64_t, *pf = *pf <= *pn || *pf != *pf ? *pf : *pn);
            break;
        }
      } else if (j->how == PUT) {
        switch (j->es) {
          case 1: EACH(uint8_t, *pf = *pn); break;
          case 2: EACH(uint16_t, *pf = *pn); break;
          case 4: EACH(uint32_t, *pf = *pn); break;
          default: EACH(uint64_t, *pf = *pn); break;
        }
      } else {
        switch (j->es) {
          case 1: EACH(uint8_t, *pn = *pf); break;
          case 2: EACH(uint16_t, *pn = *pf); break;
          case 4: EACH(uint32_t, *pn = *pf); break;
          default: EACH(uint64_t, *pn = *pf); break;
        }
      }
#undef EACH_TYPE
#undef EACH
    }
  }
}

static void gather_run(ac_frame *f, gather_job *j) {
  const ac_tensor *ix = j->index;
  int64_t outer = 1;
  j->inner = 1;
  j->n = ix->ndim > 0 ? ix->shape[j->dim] : 1;
  for (int d = 0; d < ix->ndim; d++) {
    if (d < j->dim) outer *= ix->shape[d];
    if (d > j->dim) j->inner *= ix->shape[d];
  }
  j->blocks = (j->inner + GATHER_BLOCK - 1) / GATHER_BLOCK;
  int64_t per = j->n * (j->inner < GATHER_BLOCK ? j->inner : GATHER_BLOCK),
          tasks = outer * j->blocks;
  int64_t grain = 1 + 16384 / (per + 1);
  if (tasks <= grain) gather_range(j, 0, tasks);
  else ac_parallel_for(f->team, tasks, grain, gather_range, j);
}

ac_status aci_gather(ac_frame *f, ac_tensor *out, const ac_tensor *x, int dim, int arg, ac_err *e) {
  ac_block *block;
  gather_job j = {.index = ARG_T(f, arg),
                  .dim = dim,
                  .es = aci_dsize((ac_dtype)x->dtype),
                  .near = aci_data(out),
                  .far = aci_data(x)};
  AC_TRY(aci_index_values(f, arg, x->ndim > 0 ? x->shape[dim] : 1, "positions", &j.ids, &block, e));
  memcpy(j.near_stride, out->stride, (size_t)out->ndim * 8);
  memcpy(j.far_stride, x->stride, (size_t)x->ndim * 8);
  if (out->numel > 0) gather_run(f, &j);
  ac_block_free(block);
  return AC_OK;
}

ac_status aci_scatter(ac_frame *f, ac_tensor *out, const ac_tensor *src, const void *number,
                      int dim, int arg, ac_err *e) {
  ac_block *block;
  gather_job j = {.index = ARG_T(f, arg),
                  .dim = dim,
                  .es = aci_dsize((ac_dtype)out->dtype),
                  .how = PUT,
                  .near = src != NULL ? aci_data(src) : (char *)(uintptr_t)number,
                  .far = aci_data(out)};
  AC_TRY(aci_index_values(f, arg, out->ndim > 0 ? out->shape[dim] : 1, "positions", &j.ids, &block,
                          e));
  if (src != NULL) memcpy(j.near_stride, src->stride, (size_t)src->ndim * 8);
  memcpy(j.far_stride, out->stride, (size_t)out->ndim * 8);
  if (j.index->numel > 0) gather_run(f, &j);
  ac_block_free(block);
  return AC_OK;
}

ac_status aci_scatter_join_run(ac_frame *f, ac_tensor *out, const ac_tensor *src, int dim, int arg,
                               aci_scatter_join join, ac_err *e) {
  const ac_dtype dt = (ac_dtype)out->dtype;
  const aci_ctype ct = aci_ctype_of(dt);
  const bool native = dt == AC_F32 || dt == AC_F64 || dt == AC_I64;
  ac_block *ids = NULL, *wide = NULL;
  ac_status st;
  gather_job j = {.index = ARG_T(f, arg),
                  .dim = dim,
                  .ct = ct,
                  .how = JOIN,
                  .join = join,
                  .near = aci_data(src),
                  .far = aci_data(out)};
  AC_GOTO(
      done, st,
      aci_index_values(f, arg, out->ndim > 0 ? out->shape[dim] : 1, "positions", &j.ids, &ids, e));
  if (j.index->numel == 0) goto done;
  memcpy(j.near_stride, src->stride, (size_t)src->ndim * 8);
  memcpy(j.far_stride, out->stride, (size_t)out->ndim * 8);
  if (!native) { /* both sides in the compute type */
    size_t cs = aci_ctype_bytes(ct);
    AC_GOTO(done, st,
            ac_block_alloc(f->device, (size_t)(out->numel + src->numel) * cs, AC_MEM_ACTIVATION,
                           f->stream, &wide, e));
    j.far = ac_block_ptr(wide);
    j.near = j.far + (size_t)out->numel * cs;
    aci_elems_load(out, ct, 0, out->numel, j.far);
    aci_elems_load(src, ct, 0, src->numel, j.near);
    aci_contiguous_strides(src->ndim, src->shape, j.near_stride);
    aci_contiguous_strides(out->ndim, out->shape, j.far_stride);
  }
  gather_run(f, &j);
  if (!native) aci_elems_store(out, ct, 0, out->numel, j.far);
done:
  ac_block_free(wide);
  ac_block_free(ids);
  return st;
}

ac_status aci_scatter_join_cpu(ac_frame *f, aci_scatter_join join, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  const int64_t *ids;
  ac_block *block;
  int d = aci_wrap_dim(ARG_I(f, 1), x->ndim);
  if (f->inplace) { /* nothing may be written when an index is bad */
    AC_TRY(aci_index_values(f, 2, x->ndim > 0 ? x->shape[d] : 1, "positions", &ids, &block, e));
    ac_block_free(block);
  } else {
    aci_range dst = {.ptr = aci_data(y), .dtype = (ac_dtype)y->dtype},
              src = {.ptr = aci_data(x), .dtype = (ac_dtype)x->dtype};
    memcpy(dst.stride, y->stride, (size_t)y->ndim * 8);
    memcpy(src.stride, x->stride, (size_t)x->ndim * 8);
    aci_range_copy_cpu(f->team, x->ndim, x->shape, &dst, &src);
  }
  return aci_scatter_join_run(f, y, ARG_T(f, 3), d, 2, join, e);
}
