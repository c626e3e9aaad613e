/* multinomial: num_samples indices for each row of weights, drawn with probabilities proportional to the weights. With
   replacement independently, without it one after another from those not drawn yet. Weights need not sum to 1.
   x (n) or (rows, n), floats >= 0 -> y (num_samples) or (rows, num_samples), i64 positions from 0
   One sample, or replacement: a uniform number per sample is looked up in the running sum. Else every position gets an
   exponential time at the rate of its weight, and the first num_samples are taken in order. Rows count as the global
   batch.          No gradient.
   example: accel.tensor({ 0.0, 3, 0 }):multinomial(4, true) --> { 1, 1, 1, 1 }
   example: accel.tensor({ 1.0, 2, 3, 4 }):multinomial(4):sort():tolist() --> { 0, 1, 2, 3 } */
#include <math.h>

#include "ops/index/sort_keys.h"
#include "ops/random/draw.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int64_t k = ARG_I(f, 1);
  char a[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs float weights, got %s; cast them",
                   ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim != 1 && x->ndim != 2)
    return AC_FAIL(e, SHAPE, "needs weights of 1 or 2 dims, got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  const int64_t n = x->shape[x->ndim - 1];
  if (k < 1) return AC_FAIL(e, INVALID, "num_samples must be at least 1, got %lld", (long long)k);
  if (n == 0 && x->ndim == 1)
    return AC_FAIL(e, SHAPE, "nothing to choose from in a tensor of shape [0]");
  if (n == 0 && x->shape[0] > 0)
    return AC_FAIL(e, SHAPE, "nothing to choose from in a tensor of shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  if (!ARG_B(f, 2) && k > n && x->numel > 0)
    return AC_FAIL(e, INVALID,
                   "num_samples is %lld, but there are %lld positions; draw with replacement",
                   (long long)k, (long long)n);
  int64_t s[2] = {x->shape[0], k};
  return x->ndim == 1 ? ac_frame_out(f, AC_I64, 1, &k, e) : ac_frame_out(f, AC_I64, 2, s, e);
}

typedef struct multinomial_job {
  const ac_tensor *x;
  aci_draw draw;
  aci_sort_keys keys;
  aci_slots slots; /* n weights, then room for keys */
  int64_t n, k, row0, room;
  bool search;
  int64_t *y;
} multinomial_job;

/* 64-bit draw number i as a uniform number. */
static double uniform_at(const aci_draw *d, uint64_t i) {
  uint32_t w[4];
  aci_draw_words(d, i / 2, 1, w);
  return aci_uniform_f64(aci_u64_of(w[2 * (i % 2)], w[2 * (i % 2) + 1]));
}

/* w := its running sum. Then for each sample the first position whose sum exceeds the drawn number.
 * Positions without weight never do. */
static void search(const multinomial_job *j, int64_t row, double *w) {
  double total = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < j->n; i++) {
    if (w[i] > 0) last = i;
    w[i] = total += w[i];
  }
  for (int64_t s = 0; s < j->k; s++) {
    const double u = uniform_at(&j->draw, (uint64_t)((row + j->row0) * j->k + s)) * total;
    int64_t a = 0, b = last;
    while (a < b) {
      const int64_t m = a + (b - a) / 2;
      if (w[m] > u) b = m;
      else a = m + 1;
    }
    j->y[row * j->k + s] = a;
  }
}

/* w := the times. Takes the k earliest. A position without weight gets NaN, which is later than
 * everything. */
static void race(const multinomial_job *j, int64_t row, double *w, char *keys) {
  uint32_t words[ACI_DRAW_ROW * 2 + 4];
  const uint64_t first = (uint64_t)((row + j->row0) * j->n);
  for (int64_t b = 0; b < j->n; b += ACI_DRAW_ROW) {
    const int64_t m = j->n - b < ACI_DRAW_ROW ? j->n - b : ACI_DRAW_ROW;
    const uint64_t at = first + (uint64_t)b, skip = at % 2;
    aci_draw_words(&j->draw, at / 2, (int64_t)(skip + (uint64_t)m + 1) / 2, words);
    for (int64_t i = 0; i < m; i++) {
      const uint32_t *p = words + 2 * (skip + (uint64_t)i);
      w[b + i] =
          w[b + i] > 0 ? -log1p(-aci_uniform_f64(aci_u64_of(p[0], p[1]))) / w[b + i] : (double)NAN;
    }
  }
  aci_sort_keys_topk(&j->keys, w, 1, 0, j->n, j->k, keys);
  aci_sort_keys_sort_unordered(&j->keys, keys, aci_sort_keys_at(&j->keys, keys, j->room), j->k);
  aci_sort_keys_store(&j->keys, keys, j->k, w, 1, NULL, 1, j->y + row * j->k, 1);
}

