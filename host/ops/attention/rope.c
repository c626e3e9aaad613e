/* rope: rotary position embedding. Pairs of values turn by position * frequency[i]. frequency[i] is theta^(-2 i /
   d), changed by `scaling`, or is given by inv_freq (d / 2).
   x (..., t, d), d even -> y (same shape and order in memory). Position of row p is offset + p, from 0, or
   positions[p]. positions is (t), or (b, t), with b the first extent of x. The pairs are (x[i], x[i + d/2]), as in
   Llama and GPT-NeoX, or with interleaved (x[2i], x[2i+1]), as in GPT-J. Dtypes: floats. positions are i64 or i32.
   scaling, for contexts longer than those of the training: linear divides frequencies by scaling_factor. llama3
   does so if fewer than low_freq_factor turns fit into original_max_position, keeps them if more than
   high_freq_factor do, and interpolates in between.
   gradient: dx = dy turned back (rope_backward). inv_freq gets none.
   example: accel.tensor({ { 1.0, 0.0 }, { 1.0, 0.0 } }):rope() --> { { 1, 0 }, { 0.5403, 0.8415 } }
   example: accel.tensor({ { 1.0, 0.0 } }):rope { positions = accel.tensor { 2 } } --> { { -0.4161, 0.9093 } } */
#include <math.h>

#include "device/cpu/isa.h"
#include "ops/index/index.h"

enum { TABLE_STEP = 16, PAIRS = 256, SPARSE = 4 };
/* parameters of rope and of its backward */
enum { X, THETA, INTERLEAVED, OFFSET, POSITIONS, INV_FREQ, SCALING, FACTOR, LOW, HIGH, ORIGINAL };
static const int64_t most_positions = (int64_t)1 << 40;

/* The order of dims in memory is kept, so that a transposed input gives an output that can be
   transposed back into a view. */
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

static ac_status check_positions(const ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X), *p = ARG_T(f, POSITIONS);
  const int64_t t = x->shape[x->ndim - 2];
  char a[128], b[128];
  bool fits = p->ndim == 1 ||
              (p->ndim == 2 && x->ndim > 2 && (p->shape[0] == 1 || p->shape[0] == x->shape[0]));
  AC_TRY(aci_index_dtype(f, POSITIONS, e));
  if (!fits || p->shape[p->ndim - 1] != t)
    return AC_FAIL(
        e, SHAPE,
        "positions of shape %s do not fit x %s: it takes (%lld), or one such row per first dim",
        aci_shape_str(p->ndim, p->shape, a, sizeof a),
        aci_shape_str(x->ndim, x->shape, b, sizeof b), (long long)t);
  if (ARG_I(f, OFFSET) != 0) return AC_FAIL(e, INVALID, "offset and positions exclude each other");
  return AC_OK;
}

