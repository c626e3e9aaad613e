/* Affine and perspective transforms, in Pillow's arithmetic and in PyTorch's. Called through
 * pixels.h. */
#include <math.h>
#include <string.h>

#include "file/pixels/pixels.h"

static int64_t floor_of(double v) { return (int64_t)floor(v); }
static int64_t clamp(int64_t v, int64_t n) { return v < 0 ? 0 : v < n ? v : n - 1; }

/* The point of src for a pixel of dst. */
static void point(const double a[8], int64_t x, int64_t y, double *u, double *v) {
  const double s = (double)x + 0.5, t = (double)y + 0.5;
  *u = a[0] * s + a[1] * t + a[2];
  *v = a[3] * s + a[4] * t + a[5];
  if (a[6] != 0 || a[7] != 0) {
    const double w = a[6] * s + a[7] * t + 1;
    *u /= w;
    *v /= w;
  }
}

static void copy(const aci_pixels *src, int64_t x, int64_t y, uint8_t *to) {
  memcpy(to, src->p + (size_t)(y * src->width + x) * (size_t)src->channels, (size_t)src->channels);
}

/* ---- nearest, in three ways that round differently at the edges of pixels ---- */

/* Without rotation: columns and rows are chosen once, by adding steps. */
static void scale_only(const aci_pixels *src, const double a[8], aci_pixels *dst) {
  double v = a[5] + a[4] * 0.5;
  for (int64_t y = 0; y < dst->height; y++, v += a[4]) {
    double u = a[2] + a[0] * 0.5;
    const int64_t sy = v < 0 ? -1 : (int64_t)v;
    uint8_t *to = dst->p + (size_t)(y * dst->width) * (size_t)dst->channels;
    for (int64_t x = 0; x < dst->width; x++, u += a[0], to += dst->channels) {
      const int64_t sx = u < 0 ? -1 : (int64_t)u;
      if (sx >= 0 && sx < src->width && sy >= 0 && sy < src->height) copy(src, sx, sy, to);
    }
  }
}

static bool small(const double a[8], double x, double y) {
  return fabs(x * a[0] + y * a[1] + a[2]) < 32768.0 && fabs(x * a[3] + y * a[4] + a[5]) < 32768.0;
}

static int64_t fixed(double v) { return floor_of(v * 65536.0 + 0.5); }

/* Steps of 16 bits after the point. */
static void fixed_point(const aci_pixels *src, const double a[8], aci_pixels *dst) {
  const int64_t du = fixed(a[0]), dv = fixed(a[3]), eu = fixed(a[1]), ev = fixed(a[4]);
  int64_t u0 = fixed(a[2] + a[0] * 0.5 + a[1] * 0.5), v0 = fixed(a[5] + a[3] * 0.5 + a[4] * 0.5);
  for (int64_t y = 0; y < dst->height; y++, u0 += eu, v0 += ev) {
    int64_t u = u0, v = v0;
    uint8_t *to = dst->p + (size_t)(y * dst->width) * (size_t)dst->channels;
    for (int64_t x = 0; x < dst->width; x++, u += du, v += dv, to += dst->channels) {
      const int64_t sx = u >> 16, sy = v >> 16;
      if (sx >= 0 && sx < src->width && sy >= 0 && sy < src->height) copy(src, sx, sy, to);
    }
  }
}

static void nearest(const aci_pixels *src, double u, double v, uint8_t *to) {
  if (!(u >= 0 && v >= 0 && u < (double)src->width && v < (double)src->height)) return; /* or NaN */
  copy(src, (int64_t)u, (int64_t)v, to);
}

/* ---- interpolation: n taps each way from (x, y) on, weights by cubic or linear formula ---- */

static double linear(const double *p, double d) { return p[0] + (p[1] - p[0]) * d; }

static double cubic(const double *p, double d) {
  const double a = p[1], b = -p[0] + p[2], c = 2 * (p[0] - p[1]) + p[2] - p[3];
  const double t = -p[0] + p[1] - p[2] + p[3];
  return a + d * (b + d * (c + d * t));
}

