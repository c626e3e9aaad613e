/* The steps of optimizers whose states are 8-bit codes in blocks of 256: see blockwise_step_.c for
 * the rules. A block of a parameter is loaded, its states are decoded, stepped in f32 and encoded
 * again. Nothing larger than a block is ever in f32. States of f32 (small parameters) go through
 * the same loop. */
#include "ops/optim/blockwise.h"

#include "device/cpu/isa.h"
#include "ops/core/ctx_impl.h"
#include "ops/core/on_host.h"
#include "ops/optim/blockwise_formula.h"
#include "ops/optim/lists.h"
#include "ops/quant/codes.h"
#include "ops/random/draw.h"

enum { PARAMS = ACI_BW_PARAMS, GRADS = ACI_BW_GRADS, BLOCK = ACI_BW_BLOCK };

/* State i: as many codes (u8) or values (f32) as its parameter has elements, and for codes an
 * absmax a block. */
static ac_status check_state(const ac_frame *f, int arg, bool wanted, ac_err *e) {
  const ac_value *p = &f->args[PARAMS], *s = &f->args[arg], *m = &f->args[arg + 1];
  const char *name = aci_op_sig(f->op)->param[arg].name;
  char a[160], b[160];
  if (!wanted) return AC_OK;
  if (s->kind != AC_T_TENSORS || m->kind != AC_T_TENSORS || s->n != p->n || m->n != p->n)
    return AC_FAIL(e, INVALID, "%s and its absmax must be lists of %d tensors, one a parameter",
                   name, p->n);
  for (int i = 0; i < p->n; i++) {
    const ac_tensor *t = s->tensors[i], *most = m->tensors[i];
    const int64_t blocks = t->dtype == AC_U8 ? (p->tensors[i]->numel + BLOCK - 1) / BLOCK : 0;
    if ((t->dtype != AC_U8 && t->dtype != AC_F32) || t->numel != p->tensors[i]->numel ||
        !aci_is_contiguous(t))
      return AC_FAIL(
          e, SHAPE, "%s: state %d is %s, parameter %s needs as many u8 codes, or f32, without gaps",
          name, i + 1, aci_tensor_str(t, a, sizeof a), aci_tensor_str(p->tensors[i], b, sizeof b));
    if (t->dtype == AC_U8 &&
        (most->dtype != AC_F32 || most->numel != blocks || !aci_is_contiguous(most)))
      return AC_FAIL(e, SHAPE, "%s: absmax %d is %s, %lld blocks of %d codes need as many f32",
                     name, i + 1, aci_tensor_str(most, a, sizeof a), (long long)blocks, BLOCK);
  }
  return AC_OK;
}

ac_status aci_blockwise_shape(ac_frame *f, ac_err *e) {
  const int64_t rule = ARG_I(f, ACI_BW_RULE);
  AC_TRY(aci_list_floats(f, PARAMS, e));
  AC_TRY(aci_list_match(f, GRADS, e));
  AC_TRY(aci_number_check(f, ACI_BW_LR, e));
  AC_TRY(aci_number_check(f, ACI_BW_STEP, e));
  for (int i = ACI_BW_BETA1; i <= ACI_BW_BETA3; i++)
    if (!(ARG_F(f, i) >= 0 && ARG_F(f, i) < 1))
      return AC_FAIL(e, INVALID, "%s must lie in [0, 1), got %g", aci_op_sig(f->op)->param[i].name,
                     ARG_F(f, i));
  for (int i = ACI_BW_EPS; i <= ACI_BW_DECAY; i++)
    if (!(ARG_F(f, i) >= 0))
      return AC_FAIL(e, INVALID, "%s must not be negative, got %g",
                     aci_op_sig(f->op)->param[i].name, ARG_F(f, i));
  AC_TRY(check_state(f, ACI_BW_STATE1, true, e));
  AC_TRY(check_state(f, ACI_BW_STATE2, aci_bw_needs_second(rule), e));
  if (f->n_args > ACI_BW_FIRST &&
      (ARG_I(f, ACI_BW_FIRST) < 0 || ARG_I(f, ACI_BW_FIRST) % BLOCK != 0))
    return AC_FAIL(e, INVALID, "first must be a multiple of %d that is not negative, got %lld",
                   BLOCK, (long long)ARG_I(f, ACI_BW_FIRST));
  return check_state(f, ACI_BW_STATE3, rule == ACI_BW_ADEMAMIX, e);
}

