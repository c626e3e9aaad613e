/* Convolutions of the module accel_onednn.so: plain (batch, channels, space...) tensors in, plain
 * ones out, one single-threaded call each. Tensors are converted to the primitive's layout on the
 * way. Loaded by onednn_load.c, called by kernels/conv_onednn.c through the table of onednn.h.
 *
 * A plan is a primitive for one shape and direction with up to three reorders. onednn_cache.c keeps
 * them. */
#include "device/cpu/onednn_module.h"

enum { X, W, Y, OPERANDS };

typedef struct plan {
  aci_dnnl_plan base; /* first */
  aci_onednn_conv_shape shape;
  dnnl_primitive_t conv, reorder[OPERANDS]; /* reorder: NULL if the plain layout is wanted */
  desc plain[OPERANDS], wanted[OPERANDS], bias, scratch, reorder_scratch[OPERANDS];
  size_t at[OPERANDS], pad_at; /* of operands laid out, and of the scratchpads, in the scratch */
} plan;

static void plan_free(void *of) {
  plan *p = of;
  if (p->conv != NULL) dnnl_primitive_destroy(p->conv);
  for (int i = 0; i < OPERANDS; i++) {
    if (p->reorder[i] != NULL) dnnl_primitive_destroy(p->reorder[i]);
    desc_free(&p->plain[i]);
    desc_free(&p->wanted[i]);
    desc_free(&p->reorder_scratch[i]);
  }
  desc_free(&p->bias);
  desc_free(&p->scratch);
}

/* ---- primitive descriptors, in both interfaces ---- */
typedef struct geometry {
  int n; /* dims of space */
  dnnl_dims_t stride, dil, left, right;
} geometry;

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t forward_pd(dnnl_primitive_desc_t *pd, dnnl_prop_kind_t kind, const desc *x,
                                const desc *w, const desc *bias, const desc *y, const geometry *g,
                                dnnl_primitive_attr_t attr) {
  return dnnl_convolution_forward_primitive_desc_create(
      pd, aci_dnnl_engine, kind, dnnl_convolution_direct, *x, *w, bias == NULL ? NULL : *bias, *y,
      g->stride, g->dil, g->left, g->right, attr);
}
static dnnl_status_t input_pd(dnnl_primitive_desc_t *pd, const desc *x, const desc *w,
                              const desc *y, const geometry *g, dnnl_primitive_attr_t attr,
                              const_dnnl_primitive_desc_t hint) {
  return dnnl_convolution_backward_data_primitive_desc_create(
      pd, aci_dnnl_engine, dnnl_convolution_direct, *x, *w, *y, g->stride, g->dil, g->left,
      g->right, hint, attr);
}
static dnnl_status_t weight_pd(dnnl_primitive_desc_t *pd, const desc *x, const desc *w,
                               const desc *y, const geometry *g, dnnl_primitive_attr_t attr,
                               const_dnnl_primitive_desc_t hint) {
  return dnnl_convolution_backward_weights_primitive_desc_create(
      pd, aci_dnnl_engine, dnnl_convolution_direct, *x, *w, NULL, *y, g->stride, g->dil, g->left,
      g->right, hint, attr);
}
#else
static dnnl_status_t forward_pd(dnnl_primitive_desc_t *pd, dnnl_prop_kind_t kind, const desc *x,
                                const desc *w, const desc *bias, const desc *y, const geometry *g,
                                dnnl_primitive_attr_t attr) {
  dnnl_convolution_desc_t d;
  dnnl_status_t st = dnnl_dilated_convolution_forward_desc_init(
      &d, kind, dnnl_convolution_direct, x, w, bias, y, g->stride, g->dil, g->left, g->right);
  return st != dnnl_success ? st : dnnl_primitive_desc_create(pd, &d, attr, aci_dnnl_engine, NULL);
}
static dnnl_status_t input_pd(dnnl_primitive_desc_t *pd, const desc *x, const desc *w,
                              const desc *y, const geometry *g, dnnl_primitive_attr_t attr,
                              const_dnnl_primitive_desc_t hint) {
  dnnl_convolution_desc_t d;
  dnnl_status_t st = dnnl_dilated_convolution_backward_data_desc_init(
      &d, dnnl_convolution_direct, x, w, y, g->stride, g->dil, g->left, g->right);
  return st != dnnl_success ? st : dnnl_primitive_desc_create(pd, &d, attr, aci_dnnl_engine, hint);
}
static dnnl_status_t weight_pd(dnnl_primitive_desc_t *pd, const desc *x, const desc *w,
                               const desc *y, const geometry *g, dnnl_primitive_attr_t attr,
                               const_dnnl_primitive_desc_t hint) {
  dnnl_convolution_desc_t d;
  dnnl_status_t st = dnnl_dilated_convolution_backward_weights_desc_init(
      &d, dnnl_convolution_direct, x, w, NULL, y, g->stride, g->dil, g->left, g->right);
  return st != dnnl_success ? st : dnnl_primitive_desc_create(pd, &d, attr, aci_dnnl_engine, hint);
}
#endif

