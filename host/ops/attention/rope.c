/* rope: rotary position embedding. Pairs of values turn by position * theta^(-2 i / d).
   x (..., t, d), d even -> y (same shape and order in memory). Position of row p is offset + p, from 0. The
   pairs are (x[i], x[i + d/2]), as in Llama and GPT-NeoX, or with interleaved (x[2i], x[2i+1]), as in GPT-J.
   gradient: dx = dy turned back (rope_backward). */
#include <math.h>

#include "device/cpu/isa.h"
#include "ops/index/index.h"

enum { TABLE_STEP = 16, PAIRS = 256 };

/* The order of dims in memory is kept, so that a transposed input gives an output that can be transposed back
   into a view. */
static void dense_like(const ac_tensor *x, int64_t *stride) {
  int order[AC_MAX_DIMS], n = x->ndim;
  bool ok = x->stride[n - 1] == 1 && x->numel > 0;
  for (int d = 0; d < n; d++) {
    ok &= x->stride[d] > 0;
    int at = d;
    while (at > 0 && x->stride[order[at - 1]] < x->stride[d]) {
      order[at] = order[at - 1];
      at--;
    }
    order[at] = d;
  }
  ok &= order[n - 1] == n - 1;
  int64_t s = 1;
  for (int i = n - 1; i >= 0; i--) {
    int d = ok ? order[i] : i;
    stride[d] = s;
    s *= x->shape[d] > 0 ? x->shape[d] : 1;
  }
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t stride[AC_MAX_DIMS];
  char a[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim < 2 || x->shape[x->ndim - 1] % 2 != 0)
    return AC_FAIL(e, SHAPE, "needs (..., positions, an even width), got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  if (!(ARG_F(f, 1) > 0)) return AC_FAIL(e, INVALID, "theta must be positive, got %g", ARG_F(f, 1));
  if (ARG_I(f, 3) < 0 || ARG_I(f, 3) > (int64_t)1 << 40)
    return AC_FAIL(e, INVALID, "offset must be 0 to 2^40, got %lld", (long long)ARG_I(f, 3));
  dense_like(x, stride);
  return ac_frame_out_strided(f, (ac_dtype)x->dtype, x->ndim, x->shape, stride, e);
}

typedef struct job {
  const ac_tensor *x, *y;
  aci_ctype ct;
  bool interleaved;
  int64_t t, half, offset;
  double theta, sign;
  void *table; /* (t, 2, half): cosines, then sines, in the compute type */
} job;

/* Every 16th absolute position is computed exactly, those between by turning on: a function of the position
   alone. */
static void fill_table(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    double w = pow(j->theta, -(double)i / (double)j->half), cw = cos(w), sw = sin(w), c = 1, s = 0;
    for (int64_t p = j->offset - j->offset % TABLE_STEP; p < j->offset + j->t; p++) {
      if (p % TABLE_STEP == 0) {
        c = cos((double)p * w);
        s = sin((double)p * w);
      } else {
        double n = c * cw - s * sw;
        s = s * cw + c * sw;
        c = n;
      }
      if (p < j->offset) continue;
      int64_t at = (p - j->offset) * 2 * j->half + i;
      if (j->ct == ACI_C_F32) {
        ((float *)j->table)[at] = (float)c;
        ((float *)j->table)[at + j->half] = (float)(s * j->sign);
      } else {
        ((double *)j->table)[at] = c;
        ((double *)j->table)[at + j->half] = s * j->sign;
      }
    }
  }
}

#define TURN(NAME, T)                                                                                  \
  AC_ISA_FN(NAME, (int64_t n, T *restrict a, T *restrict b, const T *restrict c, const T *restrict s), \
            (n, a, b, c, s)) {                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                                  \
      T p = a[i] * c[i] - b[i] * s[i], q = b[i] * c[i] + a[i] * s[i];                                  \
      a[i] = p;                                                                                        \
      b[i] = q;                                                                                        \
    }                                                                                                  \
  }
TURN(turn_f32, float)
TURN(turn_f64, double)

