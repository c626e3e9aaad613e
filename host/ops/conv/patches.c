/* im2col and col2im: see patches.h. Planes are worked on in the compute type of their dtype. */
#include "ops/conv/patches.h"

#include "ops/index/index.h"
#include "ops/reduce/slots.h"

ac_status aci_patches_make(const ac_frame *f, int at, const int64_t *shape, int ndim,
                           aci_patches *p, ac_err *e) {
  AC_TRY(aci_window_ints(f, at, 2, 1, p->k, e));
  AC_TRY(aci_window_ints(f, at + 1, 2, 1, p->dil, e));
  AC_TRY(aci_window_ints(f, at + 2, 2, 0, p->pad, e));
  AC_TRY(aci_window_ints(f, at + 3, 2, 1, p->stride, e));
  p->channels = aci_space_channels(shape, ndim, 2);
  p->planes = aci_space_batch(shape, ndim, 2) * p->channels;
  for (int d = 0; d < 2; d++) {
    p->in[d] = aci_space(shape, ndim, 2)[d];
    int64_t span = p->dil[d] * (p->k[d] - 1) + 1, room = p->in[d] + 2 * p->pad[d] - span;
    if (room < 0)
      return AC_FAIL(e, SHAPE,
                     "a window that spans %lld does not fit into %lld elements with padding %lld",
                     (long long)span, (long long)p->in[d], (long long)p->pad[d]);
    p->out[d] = room / p->stride[d] + 1;
  }
  return AC_OK;
}

ac_status aci_patches_out(ac_frame *f, const aci_patches *p, int ndim, ac_dtype dt, ac_err *e) {
  int64_t s[3], rows;
  if (__builtin_mul_overflow(p->channels, p->k[0] * p->k[1], &rows))
    return AC_FAIL(e, SHAPE, "%lld channels of %lld x %lld taps are too many",
                   (long long)p->channels, (long long)p->k[0], (long long)p->k[1]);
  s[0] = p->channels == 0 ? 0 : p->planes / p->channels;
  if (ndim == 4 && p->channels == 0) s[0] = ARG_T(f, 0)->shape[0];
  s[1] = rows;
  s[2] = p->out[0] * p->out[1];
  return ac_frame_out(f, dt, ndim - 1, s + (4 - ndim), e);
}

typedef struct patches_job {
  const aci_patches *p;
  aci_ctype ct;
  const ac_tensor *x;
  ac_tensor *y;
  aci_slots slots;
} patches_job;

/* Positions of tap i of dim d that lie inside: [lo, hi). */
static void inside(const aci_patches *p, int d, int64_t i, int64_t *lo, int64_t *hi) {
  int64_t off = i * p->dil[d] - p->pad[d], s = p->stride[d];
  *lo = off >= 0 ? 0 : (-off + s - 1) / s;
  *hi = off >= p->in[d] ? 0 : (p->in[d] - 1 - off) / s + 1;
  if (*hi > p->out[d]) *hi = p->out[d];
  if (*lo > *hi) *lo = *hi;
}

#define UNFOLD(T)                                                                                 \
  for (int64_t h = 0; h < p->out[0]; h++) {                                                       \
    T *r = (T *)row + h * p->out[1];                                                              \
    const T *s =                                                                                  \
        (const T *)plane + (h * p->stride[0] + i * p->dil[0] - p->pad[0]) * p->in[1] + off;       \
    if (h < h0 || h >= h1) memset(r, 0, (size_t)p->out[1] * sizeof(T));                           \
    else                                                                                          \
      for (int64_t w = 0; w < p->out[1]; w++) r[w] = w >= w0 && w < w1 ? s[w * p->stride[1]] : 0; \
  }

