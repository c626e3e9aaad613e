/* From strided operands to the CPU's gemm: see product.h. */
#include "ops/matmul/product.h"

#include <stdlib.h>

#include "device/cpu/onednn.h"
#include "ops/core/ctx_impl.h"

bool aci_product_type(ac_dtype d, aci_gemm_type *out) {
  switch (d) {
    case AC_F64: *out = ACI_GEMM_F64; return true;
    case AC_F32: *out = ACI_GEMM_F32; return true;
    case AC_BF16: *out = ACI_GEMM_BF16; return true;
    case AC_F16: *out = ACI_GEMM_F16; return true;
    case AC_I64: *out = ACI_GEMM_I64; return true;
    case AC_I32: *out = ACI_GEMM_I32; return true;
    case AC_I16: *out = ACI_GEMM_I16; return true;
    case AC_I8: *out = ACI_GEMM_I8; return true;
    case AC_U8: *out = ACI_GEMM_U8; return true;
    default: return false;
  }
}

void aci_product_rows(aci_product *p, const ac_tensor *x, const ac_tensor *weight,
                      bool transposed) {
  const int nd = x->ndim, k = transposed ? 0 : 1, n = 1 - k;
  *p = (aci_product){.dtype = (ac_dtype)x->dtype,
                     .n_batch_dims = nd > 2 ? nd - 2 : 0,
                     .m = nd > 1 ? x->shape[nd - 2] : 1,
                     .n = weight->shape[n],
                     .k = weight->shape[k],
                     .a = aci_data(x),
                     .b = aci_data(weight),
                     .a_rs = nd > 1 ? x->stride[nd - 2] : 0,
                     .a_cs = x->stride[nd - 1],
                     .b_rs = weight->stride[k],
                     .b_cs = weight->stride[n],
                     .alpha = 1,
                     .round_b = weight->dtype != x->dtype};
  for (int d = 0; d < nd - 2; d++) {
    p->batch[d] = x->shape[d];
    p->a_batch[d] = x->stride[d];
  }
}

/* meta foretells the memory that the CPU takes, unless it stands for an accelerator. */
static bool as_cpu(const ac_ctx *c, const ac_device *d) {
  if (d->kind != AC_DEV_META) return d->kind == AC_DEV_CPU;
  const int64_t *flags = c->flags[AC_DEV_META];
  return flags != NULL ? flags[ACI_META_ACCELERATOR] == 0
                       : ac_params_int(c->params, "META_ACCELERATOR") == 0;
}

bool aci_product_rounds(const ac_ctx *c, const ac_device *d) {
  return as_cpu(c, d) && !aci_onednn_amx() && !aci_onednn_forced();
}

/* A weight left in f32: by autocast, or, without autocast, passed on by the gradient of an op that
 * met one. */
static bool to_round(const ac_frame *f, int arg, const ac_tensor *x) {
  return (f->desc->weights >> arg & 1) && (f->autocast || f->desc->autocast == AC_CAST_NONE) &&
         x->dtype == AC_BF16 && f->args[arg].tensor->dtype == AC_F32;
}

ac_status aci_product_dtypes(const ac_frame *f, int a, int b, ac_err *e) {
  const ac_tensor *x = f->args[a].tensor;
  aci_gemm_type t;
  char p[160], q[160];
  if (!aci_product_type((ac_dtype)x->dtype, &t))
    return AC_FAIL(e, DTYPE, "there are no matrix products of %s",
                   ac_dtype_name((ac_dtype)x->dtype));
  for (int i = a + 1; i <= b; i++) {
    if (f->args[i].kind != AC_T_TENSOR || f->args[i].tensor->dtype == x->dtype || to_round(f, i, x))
      continue;
    return AC_FAIL(e, DTYPE, "%s is %s but %s is %s; cast one of them",
                   aci_op_sig(f->op)->param[a].name, aci_tensor_str(x, p, sizeof p),
                   aci_op_sig(f->op)->param[i].name,
                   aci_tensor_str(f->args[i].tensor, q, sizeof q));
  }
  return AC_OK;
}

ac_status aci_product_mismatch(const ac_tensor *x, const ac_tensor *y, int64_t kx, int64_t ky,
                               ac_err *e) {
  char a[128], b[128];
  return AC_FAIL(e, SHAPE, "shapes %s and %s cannot be multiplied: %lld and %lld must be equal",
                 aci_shape_str(x->ndim, x->shape, a, sizeof a),
                 aci_shape_str(y->ndim, y->shape, b, sizeof b), (long long)kx, (long long)ky);
}

