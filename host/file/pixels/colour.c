/* Points: tables, blends, histograms, colour spaces, in Pillow's arithmetic. Called through pixels.h. */
#include <math.h>
#include <string.h>

#include "file/pixels/pixels.h"

static int64_t pixels_of(const aci_pixels *x) { return x->height * x->width; }

void aci_pixels_table(const aci_pixels *src, const uint8_t *table, bool each, aci_pixels *dst) {
  const int64_t n = pixels_of(src) * src->channels;
  if (!each || src->channels == 1) {
    for (int64_t i = 0; i < n; i++) dst->p[i] = table[src->p[i]];
    return;
  }
  for (int64_t i = 0, c = 0; i < n; i++, c = c + 1 == src->channels ? 0 : c + 1)
    dst->p[i] = table[256 * c + src->p[i]];
}

void aci_pixels_blend(const aci_pixels *a, const aci_pixels *b, float alpha, aci_pixels *dst) {
  const int64_t n = pixels_of(a) * a->channels;
  for (int64_t i = 0; i < n; i++) {
    const float v = (float)a->p[i] + alpha * (float)((int)b->p[i] - (int)a->p[i]);
    dst->p[i] = v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
  }
}

void aci_pixels_histogram(const aci_pixels *src, int64_t *counts) {
  memset(counts, 0, sizeof *counts * 256 * (size_t)src->channels);
  const uint8_t *p = src->p;
  for (int64_t i = pixels_of(src); i > 0; i--)
    for (int c = 0; c < src->channels; c++) counts[256 * c + *p++]++;
}

void aci_pixels_gray(const aci_pixels *src, aci_pixels *dst) {
  const uint8_t *p = src->p;
  for (int64_t i = 0; i < pixels_of(src); i++, p += 3)
    dst->p[i] = (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000) >> 16);
}

/* JFIF, in 1/64. Each product is cut after 0.5 was added, negative ones as well, as Pillow's tables. */
static int share(double factor, int v) { return (int)(factor * 64 * v + 0.5); }

void aci_pixels_ycbcr(const aci_pixels *src, aci_pixels *dst) {
  const uint8_t *p = src->p;
  uint8_t *q = dst->p;
  for (int64_t i = pixels_of(src); i > 0; i--, p += 3, q += 3) {
    q[0] = (uint8_t)((share(0.299, p[0]) + share(0.587, p[1]) + share(0.114, p[2])) >> 6);
    q[1] =
        (uint8_t)(((share(-0.16874, p[0]) + share(-0.33126, p[1]) + share(0.5, p[2])) >> 6) + 128);
    q[2] =
        (uint8_t)(((share(0.5, p[0]) + share(-0.41869, p[1]) + share(-0.08131, p[2])) >> 6) + 128);
  }
}

static void to_hsv(const uint8_t *p, uint8_t *q) {
  const int r = p[0], g = p[1], b = p[2];
  const int rg = r > g ? r : g, most = rg > b ? rg : b, less = r < g ? r : g;
  const int least = less < b ? less : b;
  q[0] = q[1] = 0;
  q[2] = (uint8_t)most;
  if (most == least) return;
  const float range = (float)(most - least), s = range / (float)most;
  const float rc = (float)(most - r) / range, gc = (float)(most - g) / range;
  const float bc = (float)(most - b) / range;
  float h = r == most   ? bc - gc
            : g == most ? (float)(2.0 + (double)rc - (double)bc)
                        : (float)(4.0 + (double)gc - (double)rc);
  h = (float)fmod((double)h / 6.0 + 1.0, 1.0);
  q[0] = aci_clip8((int)((double)h * 255.0));
  q[1] = aci_clip8((int)((double)s * 255.0));
}

static void from_hsv(const uint8_t *p, uint8_t *q) {
  const int v = p[2];
  q[0] = q[1] = q[2] = (uint8_t)v;
  if (p[1] == 0) return;
  const int i = (int)floor((double)(float)p[0] * 6.0 / 255.0);
  const float f = (float)((double)(float)p[0] * 6.0 / 255.0 - (double)(float)i);
  const float s = (float)((double)(float)p[1] / 255.0);
  const int a = aci_clip8((int)round((double)(float)v * (1.0 - (double)s)));
  const int b = aci_clip8((int)round((double)(float)v * (1.0 - (double)(s * f))));
  const int c = aci_clip8((int)round((double)(float)v * (1.0 - (double)s * (1.0 - (double)f))));
  const int table[6][3] = {{v, c, a}, {b, v, a}, {a, v, c}, {a, b, v}, {c, a, v}, {v, a, b}};
  for (int k = 0; k < 3; k++) q[k] = (uint8_t)table[i % 6][k];
}

void aci_pixels_hsv(const aci_pixels *src, aci_pixels *dst) {
  for (int64_t i = 0; i < pixels_of(src); i++) to_hsv(src->p + 3 * i, dst->p + 3 * i);
}

void aci_pixels_rgb(const aci_pixels *src, aci_pixels *dst) {
  for (int64_t i = 0; i < pixels_of(src); i++) from_hsv(src->p + 3 * i, dst->p + 3 * i);
}
