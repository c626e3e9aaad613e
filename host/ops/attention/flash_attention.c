/* flash_attention: out = dropout(softmax(scale q k^T + mask)) v without a matrix of all pairs in memory.
   scaled_dot_product_attention runs on it.
   query (b, hq, tq, d), key and value (b, hkv, tk, d) with hq a multiple of hkv, attn_mask (broadcasts to b,
   hq, tq, tk)?, alibi_slopes (hq)? -> out (b, hq, tq, d), which lies in memory as (b, tq, hq, d), and lse (b, hq,
   tq), the log of the sum of exponentials.
   gradient: flash_attention_backward, which computes the weights again from lse. The mask and the slopes get none.
   Second derivatives go through attention in plain ops. */
#include "device/cpu/kernels/flash.h"

#include "ops/attention/plain.h"
#include "ops/map/convert.h"
#include "ops/random/draw.h"

enum { Q, K, V, MASK, DROPOUT, CAUSAL, SCALE, GENERATOR, ALIBI };
/* parameters of the backward op */
enum {
  B_DOUT,
  B_Q,
  B_K,
  B_V,
  B_OUT,
  B_LSE,
  B_MASK,
  B_DROPOUT,
  B_CAUSAL,
  B_SCALE,
  B_GENERATOR,
  B_ALIBI
};

/* A tensor of x's shape (b, h, t, d) whose memory is (b, t, h, d). */
static ac_status out_by_time(ac_frame *f, const ac_tensor *x, ac_err *e) {
  int64_t h = x->shape[1], t = x->shape[2], d = x->shape[3];
  int64_t stride[4] = {t * h * d, d, h * d, 1};
  return ac_frame_out_strided(f, (ac_dtype)x->dtype, 4, x->shape, stride, e);
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *q = ARG_T(f, Q);
  AC_TRY(out_by_time(f, q, e));
  return ac_frame_out(f, q->dtype == AC_F64 ? AC_F64 : AC_F32, 3, q->shape, e);
}

static aci_gemm_type type_of(ac_dtype d) {
  return d == AC_F64    ? ACI_GEMM_F64
         : d == AC_BF16 ? ACI_GEMM_BF16
         : d == AC_F16  ? ACI_GEMM_F16
                        : ACI_GEMM_F32;
}

static void strides(int64_t *s, const ac_tensor *t) { memcpy(s, t->stride, 3 * sizeof *s); }

/* Fills *a from a call. q (b, hq, tq, d), k and v (b, hkv, tk, d) are borrowed with their strides.
 * mask: the argument's number. dropout_p, is_causal, scale, generator and alibi_slopes follow it.
 * Slopes are converted into *slopes, which the caller frees. */
static ac_status describe(ac_frame *f, const ac_tensor *q, const ac_tensor *k, const ac_tensor *v,
                          int mask, aci_flash *a, ac_block **slopes, ac_err *e) {
  const int alibi = mask + ALIBI - MASK;
  *slopes = NULL;
  *a = (aci_flash){.type = type_of((ac_dtype)q->dtype),
                   .b = q->shape[0],
                   .hq = q->shape[1],
                   .hkv = k->shape[1],
                   .tq = q->shape[2],
                   .tk = k->shape[2],
                   .d = q->shape[3],
                   .q = aci_data(q),
                   .k = aci_data(k),
                   .v = aci_data(v),
                   .scale = ARG_F(f, mask + 3),
                   .causal = ARG_B(f, mask + 2),
                   .drop_p = ARG_F(f, mask + 1)};
  strides(a->q_s, q);
  strides(a->k_s, k);
  strides(a->v_s, v);
  if (!ARG_NONE(f, mask)) {
    const ac_tensor *m = ARG_T(f, mask);
    a->mask_kind = m->dtype == AC_BOOL ? ACI_FLASH_BOOL_MASK : ACI_FLASH_ADD_MASK;
    a->mask_type = type_of((ac_dtype)m->dtype);
    a->mask = aci_data(m);
    for (int d = 0; d < 4; d++) {
      int i = d - (4 - m->ndim);
      a->mask_s[d] = i < 0 || m->shape[i] == 1 ? 0 : m->stride[i];
    }
  }
  if (a->drop_p > 0) {
    aci_draw draw = aci_draw_of_rows(&f->rng_counter);
    a->drop_key = draw.key;
    a->drop_counter = draw.call;
    a->drop_below = (uint32_t)(a->drop_p * 0x1p32);
    if (a->drop_below == 0) a->drop_below = 1;
    const int64_t extent[4] = {a->b, a->hq, a->tq, a->tk};
    memcpy(a->drop_n, extent, sizeof extent);
    memset(a->drop_0, 0, sizeof a->drop_0);
    AC_TRY(aci_draw_ranges(&f->rng_counter, 4, a->drop_0, a->drop_n, e));
  }
  if (!ARG_NONE(f, alibi)) {
    const ac_tensor *s = ARG_T(f, alibi);
    AC_TRY(ac_block_alloc(f->device, (size_t)s->numel * sizeof(double), AC_MEM_ACTIVATION,
                          f->stream, slopes, e));
    aci_load(ACI_C_F64, ac_block_ptr(*slopes), (ac_dtype)s->dtype, aci_data(s), s->stride[0],
             s->numel);
    a->alibi = ac_block_ptr(*slopes);
  }
  return AC_OK;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  aci_flash a;
  ac_block *slopes;
  if (f->out[0]->numel == 0) return AC_OK;
  AC_TRY(describe(f, ARG_T(f, Q), ARG_T(f, K), ARG_T(f, V), MASK, &a, &slopes, e));
  a.out = aci_data(f->out[0]);
  strides(a.out_s, f->out[0]);
  a.lse = aci_data(f->out[1]);
  a.inference = !ac_ctx_grad_enabled(f->ctx) ||
                !(aci_requires_grad(ARG_T(f, Q)) || aci_requires_grad(ARG_T(f, K)) ||
                  aci_requires_grad(ARG_T(f, V)));
  ac_status st = aci_flash_forward(f->team, &a, e);
  ac_block_free(slopes);
  return st;
}