static void rows(void *arg, int64_t begin, int64_t end) {
  multinomial_job *j = arg;
  const int slot = aci_slots_take(&j->slots);
  double *w = (double *)(void *)aci_slots_at(&j->slots, slot);
  for (int64_t r = begin; r < end; r++) {
    aci_elems_load(j->x, ACI_C_F64, r * j->n, j->n, w);
    if (j->search) search(j, r, w);
    else race(j, r, w, (char *)(w + j->n));
  }
  aci_slots_give(&j->slots, slot);
}

/* Weights that mean nothing are named before anything is written. */
static ac_status check(const ac_frame *f, int64_t n_rows, int64_t n, int64_t least, ac_err *e) {
  double buf[ACI_DRAW_ROW];
  for (int64_t r = 0; r < n_rows; r++) {
    double total = 0;
    int64_t some = 0;
    for (int64_t b = 0; b < n; b += ACI_DRAW_ROW) {
      const int64_t m = n - b < ACI_DRAW_ROW ? n - b : ACI_DRAW_ROW;
      aci_elems_load(ARG_T(f, 0), ACI_C_F64, r * n + b, m, buf);
      for (int64_t i = 0; i < m; i++) {
        if (!(buf[i] >= 0) || isinf(buf[i]))
          return AC_FAIL(
              e, INVALID, "weight %lld of row %lld is %g; weights are finite and not negative",
              (long long)ac_frame_show(f, b + i), (long long)ac_frame_show(f, r), buf[i]);
        total += buf[i];
        some += buf[i] > 0;
      }
    }
    if (some == 0 || isinf(total))
      return AC_FAIL(e, INVALID, "the weights of row %lld sum to %g",
                     (long long)ac_frame_show(f, r), total);
    if (some < least)
      return AC_FAIL(
          e, INVALID,
          "num_samples is %lld, but row %lld has only %lld weights above 0; draw with replacement",
          (long long)least, (long long)ac_frame_show(f, r), (long long)some);
  }
  return AC_OK;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  multinomial_job j = {.x = x,
                       .draw = x->ndim == 2 ? aci_draw_of_rows(&f->rng_counter)
                                            : aci_draw_of(&f->rng_counter),
                       .n = x->shape[x->ndim - 1],
                       .k = ARG_I(f, 1),
                       .y = aci_data(f->out[0])};
  const int64_t n_rows = x->ndim == 1 ? 1 : x->shape[0];
  if (f->out[0]->numel == 0) return AC_OK;
  j.search = ARG_B(f, 2) || j.k == 1;
  j.row0 = x->ndim == 2 ? (int64_t)f->rng_counter.row0 : 0;
  AC_TRY(check(f, n_rows, j.n, ARG_B(f, 2) ? 1 : j.k, e));
  AC_TRY(aci_sort_keys_of(AC_F64, j.n, false, &j.keys, e));
  j.room = j.search ? 0 : aci_sort_keys_topk_room(j.n, j.k);
  const int64_t grain = 1 + 8192 / (j.n + j.k);
  const size_t bytes = (size_t)j.n * 8 + (size_t)(j.search ? 0 : j.room + j.k) * j.keys.bytes;
  AC_TRY(aci_slots_open(&j.slots, f, (n_rows + grain - 1) / grain, bytes, e));
  ac_parallel_for(f->team, n_rows, grain, rows, &j);
  aci_slots_close(&j.slots);
  return AC_OK;
}

AC_OP(
    multinomial,
    .sig =
        "multinomial(x: tensor, num_samples: int, replacement: bool = false, generator: generator?) -> tensor",
    .shape = shape, .cpu = cpu, .nondiff = true);
