/* Resize by filters, in the fixed-point arithmetic of Pillow: weights of 22 bits, columns first, then
 * rows. Called through pixels.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file/pixels/pixels.h"

enum { BITS = 32 - 8 - 2 };

typedef struct taps {
  int64_t n;      /* the most weights of one output */
  int64_t *first; /* of an output: its first input */
  int64_t *count;
  double *w;  /* n for each output */
  int32_t *k; /* the same in fixed point */
} taps;

static double sinc(double x) { return x == 0 ? 1.0 : sin(x * M_PI) / (x * M_PI); }

static double weight(aci_filter f, double x) {
  const double a = -0.5, d = fabs(x);
  switch (f) {
    case ACI_BOX: return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    case ACI_BILINEAR: return d < 1.0 ? 1.0 - d : 0.0;
    case ACI_HAMMING:
      return d == 0.0   ? 1.0
             : d >= 1.0 ? 0.0
                        : sin(d * M_PI) / (d * M_PI) * (0.54 + 0.46 * cos(d * M_PI));
    case ACI_BICUBIC:
      if (d < 1.0) return ((a + 2.0) * d - (a + 3.0)) * d * d + 1;
      return d < 2.0 ? (((d - 5) * d + 8) * d - 4) * a : 0.0;
    case ACI_LANCZOS: return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
    case ACI_NEAREST: break;
  }
  return 0;
}

static double support_of(aci_filter f) {
  return f == ACI_BOX ? 0.5 : f == ACI_BICUBIC ? 2.0 : f == ACI_LANCZOS ? 3.0 : 1.0;
}

static void free_taps(taps *t) {
  free(t->first);
  free(t->count);
  free(t->w);
  free(t->k);
}

static ac_status make_taps(taps *t, int64_t in, double from, double to, int64_t out, aci_filter f,
                           ac_err *e) {
  const double scale = (to - from) / (double)out, stretch = scale < 1.0 ? 1.0 : scale;
  const double support = support_of(f) * stretch, narrow = 1.0 / stretch;
  *t = (taps){.n = (int64_t)ceil(support) * 2 + 1};
  t->first = malloc(sizeof *t->first * (size_t)out);
  t->count = malloc(sizeof *t->count * (size_t)out);
  t->w = calloc((size_t)out * (size_t)t->n, sizeof *t->w);
  t->k = calloc((size_t)out * (size_t)t->n, sizeof *t->k);
  if (t->first == NULL || t->count == NULL || t->w == NULL || t->k == NULL) {
    free_taps(t);
    return AC_FAIL(e, OOM, "out of memory");
  }
  for (int64_t i = 0; i < out; i++) {
    const double center = from + ((double)i + 0.5) * scale;
    double *w = t->w + i * t->n, sum = 0;
    int64_t low = (int64_t)(center - support + 0.5), high = (int64_t)(center + support + 0.5);
    if (low < 0) low = 0;
    if (high > in) high = in;
    const int64_t n = high - low;
    for (int64_t k = 0; k < n; k++) {
      w[k] = weight(f, ((double)(k + low) - center + 0.5) * narrow);
      sum += w[k];
    }
    for (int64_t k = 0; k < n; k++) {
      if (sum != 0.0) w[k] /= sum;
      t->k[i * t->n + k] = (int32_t)(w[k] * (1 << BITS) + (w[k] < 0 ? -0.5 : 0.5));
    }
    t->first[i] = low;
    t->count[i] = n;
  }
  return AC_OK;
}

ac_status aci_resample_weights(int64_t in, double first, double last, int64_t out, aci_filter f,
                               double *weights, ac_err *e) {
  taps t;
  AC_TRY(make_taps(&t, in, first, last, out, f, e));
  memset(weights, 0, sizeof *weights * (size_t)(in * out));
  for (int64_t i = 0; i < out; i++)
    memcpy(weights + i * in + t.first[i], t.w + i * t.n, sizeof *weights * (size_t)t.count[i]);
  free_taps(&t);
  return AC_OK;
}

/* One row: an output pixel is a sum over input pixels. */
static void columns(const uint8_t *in, uint8_t *out, int64_t width, int channels, const taps *t) {
  for (int64_t x = 0; x < width; x++) {
    const int32_t *k = t->k + x * t->n;
    const uint8_t *p = in + t->first[x] * channels;
    const int64_t n = t->count[x];
    if (channels == 3) {
      int32_t r = 1 << (BITS - 1), g = r, b = r;
      for (int64_t i = 0; i < n; i++, p += 3) r += p[0] * k[i], g += p[1] * k[i], b += p[2] * k[i];
      out[3 * x] = aci_clip8(r >> BITS);
      out[3 * x + 1] = aci_clip8(g >> BITS);
      out[3 * x + 2] = aci_clip8(b >> BITS);
      continue;
    }
    for (int c = 0; c < channels; c++) {
      int32_t sum = 1 << (BITS - 1);
      for (int64_t i = 0; i < n; i++) sum += p[i * channels + c] * k[i];
      out[x * channels + c] = aci_clip8(sum >> BITS);
    }
  }
}