static void smooth(const aci_pixels *src, double u, double v, int n, uint8_t *to) {
  if (!(u >= 0 && v >= 0 && u < (double)src->width && v < (double)src->height)) return; /* or NaN */
  u -= 0.5, v -= 0.5;
  int64_t x = floor_of(u), y = floor_of(v);
  const double dx = u - (double)x, dy = v - (double)y;
  if (n == 4) x--, y--;
  for (int c = 0; c < src->channels; c++) {
    double down[4] = {0}, across[4] = {0};
    for (int j = 0; j < n; j++) {
      if (j > 0 && (y + j < 0 || y + j >= src->height)) {
        down[j] = down[j - 1]; /* rows outside repeat the one before */
        continue;
      }
      const uint8_t *row =
          src->p + (size_t)(clamp(y + j, src->height) * src->width) * (size_t)src->channels;
      for (int i = 0; i < n; i++) across[i] = row[clamp(x + i, src->width) * src->channels + c];
      down[j] = n == 4 ? cubic(across, dx) : linear(across, dx);
    }
    const double value = n == 4 ? cubic(down, dy) : linear(down, dy);
    to[c] = value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)value;
  }
}

void aci_pixels_warp(const aci_pixels *src, const double a[8], aci_filter f, aci_pixels *dst) {
  const bool affine = a[6] == 0 && a[7] == 0;
  const double w = (double)dst->width, h = (double)dst->height;
  if (f == ACI_NEAREST && affine && a[1] == 0 && a[3] == 0) {
    scale_only(src, a, dst);
    return;
  }
  if (f == ACI_NEAREST && affine && small(a, 0, 0) && small(a, w, h) && small(a, 0, h) &&
      small(a, w, 0)) {
    fixed_point(src, a, dst);
    return;
  }
  for (int64_t y = 0; y < dst->height; y++)
    for (int64_t x = 0; x < dst->width; x++) {
      uint8_t *to = dst->p + (size_t)(y * dst->width + x) * (size_t)dst->channels;
      double u, v;
      point(a, x, y, &u, &v);
      if (f == ACI_NEAREST) nearest(src, u, v, to);
      else smooth(src, u, v, f == ACI_BICUBIC ? 4 : 2, to);
    }
}

/* ---- PyTorch's ---- */

void aci_floats_warp(const float *src, int64_t height, int64_t width, int channels,
                     const double a[8], aci_filter f, const float *fill, float *dst,
                     int64_t out_height, int64_t out_width) {
  for (int64_t y = 0; y < out_height; y++)
    for (int64_t x = 0; x < out_width; x++, dst += channels) {
      double u, v;
      point(a, x, y, &u, &v);
      u -= 0.5, v -= 0.5;
      const int taps = f == ACI_NEAREST ? 1 : 2;
      const double fx = f == ACI_NEAREST ? nearbyint(u) : floor(u);
      const double fy = f == ACI_NEAREST ? nearbyint(v) : floor(v);
      const double dx = taps == 1 ? 0 : u - fx, dy = taps == 1 ? 0 : v - fy;
      double mask = 0, sum[4] = {0};
      for (int j = 0; j < taps; j++)
        for (int i = 0; i < taps; i++) {
          const double sx = fx + i, sy = fy + j;
          if (!(sx >= 0 && sx < (double)width && sy >= 0 && sy < (double)height)) continue;
          const double w = (i ? dx : 1 - dx) * (j ? dy : 1 - dy);
          const float *p = src + ((int64_t)sy * width + (int64_t)sx) * channels;
          mask += w;
          for (int c = 0; c < channels; c++) sum[c] += w * (double)p[c];
        }
      for (int c = 0; c < channels; c++) {
        double value = sum[c];
        if (fill != NULL)
          value = taps == 1 ? (mask < 0.5 ? (double)fill[c] : value)
                            : value * mask + (1 - mask) * (double)fill[c];
        dst[c] = (float)value;
      }
    }
}
