/* BMP (Windows and OS/2): palettes of 1, 4 and 8 bits, run lengths, 16, 24 and 32 bits, channel masks.
 * The fourth byte of 32 bits is alpha only where a mask names it. Called by image.c. */
#include <stdlib.h>
#include <string.h>

#include "file/image/image.h"

enum { CORE = 12, INFO = 40 }; /* bytes of headers */
enum { RGB, RLE8, RLE4, BITFIELDS, ALPHA_BITFIELDS = 6 };

typedef struct bmp {
  uint32_t offset, bits, compression;
  uint32_t mask[4]; /* red, green, blue, alpha */
  bool top_down;
  uint32_t n_colours;
  uint8_t palette[256][3];
} bmp;

static bool matches(const uint8_t *p, size_t n) { return n >= 2 && p[0] == 'B' && p[1] == 'M'; }

static ac_status read_palette(ac_image *im, bmp *f, size_t at, size_t bytes, ac_err *e) {
  const size_t have = f->offset > at ? (f->offset - at) / bytes : 0; /* up to the pixels */
  if (f->n_colours == 0 || f->n_colours > 1u << f->bits) f->n_colours = 1u << f->bits;
  if (f->n_colours > have) f->n_colours = (uint32_t)have;
  if (f->n_colours == 0) return aci_image_fault(im, e, "it has no palette");
  for (uint32_t i = 0; i < f->n_colours; i++)
    for (int c = 0; c < 3; c++) f->palette[i][c] = im->bytes[at + i * bytes + 2 - (size_t)c];
  return AC_OK;
}

static ac_status check_kind(ac_image *im, bmp *f, ac_err *e) {
  const uint32_t b = f->bits, c = f->compression;
  const bool masks = c == BITFIELDS || c == ALPHA_BITFIELDS;
  if (b != 1 && b != 4 && b != 8 && b != 16 && b != 24 && b != 32)
    return aci_image_fault(im, e, "%u bits a pixel; expected 1, 4, 8, 16, 24 or 32", b);
  if (!(c == RGB || (c == RLE8 && b == 8) || (c == RLE4 && b == 4) ||
        (masks && (b == 16 || b == 32))))
    return aci_image_fault(im, e, "compression %u with %u bits a pixel is not supported", c, b);
  if (f->top_down && (c == RLE8 || c == RLE4))
    return aci_image_fault(im, e, "run lengths in a picture from top to bottom");
  if (c == RGB && b == 16) f->mask[0] = 0x7C00, f->mask[1] = 0x3E0, f->mask[2] = 0x1F;
  if (c == RGB && b == 32) f->mask[0] = 0xFF0000, f->mask[1] = 0xFF00, f->mask[2] = 0xFF;
  if (c == RGB) f->mask[3] = 0;
  for (int i = 0; i < 3 && masks; i++)
    if (f->mask[i] == 0) return aci_image_fault(im, e, "the mask of a channel is 0");
  im->kind = f->mask[3] != 0 ? ACI_IMAGE_RGBA : ACI_IMAGE_RGB;
  return AC_OK;
}

/* Fields of the header at byte 14. */
static ac_status read_header(ac_image *im, bmp *f, uint32_t header, ac_err *e) {
  const uint8_t *p = im->bytes + 14;
  if (header == CORE) {
    im->width = aci_le16(p + 4);
    im->height = aci_le16(p + 6);
    f->bits = aci_le16(p + 10);
  } else {
    im->width = (int32_t)aci_le32(p + 4);
    const int64_t height = (int32_t)aci_le32(p + 8);
    f->top_down = height < 0;
    im->height = height < 0 ? -height : height;
    f->bits = aci_le16(p + 14);
    f->compression = aci_le32(p + 16);
    f->n_colours = aci_le32(p + 32);
    const bool masks = f->compression == BITFIELDS || f->compression == ALPHA_BITFIELDS;
    const int n = header >= 56 || f->compression == ALPHA_BITFIELDS ? 4 : 3;
    if (masks && im->n < 14 + INFO + 16) return aci_image_fault(im, e, "it ends in its header");
    for (int i = 0; masks && i < n; i++) f->mask[i] = aci_le32(p + INFO + 4 * i);
  }
  AC_TRY(aci_image_check_size(im, im->width, im->height, e));
  return check_kind(im, f, e);
}

/* Whether the colours are the gray levels in order (of one bit: black and white), so that the picture
 * is a gray one. As Pillow has it. */
static bool is_gray(const bmp *f) {
  for (uint32_t i = 0; i < f->n_colours; i++) {
    const uint8_t want = (uint8_t)(f->bits == 1 ? 255 * i : i), *p = f->palette[i];
    if (p[0] != want || p[1] != want || p[2] != want) return false;
  }
  return f->bits == 8 || (f->bits == 1 && f->n_colours == 2);
}

