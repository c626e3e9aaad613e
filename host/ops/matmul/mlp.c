/* mlp: y = act(x weight1^T + bias1) weight2^T + bias2, the feed-forward part of a transformer. The steps between
   its products are fused into them if the device can: bias, activation and its argument in forward, the
   activation's slope and bias1's gradient in backward.
   x (..., k), weight1 (n, k), bias1 (n)?, weight2 (m, n), bias2 (m)?. With transposed = true weight1 (k, n),
   weight2 (n, m) -> y (..., m). activation: gelu, gelu_tanh (gelu with approximate = tanh), relu or silu. Results
   equal those of linear, the activation and linear. On devices that fuse, the activation reads sums before they
   are rounded to 16 bits.
   gradient, with z = x weight1^T + bias1 and h = act(z), which are kept: dz = (dy weight2) act'(z) and dbias1 = the sum of dz over the rows,
   by mlp_backward. dweight2 = dy^T h, dbias2 = the sum of dy, dweight1 = dz^T x, dx = dz weight1. Second
   derivatives go through plain ops.
   example: accel.mlp(accel.tensor { 1.0, -2 }, accel.tensor { { 1.0, 0 }, { 0, 1 } }, accel.tensor { { 3.0, 5 } }, { activation = "relu" }) --> { 3 }
   example: accel.mlp(accel.ones(2, 3), accel.ones(3, 4), accel.ones(4, 3), { transposed = true }).shape --> { 2, 3 } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"
#include "ops/matmul/product.h"

enum { X, WEIGHT1, WEIGHT2, BIAS1, BIAS2, ACTIVATION, TRANSPOSED, KEEP };
enum { DY, DY_WEIGHT2, DY_H, DY_Z, DY_ACTIVATION, DY_TRANSPOSED, DY_SUMS };
enum { GELU, GELU_TANH, RELU, SILU }; /* as in the signatures */
static const char *const OP_OF[] = {"gelu", "gelu", "relu", "silu"};
static const char *const BACK_OF[] = {"gelu_backward", "gelu_backward", "relu_backward",
                                      "silu_backward"};

static ac_tensor *optional(const ac_value *a) { return a->kind == AC_T_TENSOR ? a->tensor : NULL; }

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *h, *z, *b1 = optional(&a[BIAS1]), *b2 = optional(&a[BIAS2]), *in = a[X].tensor;
  const int64_t row[2] = {1, in->numel};
  const bool leads = aci_requires_grad(a[X].tensor) || aci_requires_grad(a[WEIGHT1].tensor) ||
                     aci_requires_grad(a[WEIGHT2].tensor) ||
                     (b1 != NULL && aci_requires_grad(b1)) || (b2 != NULL && aci_requires_grad(b2));
  out[0] = x_mlp_parts(x, in->ndim == 1 ? x_reshape(x, in, row, 2) : in, a[WEIGHT1].tensor,
                       a[WEIGHT2].tensor, b1, b2, (int)a[ACTIVATION].i, a[TRANSPOSED].b,
                       x->ctx->grad_enabled && leads, &h, &z);
  if (in->ndim == 1 && out[0] != NULL) out[0] = x_reshape(x, out[0], &out[0]->numel, 1);
  return 1;
}

AC_OP(mlp,
      .sig =
          "mlp(x: tensor, weight1: tensor, weight2: tensor, bias1: tensor?, bias2: tensor?, "
          "activation: enum(gelu|gelu_tanh|relu|silu) = gelu, transposed: bool = false) -> tensor",
      .composed = composed);