/* ---- rules: n elements in f32 ---- */
AC_ISA_FN(adam8,
          (int64_t n, const aci_bw_factors *k, float *restrict p, const float *restrict g,
           float *restrict m, float *restrict v),
          (n, k, p, g, m, v)) {
  const aci_bw_factors c = *k;
  for (int64_t i = 0; i < n; i++) aci_bw_adam(&c, &p[i], g[i], &m[i], &v[i]);
}
AC_ISA_FN(momentum,
          (int64_t n, const aci_bw_factors *k, float *restrict p, const float *restrict g,
           float *restrict m),
          (n, k, p, g, m)) {
  const aci_bw_factors c = *k;
  for (int64_t i = 0; i < n; i++) aci_bw_momentum(&c, &p[i], g[i], &m[i]);
}
AC_ISA_FN(lion,
          (int64_t n, const aci_bw_factors *k, float *restrict p, const float *restrict g,
           float *restrict m),
          (n, k, p, g, m)) {
  const aci_bw_factors c = *k;
  for (int64_t i = 0; i < n; i++) aci_bw_lion(&c, &p[i], g[i], &m[i]);
}
AC_ISA_FN(squares,
          (int64_t n, const aci_bw_factors *k, float *restrict p, const float *restrict g,
           float *restrict v),
          (n, k, p, g, v)) {
  const aci_bw_factors c = *k;
  for (int64_t i = 0; i < n; i++) aci_bw_squares(&c, &p[i], g[i], &v[i]);
}
AC_ISA_FN(ademamix,
          (int64_t n, const aci_bw_factors *k, float *restrict p, const float *restrict g,
           float *restrict m, float *restrict v, float *restrict slow),
          (n, k, p, g, m, v, slow)) {
  const aci_bw_factors c = *k;
  for (int64_t i = 0; i < n; i++) aci_bw_ademamix(&c, &p[i], g[i], &m[i], &v[i], &slow[i]);
}

static aci_bw_factors factors_of(const ac_frame *f, double lr, double step) {
  const aci_bw_options o = {(int)ARG_I(f, ACI_BW_RULE), ARG_F(f, ACI_BW_BETA1),
                            ARG_F(f, ACI_BW_BETA2),     ARG_F(f, ACI_BW_BETA3),
                            ARG_F(f, ACI_BW_ALPHA),     ARG_F(f, ACI_BW_EPS),
                            ARG_F(f, ACI_BW_DECAY)};
  return aci_bw_factors_of(&o, lr, step);
}

/* ---- blocks ---- */
typedef struct blockwise_job {
  const ac_frame *f;
  aci_bw_factors k;
  int64_t rule;
  bool stochastic;
  aci_draw draw;
  const int64_t *drawn; /* elements of the parameters before, in whole blocks of words. Of n */
} blockwise_job;

static float *load_state(const ac_value *s, const ac_value *absmax, int i, ac_quant_type type,
                         int64_t at, int64_t n, float *row) {
  ac_tensor *t = s->tensors[i];
  if (t->dtype == AC_F32) return (float *)aci_data(t) + at;
  aci_decode_dynamic(type, (const uint8_t *)aci_data(t) + at, n,
                     ((const float *)aci_data(absmax->tensors[i]))[at / BLOCK], row);
  return row;
}

static void store_state(const ac_value *s, const ac_value *absmax, int i, ac_quant_type type,
                        int64_t at, int64_t n, const float *row) {
  ac_tensor *t = s->tensors[i];
  if (t->dtype == AC_F32) return;
  aci_encode_dynamic(type, row, n, (uint8_t *)aci_data(t) + at,
                     (float *)aci_data(absmax->tensors[i]) + at / BLOCK);
}

/* To one of the two neighbours in bf16, to the nearer one the more often: the mean of many
 * roundings is the value itself. */
static void round_stochastic(const blockwise_job *j, int i, int64_t at, int64_t n, float *p) {
  uint32_t words[BLOCK];
  aci_draw_words(&j->draw, (uint64_t)(j->drawn[i] + at) / 4, (n + 3) / 4, words);
  for (int64_t e = 0; e < n; e++) {
    uint32_t u;
    memcpy(&u, &p[e], sizeof u);
    u = aci_bw_round(u, words[e]);
    memcpy(&p[e], &u, sizeof u);
  }
}

