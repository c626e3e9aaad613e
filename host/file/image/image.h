/* Pictures inside the library: what image.c and the reader of each format share.
 *   image.c    formats by content, limits, the public calls
 *   rows.c     decoded rows to the result: channels, samples of 8 bits, orientation
 *   exif.c     the orientation in an EXIF block
 *   foreign.c  names for what is no picture
 *   bmp.c pnm.c                            readers of our own
 *   jpeg.c png.c webp.c gif.c tiff.c       one library each, loaded on first use
 *   jpeg_write.c png_write.c               pictures to bytes
 * A reader sets the fields of its picture in open(), and in read() asks aci_image_row for the memory
 * of each row, fills it, and passes it on by aci_image_row_done. */
#ifndef ACI_IMAGE_H
#define ACI_IMAGE_H
#include "accel/image.h"

typedef enum aci_image_kind { /* channels of decoded rows. Up to RGBA the number of them */
                              ACI_IMAGE_GRAY = 1,
                              ACI_IMAGE_GRAY_ALPHA,
                              ACI_IMAGE_RGB,
                              ACI_IMAGE_RGBA,
                              ACI_IMAGE_CMYK /* 0 is no ink */
} aci_image_kind;

typedef struct aci_image_format {
  const char *name;
  bool (*matches)(const uint8_t *p, size_t n);
  /* Sets width, height, kind, dtype, orientation. After an error close is called as well. */
  ac_status (*open)(ac_image *im, ac_err *e);
  ac_status (*read)(ac_image *im, ac_err *e);
  void (*close)(ac_image *im); /* frees state. May be NULL */
} aci_image_format;

struct ac_image {
  const uint8_t *bytes;
  size_t n;
  ac_image_options o;
  char name[256];
  const aci_image_format *format;
  int64_t width, height; /* as decoded, before orientation */
  aci_image_kind kind;
  ac_dtype dtype;
  int orientation;
  void *state; /* the reader's */
  /* of rows.c */
  aci_image_kind out_kind;
  ac_dtype out_dtype;
  uint8_t *dst, *scratch;
  bool direct; /* rows are decoded where they belong */
};

extern const aci_image_format aci_image_jpeg, aci_image_png, aci_image_webp, aci_image_gif,
    aci_image_tiff, aci_image_bmp, aci_image_pnm;

/* PARSE: "<name>: not a valid <format> picture: <message>" */
AC_PRINTF(3, 4)
ac_status aci_image_fault(const ac_image *im, ac_err *e, const char *fmt, ...);
/* Checks a size against the limits. Readers call it before they take memory for the pixels. */
ac_status aci_image_check_size(const ac_image *im, int64_t width, int64_t height, ac_err *e);

/* rows.c */
void aci_image_result(const ac_image *im, aci_image_kind *kind, ac_dtype *dtype, int64_t *height,
                      int64_t *width);
size_t aci_image_row_bytes(const ac_image *im);   /* of a decoded row */
bool aci_image_wants_alpha(const ac_image *im);   /* the result has an alpha channel */
uint8_t *aci_image_row(ac_image *im, int64_t y);  /* memory for row y */
void aci_image_row_done(ac_image *im, int64_t y); /* row y is filled */
/* Memory for all rows at once, for formats whose rows do not come in order: the result's own or one
 * that the caller frees by aci_image_whole_done, which also passes the rows on. NULL: none left. */
uint8_t *aci_image_whole(ac_image *im);
void aci_image_whole_done(ac_image *im, uint8_t *whole, bool filled);
ac_status aci_image_to(ac_image *im, void *dst, ac_err *e); /* calls read */

/* The orientation of an EXIF block, which begins with its byte order. 1 if it names none. */
int aci_exif_orientation(const uint8_t *p, size_t n);

/* What the bytes are, if they are known to be no picture that can be read: "an HTML page". NULL. */
const char *aci_image_foreign(const uint8_t *p, size_t n);

static inline uint32_t aci_le16(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t aci_le32(const uint8_t *p) { return aci_le16(p) | aci_le16(p + 2) << 16; }
static inline uint32_t aci_be16(const uint8_t *p) { return p[1] | (uint32_t)p[0] << 8; }
static inline uint32_t aci_be32(const uint8_t *p) { return aci_be16(p + 2) | aci_be16(p) << 16; }

#endif
