/* repeat_interleave: each slice of x along dim repeated, the copies one after another. Without dim x is flattened.
   x (a, n, b), dim 2, repeats a number -> y (a, n * repeats, b)
   x (a, n, b), dim 2, repeats (n) or (1), i64 or i32 -> y (a, sum of repeats, b). The sum is read from the tensor
   unless output_size gives it, which the meta device needs.
   gradient: dx = dy summed over the repeats.
   example: accel.tensor { 1, 2 }:repeat_interleave(2) --> { 1, 1, 2, 2 }
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:repeat_interleave(accel.tensor { 1, 2 }, 1) --> { { 1, 2 }, { 3, 4 }, { 3, 4 } } */
#include "device/meta/meta_flags.h"
#include "ops/core/ctx_impl.h"
#include "ops/index/remap.h"
#include "ops/index/repeats.h"

/* ---- a number: repeat_each ---- */
static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS];
  const int d = (int)ARG_I(f, 2);
  if (d < 0 || d >= x->ndim) return AC_FAIL(e, INDEX, "dim %d is out of range", d);
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  if (ARG_I(f, 1) < 0 || __builtin_mul_overflow(s[d], ARG_I(f, 1), &s[d]))
    return AC_FAIL(e, INVALID, "repeats must be a number of times, got %lld",
                   (long long)ARG_I(f, 1));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int64_t k = ARG_I(f, 1);
  aci_remap m;
  (void)e;
  if (f->out[0]->numel == 0) return AC_OK;
  aci_remap_init(&m, x->ndim, x->shape, x->stride, 0);
  aci_dim_map *d = &m.dim[ARG_I(f, 2)];
  if (k > 1) {
    aci_remap_begin(d, d->n_in * k);
    d->repeat = k;
  }
  return aci_remap_run(f, f->out[0], aci_data(x), &m, NULL, e);
}

static void grad(ac_grad *g) {
  int64_t times[AC_MAX_DIMS];
  const int nd = ac_grad_ndim(g, 0, 0);
  for (int d = 0; d < nd; d++) times[d] = d == ARG_I(g, 2) ? ARG_I(g, 1) : 1;
  ac_grad_set(g, 0, aci_sum_repeats(&g->x, g->dout[0], nd, ac_grad_shape(g, 0, 0), times, false));
}

/* ---- a tensor: the numbers of the positions shown, for index_select ---- */
static ac_status shape_positions(ac_frame *f, ac_err *e) {
  AC_TRY(aci_index_dtype(f, 0, e));
  return ac_frame_out(f, AC_I64, 1, (const int64_t[]){ARG_I(f, 1)}, e);
}

static ac_status cpu_positions(ac_frame *f, ac_err *e) {
  const ac_tensor *r = ARG_T(f, 0);
  int64_t *y = aci_data(f->out[0]), n = f->out[0]->numel, at = 0;
  for (int64_t i = 0; i < r->numel; i++) {
    int64_t k;
    aci_elems_load(r, ACI_C_I64, i, 1, &k);
    if (k < 0 || k > n - at)
      return AC_FAIL(e, INVALID,
                     k < 0 ? "repeats holds the negative number %lld"
                           : "repeats adds up to more than output_size, at %lld",
                     (long long)k);
    for (; k > 0; k--) y[at++] = i;
  }
  if (at != n)
    return AC_FAIL(e, INVALID, "repeats adds up to %lld, but output_size is %lld", (long long)at,
                   (long long)n);
  return AC_OK;
}

static ac_tensor *by_tensor(ac_expr *x, ac_tensor *t, ac_tensor *repeats, int dim,
                            const ac_value *size) {
  char a[128];
  int64_t total = 0;
  if (repeats->dtype != AC_I64 && repeats->dtype != AC_I32) {
    x->st = AC_FAIL(x->e, DTYPE, "repeats must hold i64 or i32, got %s",
                    ac_dtype_name((ac_dtype)repeats->dtype));
    return NULL;
  }
  if (repeats->ndim > 1 || (repeats->numel != 1 && repeats->numel != t->shape[dim])) {
    x->st = AC_FAIL(x->e, SHAPE, "repeats has shape %s, but dim %lld has %lld positions",
                    aci_shape_str(repeats->ndim, repeats->shape, a, sizeof a),
                    (long long)(dim + x->ctx->index_base), (long long)t->shape[dim]);
    return NULL;
  }
  if (repeats->numel == 1)
    repeats = x_expand(x, x_reshape(x, repeats, (const int64_t[]){1}, 1), &t->shape[dim], 1);
  if (size->kind == AC_T_INT) {
    total = size->i;
  } else {
    const int64_t *flags = x->ctx->flags[AC_DEV_META];
    const bool meta = repeats != NULL && repeats->device->kind == AC_DEV_META;
    const bool zeros = meta && flags != NULL && flags[ACI_META_ZEROS];
    if (meta && !zeros) {
      x->st = AC_FAIL(x->e, DEVICE,
                      "repeats on the meta device has no values to add up; give output_size");
      return NULL;
    }
    ac_tensor *sum = x_sum(x, repeats, NULL, 0, false, NULL);
    ac_scalar v = {.kind = AC_SCALAR_INT};
    if (sum == NULL) return NULL;
    x->st = zeros ? AC_OK : ac_tensor_item(sum, 0, &v, x->e);
    if (x->st != AC_OK) return NULL;
    total = v.i < 0 ? 0 : v.i; /* a negative repeat is found by the kernel */
  }
  return x_index_select(x, t, dim, x_repeat_positions(x, repeats, total));
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  int64_t d = a[2].kind == AC_T_DIM ? a[2].i : 0;
  if (a[2].kind != AC_T_DIM || t->ndim == 0) t = x_reshape(x, t, (const int64_t[]){-1}, 1);
  if (t == NULL) return 0;
  if (d < -t->ndim || d >= t->ndim) {
    x->st = AC_FAIL(x->e, INDEX, "dim %lld is out of range for %d dims",
                    (long long)(d < 0 ? d : d + x->ctx->index_base), t->ndim);
    return 0;
  }
  if (d < 0) d += t->ndim;
  if (a[1].kind == AC_T_TENSOR) {
    out[0] = by_tensor(x, t, a[1].tensor, (int)d, &a[3]);
    return 1;
  }
  const ac_scalar r = a[1].scalar;
  if (r.kind != AC_SCALAR_INT) {
    x->st = AC_FAIL(x->e, INVALID, "repeats must be an integer or a tensor of integers");
    return 0;
  }
  out[0] = x_repeat_each(x, t, r.i, d);
  if (a[3].kind == AC_T_INT && out[0] != NULL && out[0]->shape[d] != a[3].i)
    x->st = AC_FAIL(x->e, INVALID, "output_size is %lld, but %lld positions come out",
                    (long long)a[3].i, (long long)out[0]->shape[d]);
  return 1;
}

AC_OP(
    repeat_interleave,
    .sig = "repeat_interleave(x: tensor, repeats: operand, dim: dim?, output_size: int?) -> tensor",
    .composed = composed, .on_complex = aci_complex_composed);
AC_OP(repeat_each, .sig = "repeat_each(x: tensor, repeats: int, dim: int) -> tensor",
      .shape = shape, .cpu = cpu, .any_device = true, .grad = grad, .hidden = true,
      .on_complex = aci_complex_parts);
AC_OP(repeat_positions, .sig = "repeat_positions(repeats: tensor, output_size: int) -> tensor",
      .shape = shape_positions, .cpu = cpu_positions, .nondiff = true, .hidden = true);