/* ---- hidden ops ---- */
static ac_status check_bias(const ac_value *b, const char *name, const ac_tensor *w, int64_t n,
                            ac_err *e) {
  char s[128], r[128];
  if (b->kind != AC_T_TENSOR || (b->tensor->ndim == 1 && b->tensor->shape[0] == n)) return AC_OK;
  return AC_FAIL(e, SHAPE, "a weight of shape %s needs %s of shape (%lld), got %s",
                 aci_shape_str(w->ndim, w->shape, s, sizeof s), name, (long long)n,
                 aci_shape_str(b->tensor->ndim, b->tensor->shape, r, sizeof r));
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  const ac_tensor *x = ARG_T(f, X), *w1 = ARG_T(f, WEIGHT1), *w2 = ARG_T(f, WEIGHT2);
  const int in = ARG_B(f, TRANSPOSED) ? 0 : 1, out = 1 - in;
  char s[128], r[128], q[128];
  if (x->ndim == 0 || w1->ndim != 2 || w2->ndim != 2)
    return AC_FAIL(
        e, SHAPE, "needs an input of at least one dim and weights of two, got shapes %s, %s and %s",
        aci_shape_str(x->ndim, x->shape, s, sizeof s),
        aci_shape_str(w1->ndim, w1->shape, r, sizeof r),
        aci_shape_str(w2->ndim, w2->shape, q, sizeof q));
  AC_TRY(aci_product_dtypes(f, X, BIAS2, e));
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "x must be floating point, not %s", ac_dtype_name((ac_dtype)x->dtype));
  if (x->shape[x->ndim - 1] != w1->shape[in])
    return aci_product_mismatch(x, w1, x->shape[x->ndim - 1], w1->shape[in], e);
  if (w1->shape[out] != w2->shape[in])
    return aci_product_mismatch(w1, w2, w1->shape[out], w2->shape[in], e);
  AC_TRY(check_bias(&a[BIAS1], "bias1", w1, w1->shape[out], e));
  AC_TRY(check_bias(&a[BIAS2], "bias2", w2, w2->shape[out], e));
  int64_t dims[AC_MAX_DIMS];
  const int64_t none = 0;
  memcpy(dims, x->shape, (size_t)x->ndim * 8);
  dims[x->ndim - 1] = w2->shape[out];
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, dims, e));
  dims[x->ndim - 1] = w1->shape[out];
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, dims, e));
  /* relu's slope follows from its result */
  if (ARG_B(f, KEEP) && ARG_I(f, ACTIVATION) != RELU)
    return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, dims, e);
  return ac_frame_out(f, (ac_dtype)x->dtype, 1, &none, e);
}

/* Another op's kernel within this one, on tensors that are there. */
static ac_status run_op(const ac_frame *f, const char *name, ac_value *args, int n_args,
                        ac_tensor *out, ac_err *e) {
  const ac_op *op = ac_op_find(f->ctx, name);
  ac_frame g = *f;
  AC_TRY(aci_op_parse(op, e));
  g.op = op;
  g.desc = op->desc;
  g.args = args;
  g.n_args = n_args;
  g.n_out = 1;
  g.out[0] = out;
  g.inplace = false;
  return op->kernel[f->device->kind](&g, e);
}

/* y := act(x), or with dy y := dy * act'(x). x is relu's result then. */
static ac_status activate(const ac_frame *f, int activation, ac_tensor *dy, ac_tensor *x,
                          ac_tensor *y, ac_err *e) {
  ac_value args[3];
  int n = 0;
  if (dy != NULL) args[n++] = (ac_value){.kind = AC_T_TENSOR, .tensor = dy};
  args[n++] = (ac_value){.kind = AC_T_TENSOR, .tensor = x};
  if (activation <= GELU_TANH)
    args[n++] = (ac_value){.kind = AC_T_ENUM, .i = activation == GELU_TANH};
  return run_op(f, (dy != NULL ? BACK_OF : OP_OF)[activation], args, n, y, e);
}

/* The product with the steps that the device can fuse into it. *done false: it can fuse none, and
 * nothing happened. */
static ac_status fused(ac_frame *f, const aci_product *p, aci_epilogue epilogue, void *aux,
                       void *sums, bool *done, ac_err *e) {
  *done = false;
  if (f->ctx->drivers[f->device->kind] == NULL) return AC_OK;
  aci_product q = *p;
  q.epilogue = epilogue;
  q.aux = aux;
  q.sums = sums;
  const ac_status st = aci_product_run(f, &q, e);
  *done = st == AC_OK;
  return st == AC_UNSUPPORTED ? AC_OK : st;
}

static ac_status layer(ac_frame *f, const ac_tensor *x, int weight, int bias, aci_product *p,
                       ac_block **block, ac_err *e) {
  *block = NULL;
  aci_product_rows(p, x, ARG_T(f, weight), ARG_B(f, TRANSPOSED));
  if (ARG_NONE(f, bias)) return AC_OK;
  p->bias_dtype = (ac_dtype)ARG_T(f, bias)->dtype;
  return aci_contiguous_data(f, ARG_T(f, bias), &p->bias, block, e);
}

