/* dropout: in training, every element of x is zero with probability p, otherwise x / (1 - p). Not in training, x itself.
   x (any shape) -> y (same shape).          gradient: dx = dy through the same mask, drawn again from the
   call's rng_counter, so that no mask is kept (random_mask). The first dim counts as the batch: the mask belongs
   to the row of the global batch. If ranks have ranges of a dim (accel.random_range), every element has the mask
   that it has in the whole tensor.
   example: accel.dropout(accel.tensor { 1.0, 2 }, 0.5, false) --> { 1, 2 }
   example: accel.dropout(accel.ones(100), 0.5):amax() --> 2 */
#include "device/cpu/isa.h"
#include "ops/random/draw.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  double p = a[1].f;
  if (!(p >= 0 && p <= 1)) {
    x->st = AC_FAIL(x->e, INVALID, "p must lie between 0 and 1, got %g", p);
    return 0;
  }
  out[0] = a[2].b && p > 0 ? x_random_mask(x, a[0].tensor, p,
                                           a[3].kind == AC_T_GENERATOR ? a[3].generator : NULL)
                           : a[0].tensor;
  return 1;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

typedef struct dropout_job {
  const ac_tensor *x, *y;
  aci_ctype ct;
  aci_draw draw;
  uint64_t drop, first; /* words below drop are dropped. first: global position of element 0 */
  double scale;
} dropout_job;

AC_ISA_FN(mask32,
          (int64_t n, const uint32_t *restrict w, uint64_t drop, float scale, const float *x,
           float *y),
          (n, w, drop, scale, x, y)) {
  uint32_t last = (uint32_t)(drop - 1); /* drop >= 1 */
  for (int64_t i = 0; i < n; i++) y[i] = w[i] > last ? x[i] * scale : 0.0f;
}
static void mask64(int64_t n, const uint32_t *restrict w, uint64_t drop, double scale,
                   const double *x, double *y) {
  for (int64_t i = 0; i < n; i++) y[i] = w[i] >= drop ? x[i] * scale : 0.0;
}

static void range(void *arg, int64_t begin, int64_t end) {
  const dropout_job *j = arg;
  uint32_t w[ACI_DRAW_ROW + 8];
  _Alignas(64) char row[ACI_DRAW_ROW * 8];
  for (int64_t b = begin; b < end; b += ACI_DRAW_ROW) {
    int64_t m = end - b < ACI_DRAW_ROW ? end - b : ACI_DRAW_ROW;
    uint64_t at = j->first + (uint64_t)b, skip = at % 4;
    aci_draw_words(&j->draw, at / 4, (int64_t)(skip + (uint64_t)m + 3) / 4, w);
    aci_elems_load(j->x, j->ct, b, m, row);
    if (j->ct == ACI_C_F32)
      mask32(m, w + skip, j->drop, (float)j->scale, (float *)(void *)row, (float *)(void *)row);
    else mask64(m, w + skip, j->drop, j->scale, (double *)(void *)row, (double *)(void *)row);
    aci_elems_store(j->y, j->ct, b, m, row);
  }
}

/* Elements of a part: runs of neighbours that are also neighbours in the whole tensor. */
typedef struct part_job {
  dropout_job j;
  int ndim;                                                    /* outer dims, of shape[] */
  int64_t run, shape[AC_MAX_DIMS], stride[AC_MAX_DIMS], first; /* strides in the whole tensor */
} part_job;

static void part_range(void *arg, int64_t begin, int64_t end) {
  const part_job *p = arg;
  dropout_job j = p->j;
  while (begin < end) {
    int64_t row = begin / p->run, at = begin % p->run, m = p->run - at, global = p->first + at;
    for (int d = p->ndim - 1; d >= 0; d--) {
      global += row % p->shape[d] * p->stride[d];
      row /= p->shape[d];
    }
    if (m > end - begin) m = end - begin;
    j.first = (uint64_t)(global - begin);
    range(&j, begin, begin + m);
    begin += m;
  }
}

/* extent: of the whole tensor. first: position of x in it. */
static void run_part(ac_frame *f, const dropout_job *j, const int64_t *first,
                     const int64_t *extent) {
  const ac_tensor *x = j->x;
  part_job p = {.j = *j, .run = 1};
  int64_t stride = 1;
  int d = x->ndim - 1;
  for (; d > 0 && x->shape[d] == extent[d]; d--) stride *= extent[d];
  p.run = stride * x->shape[d];
  p.first = first[d] * stride;
  stride *= extent[d];
  p.ndim = d;
  for (d--; d >= 0; d--) {
    p.shape[d] = x->shape[d];
    p.stride[d] = stride;
    p.first += first[d] * stride;
    stride *= extent[d];
  }
  ac_parallel_for(f->team, x->numel, 16 * ACI_DRAW_ROW, part_range, &p);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  double p = ARG_F(f, 1);
  dropout_job j = {.x = x,
                   .y = f->out[0],
                   .ct = aci_ctype_of((ac_dtype)x->dtype),
                   .draw = aci_draw_of_rows(&f->rng_counter),
                   .drop = (uint64_t)(p * 0x1p32),
                   .scale = p < 1 ? 1 / (1 - p) : 0};
  if (x->numel == 0) return AC_OK;
  if (j.drop == 0) j.drop = 1;
  if (f->rng_counter.range[0].dim != 0) {
    int64_t first[AC_MAX_DIMS] = {0}, extent[AC_MAX_DIMS];
    memcpy(extent, x->shape, (size_t)x->ndim * sizeof *extent);
    AC_TRY(aci_draw_ranges(&f->rng_counter, x->ndim, first, extent, e));
    run_part(f, &j, first, extent);
    return AC_OK;
  }
  if (x->ndim > 0 && f->rng_counter.row0 != 0)
    j.first = (uint64_t)f->rng_counter.row0 * (uint64_t)(x->numel / x->shape[0]);
  ac_parallel_for(f->team, x->numel, 16 * ACI_DRAW_ROW, range, &j);
  return AC_OK;
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_random_mask(&g->x, g->dout[0], ARG_F(g, 1), &g->rng_counter));
}

AC_OP(
    dropout,
    .sig =
        "dropout(x: tensor, p: float = 0.5, training: bool = true, generator: generator?) -> tensor",
    .composed = composed);
AC_OP(random_mask, .sig = "random_mask(x: tensor, p: float, generator: generator?) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .hidden = true);
