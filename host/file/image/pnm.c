/* PNM (netpbm's formats P1 to P6): bits, grays and colours, as text or bytes. Values are scaled to
 * 255, or to 65535 if the largest is above 255. Called by image.c. */
#include <stdlib.h>
#include <string.h>

#include "file/image/image.h"

typedef struct pnm {
  size_t at; /* of the samples */
  uint32_t max;
  int type; /* 1 to 6 */
} pnm;

static bool matches(const uint8_t *p, size_t n) {
  return n >= 3 && p[0] == 'P' && p[1] >= '1' && p[1] <= '6' &&
         (p[2] == ' ' || p[2] == '\n' || p[2] == '\r' || p[2] == '\t' || p[2] == '#');
}

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* White space and comments to the end of their line. */
static void skip_space(const ac_image *im, size_t *at) {
  while (*at < im->n && (is_space(im->bytes[*at]) || im->bytes[*at] == '#'))
    if (im->bytes[*at] == '#')
      while (*at < im->n && im->bytes[*at] != '\n' && im->bytes[*at] != '\r') ++*at;
    else ++*at;
}

/* The number at *at, after white space. digits: the most it may have. */
static ac_status number(const ac_image *im, size_t *at, int digits, const char *what, uint32_t *out,
                        ac_err *e) {
  skip_space(im, at);
  uint32_t v = 0;
  int n = 0;
  while (n < digits && *at < im->n && im->bytes[*at] >= '0' && im->bytes[*at] <= '9') {
    v = 10 * v + (im->bytes[*at] - '0');
    ++*at, ++n;
  }
  *out = v;
  if (n > 0) return AC_OK;
  if (*at >= im->n) return aci_image_fault(im, e, "it ends at %s", what);
  return aci_image_fault(im, e, "byte %zu: expected %s, found '%c'", *at, what,
                         im->bytes[*at] >= 32 && im->bytes[*at] < 127 ? im->bytes[*at] : '?');
}

static ac_status open_pnm(ac_image *im, ac_err *e) {
  pnm *f = im->state = calloc(1, sizeof *f);
  if (f == NULL) return AC_FAIL(e, OOM, "out of memory");
  f->type = im->bytes[1] - '0';
  f->max = 1;
  size_t at = 2;
  uint32_t width, height;
  AC_TRY(number(im, &at, 9, "its width", &width, e));
  AC_TRY(number(im, &at, 9, "its height", &height, e));
  if (f->type % 3 != 1) AC_TRY(number(im, &at, 9, "its largest value", &f->max, e));
  if (f->max < 1 || f->max > 65535)
    return aci_image_fault(im, e, "its largest value is %u; expected 1 to 65535", f->max);
  if (at >= im->n || !is_space(im->bytes[at]))
    return aci_image_fault(im, e, "no white space after its header");
  f->at = at + 1;
  im->width = width;
  im->height = height;
  im->kind = f->type % 3 == 0 ? ACI_IMAGE_RGB : ACI_IMAGE_GRAY;
  im->dtype = f->max > 255 ? AC_U16 : AC_U8;
  AC_TRY(aci_image_check_size(im, width, height, e));
  /* samples as text take a byte at least */
  const uint64_t row =
      f->type == 4 ? ((uint64_t)width + 7) / 8
                   : (uint64_t)width * (unsigned)im->kind * (f->type > 3 && f->max > 255 ? 2 : 1);
  if (row > (im->n - f->at) / height)
    return aci_image_fault(im, e, "it has %zu bytes of samples, %u x %u pixels need %llu",
                           im->n - f->at, width, height, (unsigned long long)(row * height));
  return AC_OK;
}

static void store(const ac_image *im, const pnm *f, uint8_t *row, int64_t i, uint32_t v) {
  if (im->dtype == AC_U16) {
    const uint16_t wide = (uint16_t)((v * 65535u + f->max / 2) / f->max);
    memcpy(row + 2 * i, &wide, 2);
  } else {
    row[i] = (uint8_t)((v * 255u + f->max / 2) / f->max);
  }
}

static ac_status read_pnm(ac_image *im, ac_err *e) {
  const pnm *f = im->state;
  size_t at = f->at;
  const int64_t n = im->width * (int64_t)im->kind;
  const bool bits = f->type % 3 == 1;
  for (int64_t y = 0; y < im->height; y++) {
    uint8_t *row = aci_image_row(im, y);
    for (int64_t i = 0; i < n; i++) {
      uint32_t v;
      if (f->type <= 3) AC_TRY(number(im, &at, bits ? 1 : 9, "a sample", &v, e));
      else if (f->type == 4) v = im->bytes[at + (size_t)i / 8] >> (7 - i % 8) & 1;
      else if (f->max > 255) v = aci_be16(im->bytes + at + 2 * i);
      else v = im->bytes[at + (size_t)i];
      if (v > f->max)
        return aci_image_fault(im, e, "a sample is %u, above the largest value %u", v, f->max);
      store(im, f, row, i, bits ? 1 - v : v);
    }
    if (f->type == 4) at += ((size_t)n + 7) / 8;
    else if (f->type > 4) at += (size_t)n * (f->max > 255 ? 2 : 1);
    aci_image_row_done(im, y);
  }
  return AC_OK;
}

static void close_pnm(ac_image *im) { free(im->state); }

const aci_image_format aci_image_pnm = {"pnm", matches, open_pnm, read_pnm, close_pnm};
