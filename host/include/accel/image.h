/* accel/image.h - pictures: JPEG, PNG, WebP, GIF, TIFF, BMP and PNM into tensors.
 *
 * The content decides the format, never a name. JPEG, PNG, WebP, GIF and TIFF need the library of
 * their format, which is loaded on first use: UNSUPPORTED names the missing package. Bytes may be
 * hostile: the size is checked against max_pixels before memory is taken, and a picture that is cut
 * or damaged is refused (PARSE), never half read. Of files with several pictures the first is
 * read. */
#ifndef ACCEL_IMAGE_H
#define ACCEL_IMAGE_H
#include "accel/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Channels of the result, by torchvision's ImageReadMode. */
typedef enum ac_image_mode {
  AC_IMAGE_UNCHANGED, /* as stored. Palettes become RGB, or RGBA if they have transparency */
  AC_IMAGE_GRAY,
  AC_IMAGE_GRAY_ALPHA,
  AC_IMAGE_RGB,
  AC_IMAGE_RGB_ALPHA
} ac_image_mode;

typedef struct ac_image_options {
  size_t struct_size;
  const char *name; /* for messages: the file's path */
  ac_image_mode mode;
  bool apply_orientation; /* turn the picture as its EXIF tag asks */
  bool eight_bits;        /* of samples of 16 bits the upper 8 */
  int64_t max_pixels;     /* 0: AC_IMAGE_MAX_PIXELS */
  /* A JPEG may be decoded at the smallest scale of n/8 at which it has at least this size. 0: whole */
  int64_t draft_height, draft_width;
} ac_image_options;
#define AC_IMAGE_MAX_PIXELS INT64_C(178956970) /* Pillow's */

typedef struct ac_image_info {
  const char *format;    /* "jpeg", "png", "webp", "gif", "tiff", "bmp", "pnm" */
  int64_t height, width; /* of the result */
  int channels;          /* of the result */
  ac_dtype dtype;        /* U8, U16 (samples of 16 bits) or F32 (TIFF) */
  int orientation;       /* the EXIF tag, 1 to 8, whether it is applied or not */
} ac_image_info;

typedef struct ac_image ac_image;

/* Reads the header. The bytes must live until the picture is closed. */
AC_API ac_status ac_image_open(const void *bytes, size_t n, const ac_image_options *o,
                               ac_image **out, ac_err *e);
AC_API void ac_image_about(const ac_image *im, ac_image_info *info);
/* Decodes once into dst: contiguous, on a host-readable device, of shape {height, width, channels}
 * and the dtype of ac_image_about. After an error its contents are undefined. */
AC_API ac_status ac_image_decode(ac_image *im, ac_tensor *dst, ac_err *e);
AC_API void ac_image_close(ac_image *im); /* NULL is fine */

/* The bytes of a JPEG (quality 1 to 100) or PNG file (level 0 to 9 of compression) with these pixels:
 * u8, contiguous, [height, width, channels] on a host-readable device, of 1 or 3 channels (PNG: 1 to
 * 4). *out is malloc'ed, the caller frees. INVALID, UNSUPPORTED. */
AC_API ac_status ac_image_encode_jpeg(const ac_tensor *t, int quality, void **out, size_t *n,
                                      ac_err *e);
AC_API ac_status ac_image_encode_png(const ac_tensor *t, int level, void **out, size_t *n,
                                     ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