static ac_status check_frequencies(const ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  char a[128];
  if (!(ARG_F(f, THETA) > 0))
    return AC_FAIL(e, INVALID, "theta must be positive, got %g", ARG_F(f, THETA));
  if (!ARG_NONE(f, INV_FREQ)) {
    const ac_tensor *w = ARG_T(f, INV_FREQ);
    if (!ac_dtype_is_float((ac_dtype)w->dtype))
      return AC_FAIL(e, DTYPE, "inv_freq must be floating point, not %s",
                     ac_dtype_name((ac_dtype)w->dtype));
    if (w->ndim != 1 || 2 * w->shape[0] != x->shape[x->ndim - 1])
      return AC_FAIL(e, SHAPE, "inv_freq has shape %s, but x has %lld pairs",
                     aci_shape_str(w->ndim, w->shape, a, sizeof a),
                     (long long)x->shape[x->ndim - 1] / 2);
    if (ARG_I(f, SCALING) != AC_ROPE_SCALING_NONE)
      return AC_FAIL(e, INVALID, "inv_freq is used as it is: it excludes scaling");
  }
  if (ARG_I(f, SCALING) == AC_ROPE_SCALING_NONE) return AC_OK;
  if (!(ARG_F(f, FACTOR) > 0))
    return AC_FAIL(e, INVALID, "scaling_factor must be positive, got %g", ARG_F(f, FACTOR));
  if (ARG_I(f, SCALING) == AC_ROPE_SCALING_LLAMA3 &&
      !(ARG_F(f, LOW) > 0 && ARG_F(f, HIGH) > ARG_F(f, LOW)))
    return AC_FAIL(e, INVALID,
                   "high_freq_factor %g must be above low_freq_factor %g, and both positive",
                   ARG_F(f, HIGH), ARG_F(f, LOW));
  if (ARG_I(f, ORIGINAL) < 1)
    return AC_FAIL(e, INVALID, "original_max_position must be positive, got %lld",
                   (long long)ARG_I(f, ORIGINAL));
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  int64_t stride[AC_MAX_DIMS];
  char a[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim < 2 || x->shape[x->ndim - 1] % 2 != 0)
    return AC_FAIL(e, SHAPE, "needs (..., positions, an even width), got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  if (ARG_I(f, OFFSET) < 0 || ARG_I(f, OFFSET) > most_positions)
    return AC_FAIL(e, INVALID, "offset must be 0 to 2^40, got %lld", (long long)ARG_I(f, OFFSET));
  AC_TRY(check_frequencies(f, e));
  if (!ARG_NONE(f, POSITIONS)) AC_TRY(check_positions(f, e));
  dense_like(x, stride);
  return ac_frame_out_strided(f, (ac_dtype)x->dtype, x->ndim, x->shape, stride, e);
}

/* Tables hold (n_angles, 2, half): cosines, then sines, in the compute type. Without positions, or
   if they are close together, angle k belongs to position first + k. Otherwise it belongs to row k
   of positions. */
typedef struct rope_job {
  const ac_tensor *x, *y;
  aci_ctype ct;
  bool interleaved, dense;
  int64_t t, half, first, n_angles;
  const int64_t *positions; /* NULL: the rows of x are dense */
  int64_t per_batch;        /* rows of x that share a row of positions. 0: all rows */
  double sign, *frequency;
  void *table;
} rope_job;

static double frequency(const ac_frame *f, int64_t i, int64_t half) {
  if (!ARG_NONE(f, INV_FREQ)) {
    double w;
    aci_elems_load(ARG_T(f, INV_FREQ), ACI_C_F64, i, 1, &w);
    return w;
  }
  const double w = pow(ARG_F(f, THETA), -(double)i / (double)half), factor = ARG_F(f, FACTOR);
  if (ARG_I(f, SCALING) == AC_ROPE_SCALING_NONE) return w;
  if (ARG_I(f, SCALING) == AC_ROPE_SCALING_LINEAR) return w / factor;
  const double low = ARG_F(f, LOW), high = ARG_F(f, HIGH), pi = 3.14159265358979323846,
               turns = (double)ARG_I(f, ORIGINAL) * w / (2 * pi);
  double keep = (turns - low) / (high - low);
  keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
  return (1 - keep) * w / factor + keep * w;
}

static void put_angle(const rope_job *j, int64_t k, int64_t i, double c, double s) {
  int64_t at = k * 2 * j->half + i;
  if (j->ct == ACI_C_F32) {
    ((float *)j->table)[at] = (float)c;
    ((float *)j->table)[at + j->half] = (float)(s * j->sign);
  } else {
    ((double *)j->table)[at] = c;
    ((double *)j->table)[at + j->half] = s * j->sign;
  }
}

/* Every 16th absolute position is computed exactly, those between by rotating on from it: a
 * function of the position alone. */
static void fill_table(void *arg, int64_t begin, int64_t end) {
  const rope_job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    const double w = j->frequency[i], cw = cos(w), sw = sin(w);
    double c = 1, s = 0;
    for (int64_t k = 0; k < j->n_angles; k++) {
      const int64_t to = j->dense ? j->first + k : j->positions[k], exact = to - to % TABLE_STEP;
      /* c and s hold the previous position's values */
      const bool on = j->dense && k > 0 && to > exact;
      if (!on) {
        c = cos((double)exact * w);
        s = sin((double)exact * w);
      }
      for (int64_t p = on ? to - 1 : exact; p < to; p++) {
        double n = c * cw - s * sw;
        s = s * cw + c * sw;
        c = n;
      }
      put_angle(j, k, i, c, s);
    }
  }
}

#define TURN(NAME, T)                                                                            \
  AC_ISA_FN(NAME,                                                                                \
            (int64_t n, T *restrict a, T *restrict b, const T *restrict c, const T *restrict s), \
            (n, a, b, c, s)) {                                                                   \
    for (int64_t i = 0; i < n; i++) {                                                            \
      T p = a[i] * c[i] - b[i] * s[i], q = b[i] * c[i] + a[i] * s[i];                            \
      a[i] = p;                                                                                  \
      b[i] = q;                                                                                  \
    }                                                                                            \
  }
TURN(turn_f32, float)
TURN(turn_f64, double)