/* ---- plans ---- */
/* Row-major extents of the operands. Returns the number of dims of operand i. */
static int extents(const aci_onednn_conv_shape *s, int i, dnnl_dims_t d) {
  const int first = s->in[0] == 1 && s->k[0] == 1 && s->out[0] == 1 ? 1 : 0;
  const int64_t *space = i == X ? s->in : i == W ? s->k : s->out;
  int n = 0;
  if (i == W) {
    if (s->groups > 1) d[n++] = s->groups;
    d[n++] = s->co;
    d[n++] = s->ci;
  } else {
    d[n++] = s->n;
    d[n++] = s->groups * (i == X ? s->ci : s->co);
  }
  for (int k = first; k < 3; k++) d[n++] = space[k];
  return n;
}

static geometry geometry_of(const aci_onednn_conv_shape *s) {
  const int first = s->in[0] == 1 && s->k[0] == 1 && s->out[0] == 1 ? 1 : 0;
  geometry g = {.n = 3 - first};
  for (int k = first, i = 0; k < 3; k++, i++) {
    g.stride[i] = s->stride[k];
    g.dil[i] = s->dil[k] - 1;
    g.left[i] = s->pad[k];
    g.right[i] =
        (s->out[k] - 1) * s->stride[k] + s->dil[k] * (s->k[k] - 1) + 1 - s->in[k] - s->pad[k];
  }
  return g;
}

static bool make_operands(plan *p, desc any[OPERANDS]) {
  const aci_onednn_conv_shape *s = &p->shape;
  for (int i = 0; i < OPERANDS; i++) {
    dnnl_dims_t d, stride;
    int n = extents(s, i, d);
    int32_t type =
        i == W && s->direction == ACI_ONEDNN_CONV_WEIGHT ? (int32_t)ACI_GEMM_F32 : s->type;
    int64_t step = 1;
    for (int k = n - 1; k >= 0; k--) {
      stride[k] = step;
      step *= d[k];
    }
    TRY(desc_init(&p->plain[i], n, d, type_of(type), stride));
    TRY(desc_init(&any[i], n, d, type_of(type), NULL));
  }
  if (s->bias) {
    dnnl_dims_t d = {s->groups * s->co}, one = {1};
    TRY(desc_init(&p->bias, 1, d, type_of(s->type), one));
  }
  return true;
done:
  return false;
}