static void rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const ac_tensor *x = j->x, *y = j->y;
  const int last = x->ndim - 1;
  const int64_t es = (int64_t)aci_dsize((ac_dtype)x->dtype), cs = (int64_t)aci_ctype_bytes(j->ct);
  const int64_t xs = x->stride[last], ys = y->stride[last], step = j->interleaved ? 2 : 1,
                behind = j->interleaved ? 1 : j->half;
  _Alignas(64) char a[PAIRS * 8], b[PAIRS * 8];
  for (int64_t r = begin; r < end; r++) {
    int64_t xo = 0, yo = 0, rest = r, pos = r % j->t;
    for (int d = last - 1; d >= 0; d--) {
      int64_t i = rest % x->shape[d];
      rest /= x->shape[d];
      xo += i * x->stride[d];
      yo += i * y->stride[d];
    }
    const char *table = (const char *)j->table + pos * 2 * j->half * cs;
    for (int64_t i = 0; i < j->half; i += PAIRS) {
      int64_t m = j->half - i < PAIRS ? j->half - i : PAIRS;
      const char *px = (const char *)aci_data(x) + (xo + i * step * xs) * es;
      char *py = (char *)aci_data(y) + (yo + i * step * ys) * es;
      aci_load(j->ct, a, (ac_dtype)x->dtype, px, step * xs, m);
      aci_load(j->ct, b, (ac_dtype)x->dtype, px + behind * xs * es, step * xs, m);
      const void *c = table + i * cs, *s = table + (j->half + i) * cs;
      if (j->ct == ACI_C_F32) turn_f32(m, (float *)(void *)a, (float *)(void *)b, c, s);
      else turn_f64(m, (double *)(void *)a, (double *)(void *)b, c, s);
      aci_store(j->ct, a, (ac_dtype)y->dtype, py, step * ys, m);
      aci_store(j->ct, b, (ac_dtype)y->dtype, py + behind * ys * es, step * ys, m);
    }
  }
}

static ac_status rotate(ac_frame *f, double sign, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_block *block;
  if (x->numel == 0) return AC_OK;
  job j = {.x = x,
           .y = f->out[0],
           .ct = aci_ctype_of((ac_dtype)x->dtype),
           .interleaved = ARG_B(f, 2),
           .t = x->shape[x->ndim - 2],
           .half = x->shape[x->ndim - 1] / 2,
           .offset = ARG_I(f, 3),
           .theta = ARG_F(f, 1),
           .sign = sign};
  AC_TRY(ac_block_alloc(f->device, (size_t)(j.t * j.half * 2) * aci_ctype_bytes(j.ct), AC_MEM_ACTIVATION,
                        f->stream, &block, e));
  j.table = ac_block_ptr(block);
  ac_parallel_for(f->team, j.half, 1 + 2048 / j.t, fill_table, &j);
  ac_parallel_for(f->team, x->numel / (2 * j.half), 1 + 8192 / j.half, rows, &j);
  ac_block_free(block);
  return AC_OK;
}

static ac_status cpu(ac_frame *f, ac_err *e) { return rotate(f, 1, e); }
static ac_status cpu_back(ac_frame *f, ac_err *e) { return rotate(f, -1, e); }

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_rope_backward(&g->x, g->dout[0], ARG_F(g, 1), ARG_B(g, 2), ARG_I(g, 3)));
}
static void grad_back(ac_grad *g) {
  ac_grad_set(g, 0, x_rope(&g->x, g->dout[0], ARG_F(g, 1), ARG_B(g, 2), ARG_I(g, 3)));
}

AC_OP(rope,
      .sig = "rope(x: tensor, theta: float = 10000, interleaved: bool = false, offset: int = 0) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .flops_per_element = 3);
AC_OP(rope_backward,
      .sig = "rope_backward(dy: tensor, theta: float, interleaved: bool, offset: int) -> tensor",
      .shape = shape, .cpu = cpu_back, .grad = grad_back, .hidden = true);
