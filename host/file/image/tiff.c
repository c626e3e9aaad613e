/* TIFF and BigTIFF by libtiff: the first directory. Called by image.c.
 *
 * Samples are given as stored: gray and colours of 8 and 16 bits, f32, CMYK, bits and palettes. For
 * the rest (YCbCr, Lab, ...) libtiff makes RGB. Extra channels that are not alpha are left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "file/image/image.h"

static bool matches(const uint8_t *p, size_t n) {
  return n >= 4 && (memcmp(p, "II*\0", 4) == 0 || memcmp(p, "MM\0*", 4) == 0 ||
                    memcmp(p, "II+\0", 4) == 0 || memcmp(p, "MM\0+", 4) == 0);
}

#ifdef ACCEL_HAVE_TIFF
#include "file/image/tiff.h"

enum { LARGEST_ALLOCATION = 1 << 30 };

static int on_error(TIFF *file, void *user, const char *module, const char *fmt, va_list ap) {
  aci_tiff *t = user;
  (void)file;
  (void)module;
  if (t->message[0] == 0) vsnprintf(t->message, sizeof t->message, fmt, ap);
  return 1;
}

static int on_warning(TIFF *file, void *user, const char *module, const char *fmt, va_list ap) {
  (void)file;
  (void)user;
  (void)module;
  (void)fmt;
  (void)ap;
  return 1;
}

static tmsize_t on_read(thandle_t user, void *to, tmsize_t n) {
  aci_tiff *t = user;
  const uint64_t left = t->at < t->im->n ? t->im->n - t->at : 0;
  const size_t k = n < 0 ? 0 : (uint64_t)n > left ? (size_t)left : (size_t)n;
  memcpy(to, t->im->bytes + (k > 0 ? t->at : 0), k);
  t->at += k;
  return (tmsize_t)k;
}

static tmsize_t on_write(thandle_t user, void *from, tmsize_t n) {
  (void)user;
  (void)from;
  (void)n;
  return -1;
}

static toff_t on_seek(thandle_t user, toff_t to, int whence) {
  aci_tiff *t = user;
  t->at = whence == SEEK_CUR ? t->at + to : whence == SEEK_END ? t->im->n + to : to;
  return t->at;
}

static int on_close(thandle_t user) {
  (void)user;
  return 0;
}

static toff_t on_size(thandle_t user) { return ((aci_tiff *)user)->im->n; }

static int on_map(thandle_t user, void **base, toff_t *n) {
  const aci_tiff *t = user;
  *base = (void *)(uintptr_t)t->im->bytes;
  *n = t->im->n;
  return 1;
}

static void on_unmap(thandle_t user, void *base, toff_t n) {
  (void)user;
  (void)base;
  (void)n;
}

ac_status aci_tiff_fault(const ac_image *im, ac_err *e) {
  const aci_tiff *t = im->state;
  return aci_image_fault(im, e, "%s", t->message[0] != 0 ? t->message : "it is cut or damaged");
}

static ac_status open_file(const ac_image *im, aci_tiff *t, ac_err *e) {
  TIFFOpenOptions *o = t->lib.TIFFOpenOptionsAlloc();
  if (o == NULL) return AC_FAIL(e, OOM, "out of memory");
  t->lib.TIFFOpenOptionsSetMaxSingleMemAlloc(o, LARGEST_ALLOCATION);
  t->lib.TIFFOpenOptionsSetErrorHandlerExtR(o, on_error, t);
  t->lib.TIFFOpenOptionsSetWarningHandlerExtR(o, on_warning, t);
  t->file = t->lib.TIFFClientOpenExt("picture", "r", t, on_read, on_write, on_seek, on_close,
                                     on_size, on_map, on_unmap, o);
  t->lib.TIFFOpenOptionsFree(o);
  return t->file != NULL ? AC_OK : aci_tiff_fault(im, e);
}

/* Whether rows are read as stored, and their kind. */
static bool choose_kind(ac_image *im, aci_tiff *t) {
  uint16_t *extra = NULL;
  t->lib.TIFFGetFieldDefaulted(t->file, TIFFTAG_EXTRASAMPLES, &t->n_extra, &extra);
  if (t->n_extra > t->samples) return false;
  const int colours = t->samples - t->n_extra;
  const bool alpha = t->n_extra > 0 && extra[0] != EXTRASAMPLE_UNSPECIFIED;
  const bool whole = t->format == SAMPLEFORMAT_UINT && (t->bits == 8 || t->bits == 16);
  const bool real = t->format == SAMPLEFORMAT_IEEEFP && t->bits == 32;
  const bool bits =
      t->format == SAMPLEFORMAT_UINT && (t->bits == 1 || t->bits == 2 || t->bits == 4);
  im->dtype = real ? AC_F32 : t->bits == 16 ? AC_U16 : AC_U8;
  switch (t->photometric) {
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_MINISWHITE:
      im->kind = alpha ? ACI_IMAGE_GRAY_ALPHA : ACI_IMAGE_GRAY;
      return colours == 1 && (whole || real || (bits && t->samples == 1));
    case PHOTOMETRIC_RGB:
      im->kind = alpha ? ACI_IMAGE_RGBA : ACI_IMAGE_RGB;
      return colours == 3 && (whole || real);
    case PHOTOMETRIC_YCBCR:
      im->kind = ACI_IMAGE_RGB;
      return t->compression == COMPRESSION_JPEG && t->samples == 3 && t->bits == 8 &&
             t->lib.TIFFSetField(t->file, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB) == 1;
    case PHOTOMETRIC_PALETTE:
      im->kind = ACI_IMAGE_RGB;
      return t->samples == 1 && t->bits <= 8 && (bits || whole) &&
             t->lib.TIFFGetField(t->file, TIFFTAG_COLORMAP, &t->palette[0], &t->palette[1],
                                 &t->palette[2]) == 1;
    case PHOTOMETRIC_SEPARATED:
      im->kind = ACI_IMAGE_CMYK;
      return colours == 4 && whole && t->bits == 8;
    default: return false;
  }
}

