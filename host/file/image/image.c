/* The public calls of accel/image.h. Called by the bindings of accel.vision. */
#include "file/image/image.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/open_read.h"
#include "tensor/tensor_impl.h"

static const aci_image_format *const formats[] = {
    &aci_image_jpeg, &aci_image_png, &aci_image_webp, &aci_image_gif,
    &aci_image_tiff, &aci_image_bmp, &aci_image_pnm,
};

ac_status aci_image_fault(const ac_image *im, ac_err *e, const char *fmt, ...) {
  char text[300];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return AC_FAIL(e, PARSE, "%s: not a valid %s picture: %s", im->name, im->format->name, text);
}

ac_status aci_image_check_size(const ac_image *im, int64_t width, int64_t height, ac_err *e) {
  if (width <= 0 || height <= 0)
    return aci_image_fault(im, e, "its size is %lld x %lld", (long long)width, (long long)height);
  if (width > INT32_MAX || height > INT32_MAX || width > im->o.max_pixels / height)
    return AC_FAIL(e, PARSE,
                   "%s: %lld x %lld pixels are more than max_pixels = %lld; raise it if "
                   "you trust the file",
                   im->name, (long long)width, (long long)height, (long long)im->o.max_pixels);
  return AC_OK;
}

/* Options of any version of the struct. */
static ac_status take_options(ac_image *im, const ac_image_options *o, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  size_t n = o->struct_size;
  if (n > sizeof im->o) n = sizeof im->o;
  memcpy(&im->o, o, n);
  if (im->o.mode > AC_IMAGE_RGB_ALPHA || im->o.max_pixels < 0 || im->o.draft_height < 0 ||
      im->o.draft_width < 0)
    return AC_FAIL(e, INVALID, "invalid options of a picture");
  if (im->o.max_pixels == 0) im->o.max_pixels = AC_IMAGE_MAX_PIXELS;
  snprintf(im->name, sizeof im->name, "%s",
           im->o.name == NULL ? "picture" : aci_path_shown(im->o.name, shown));
  return AC_OK;
}

static ac_status refuse(const ac_image *im, ac_err *e) {
  if (im->n == 0) return AC_FAIL(e, PARSE, "%s: not a picture: it is empty", im->name);
  const char *foreign = aci_image_foreign(im->bytes, im->n);
  if (foreign != NULL) return AC_FAIL(e, PARSE, "%s: not a picture: it is %s", im->name, foreign);
  char begin[3 * 8 + 1] = "";
  for (size_t i = 0; i < 8 && i < im->n; i++) snprintf(begin + 3 * i, 4, " %02x", im->bytes[i]);
  return AC_FAIL(e, PARSE,
                 "%s: not a picture in a known format (JPEG, PNG, WebP, GIF, TIFF, BMP, PNM): it "
                 "begins with%s",
                 im->name, begin);
}

/* A library that is missing fails without the name of the file. */
static ac_status open_format(ac_image *im, ac_err *e) {
  ac_err own;
  const ac_status st = im->format->open(im, &own);
  if (st == AC_UNSUPPORTED) return AC_FAIL(e, UNSUPPORTED, "%s: %s", im->name, own.msg);
  if (st != AC_OK && e != NULL) *e = own;
  return st;
}

ac_status ac_image_open(const void *bytes, size_t n, const ac_image_options *o, ac_image **out,
                        ac_err *e) {
  *out = NULL;
  ac_image *im = calloc(1, sizeof *im);
  if (im == NULL) return AC_FAIL(e, OOM, "out of memory");
  im->bytes = bytes;
  im->n = n;
  im->orientation = 1;
  im->dtype = AC_U8;
  ac_status st = take_options(im, o, e);
  for (size_t i = 0; st == AC_OK && im->format == NULL && i < sizeof formats / sizeof *formats; i++)
    if (formats[i]->matches(bytes, n)) im->format = formats[i];
  if (st == AC_OK && im->format == NULL) st = refuse(im, e);
  if (st == AC_OK) st = open_format(im, e);
  if (st == AC_OK) st = aci_image_check_size(im, im->width, im->height, e);
  if (st == AC_OK && im->o.eight_bits && im->dtype == AC_F32)
    st = AC_FAIL(e, UNSUPPORTED, "%s: its samples are floats; leave out bits = 8", im->name);
  if (st != AC_OK) {
    ac_image_close(im);
    return st;
  }
  *out = im;
  return AC_OK;
}

void ac_image_about(const ac_image *im, ac_image_info *info) {
  aci_image_kind kind;
  aci_image_result(im, &kind, &info->dtype, &info->height, &info->width);
  info->format = im->format->name;
  info->channels = kind == ACI_IMAGE_CMYK ? 4 : (int)kind;
  info->orientation = im->orientation;
}

ac_status ac_image_decode(ac_image *im, ac_tensor *dst, ac_err *e) {
  ac_image_info info;
  ac_image_about(im, &info);
  if (dst->ndim != 3 || dst->dtype != info.dtype || dst->shape[0] != info.height ||
      dst->shape[1] != info.width || dst->shape[2] != info.channels || !aci_is_contiguous(dst))
    return AC_FAIL(e, SHAPE, "%s: the tensor is not contiguous of the picture's shape and dtype",
                   im->name);
  return aci_image_to(im, ac_tensor_data(dst), e);
}

void ac_image_close(ac_image *im) {
  if (im == NULL) return;
  if (im->format != NULL && im->format->close != NULL) im->format->close(im);
  free(im->scratch);
  free(im);
}
