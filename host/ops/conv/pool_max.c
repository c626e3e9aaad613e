/* Max pools: rows of windows at a time. The places of the largest elements are found again in the backward pass, which costs
 * one more look at x and saves a tensor of indices. Called through pool.h. */
#include <math.h>

#include "device/cpu/isa.h"
#include "ops/conv/pool.h"
#include "ops/index/index.h"
#include "ops/reduce/slots.h"

typedef struct job job;
/* Largest elements m (compute type) and, unless NULL, their places in the plane, of output row o. */
typedef void (*row_fn)(const job *j, const void *plane, int64_t o, void *m, int64_t *place);

struct job {
  const aci_pool *p;
  const ac_tensor *x, *t; /* t: dy, or what is taken */
  ac_tensor *y, *indices;
  row_fn row;
  aci_slots slots;
  int64_t plane_n, cb;
  bool whole; /* planes of x lie in memory as they are computed with */
  /* fixed windows: per tap of the width the places [lo, hi) that have it inside; per place the first tap inside */
  const int64_t *lo, *hi, *first;
};

/* One tap of a row of windows: larger elements and NaN replace what is there, so that the first of equals stays. */
#define TAP(NAME, T)                                                                                                   \
  AC_ISA_FN(NAME##_values, (T *restrict m, const T *restrict x, int64_t step, int64_t n), (m, x, step, n)) {           \
    if (step == 1)                                                                                                     \
      for (int64_t i = 0; i < n; i++) m[i] = (x[i] > m[i]) | (x[i] != x[i]) ? x[i] : m[i];                             \
    else if (step == 2)                                                                                                \
      for (int64_t i = 0; i < n; i++) m[i] = (x[2 * i] > m[i]) | (x[2 * i] != x[2 * i]) ? x[2 * i] : m[i];             \
    else                                                                                                               \
      for (int64_t i = 0; i < n; i++) m[i] = (x[i * step] > m[i]) | (x[i * step] != x[i * step]) ? x[i * step] : m[i]; \
  }                                                                                                                    \
  AC_ISA_FN(NAME##_places, (T *restrict m, int64_t *restrict place, const T *restrict x, int64_t at, int64_t step,     \
                            int64_t n),                                                                                \
            (m, place, x, at, step, n)) {                                                                              \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
      T v = x[i * step];                                                                                               \
      bool take = (v > m[i]) | (v != v);                                                                               \
      m[i] = take ? v : m[i];                                                                                          \
      place[i] = take ? at + i * step : place[i];                                                                      \
    }                                                                                                                  \
  }                                                                                                                    \
  static void NAME(const job *j, const void *plane, int64_t o, void *mv, int64_t *place) {                             \
    const aci_pool *p = j->p;                                                                                          \
    const int64_t h0 = o * p->stride[0] - p->pad[0], s = p->stride[1], width = p->in[1];                               \
    T *m = mv;                                                                                                         \
    bool started = false;                                                                                              \
    for (int64_t i = 0; i < p->out[1]; i++) m[i] = -(T)INFINITY;                                                       \
    for (int64_t k = 0; k < p->k[0]; k++) {                                                                            \
      const int64_t h = h0 + k * p->dil[0];                                                                            \
      if (h < 0 || h >= p->in[0]) continue;                                                                            \
      if (!started && place != NULL)                                                                                   \
        for (int64_t i = 0; i < p->out[1]; i++) place[i] = h * width + j->first[i];                                    \
      started = true;                                                                                                  \
      for (int64_t q = 0; q < p->k[1]; q++) {                                                                          \
        const int64_t lo = j->lo[q], n = j->hi[q] - lo, at = h * width + lo * s - p->pad[1] + q * p->dil[1];           \
        if (n <= 0) continue;                                                                                          \
        if (place == NULL) NAME##_values(m + lo, (const T *)plane + at, s, n);                                         \
        else NAME##_places(m + lo, place + lo, (const T *)plane + at, at, s, n);                                       \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  static void NAME##_adaptive(const job *j, const void *plane, int64_t o, void *mv, int64_t *place) {                  \
    const aci_pool *p = j->p;                                                                                          \
    T *m = mv;                                                                                                         \
    int64_t h0, h1, w0, w1;                                                                                            \
    aci_pool_span(p, 0, o, &h0, &h1);                                                                                  \
    for (int64_t i = 0; i < p->out[1]; i++) {                                                                          \
      aci_pool_span(p, 1, i, &w0, &w1);                                                                                \
      int64_t best = h0 * p->in[1] + w0;                                                                               \
      T top = -(T)INFINITY;                                                                                            \
      for (int64_t h = h0; h < h1; h++)                                                                                \
        for (int64_t w = w0; w < w1; w++) {                                                                            \
          T v = ((const T *)plane)[h * p->in[1] + w];                                                                  \
          if (!(v > top) && v == v) continue;                                                                          \
          top = v;                                                                                                     \
          best = h * p->in[1] + w;                                                                                     \
        }                                                                                                              \
      m[i] = top;                                                                                                      \
      if (place != NULL) place[i] = best;                                                                              \
    }                                                                                                                  \
  }
TAP(row_f32, float)
TAP(row_f64, double)

/* ---- pieces: planes [begin, end) ---- */
typedef struct space {
  int slot;
  char *plane, *m, *other;
  int64_t *place;
} space;

static space space_take(job *j) {
  space s = {.slot = aci_slots_take(&j->slots)};
  s.place = (int64_t *)(void *)aci_slots_at(&j->slots, s.slot);
  s.m = (char *)(s.place + j->p->out[1]);
  s.other = s.m + (j->p->out[1] + 1) / 2 * 2 * j->cb; /* keeps 8-byte alignment */
  s.plane = s.other + (j->plane_n + j->p->out[1] + 1) / 2 * 2 * j->cb;
  return s;
}

static const void *load_plane(const job *j, const ac_tensor *t, int64_t c, char *buf) {
  if (j->whole) return (const char *)aci_data(t) + c * j->plane_n * j->cb;
  aci_elems_load(t, j->p->ct, c * j->plane_n, j->plane_n, buf);
  return buf;
}

static void forward_piece(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  const aci_pool *p = j->p;
  const int64_t width = p->out[1];
  space s = space_take(j);
  for (int64_t c = begin; c < end; c++) {
    const void *plane = load_plane(j, j->x, c, s.plane);
    for (int64_t o = 0; o < p->out[0]; o++) {
      const int64_t at = (c * p->out[0] + o) * width;
      int64_t *place = j->indices == NULL ? NULL : (int64_t *)aci_data(j->indices) + at;
      j->row(j, plane, o, s.m, place);
      aci_elems_store(j->y, p->ct, at, width, s.m);
    }
  }
  aci_slots_give(&j->slots, s.slot);
}

static void backward_piece(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  const aci_pool *p = j->p;
  const int64_t width = p->out[1];
  space s = space_take(j);
  char *dx = s.other, *dy = dx + j->plane_n * j->cb;
  for (int64_t c = begin; c < end; c++) {
    const void *plane = load_plane(j, j->x, c, s.plane);
    memset(dx, 0, (size_t)(j->plane_n * j->cb));
    for (int64_t o = 0; o < p->out[0]; o++) {
      j->row(j, plane, o, s.m, s.place);
      aci_elems_load(j->t, p->ct, (c * p->out[0] + o) * width, width, dy);
      if (p->ct == ACI_C_F64)
        for (int64_t i = 0; i < width; i++) ((double *)(void *)dx)[s.place[i]] += ((double *)(void *)dy)[i];
      else
        for (int64_t i = 0; i < width; i++) ((float *)(void *)dx)[s.place[i]] += ((float *)(void *)dy)[i];
    }
    aci_elems_store(j->y, p->ct, c * j->plane_n, j->plane_n, dx);
  }
  aci_slots_give(&j->slots, s.slot);
}

static void take_piece(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  const aci_pool *p = j->p;
  const int64_t width = p->out[1];
  space s = space_take(j);
  for (int64_t c = begin; c < end; c++) {
    const void *plane = load_plane(j, j->x, c, s.plane);
    aci_elems_load(j->t, p->ct, c * j->plane_n, j->plane_n, s.other);
    for (int64_t o = 0; o < p->out[0]; o++) {
      j->row(j, plane, o, s.m, s.place);
      if (p->ct == ACI_C_F64)
        for (int64_t i = 0; i < width; i++) ((double *)(void *)s.m)[i] = ((double *)(void *)s.other)[s.place[i]];
      else
        for (int64_t i = 0; i < width; i++) ((float *)(void *)s.m)[i] = ((float *)(void *)s.other)[s.place[i]];
      aci_elems_store(j->y, p->ct, (c * p->out[0] + o) * width, width, s.m);
    }
  }
  aci_slots_give(&j->slots, s.slot);
}

/* ---- entry ---- */
static ac_status over_planes(ac_frame *f, job *j, ac_range_fn fn, ac_err *e) {
  const aci_pool *p = j->p;
  const bool wide = p->ct == ACI_C_F64;
  ac_block *block = NULL;
  if (p->planes == 0) return AC_OK;
  j->plane_n = p->in[0] * p->in[1];
  j->cb = (int64_t)aci_ctype_bytes(p->ct);
  j->whole = (p->dtype == AC_F32 || p->dtype == AC_F64) && aci_is_contiguous(j->x);
  j->row = p->adaptive ? (wide ? row_f64_adaptive : row_f32_adaptive) : (wide ? row_f64 : row_f32);
  if (!p->adaptive) {
    AC_TRY(ac_block_alloc(f->device, (size_t)(2 * p->k[1] + p->out[1]) * 8, AC_MEM_ACTIVATION, f->stream, &block, e));
    int64_t *lo = ac_block_ptr(block), *hi = lo + p->k[1], *first = hi + p->k[1];
    for (int64_t q = 0; q < p->k[1]; q++) {
      const int64_t off = q * p->dil[1] - p->pad[1], s = p->stride[1];
      lo[q] = off >= 0 ? 0 : (-off + s - 1) / s;
      hi[q] = off >= p->in[1] ? 0 : (p->in[1] - 1 - off) / s + 1;
      if (hi[q] > p->out[1]) hi[q] = p->out[1];
    }
    for (int64_t i = 0; i < p->out[1]; i++) {
      const int64_t start = i * p->stride[1] - p->pad[1];
      first[i] = start >= 0 ? start : start + (-start + p->dil[1] - 1) / p->dil[1] * p->dil[1];
    }
    j->lo = lo;
    j->hi = hi;
    j->first = first;
  }
  const int64_t work = p->out[0] * p->out[1] * (p->adaptive ? 4 : p->k[0] * p->k[1]) + j->plane_n;
  size_t bytes = (size_t)p->out[1] * 8 + (size_t)(2 * j->plane_n + 2 * p->out[1] + 8) * (size_t)j->cb;
  ac_status st = aci_slots_open(&j->slots, f, p->planes, bytes, e);
  if (st == AC_OK) {
    ac_parallel_for(f->team, p->planes, work >= 1 << 15 ? 1 : (1 << 15) / (work + 1) + 1, fn, j);
    aci_slots_close(&j->slots);
  }
  ac_block_free(block);
  return st;
}

ac_status aci_pool_max(ac_frame *f, const aci_pool *p, const ac_tensor *x, ac_tensor *values, ac_tensor *indices,
                       ac_err *e) {
  job j = {.p = p, .x = x, .y = values, .indices = indices};
  return values->numel == 0 ? AC_OK : over_planes(f, &j, forward_piece, e);
}

ac_status aci_pool_max_backward(ac_frame *f, const aci_pool *p, const ac_tensor *dy, const ac_tensor *x, ac_tensor *dx,
                                ac_err *e) {
  job j = {.p = p, .x = x, .t = dy, .y = dx};
  return dx->numel == 0 ? AC_OK : over_planes(f, &j, backward_piece, e);
}

ac_status aci_pool_max_take(ac_frame *f, const aci_pool *p, const ac_tensor *t, const ac_tensor *x, ac_tensor *y,
                            ac_err *e) {
  job j = {.p = p, .x = x, .t = t, .y = y};
  return y->numel == 0 ? AC_OK : over_planes(f, &j, take_piece, e);
}
