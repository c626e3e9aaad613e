/* Views of a tensor as kept times reduced dims, and helpers for shape and gradient rules of
 * reductions. */
#include "ops/reduce/reduce.h"

int aci_reduce_shape(const ac_tensor *x, uint32_t mask, bool keepdim, int64_t *shape) {
  int n = 0;
  for (int d = 0; d < x->ndim; d++) {
    if (!(mask >> d & 1)) shape[n++] = x->shape[d];
    else if (keepdim) shape[n++] = 1;
  }
  return n;
}

static bool is_list(const ac_value *v) { return v->kind == AC_T_DIMS || v->kind == AC_T_INTS; }

uint32_t aci_reduce_mask(const ac_value *dims, int ndim) {
  uint32_t mask = 0;
  if (dims->kind == AC_T_NONE || (is_list(dims) && dims->n == 0))
    return ndim == 0 ? 0 : (uint32_t)((1ull << ndim) - 1);
  if (ndim == 0) return 0;
  int n = is_list(dims) ? dims->n : 1;
  for (int i = 0; i < n; i++) {
    int64_t d = is_list(dims) ? dims->ints[i] : dims->i;
    mask |= 1u << (d < 0 ? d + ndim : d);
  }
  return mask;
}

ac_status aci_reduce_out(ac_frame *f, int dims_arg, int keepdim_arg, ac_dtype dt, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t shape[AC_MAX_DIMS];
  uint32_t mask;
  AC_TRY(ac_frame_dims(f, dims_arg, x->ndim, &mask, e));
  int n = aci_reduce_shape(x, aci_reduce_mask(&f->args[dims_arg], x->ndim), ARG_B(f, keepdim_arg),
                           shape);
  return ac_frame_out(f, dt, n, shape, e);
}

ac_tensor *aci_reduce_unsqueeze(ac_grad *g, const ac_value *dims, ac_tensor *t) {
  int n = ac_grad_ndim(g, 0, 0);
  const int64_t *shape = ac_grad_shape(g, 0, 0);
  int64_t s[AC_MAX_DIMS];
  uint32_t mask = aci_reduce_mask(dims, n);
  if (t == NULL || t->ndim == n) return t;
  for (int d = 0; d < n; d++) s[d] = mask >> d & 1 ? 1 : shape[d];
  return x_view(&g->x, t, s, n);
}

ac_tensor *aci_reduce_spread(ac_grad *g, const ac_value *dims, ac_tensor *t) {
  return x_expand(&g->x, aci_reduce_unsqueeze(g, dims, t), ac_grad_shape(g, 0, 0),
                  ac_grad_ndim(g, 0, 0));
}

/* Appends a dim, joining it with the one before when the two are walked as one. */
static void append(int *n, int64_t *shape, int64_t *stride, int64_t extent, int64_t step) {
  if (extent == 1) return;
  if (*n > 0 && stride[*n - 1] == step * extent) {
    shape[*n - 1] *= extent;
    stride[*n - 1] = step;
    return;
  }
  shape[*n] = extent;
  stride[(*n)++] = step;
}

void aci_reduce_plan_make(aci_reduce_plan *p, const ac_tensor *x, uint32_t mask, aci_ctype ct) {
  p->ptr = aci_data(x);
  p->dt = (ac_dtype)x->dtype;
  p->ct = ct;
  p->n_keep = p->n_red = 0;
  p->source = NULL;
  p->from = NULL;
  p->n_out = p->n_reduced = 1;
  for (int d = 0; d < x->ndim; d++) {
    bool red = mask >> d & 1;
    if (red) append(&p->n_red, p->red_shape, p->red_stride, x->shape[d], x->stride[d]);
    else append(&p->n_keep, p->keep_shape, p->keep_stride, x->shape[d], x->stride[d]);
    *(red ? &p->n_reduced : &p->n_out) *= x->shape[d];
  }
  if (p->n_red == 0) {
    p->n_red = p->red_shape[0] = 1;
    p->red_stride[0] = 1;
  }
  if (p->n_keep == 0) {
    p->n_keep = p->keep_shape[0] = 1;
    p->keep_stride[0] = 0;
  }
}

static int64_t offset_of(int n, const int64_t *shape, const int64_t *stride, int64_t i) {
  int64_t off = 0;
  for (int d = n - 1; d > 0; d--) {
    off += i % shape[d] * stride[d];
    i /= shape[d];
  }
  return off + i * stride[0];
}

int64_t aci_reduce_base(const aci_reduce_plan *p, int64_t o) {
  return offset_of(p->n_keep, p->keep_shape, p->keep_stride, o);
}

int64_t aci_reduce_offset(const aci_reduce_plan *p, int64_t i) {
  return offset_of(p->n_red, p->red_shape, p->red_stride, i);
}

void aci_reduce_fetch(const aci_reduce_plan *p, int64_t base, int64_t begin, int64_t n, void *dst) {
  const int last = p->n_red - 1;
  const int64_t inner = p->red_shape[last], stride = p->red_stride[last],
                es = (int64_t)aci_dsize(p->dt);
  char *d = dst;
  while (n > 0) {
    int64_t m = inner - begin % inner < n ? inner - begin % inner : n;
    int64_t off = base + aci_reduce_offset(p, begin);
    aci_load(p->ct, d, p->dt, p->ptr + off * es, stride, m);
    d += (size_t)m * aci_ctype_bytes(p->ct);
    begin += m;
    n -= m;
  }
}

const void *aci_reduce_block(const aci_reduce_plan *p, int64_t base, int64_t begin, int64_t n,
                             void *buf) {
  static const ac_dtype same[] = {AC_F32, AC_F64, AC_I64};
  if (p->source != NULL) {
    p->source(p->from, base + begin, n, buf);
    return buf;
  }
  if (p->n_red == 1 && (p->red_stride[0] == 1 || p->n_reduced == 1) && p->dt == same[p->ct])
    return p->ptr + (base + begin) * (int64_t)aci_dsize(p->dt);
  aci_reduce_fetch(p, base, begin, n, buf);
  return buf;
}

int64_t aci_reduce_grain(const aci_reduce_plan *p) {
  int64_t g = 32768 / (p->n_reduced > 0 ? p->n_reduced : 1);
  return g < 1 ? 1 : g;
}