static void unfold_piece(void *arg, int64_t begin, int64_t end) {
  patches_job *j = arg;
  const aci_patches *p = j->p;
  const int64_t plane_n = p->in[0] * p->in[1], positions = p->out[0] * p->out[1],
                taps = p->k[0] * p->k[1];
  const int64_t cb = (int64_t)aci_ctype_bytes(j->ct);
  int slot = aci_slots_take(&j->slots);
  char *plane = aci_slots_at(&j->slots, slot), *row = plane + plane_n * cb;
  for (int64_t c = begin; c < end; c++) {
    aci_elems_load(j->x, j->ct, c * plane_n, plane_n, plane);
    for (int64_t t = 0; t < taps; t++) {
      const int64_t i = t / p->k[1], k = t % p->k[1], off = k * p->dil[1] - p->pad[1];
      int64_t h0, h1, w0, w1;
      inside(p, 0, i, &h0, &h1);
      inside(p, 1, k, &w0, &w1);
      if (j->ct == ACI_C_F64) {
        UNFOLD(double)
      } else {
        UNFOLD(float)
      }
      aci_elems_store(j->y, j->ct, (c * taps + t) * positions, positions, row);
    }
  }
  aci_slots_give(&j->slots, slot);
}

#define FOLD(T)                                                                          \
  for (int64_t h = h0; h < h1; h++) {                                                    \
    const T *r = (const T *)row + h * p->out[1];                                         \
    T *s = (T *)plane + (h * p->stride[0] + i * p->dil[0] - p->pad[0]) * p->in[1] + off; \
    for (int64_t w = w0; w < w1; w++) s[w * p->stride[1]] += r[w];                       \
  }

static void fold_piece(void *arg, int64_t begin, int64_t end) {
  patches_job *j = arg;
  const aci_patches *p = j->p;
  const int64_t plane_n = p->in[0] * p->in[1], positions = p->out[0] * p->out[1],
                taps = p->k[0] * p->k[1];
  const int64_t cb = (int64_t)aci_ctype_bytes(j->ct);
  int slot = aci_slots_take(&j->slots);
  char *plane = aci_slots_at(&j->slots, slot), *row = plane + plane_n * cb;
  for (int64_t c = begin; c < end; c++) {
    memset(plane, 0, (size_t)(plane_n * cb));
    for (int64_t t = 0; t < taps; t++) {
      const int64_t i = t / p->k[1], k = t % p->k[1], off = k * p->dil[1] - p->pad[1];
      int64_t h0, h1, w0, w1;
      inside(p, 0, i, &h0, &h1);
      inside(p, 1, k, &w0, &w1);
      aci_elems_load(j->x, j->ct, (c * taps + t) * positions, positions, row);
      if (j->ct == ACI_C_F64) {
        FOLD(double)
      } else {
        FOLD(float)
      }
    }
    aci_elems_store(j->y, j->ct, c * plane_n, plane_n, plane);
  }
  aci_slots_give(&j->slots, slot);
}

static ac_status over_planes(ac_frame *f, const aci_patches *p, const ac_tensor *x, ac_tensor *y,
                             ac_range_fn fn, ac_err *e) {
  patches_job j = {.p = p, .ct = aci_ctype_of((ac_dtype)x->dtype), .x = x, .y = y};
  const int64_t values = p->in[0] * p->in[1] + p->out[0] * p->out[1],
                work = values * p->k[0] * p->k[1];
  if (y->numel == 0) return AC_OK;
  AC_TRY(aci_slots_open(&j.slots, f, p->planes, (size_t)values * aci_ctype_bytes(j.ct), e));
  ac_parallel_for(f->team, p->planes, work >= 1 << 15 ? 1 : (1 << 15) / (work + 1) + 1, fn, &j);
  aci_slots_close(&j.slots);
  return AC_OK;
}

ac_status aci_patches_unfold(ac_frame *f, const aci_patches *p, const ac_tensor *x, ac_tensor *y,
                             ac_err *e) {
  return over_planes(f, p, x, y, unfold_piece, e);
}
ac_status aci_patches_fold(ac_frame *f, const aci_patches *p, const ac_tensor *x, ac_tensor *y,
                           ac_err *e) {
  return over_planes(f, p, x, y, fold_piece, e);
}
