/* masked_scatter: x with the elements of source, in their order, at the positions with mask true.
   x (any shape), mask (bool, broadcasts to x), source (at least as many elements as positions) -> y (shape of x)
   gradient: dx = dy without the masked positions (0 there). dsource = dy at those positions, one after the other,
   then zeros.
   example: accel.zeros(4):masked_scatter(accel.tensor { true, false, true, false }, accel.tensor { 5.0, 6.0 }) --> { 5, 0, 6, 0 } */
#include "ops/index/mask.h"

static ac_status mask_check(const ac_tensor *x, const ac_tensor *mask, ac_err *e) {
  char a[128], b[128];
  if (mask->dtype != AC_BOOL)
    return AC_FAIL(e, DTYPE, "the mask must be bool, not %s", ac_dtype_name((ac_dtype)mask->dtype));
  const int lead = x->ndim - mask->ndim;
  bool ok = lead >= 0;
  for (int d = 0; ok && d < mask->ndim; d++)
    ok = mask->shape[d] == 1 || mask->shape[d] == x->shape[lead + d];
  if (ok) return AC_OK;
  return AC_FAIL(e, SHAPE, "a mask of shape %s does not broadcast to %s",
                 aci_shape_str(mask->ndim, mask->shape, a, sizeof a),
                 aci_shape_str(x->ndim, x->shape, b, sizeof b));
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *src = ARG_T(f, 2);
  AC_TRY(mask_check(x, ARG_T(f, 1), e));
  if (src->dtype != x->dtype)
    return AC_FAIL(e, DTYPE, "source is %s and x is %s", ac_dtype_name((ac_dtype)src->dtype),
                   ac_dtype_name((ac_dtype)x->dtype));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

typedef struct masked_scatter_job {
  size_t es;
  const uint8_t *mask;
  const int64_t *first; /* per chunk: how many positions before it are true */
  char *all, *some;     /* as many as mask. As many as are true */
  bool spread;          /* some -> all, else all -> some */
} masked_scatter_job;

#define WALK(T)                                                \
  do {                                                         \
    T *a = (T *)(void *)j->all, *s = (T *)(void *)j->some + k; \
    for (int64_t i = begin; i < end; i++) {                    \
      if (!j->mask[i]) continue;                               \
      if (j->spread) a[i] = *s++;                              \
      else *s++ = a[i];                                        \
    }                                                          \
  } while (0)
static void range(void *arg, int64_t begin, int64_t end) {
  const masked_scatter_job *j = arg;
  const int64_t k = j->first[begin / ACI_MASK_CHUNK];
  switch (j->es) {
    case 1: WALK(uint8_t); break;
    case 2: WALK(uint16_t); break;
    case 4: WALK(uint32_t); break;
    default: WALK(uint64_t); break;
  }
}

/* The mask in the shape of x, counted. At most `limit` positions may be true. The caller frees the
 * blocks in every case. */
static ac_status read_mask(ac_frame *f, const ac_tensor *x, int64_t limit, masked_scatter_job *j,
                           int64_t *total, ac_block **b1, ac_block **b2, ac_err *e) {
  const void *mask;
  *b1 = *b2 = NULL;
  AC_TRY(aci_broadcast_data(f, ARG_T(f, 1), x->ndim, x->shape, &mask, b1, e));
  AC_TRY(ac_block_alloc(f->device, (size_t)(aci_mask_chunks(x->numel) + 1) * 8, AC_MEM_ACTIVATION,
                        f->stream, b2, e));
  *total = aci_mask_count(f->team, mask, x->numel, ac_block_ptr(*b2));
  j->mask = mask;
  j->first = ac_block_ptr(*b2);
  if (*total <= limit) return AC_OK;
  return AC_FAIL(e, SHAPE, "the mask is true %lld times, but source has %lld elements",
                 (long long)*total, (long long)limit);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *src = ARG_T(f, 2);
  ac_tensor *y = f->out[0];
  masked_scatter_job j = {.es = aci_dsize((ac_dtype)x->dtype), .spread = true};
  int64_t total;
  const void *some, *all;
  ac_block *b1, *b2, *b3 = NULL, *b4 = NULL;
  if (x->numel == 0) return AC_OK;
  ac_status st = read_mask(f, x, src->numel, &j, &total, &b1, &b2, e);
  if (st == AC_OK) st = aci_contiguous_data(f, src, &some, &b3, e);
  if (st != AC_OK) goto done;
  if (!f->inplace) aci_copy_into(f->team, y, x);
  /* a copy if y, written in place, has gaps */
  AC_GOTO(done, st, aci_contiguous_data(f, y, &all, &b4, e));
  j.all = (char *)(uintptr_t)all;
  j.some = (char *)(uintptr_t)some;
  ac_parallel_for(f->team, y->numel, ACI_MASK_CHUNK, range, &j);
  if (b4 != NULL) {
    aci_range dst = {.ptr = aci_data(y), .dtype = (ac_dtype)y->dtype},
              from = {.ptr = j.all, .dtype = dst.dtype};
    memcpy(dst.stride, y->stride, (size_t)y->ndim * 8);
    aci_contiguous_strides(y->ndim, y->shape, from.stride);
    aci_range_copy_cpu(f->team, y->ndim, y->shape, &dst, &from);
  }
done:
  ac_block_free(b4);
  ac_block_free(b3);
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *dy = g->dout[0], *mask = ARG_T(g, 1);
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, x_masked_fill(ex, dy, mask, F(0)));
  if (ac_grad_needs(g, 2))
    ac_grad_set(
        g, 2,
        x_masked_scatter_backward(ex, dy, mask, ac_grad_shape(g, 2, 0), ac_grad_ndim(g, 2, 0)));
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  AC_TRY(mask_check(ARG_T(f, 0), ARG_T(f, 1), e));
  return ac_frame_out(f, (ac_dtype)ARG_T(f, 0)->dtype, f->args[2].n, f->args[2].ints, e);
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  masked_scatter_job j = {.es = aci_dsize((ac_dtype)dy->dtype), .some = aci_data(y)};
  int64_t total = 0;
  const void *all;
  ac_block *b1 = NULL, *b2 = NULL, *b3 = NULL;
  ac_status st = AC_OK;
  if (y->numel == 0) return AC_OK;
  if (dy->numel > 0) {
    AC_GOTO(done, st, read_mask(f, dy, y->numel, &j, &total, &b1, &b2, e));
    AC_GOTO(done, st, aci_contiguous_data(f, dy, &all, &b3, e));
    j.all = (char *)(uintptr_t)all;
    ac_parallel_for(f->team, dy->numel, ACI_MASK_CHUNK, range, &j);
  }
  memset(j.some + (size_t)total * j.es, 0, (size_t)(y->numel - total) * j.es);
done:
  ac_block_free(b3);
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad_back(ac_grad *g) {
  ac_expr *ex = &g->x;
  const ac_dtype dt = ac_grad_dtype(g, 0, 0);
  ac_tensor *mask = ARG_T(g, 1),
            *wide = x_expand(ex, mask, ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0));
  ac_grad_set(g, 0, x_masked_scatter(ex, x_zeros_like(ex, wide, &dt, NULL), mask, g->dout[0]));
}

AC_OP(masked_scatter, .sig = "masked_scatter(x: tensor, mask: tensor, source: tensor) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(1), .inplace = true,
      .on_complex = aci_complex_parts);
AC_OP(masked_scatter_backward,
      .sig = "masked_scatter_backward(dy: tensor, mask: tensor, shape: shape) -> tensor",
      .shape = shape_back, .cpu = cpu_back, .grad = grad_back, .save = AC_SAVE_IN(1),
      .hidden = true, .on_complex = aci_complex_parts);