static bool make_conv(plan *p, const desc any[OPERANDS]) {
  const aci_onednn_conv_shape *s = &p->shape;
  static const dnnl_query_t queries[3][OPERANDS] = {
      {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
      {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
      {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md}};
  const geometry g = geometry_of(s);
  dnnl_primitive_desc_t pd = NULL, hint = NULL;
  dnnl_primitive_attr_t attr = NULL;
  desc w = any[W];
  bool ok = false, own_w = false;
  TRY(dnnl_primitive_attr_create(&attr));
  TRY(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
  if (s->direction == ACI_ONEDNN_CONV_FORWARD) {
    TRY(forward_pd(&pd, dnnl_forward_inference, &any[X], &any[W], s->bias ? &p->bias : NULL,
                   &any[Y], &g, attr));
  } else {
    if (s->direction == ACI_ONEDNN_CONV_WEIGHT &&
        s->type != (int32_t)ACI_GEMM_F32) { /* forward weights: their type */
      dnnl_dims_t d;
      int n = extents(s, W, d);
      TRY(desc_init(&w, n, d, type_of(s->type), NULL));
      own_w = true;
    }
    TRY(forward_pd(&hint, dnnl_forward_training, &any[X], &w, NULL, &any[Y], &g, attr));
    if (s->direction == ACI_ONEDNN_CONV_INPUT)
      TRY(input_pd(&pd, &any[X], &any[W], &any[Y], &g, attr, hint));
    else TRY(weight_pd(&pd, &any[X], &any[W], &any[Y], &g, attr, hint));
  }
  for (int i = 0; i < OPERANDS; i++) TRY(desc_query(&p->wanted[i], pd, queries[s->direction][i]));
  TRY(desc_query(&p->scratch, pd, dnnl_query_scratchpad_md));
  TRY(dnnl_primitive_create(&p->conv, pd));
  ok = true;
done:
  if (own_w) desc_free(&w);
  if (pd != NULL) dnnl_primitive_desc_destroy(pd);
  if (hint != NULL) dnnl_primitive_desc_destroy(hint);
  if (attr != NULL) dnnl_primitive_attr_destroy(attr);
  return ok;
}

static int result_of(const plan *p) {
  return p->shape.direction == ACI_ONEDNN_CONV_FORWARD ? Y
         : p->shape.direction == ACI_ONEDNN_CONV_INPUT ? X
                                                       : W;
}

static size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

static bool plan_make(void *of) {
  plan *p = of;
  desc any[OPERANDS];
  memset(any, 0, sizeof any);
  bool ok = make_operands(p, any) && make_conv(p, any);
  size_t pad = ok ? dnnl_memory_desc_get_size(desc_of(&p->scratch)) : 0, at = 0;
  for (int i = 0; ok && i < OPERANDS; i++) {
    if (desc_equal(&p->plain[i], &p->wanted[i])) continue;
    const bool result = i == result_of(p);
    ok = aci_dnnl_reorder(result ? &p->wanted[i] : &p->plain[i],
                          result ? &p->plain[i] : &p->wanted[i], &p->reorder[i],
                          &p->reorder_scratch[i]);
    if (!ok) break;
    size_t bytes = dnnl_memory_desc_get_size(desc_of(&p->wanted[i]));
    size_t more = dnnl_memory_desc_get_size(desc_of(&p->reorder_scratch[i]));
    if (more > pad) pad = more;
    if (i == W && !result) {
      p->base.pub.packed_bytes = bytes;
    } else {
      p->at[i] = at;
      at += aligned(bytes);
    }
  }
  p->pad_at = at;
  p->base.pub.scratch_bytes = at + pad;
  for (int i = 0; i < OPERANDS; i++) desc_free(&any[i]);
  return ok;
}

const aci_onednn_plan *aci_dnnl_conv_get(const aci_onednn_conv_shape *s) {
  static const aci_dnnl_kind kind = {sizeof(plan), offsetof(plan, shape),
                                     sizeof(aci_onednn_conv_shape), plan_make, plan_free};
  return aci_dnnl_get(&kind, s);
}

/* ---- execution ---- */
/* Operand i from its plain layout to the wanted one, or back. */
static bool lay_out(const plan *p, int i, const void *from, void *to, char *scratch) {
  const bool result = i == result_of(p);
  const arg args[] = {{DNNL_ARG_FROM, result ? &p->wanted[i] : &p->plain[i], from},
                      {DNNL_ARG_TO, result ? &p->plain[i] : &p->wanted[i], to},
                      {DNNL_ARG_SCRATCHPAD, &p->reorder_scratch[i], scratch + p->pad_at}};
  return aci_dnnl_execute(p->reorder[i], args, 3);
}

bool aci_dnnl_conv_pack(const aci_onednn_plan *pub, const void *w, void *packed, void *scratch) {
  return lay_out((const plan *)(const void *)pub, W, w, packed, scratch);
}

bool aci_dnnl_conv_run(const aci_onednn_plan *pub, const void *x, const void *w, const void *bias,
                       const void *y, void *scratch) {
  static const int names[3][OPERANDS] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                         {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                         {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  const plan *p = (const plan *)(const void *)pub;
  const int result = result_of(p);
  const void *given[OPERANDS] = {x, w, y}, *laid[OPERANDS];
  char *space = scratch;
  arg args[ACI_DNNL_MAX_ARGS];
  int n = 0;
  for (int i = 0; i < OPERANDS; i++) {
    /* weights to read come laid out */
    const bool moved = p->reorder[i] != NULL && (i != W || result == W);
    laid[i] = moved ? space + p->at[i] : given[i];
    if (moved && i != result && !lay_out(p, i, given[i], space + p->at[i], space)) return false;
    args[n++] = (arg){names[p->shape.direction][i], &p->wanted[i], laid[i]};
  }
  args[n++] = (arg){DNNL_ARG_SCRATCHPAD, &p->scratch, space + p->pad_at};
  if (p->shape.bias) args[n++] = (arg){DNNL_ARG_BIAS, &p->bias, bias};
  if (!aci_dnnl_execute(p->conv, args, n)) return false;
  if (laid[result] == given[result]) return true;
  return lay_out(p, result, laid[result], (void *)(uintptr_t)given[result], space);
}