static ac_status open_tiff(ac_image *im, ac_err *e) {
  aci_tiff *t = im->state = calloc(1, sizeof *t);
  if (t == NULL) return AC_FAIL(e, OOM, "out of memory");
#define X(name) {#name, &t->lib.name},
  const aci_symbol symbols[] = {ACI_TIFF_FUNCTIONS(X)};
#undef X
  AC_TRY(aci_library_open("tiff", symbols, sizeof symbols / sizeof *symbols, e));
  t->im = im;
  AC_TRY(open_file(im, t, e));
  uint32_t width = 0, height = 0;
  uint16_t orientation = 1;
  if (!t->lib.TIFFGetField(t->file, TIFFTAG_IMAGEWIDTH, &width) ||
      !t->lib.TIFFGetField(t->file, TIFFTAG_IMAGELENGTH, &height))
    return aci_image_fault(im, e, "it has no size");
  im->width = width;
  im->height = height;
  AC_TRY(aci_image_check_size(im, width, height, e));
  t->lib.TIFFGetFieldDefaulted(t->file, TIFFTAG_BITSPERSAMPLE, &t->bits);
  t->lib.TIFFGetFieldDefaulted(t->file, TIFFTAG_SAMPLESPERPIXEL, &t->samples);
  t->lib.TIFFGetFieldDefaulted(t->file, TIFFTAG_SAMPLEFORMAT, &t->format);
  t->lib.TIFFGetFieldDefaulted(t->file, TIFFTAG_PLANARCONFIG, &t->planes);
  t->lib.TIFFGetFieldDefaulted(t->file, TIFFTAG_COMPRESSION, &t->compression);
  t->lib.TIFFGetFieldDefaulted(t->file, TIFFTAG_ORIENTATION, &orientation);
  if (!t->lib.TIFFGetField(t->file, TIFFTAG_PHOTOMETRIC, &t->photometric))
    return aci_image_fault(im, e, "it has no photometric interpretation");
  im->orientation = orientation >= 1 && orientation <= 8 ? orientation : 1;
  t->by_rgba = !choose_kind(im, t);
  if (t->by_rgba) {
    im->dtype = AC_U8;
    im->kind = t->n_extra > 0 ? ACI_IMAGE_RGBA : ACI_IMAGE_RGB;
    if (t->format != SAMPLEFORMAT_UINT || t->bits > 16)
      return aci_image_fault(im, e,
                             "%u samples of %u bits, format %u, photometric %u are not "
                             "supported",
                             t->samples, t->bits, t->format, t->photometric);
  }
  return AC_OK;
}

static void close_tiff(ac_image *im) {
  aci_tiff *t = im->state;
  if (t != NULL && t->file != NULL) t->lib.TIFFClose(t->file);
  free(t);
}

const aci_image_format aci_image_tiff = {"tiff", matches, open_tiff, aci_tiff_read, close_tiff};
#else
static ac_status open_tiff(ac_image *im, ac_err *e) {
  (void)im;
  return aci_library_absent("tiff", e);
}

const aci_image_format aci_image_tiff = {"tiff", matches, open_tiff, NULL, NULL};
#endif