static ac_status run(ac_frame *f, ac_err *e) {
  const int activation = (int)ARG_I(f, ACTIVATION);
  ac_tensor *h = f->out[1], *z = f->out[2];
  aci_product p;
  ac_block *block;
  bool done = false;
  AC_TRY(layer(f, ARG_T(f, X), WEIGHT1, BIAS1, &p, &block, e));
  ac_status st = AC_OK;
  const bool kept = z->numel > 0;
  p.c = aci_data(h);
  if (h->numel > 0 && (activation == GELU_TANH || activation == RELU))
    st = fused(f, &p, activation == RELU ? ACI_EPILOGUE_RELU : ACI_EPILOGUE_GELU,
               kept ? aci_data(z) : NULL, NULL, &done, e);
  if (st == AC_OK && !done) {
    ac_tensor *sum = kept ? z : h;
    p.c = aci_data(sum);
    st = aci_product_run(f, &p, e);
    if (st == AC_OK) st = activate(f, activation, NULL, sum, h, e);
  }
  ac_block_free(block);
  if (st != AC_OK) return st;
  AC_TRY(layer(f, h, WEIGHT2, BIAS2, &p, &block, e));
  p.c = aci_data(f->out[0]);
  st = aci_product_run(f, &p, e);
  ac_block_free(block);
  return st;
}

static ac_status shape_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *h = ARG_T(f, DY_H);
  const int64_t n = ARG_B(f, DY_SUMS) ? h->shape[h->ndim - 1] : 0;
  AC_TRY(ac_frame_out(f, (ac_dtype)h->dtype, h->ndim, h->shape, e));
  return ac_frame_out(f, (ac_dtype)h->dtype, 1, &n, e);
}

static ac_status run_backward(ac_frame *f, ac_err *e) {
  const int activation = (int)ARG_I(f, DY_ACTIVATION);
  ac_tensor *dz = f->out[0], *sums = f->out[1], *z = ARG_T(f, DY_Z);
  aci_product p;
  bool done = false;
  const bool wanted = ARG_B(f, DY_SUMS);
  aci_product_rows(&p, ARG_T(f, DY), ARG_T(f, DY_WEIGHT2), !ARG_B(f, DY_TRANSPOSED));
  p.c = aci_data(dz);
  if (activation == GELU_TANH && dz->numel > 0)
    AC_TRY(fused(f, &p, ACI_EPILOGUE_GELU_GRADIENT, aci_data(z), wanted ? aci_data(sums) : NULL,
                 &done, e));
  if (done) return AC_OK;
  AC_TRY(aci_product_run(f, &p, e));
  AC_TRY(activate(f, activation, dz, activation == RELU ? ARG_T(f, DY_H) : z, dz, e));
  if (!wanted) return AC_OK;
  int64_t rows[AC_MAX_DIMS];
  for (int d = 0; d < dz->ndim - 1; d++) rows[d] = d;
  ac_value args[4] = {{.kind = AC_T_TENSOR, .tensor = dz},
                      {.kind = AC_T_DIMS, .n = dz->ndim - 1, .ints = rows},
                      {.kind = AC_T_BOOL},
                      {.kind = AC_T_NONE}};
  return run_op(f, "sum", args, 4, sums, e);
}

/* The gradient of a weight, from its input rows and the gradient of its output rows, in the
 * weight's layout. */
