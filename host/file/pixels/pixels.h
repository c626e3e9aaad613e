/* Pictures in memory: u8 of rows, columns and channels, transformed by Pillow's arithmetic to the last
 * bit, which models were trained with. Called by the bindings of accel.vision.transforms.
 *   resample.c   resize with filters          warp.c     affine and perspective transforms
 *   filter.c     blur and sharpening          colour.c   tables, blends, colour spaces
 * Functions do not keep memory. A result never overlaps its source. */
#ifndef ACI_PIXELS_H
#define ACI_PIXELS_H
#include "accel/base.h"

typedef struct aci_pixels {
  uint8_t *p; /* row-major, channels last */
  int64_t height, width;
  int channels; /* 1 to 4 */
} aci_pixels;

/* By Pillow's numbers. */
typedef enum aci_filter {
  ACI_NEAREST,
  ACI_LANCZOS,
  ACI_BILINEAR,
  ACI_BICUBIC,
  ACI_BOX,
  ACI_HAMMING
} aci_filter;

/* The part box (left, upper, right, lower; fractions count) to the size of dst. Any filter but
 * ACI_NEAREST. Colours are weighted by alpha if there are 2 or 4 channels. OOM. */
ac_status aci_pixels_resample(const aci_pixels *src, const double box[4], aci_filter f,
                              aci_pixels *dst, ac_err *e);
/* The weights of all columns (out x in) of a resize, for tensors of floats: Pillow's and PyTorch's with
 * antialias. */
ac_status aci_resample_weights(int64_t in, double first, double last, int64_t out, aci_filter f,
                               double *weights, ac_err *e);

/* Pixel (x, y) of dst is the point X = (a0 u + a1 v + a2) / (a6 u + a7 v + 1), Y with a3 a4 a5, of src,
 * where u = x + 0.5, v = y + 0.5. Pillow's arithmetic: nearest, bilinear or bicubic, and dst keeps its
 * contents where the point lies outside. */
void aci_pixels_warp(const aci_pixels *src, const double a[8], aci_filter f, aci_pixels *dst);
/* The same in PyTorch's (grid_sample with zeros outside): nearest or bilinear, of f32 values. fill has a
 * value a channel, or is NULL for zeros. */
void aci_floats_warp(const float *src, int64_t height, int64_t width, int channels,
                     const double a[8], aci_filter f, const float *fill, float *dst,
                     int64_t out_height, int64_t out_width);

/* A 3 x 3 kernel, its sum divided by `scale`. The border stays. */
void aci_pixels_kernel3(const aci_pixels *src, const float kernel[9], float scale, aci_pixels *dst);
/* Three box blurs that make a Gaussian of this sigma. OOM. */
ac_status aci_pixels_blur(const aci_pixels *src, double sigma, aci_pixels *dst, ac_err *e);

/* table: 256 values, or 256 for each channel. */
void aci_pixels_table(const aci_pixels *src, const uint8_t *table, bool each, aci_pixels *dst);
/* a + alpha (b - a), cut to 0..255 */
void aci_pixels_blend(const aci_pixels *a, const aci_pixels *b, float alpha, aci_pixels *dst);
/* counts[channels][256] */
void aci_pixels_histogram(const aci_pixels *src, int64_t *counts);
void aci_pixels_gray(const aci_pixels *src, aci_pixels *dst);  /* RGB to one channel */
void aci_pixels_ycbcr(const aci_pixels *src, aci_pixels *dst); /* RGB to YCbCr */
void aci_pixels_hsv(const aci_pixels *src, aci_pixels *dst);   /* RGB to HSV */
void aci_pixels_rgb(const aci_pixels *src, aci_pixels *dst);   /* HSV to RGB */

static inline uint8_t aci_clip8(int v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v); }

#endif