static int64_t flops(const ac_frame *f) {
  int64_t all = 4 * f->out[0]->numel * ARG_T(f, K)->shape[2];
  return ARG_B(f, CAUSAL) ? all / 2 : all;
}

/* Five products to the forward's two: the scores again, then dV, dP, dQ and dK. */
static int64_t flops_back(const ac_frame *f) {
  const int64_t all = 10 * ARG_T(f, B_Q)->numel * ARG_T(f, B_K)->shape[2];
  return f->args[B_CAUSAL].b ? all / 2 : all;
}

/* The last dim must be contiguous. */
static ac_tensor *rows(ac_expr *x, ac_tensor *t) {
  return t == NULL || t->stride[t->ndim - 1] == 1 || t->shape[t->ndim - 1] == 1 ? t : x_clone(x, t);
}

static void grad(ac_grad *g) {
  ac_tensor *dk = NULL, *dv = NULL;
  if (g->dout[0] == NULL) return; /* lse leads nowhere */
  ac_tensor *mask = ARG_NONE(g, MASK) ? NULL : ARG_T(g, MASK),
            *slopes = ARG_NONE(g, ALIBI) ? NULL : ARG_T(g, ALIBI);
  ac_tensor *dq = x_flash_attention_backward(&g->x, rows(&g->x, g->dout[0]), ARG_T(g, Q),
                                             ARG_T(g, K), ARG_T(g, V), g->out[0], g->out[1], mask,
                                             ARG_F(g, DROPOUT), ARG_B(g, CAUSAL), ARG_F(g, SCALE),
                                             &g->rng_counter, slopes, &dk, &dv);
  ac_grad_set(g, Q, dq);
  ac_grad_set(g, K, dk);
  ac_grad_set(g, V, dv);
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = aci_plain_attention(x, a[Q].tensor, a[K].tensor, a[V].tensor,
                               a[MASK].kind == AC_T_TENSOR ? a[MASK].tensor : NULL, a[DROPOUT].f,
                               a[CAUSAL].b, a[SCALE].f,
                               a[GENERATOR].kind == AC_T_GENERATOR ? a[GENERATOR].generator : NULL,
                               a[ALIBI].kind == AC_T_TENSOR ? a[ALIBI].tensor : NULL);
  return 1;
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  AC_TRY(out_by_time(f, ARG_T(f, B_Q), e));
  AC_TRY(out_by_time(f, ARG_T(f, B_K), e));
  return out_by_time(f, ARG_T(f, B_V), e);
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  aci_flash a;
  ac_block *slopes;
  aci_flash_grads g = {.dout = aci_data(ARG_T(f, B_DOUT)),
                       .dq = aci_data(f->out[0]),
                       .dk = aci_data(f->out[1]),
                       .dv = aci_data(f->out[2])};
  if (f->out[0]->numel == 0 || f->out[1]->numel == 0) {
    for (int i = 0; i < 3; i++)
      if (f->out[i]->numel > 0)
        memset(aci_data(f->out[i]), 0,
               (size_t)f->out[i]->numel * aci_dsize((ac_dtype)f->out[i]->dtype));
    return AC_OK;
  }
  AC_TRY(describe(f, ARG_T(f, B_Q), ARG_T(f, B_K), ARG_T(f, B_V), B_MASK, &a, &slopes, e));
  a.out = aci_data(ARG_T(f, B_OUT));
  strides(a.out_s, ARG_T(f, B_OUT));
  a.lse = aci_data(ARG_T(f, B_LSE));
  strides(g.dout_s, ARG_T(f, B_DOUT));
  strides(g.dq_s, f->out[0]);
  strides(g.dk_s, f->out[1]);
  strides(g.dv_s, f->out[2]);
  ac_status st = aci_flash_backward(f->team, &a, &g, e);
  ac_block_free(slopes);
  return st;
}

AC_OP(
    flash_attention,
    .sig =
        "flash_attention(query: tensor, key: tensor, value: tensor, attn_mask: tensor?, dropout_p: "
        "float, is_causal: bool, "
        "scale: float, generator: generator?, alibi_slopes: tensor?) -> (out: tensor, lse: tensor)",
    .shape = shape, .cpu = cpu, .grad = grad, .composed = composed, .flops = flops,
    .save = AC_SAVE_OUT(0) | AC_SAVE_OUT(1), .hidden = true);
AC_OP(
    flash_attention_backward,
    .sig =
        "flash_attention_backward(dout: tensor, query: tensor, key: tensor, value: tensor, out: tensor, "
        "lse: tensor, "
        "attn_mask: tensor?, dropout_p: float, is_causal: bool, scale: float, generator: generator?, "
        "alibi_slopes: tensor?) -> (dq: tensor, dk: tensor, dv: tensor)",
    .shape = shape_back, .cpu = cpu_back, .flops = flops_back, .hidden = true);