static void rows(void *arg, int64_t begin, int64_t end) {
  const rope_job *j = arg;
  const ac_tensor *x = j->x, *y = j->y;
  const int last = x->ndim - 1;
  const int64_t es = (int64_t)aci_dsize((ac_dtype)x->dtype), cs = (int64_t)aci_ctype_bytes(j->ct);
  const int64_t xs = x->stride[last], ys = y->stride[last], step = j->interleaved ? 2 : 1,
                behind = j->interleaved ? 1 : j->half;
  _Alignas(64) char a[PAIRS * 8], b[PAIRS * 8];
  for (int64_t r = begin; r < end; r++) {
    int64_t xo = 0, yo = 0, rest = r, pos = r % j->t;
    if (j->per_batch > 0) pos += r / j->per_batch * j->t;
    if (j->positions != NULL && j->dense) pos = j->positions[pos] - j->first;
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

/* If the range of positions is at most SPARSE times their number, one table covers the range. */
static void choose_table(rope_job *j, int64_t n) {
  int64_t low = j->positions[0], high = low;
  for (int64_t i = 1; i < n; i++) {
    if (j->positions[i] < low) low = j->positions[i];
    if (j->positions[i] > high) high = j->positions[i];
  }
  j->dense = high - low < SPARSE * n;
  j->first = low;
  j->n_angles = j->dense ? high - low + 1 : n;
}

static ac_status rotate(ac_frame *f, double sign, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  ac_block *block = NULL, *indices = NULL;
  if (x->numel == 0) return AC_OK;
  rope_job j = {.x = x,
                .y = f->out[0],
                .ct = aci_ctype_of((ac_dtype)x->dtype),
                .interleaved = ARG_B(f, INTERLEAVED),
                .dense = true,
                .t = x->shape[x->ndim - 2],
                .half = x->shape[x->ndim - 1] / 2,
                .first = ARG_I(f, OFFSET),
                .n_angles = x->shape[x->ndim - 2],
                .sign = sign};
  if (!ARG_NONE(f, POSITIONS)) {
    const ac_tensor *p = ARG_T(f, POSITIONS);
    AC_TRY(aci_index_values(f, POSITIONS, most_positions, "positions", &j.positions, &indices, e));
    choose_table(&j, p->numel);
    if (p->ndim == 2 && p->shape[0] > 1) j.per_batch = x->numel / x->shape[0] / (2 * j.half);
  }
  const size_t table = (size_t)(j.n_angles * j.half * 2) * aci_ctype_bytes(j.ct),
               pad = (table + 63) / 64 * 64;
  ac_status st = ac_block_alloc(f->device, pad + (size_t)j.half * sizeof(double), AC_MEM_ACTIVATION,
                                f->stream, &block, e);
  if (st == AC_OK) {
    j.table = ac_block_ptr(block);
    j.frequency = (double *)(void *)((char *)j.table + pad);
    for (int64_t i = 0; i < j.half; i++) j.frequency[i] = frequency(f, i, j.half);
    ac_parallel_for(f->team, j.half, 1 + 2048 / j.n_angles, fill_table, &j);
    ac_parallel_for(f->team, x->numel / (2 * j.half), 1 + 8192 / j.half, rows, &j);
  }
  ac_block_free(block);
  ac_block_free(indices);
  return st;
}

static ac_status cpu(ac_frame *f, ac_err *e) { return rotate(f, 1, e); }
static ac_status cpu_back(ac_frame *f, ac_err *e) { return rotate(f, -1, e); }

static ac_tensor *tensor_at(const ac_grad *g, int i) { return ARG_NONE(g, i) ? NULL : ARG_T(g, i); }
#define SAME_ARGUMENTS                                                                 \
  ARG_F(g, THETA), ARG_B(g, INTERLEAVED), ARG_I(g, OFFSET), tensor_at(g, POSITIONS),   \
      tensor_at(g, INV_FREQ), (int)ARG_I(g, SCALING), ARG_F(g, FACTOR), ARG_F(g, LOW), \
      ARG_F(g, HIGH), ARG_I(g, ORIGINAL)
static void grad(ac_grad *g) {
  ac_grad_set(g, X, x_rope_backward(&g->x, g->dout[0], SAME_ARGUMENTS));
}
static void grad_back(ac_grad *g) { ac_grad_set(g, X, x_rope(&g->x, g->dout[0], SAME_ARGUMENTS)); }

AC_OP(
    rope,
    .sig =
        "rope(x: tensor, theta: float = 10000, interleaved: bool = false, offset: int = 0, positions: "
        "tensor?, "
        "inv_freq: tensor?, scaling: enum(none|linear|llama3) = none, scaling_factor: float = 1, "
        "low_freq_factor: float = 1, high_freq_factor: float = 4, original_max_position: int = 8192) -> "
        "tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(POSITIONS) | AC_SAVE_IN(INV_FREQ),
    .flops_per_element = 3);
AC_OP(
    rope_backward,
    .sig =
        "rope_backward(dy: tensor, theta: float, interleaved: bool, offset: int, positions: tensor?, "
        "inv_freq: tensor?, scaling: enum(none|linear|llama3), scaling_factor: float, low_freq_factor: "
        "float, "
        "high_freq_factor: float, original_max_position: int) -> tensor",
    .shape = shape, .cpu = cpu_back, .grad = grad_back,
    .save = AC_SAVE_IN(POSITIONS) | AC_SAVE_IN(INV_FREQ), .hidden = true);