/* One output row: a sum over rows, of all bytes alike. */
static void rows(const uint8_t *in, size_t stride, uint8_t *out, size_t bytes, const int32_t *k,
                 int64_t n, int32_t *sum) {
  for (size_t i = 0; i < bytes; i++) sum[i] = 1 << (BITS - 1);
  for (int64_t j = 0; j < n; j++, in += stride) {
    const int32_t w = k[j];
    for (size_t i = 0; i < bytes; i++) sum[i] += in[i] * w;
  }
  for (size_t i = 0; i < bytes; i++) out[i] = aci_clip8(sum[i] >> BITS);
}

static uint8_t scaled(unsigned a, unsigned b) { /* a b / 255, rounded */
  const unsigned t = a * b + 128;
  return (uint8_t)(((t >> 8) + t) >> 8);
}

/* Colours times alpha, and back. Alpha is the last channel. */
static void multiply(const uint8_t *in, uint8_t *out, int64_t n, int channels) {
  const int last = channels - 1;
  for (int64_t i = 0; i < n; i++, in += channels, out += channels) {
    for (int c = 0; c < last; c++) out[c] = scaled(in[c], in[last]);
    out[last] = in[last];
  }
}

static void divide(uint8_t *p, int64_t n, int channels) {
  const int last = channels - 1;
  for (int64_t i = 0; i < n; i++, p += channels)
    for (int c = 0; c < last && p[last] != 0 && p[last] != 255; c++)
      p[c] = aci_clip8(255 * p[c] / p[last]);
}

/* Columns of the rows that the vertical pass reads into `half`, then rows into dst. */
static ac_status two_passes(const aci_pixels *src, const double box[4], aci_filter f,
                            aci_pixels *dst, ac_err *e) {
  taps h, v;
  AC_TRY(make_taps(&h, src->width, box[0], box[2], dst->width, f, e));
  ac_status st = make_taps(&v, src->height, box[1], box[3], dst->height, f, e);
  if (st != AC_OK) {
    free_taps(&h);
    return st;
  }
  const int channels = src->channels;
  const bool across = dst->width != src->width || box[0] != 0 || box[2] != (double)dst->width;
  const int64_t first = v.first[0];
  const int64_t n = v.first[dst->height - 1] + v.count[dst->height - 1] - first;
  const size_t bytes = (size_t)dst->width * (size_t)channels;
  uint8_t *half = across ? malloc(bytes * (size_t)n) : NULL;
  int32_t *sum = malloc(sizeof *sum * bytes);
  if (sum == NULL || (across && half == NULL)) st = AC_FAIL(e, OOM, "out of memory");
  for (int64_t y = 0; st == AC_OK && across && y < n; y++)
    columns(src->p + (size_t)(first + y) * (size_t)src->width * (size_t)channels,
            half + (size_t)y * bytes, dst->width, channels, &h);
  const uint8_t *from = across ? half : src->p + (size_t)first * bytes;
  for (int64_t y = 0; st == AC_OK && y < dst->height; y++)
    rows(from + (size_t)(v.first[y] - first) * bytes, bytes, dst->p + (size_t)y * bytes, bytes,
         v.k + y * v.n, v.count[y], sum);
  free(half);
  free(sum);
  free_taps(&h);
  free_taps(&v);
  return st;
}

ac_status aci_pixels_resample(const aci_pixels *src, const double box[4], aci_filter f,
                              aci_pixels *dst, ac_err *e) {
  const int64_t n = src->height * src->width;
  const size_t bytes = (size_t)n * (size_t)src->channels;
  if (dst->height == src->height && dst->width == src->width && box[0] == 0 && box[1] == 0 &&
      box[2] == (double)src->width && box[3] == (double)src->height) {
    memcpy(dst->p, src->p, bytes);
    return AC_OK;
  }
  if (src->channels % 2 != 0) return two_passes(src, box, f, dst, e);
  aci_pixels weighted = *src;
  weighted.p = malloc(bytes);
  if (weighted.p == NULL) return AC_FAIL(e, OOM, "out of memory");
  multiply(src->p, weighted.p, n, src->channels);
  const ac_status st = two_passes(&weighted, box, f, dst, e);
  if (st == AC_OK) divide(dst->p, dst->height * dst->width, dst->channels);
  free(weighted.p);
  return st;
}