static ac_status open_bmp(ac_image *im, ac_err *e) {
  bmp *f = im->state = calloc(1, sizeof *f);
  if (f == NULL) return AC_FAIL(e, OOM, "out of memory");
  if (im->n < 18) return aci_image_fault(im, e, "it ends in its header");
  f->offset = aci_le32(im->bytes + 10);
  const uint32_t header = aci_le32(im->bytes + 14);
  if (header != CORE && (header < INFO || header > 4096))
    return aci_image_fault(im, e, "a header of %u bytes", header);
  if (im->n < 14 + (size_t)header) return aci_image_fault(im, e, "it ends in its header");
  AC_TRY(read_header(im, f, header, e));
  if (f->offset < 14 + header || f->offset >= im->n)
    return aci_image_fault(im, e, "the pixels begin at byte %u of %zu", f->offset, im->n);
  if (f->bits <= 8) AC_TRY(read_palette(im, f, 14 + header, header == CORE ? 3 : 4, e));
  if (f->bits <= 8 && is_gray(f)) im->kind = ACI_IMAGE_GRAY;
  const uint64_t row = ((uint64_t)im->width * f->bits + 31) / 32 * 4;
  if (f->compression != RLE8 && f->compression != RLE4 &&
      row > (im->n - f->offset) / (uint64_t)im->height)
    return aci_image_fault(im, e, "it has %zu bytes of pixels, %lld x %lld of %u bits need %llu",
                           im->n - f->offset, (long long)im->width, (long long)im->height, f->bits,
                           (unsigned long long)(row * (uint64_t)im->height));
  return AC_OK;
}

/* ---- pixels ---- */

static ac_status put_index(const ac_image *im, const bmp *f, uint8_t *row, int64_t x,
                           uint32_t index, ac_err *e) {
  if (index >= f->n_colours)
    return aci_image_fault(im, e, "colour %u of a palette of %u", index, f->n_colours);
  memcpy(row + (int64_t)im->kind * x, f->palette[index], (size_t)im->kind);
  return AC_OK;
}

/* The value of a channel, scaled to 8 bits. */
static uint8_t channel(uint32_t pixel, uint32_t mask) {
  const int shift = __builtin_ctz(mask);
  const uint64_t most = mask >> shift, v = (pixel & mask) >> shift;
  return (uint8_t)((v * 255 + most / 2) / most);
}

static ac_status read_row(ac_image *im, const bmp *f, const uint8_t *p, uint8_t *row, ac_err *e) {
  for (int64_t x = 0; x < im->width; x++) {
    if (f->bits <= 8) {
      const size_t bit = (size_t)x * f->bits;
      const uint32_t v = p[bit / 8] >> (8 - f->bits - bit % 8) & ((1u << f->bits) - 1);
      AC_TRY(put_index(im, f, row, x, v, e));
    } else if (f->bits == 24) {
      for (int c = 0; c < 3; c++) row[3 * x + c] = p[3 * x + 2 - c];
    } else {
      const uint32_t v = f->bits == 16 ? aci_le16(p + 2 * x) : aci_le32(p + 4 * x);
      const int n = (int)im->kind;
      for (int c = 0; c < n; c++) row[n * x + c] = channel(v, f->mask[c]);
    }
  }
  return AC_OK;
}

/* Run lengths, from the bottom row up: n and a colour, or 0 and 0 end of row, 1 end of picture, 2
 * move, n > 2 pixels as they are. Pixels that are not named have colour 0. */
static ac_status read_runs(ac_image *im, const bmp *f, uint8_t *whole, ac_err *e) {
  const int64_t w = im->width, h = im->height;
  const size_t stride = aci_image_row_bytes(im);
  for (int64_t i = 0; i < w * h; i++)
    memcpy(whole + (int64_t)im->kind * i, f->palette[0], (size_t)im->kind);
  const uint8_t *p = im->bytes + f->offset, *end = im->bytes + im->n;
  int64_t x = 0, y = 0;
  while (end - p >= 2) {
    const uint32_t n = p[0], v = p[1];
    p += 2;
    if (n == 0 && v == 0) {
      x = 0, y++;
    } else if (n == 0 && v == 1) {
      return AC_OK;
    } else if (n == 0 && v == 2) {
      if (end - p < 2) break;
      x += p[0], y += p[1], p += 2;
      if (x > w || y >= h) return aci_image_fault(im, e, "a move leaves the picture");
    } else {
      const uint32_t count = n == 0 ? v : n;
      const int64_t bytes = n != 0 ? 0 : f->bits == 8 ? count : (count + 1) / 2;
      if (end - p < bytes) break;
      if (y >= h || x + count > w) return aci_image_fault(im, e, "pixels beyond the end of a row");
      uint8_t *row = whole + (size_t)(h - 1 - y) * stride;
      for (uint32_t i = 0; i < count; i++, x++) {
        const uint32_t byte = n != 0 ? v : f->bits == 8 ? p[i] : p[i / 2];
        AC_TRY(put_index(im, f, row, x, f->bits == 8 ? byte : i % 2 ? byte & 15 : byte >> 4, e));
      }
      p += (bytes + 1) / 2 * 2;
      if (p > end) break;
    }
  }
  return aci_image_fault(im, e, "it ends before the picture does");
}

static ac_status read_bmp(ac_image *im, ac_err *e) {
  const bmp *f = im->state;
  if (f->compression == RLE8 || f->compression == RLE4) {
    uint8_t *whole = aci_image_whole(im);
    if (whole == NULL) return AC_FAIL(e, OOM, "out of memory");
    const ac_status st = read_runs(im, f, whole, e);
    aci_image_whole_done(im, whole, st == AC_OK);
    return st;
  }
  const size_t stride = ((size_t)im->width * f->bits + 31) / 32 * 4;
  for (int64_t i = 0; i < im->height; i++) {
    const int64_t y = f->top_down ? i : im->height - 1 - i;
    uint8_t *row = aci_image_row(im, y);
    AC_TRY(read_row(im, f, im->bytes + f->offset + (size_t)i * stride, row, e));
    aci_image_row_done(im, y);
  }
  return AC_OK;
}

static void close_bmp(ac_image *im) { free(im->state); }

const aci_image_format aci_image_bmp = {"bmp", matches, open_bmp, read_bmp, close_bmp};