/* Simplifies the batch (p changes): removes dims of extent 1. If B is the same over innermost dims
 * and the rows of A follow one another, these dims become rows of one larger product. Then the
 * device's driver takes it, or the CPU's gemm with one address per operand and batch entry. C is
 * contiguous: (batch..., m, n). */
ac_status aci_product_run(ac_frame *f, aci_product *p, ac_err *e) {
  enum { SMALL = 64 };
  aci_gemm g = {0};
  int64_t n_batch = 1;
  int nb = 0;
  const int64_t es = (int64_t)aci_dsize(p->dtype), es_b = p->round_b ? 4 : es,
                es_c = p->wide ? 4 : es;
  if (!aci_product_type(p->dtype, &g.in_type))
    return AC_FAIL(e, DTYPE, "there are no matrix products of %s", ac_dtype_name(p->dtype));
  g.out_type = p->wide ? ACI_GEMM_F32 : g.in_type;
  g.round_b = p->round_b;
  if (p->bias != NULL) aci_product_type(p->bias_dtype, &g.bias_type);
  for (int d = 0; d < p->n_batch_dims; d++) {
    if (p->batch[d] == 1) continue;
    p->batch[nb] = p->batch[d];
    p->a_batch[nb] = p->a_batch[d];
    p->b_batch[nb++] = p->b_batch[d];
  }
  while (nb > 0 && p->b_batch[nb - 1] == 0 && (p->m == 1 || p->a_batch[nb - 1] == p->m * p->a_rs)) {
    nb--;
    if (p->m == 1) p->a_rs = p->a_batch[nb];
    p->m *= p->batch[nb];
  }
  for (int d = 0; d < nb; d++) n_batch *= p->batch[d];
  if (p->m == 0 || p->n == 0 || n_batch == 0) return AC_OK;
  p->n_batch_dims = nb;
  const aci_drivers *driver = f->ctx->drivers[f->device->kind];
  if (driver != NULL && p->round_b)
    return AC_FAIL(e, UNSUPPORTED,
                   "products that round a matrix of f32 run on the CPU only, not on %s",
                   f->device->name);
  if (driver != NULL) return driver->product(f, p, e);
  g.m = p->m;
  g.n = p->n;
  g.k = p->k;
  g.a_rs = p->a_rs;
  g.a_cs = p->a_cs;
  g.b_rs = p->b_rs;
  g.b_cs = p->b_cs;
  g.c_rs = p->n;
  g.n_batch = n_batch;
  g.bias = p->bias;
  g.alpha = p->alpha;
  g.beta = p->beta;
  void *small[3 * SMALL], **list = small;
  if (n_batch > SMALL) list = malloc((size_t)n_batch * 3 * sizeof *list);
  if (list == NULL)
    return AC_FAIL(e, OOM, "no memory for the addresses of %lld products", (long long)n_batch);
  void **a = list, **b = list + n_batch, **c = b + n_batch;
  /* index over the batch, and the offsets of A and B there, in elements */
  int64_t idx[AC_MAX_DIMS] = {0}, ao = 0, bo = 0;
  for (int64_t i = 0; i < n_batch; i++) {
    a[i] = (char *)(uintptr_t)p->a + ao * es;
    b[i] = (char *)(uintptr_t)p->b + bo * es_b;
    c[i] = (char *)p->c + i * p->m * p->n * es_c;
    for (int d = nb - 1; d >= 0; d--) {
      ao += p->a_batch[d];
      bo += p->b_batch[d];
      if (++idx[d] < p->batch[d]) break;
      ao -= p->a_batch[d] * p->batch[d];
      bo -= p->b_batch[d] * p->batch[d];
      idx[d] = 0;
    }
  }
  g.a = (const void *const *)a;
  g.b = (const void *const *)b;
  g.c = c;
  ac_status st = aci_cpu_gemm(f->team, &g, e);
  if (list != small) free(list);
  return st;
}

ac_tensor *aci_product_flat(ac_expr *x, ac_tensor *t) {
  if (t == NULL || t->ndim == 2) return t;
  int64_t shape[2] = {1, t->shape[t->ndim - 1]}; /* of no columns there are as many rows */
  for (int d = 0; d < t->ndim - 1; d++) shape[0] *= t->shape[d];
  return x_reshape(x, t, shape, 2);
}

ac_tensor *aci_product_as(ac_expr *x, ac_tensor *a, ac_tensor *b, ac_dtype result) {
  if (a == NULL || b == NULL) return NULL;
  if (b->dtype == a->dtype && result == (ac_dtype)a->dtype) return x_matmul(x, a, b);
  return x_mixed_product(x, a, b, result != (ac_dtype)a->dtype);
}
