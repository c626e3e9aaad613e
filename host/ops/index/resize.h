/* The weights of interpolate, by dim: the elements of x in position o of the result, with their
 * weights. Written once for interpolate.c and interpolate.cu. */
#ifndef ACI_OPS_RESIZE_H
#define ACI_OPS_RESIZE_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hostdev.h"

enum aci_resize_mode { /* as in the signature of interpolate */
                       ACI_NEAREST,
                       ACI_NEAREST_EXACT,
                       ACI_LINEAR,
                       ACI_BILINEAR,
                       ACI_BICUBIC,
                       ACI_TRILINEAR,
                       ACI_AREA,
                       /* of the hidden ops: bilinear and bicubic with antialias */
                       ACI_SMOOTH_LINEAR,
                       ACI_SMOOTH_CUBIC
};
static inline bool aci_resize_is_smooth(int64_t mode) {
  return mode == ACI_SMOOTH_LINEAR || mode == ACI_SMOOTH_CUBIC;
}

typedef struct aci_resize {
  int mode;
  bool corners;
  int64_t n, n_out;
  double scale;
  /* of the nearest modes: single precision, as PyTorch, since at exact edges the rounding
   * decides */
  float step;
} aci_resize;

/* factor: the given scale, 0 to use the sizes. */
static inline aci_resize aci_resize_of(int64_t mode, bool corners, int64_t n, int64_t n_out,
                                       double factor) {
  aci_resize r;
  r.mode = (int)mode;
  r.corners = corners;
  r.n = n;
  r.n_out = n_out;
  r.scale = corners ? (n_out > 1 ? (double)(n - 1) / (double)(n_out - 1) : 0)
            : factor > 0 && mode != ACI_AREA ? 1 / factor
                                             : (double)n / (double)n_out;
  r.step = factor > 0 ? (float)(1 / factor) : (float)n / (float)n_out;
  return r;
}

/* Elements first, first + 1, ... of x, clamped to it. w has at most 4 weights. If more elements
 * count, each weighs 1 / count. Of the smooth modes element i weighs filter((i + 0.5 - centre) *
 * step) / total. */
typedef struct aci_resize_taps {
  int64_t first, count;
  double w[4];
  int smooth; /* the mode, or 0 */
  double centre, step, total;
} aci_resize_taps;

/* The filters of the smooth modes, which end at 1 and at 2: the triangle, and the cubic
 * convolution with a = -0.5. */
AC_HOSTDEV static inline double aci_resize_filter(int mode, double x) {
  const double a = -0.5;
  x = fabs(x);
  if (mode == ACI_SMOOTH_LINEAR) return x < 1 ? 1 - x : 0;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}
/* The elements that the filter, stretched by the factor of a reduction, reaches from the centre. */
AC_HOSTDEV static inline aci_resize_taps aci_resize_smooth(const aci_resize *r, int64_t o) {
  aci_resize_taps t;
  const double wide = r->scale >= 1 ? r->scale : 1;
  const double reach = (r->mode == ACI_SMOOTH_LINEAR ? 1 : 2) * wide;
  t.smooth = r->mode;
  t.centre = r->scale * ((double)o + 0.5);
  t.step = 1 / wide;
  const double from = t.centre - reach + 0.5, to = t.centre + reach + 0.5;
  t.first = from > 0 ? (int64_t)from : 0;
  t.count = (to < (double)r->n ? (int64_t)to : r->n) - t.first;
  if (t.count < 1) t.count = 1; /* a given factor may lead outside: the element at the end */
  if (t.first > r->n - 1) t.first = r->n - 1;
  t.total = 0;
  for (int64_t i = 0; i < t.count; i++)
    t.total += aci_resize_filter(t.smooth, ((double)(t.first + i) + 0.5 - t.centre) * t.step);
  if (t.total == 0) t.total = 1;
  for (int i = 0; i < 4; i++) t.w[i] = 0;
  return t;
}

AC_HOSTDEV static inline int64_t aci_resize_nearest(const aci_resize *r, int64_t o) {
  if (r->n == r->n_out && r->mode == ACI_NEAREST) return o;
  const int64_t i =
      (int64_t)floorf(((float)o + (r->mode == ACI_NEAREST_EXACT ? 0.5f : 0.0f)) * r->step);
  return i < r->n - 1 ? i : r->n - 1;
}

AC_HOSTDEV static inline aci_resize_taps aci_resize_at(const aci_resize *r, int64_t o) {
  aci_resize_taps t;
  if (r->mode == ACI_SMOOTH_LINEAR || r->mode == ACI_SMOOTH_CUBIC) return aci_resize_smooth(r, o);
  t.smooth = 0;
  t.centre = t.step = t.total = 0;
  double at = r->corners ? (double)o * r->scale : ((double)o + 0.5) * r->scale - 0.5;
  t.w[0] = 1;
  t.count = 1;
  if (r->mode == ACI_NEAREST || r->mode == ACI_NEAREST_EXACT) {
    t.first = aci_resize_nearest(r, o);
  } else if (r->mode == ACI_AREA) {
    t.first = o * r->n / r->n_out;
    t.count = ((o + 1) * r->n + r->n_out - 1) / r->n_out - t.first;
    for (int i = 0; i < 4; i++) t.w[i] = 1 / (double)t.count;
  } else if (r->mode ==
             ACI_BICUBIC) { /* the cubic convolution kernel with a = -0.75 at 4 distances */
    const double a = -0.75, low = floor(at);
    at -= low;
    t.first = (int64_t)low - 1;
    t.count = 4;
    for (int i = 0; i < 4; i++) {
      const double x = i == 0 ? at + 1 : i == 1 ? at : i == 2 ? 1 - at : 2 - at;
      t.w[i] = i == 1 || i == 2 ? ((a + 2) * x - (a + 3)) * x * x + 1
                                : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    }
  } else {
    if (r->n == r->n_out) at = (double)o; /* whatever the factor */
    at = at < 0 ? 0 : at > (double)(r->n - 1) ? (double)(r->n - 1) : at;
    t.first = (int64_t)at;
    t.count = 2;
    t.w[0] = 1 - (at - (double)t.first);
    t.w[1] = at - (double)t.first;
  }
  return t;
}
AC_HOSTDEV static inline int64_t aci_resize_position(const aci_resize *r, const aci_resize_taps *t,
                                                     int64_t i) {
  const int64_t c = t->first + i;
  return c < 0 ? 0 : c < r->n ? c : r->n - 1;
}
AC_HOSTDEV static inline double aci_resize_weight(const aci_resize_taps *t, int64_t i) {
  if (t->smooth)
    return aci_resize_filter(t->smooth, ((double)(t->first + i) + 0.5 - t->centre) * t->step) /
           t->total;
  return t->w[t->count > 4 ? 0 : i];
}

#endif