static void piece(void *arg, int i, int64_t chunk, int64_t begin, int64_t count) {
  const blockwise_job *j = arg;
  const ac_value *a = j->f->args;
  const ac_tensor *param = a[PARAMS].tensors[i], *grad = a[GRADS].tensors[i];
  const bool direct = param->dtype == AC_F32 && aci_is_contiguous(param);
  _Alignas(64) float p[BLOCK], g[BLOCK], s1[BLOCK], s2[BLOCK], s3[BLOCK];
  (void)chunk;
  for (int64_t at = begin; at < begin + count; at += BLOCK) {
    const int64_t n = begin + count - at < BLOCK ? begin + count - at : BLOCK;
    float *x = direct ? (float *)aci_data(param) + at : p, *second = NULL, *third = NULL;
    if (!direct) aci_elems_load(param, ACI_C_F32, at, n, p);
    aci_elems_load(grad, ACI_C_F32, at, n, g);
    float *first =
        load_state(&a[ACI_BW_STATE1], &a[ACI_BW_ABSMAX1], i, AC_QUANT_DYNAMIC, at, n, s1);
    if (aci_bw_needs_second(j->rule))
      second = load_state(&a[ACI_BW_STATE2], &a[ACI_BW_ABSMAX2], i, AC_QUANT_UDYNAMIC, at, n, s2);
    if (j->rule == ACI_BW_ADEMAMIX)
      third = load_state(&a[ACI_BW_STATE3], &a[ACI_BW_ABSMAX3], i, AC_QUANT_DYNAMIC, at, n, s3);
    switch (j->rule) {
      case ACI_BW_ADAM: adam8(n, &j->k, x, g, first, second); break;
      case ACI_BW_MOMENTUM: momentum(n, &j->k, x, g, first); break;
      case ACI_BW_LION: lion(n, &j->k, x, g, first); break;
      case ACI_BW_ADEMAMIX: ademamix(n, &j->k, x, g, first, second, third); break;
      default: squares(n, &j->k, x, g, first);
    }
    if (j->stochastic && param->dtype == AC_BF16) round_stochastic(j, i, at, n, p);
    if (!direct) aci_elems_store(param, ACI_C_F32, at, n, p);
    store_state(&a[ACI_BW_STATE1], &a[ACI_BW_ABSMAX1], i, AC_QUANT_DYNAMIC, at, n, first);
    if (second != NULL)
      store_state(&a[ACI_BW_STATE2], &a[ACI_BW_ABSMAX2], i, AC_QUANT_UDYNAMIC, at, n, second);
    if (third != NULL)
      store_state(&a[ACI_BW_STATE3], &a[ACI_BW_ABSMAX3], i, AC_QUANT_DYNAMIC, at, n, third);
  }
}

static ac_status run(ac_frame *f, bool stochastic, ac_err *e) {
  const ac_value *params = &f->args[PARAMS];
  const double step = aci_number_get(ARG_T(f, ACI_BW_STEP)) + 1;
  ac_block *drawn = NULL;
  blockwise_job j = {.f = f,
                     .k = factors_of(f, aci_number_get(ARG_T(f, ACI_BW_LR)), step),
                     .rule = ARG_I(f, ACI_BW_RULE),
                     .stochastic = stochastic};
  if (stochastic) {
    int64_t sum = ARG_I(f, ACI_BW_FIRST);
    AC_TRY(ac_block_alloc(f->device, (size_t)(params->n + 1) * sizeof(int64_t), AC_MEM_ACTIVATION,
                          f->stream, &drawn, e));
    int64_t *list = drawn->ptr;
    for (int i = 0; i < params->n; i++) {
      list[i] = sum;
      sum += (params->tensors[i]->numel + BLOCK - 1) / BLOCK * BLOCK;
    }
    j.drawn = list;
    j.draw = aci_draw_of(&f->rng_counter);
  }
  const ac_status st = aci_list_run(f, params->n, params->tensors, piece, &j, e);
  ac_block_free(drawn);
  if (st == AC_OK) aci_number_set(ARG_T(f, ACI_BW_STEP), step);
  return st;
}

static ac_status nearest(ac_frame *f, ac_err *e) { return run(f, false, e); }
static ac_status stochastic(ac_frame *f, ac_err *e) { return run(f, true, e); }
ac_status aci_cpu_blockwise_step_(ac_frame *f, ac_err *e) {
  return aci_is_accelerator(f->device) ? aci_run_on_host(f, nearest, e) : nearest(f, e);
}
ac_status aci_cpu_blockwise_step_stochastic_(ac_frame *f, ac_err *e) {
  return aci_is_accelerator(f->device) ? aci_run_on_host(f, stochastic, e) : stochastic(f, e);
}