static ac_tensor *weight_gradient(ac_expr *x, ac_tensor *in, ac_tensor *dout, bool transposed,
                                  ac_dtype dt) {
  ac_tensor *a = aci_product_flat(x, transposed ? in : dout),
            *b = aci_product_flat(x, transposed ? dout : in);
  return aci_product_as(x, x_t(x, a), b, dt);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0], *w1 = ARG_T(g, WEIGHT1), *sums = NULL;
  const bool transposed = ARG_B(g, TRANSPOSED);
  const int64_t rows = 0;
  if (dy == NULL) return; /* the other results have no gradient */
  if (ac_grad_needs(g, X) || ac_grad_needs(g, WEIGHT1) || ac_grad_needs(g, BIAS1)) {
    ac_tensor *dz = ac_grad_kept(g);
    if (dz == NULL)
      dz = x_mlp_backward(x, dy, ARG_T(g, WEIGHT2), g->out[1], g->out[2], (int)ARG_I(g, ACTIVATION),
                          transposed, ac_grad_needs(g, BIAS1), &sums);
    ac_grad_keep(g, dz);
    if (ac_grad_needs(g, X))
      ac_grad_set(g, X,
                  aci_product_as(x, dz, transposed ? x_t(x, w1) : w1, ac_grad_dtype(g, X, 0)));
    if (ac_grad_needs(g, WEIGHT1) && dz != NULL)
      ac_grad_set(g, WEIGHT1,
                  weight_gradient(x, ARG_T(g, X), dz, transposed, ac_grad_dtype(g, WEIGHT1, 0)));
    if (ac_grad_needs(g, BIAS1)) ac_grad_set(g, BIAS1, sums);
  }
  if (ac_grad_needs(g, WEIGHT2))
    ac_grad_set(g, WEIGHT2,
                weight_gradient(x, g->out[1], dy, transposed, ac_grad_dtype(g, WEIGHT2, 0)));
  if (ac_grad_needs(g, BIAS2))
    ac_grad_set(g, BIAS2, x_sum(x, aci_product_flat(x, dy), &rows, 1, false, NULL));
}

static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const int activation = (int)a[ACTIVATION].i;
  ac_tensor *w1 = a[WEIGHT1].tensor, *w2 = a[WEIGHT2].tensor;
  if (w1->dtype != a[X].tensor->dtype) w1 = x_cast(x, w1, (ac_dtype)a[X].tensor->dtype);
  if (w2->dtype != a[X].tensor->dtype) w2 = x_cast(x, w2, (ac_dtype)a[X].tensor->dtype);
  if (a[TRANSPOSED].b) w1 = x_t(x, w1), w2 = x_t(x, w2);
  ac_tensor *z = x_linear(x, a[X].tensor, w1, optional(&a[BIAS1]));
  ac_tensor *h = activation == RELU   ? x_relu(x, z)
                 : activation == SILU ? x_silu(x, z)
                                      : x_gelu(x, z, activation == GELU_TANH);
  out[0] = x_linear(x, h, w2, optional(&a[BIAS2]));
  return 1;
}

static int64_t flops(const ac_frame *f) {
  return 2 * f->out[1]->numel *
         (ARG_T(f, X)->shape[ARG_T(f, X)->ndim - 1] + f->out[0]->shape[f->out[0]->ndim - 1]);
}
static int64_t flops_backward(const ac_frame *f) {
  return 2 * f->out[0]->numel * ARG_T(f, DY)->shape[ARG_T(f, DY)->ndim - 1];
}

AC_OP(
    mlp_parts,
    .sig =
        "mlp_parts(x: tensor, weight1: tensor, weight2: tensor, bias1: tensor?, bias2: tensor?, "
        "activation: enum(gelu|gelu_tanh|relu|silu), transposed: bool, keep: bool) -> (y: tensor, h: "
        "tensor, z: tensor)",
    .shape = shape, .cpu = run, .any_device = true, .grad = grad, .composed = plain, .flops = flops,
    .save = AC_SAVE_IN(X) | AC_SAVE_IN(WEIGHT1) | AC_SAVE_IN(WEIGHT2) | AC_SAVE_IN(BIAS1) |
            AC_SAVE_IN(BIAS2) | AC_SAVE_OUT(1) | AC_SAVE_OUT(2),
    .weights = 1 << WEIGHT1 | 1 << WEIGHT2, .autocast = AC_CAST_LOWER, .hidden = true);
AC_OP(mlp_backward,
      .sig = "mlp_backward(dy: tensor, weight2: tensor, h: tensor, z: tensor, activation: "
             "enum(gelu|gelu_tanh|relu|silu), "
             "transposed: bool, sums: bool) -> (dz: tensor, dbias1: tensor)",
      .shape = shape_backward, .cpu = run_backward, .any_device = true, .flops = flops_backward,
      .hidden = true);
