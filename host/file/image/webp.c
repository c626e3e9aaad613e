/* WebP by libwebp; of an animation the first frame, by libwebpdemux. Called by image.c. */
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "file/image/image.h"

static bool matches(const uint8_t *p, size_t n) {
  return n >= 12 && memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0;
}

#ifdef ACCEL_HAVE_WEBP
#include <webp/decode.h>
#include <webp/demux.h>

typedef struct webp {
  VP8StatusCode (*features)(const uint8_t *, size_t, WebPBitstreamFeatures *, int);
  uint8_t *(*rgb)(const uint8_t *, size_t, uint8_t *, size_t, int);
  uint8_t *(*rgba)(const uint8_t *, size_t, uint8_t *, size_t, int);
  bool animated;
} webp;

/* The payload of the first chunk with this name, or NULL. */
static const uint8_t *find_chunk(const ac_image *im, const char name[4], size_t *bytes) {
  size_t at = 12;
  while (im->n - at >= 8) {
    const uint32_t size = aci_le32(im->bytes + at + 4);
    if (size > im->n - at - 8) break;
    *bytes = size;
    if (memcmp(im->bytes + at, name, 4) == 0) return im->bytes + at + 8;
    at += 8 + (size_t)size + (size % 2 != 0 && im->n - at - 8 > size ? 1 : 0);
  }
  return NULL;
}

static ac_status open_webp(ac_image *im, ac_err *e) {
  webp *w = im->state = calloc(1, sizeof *w);
  if (w == NULL) return AC_FAIL(e, OOM, "out of memory");
  const aci_symbol symbols[] = {{"WebPGetFeaturesInternal", &w->features},
                                {"WebPDecodeRGBInto", &w->rgb},
                                {"WebPDecodeRGBAInto", &w->rgba}};
  AC_TRY(aci_library_open("webp", symbols, sizeof symbols / sizeof *symbols, e));
  WebPBitstreamFeatures about;
  const VP8StatusCode status = w->features(im->bytes, im->n, &about, WEBP_DECODER_ABI_VERSION);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA) return aci_image_fault(im, e, "it ends in its header");
  if (status != VP8_STATUS_OK) return aci_image_fault(im, e, "its header is damaged");
  w->animated = about.has_animation;
  im->width = about.width;
  im->height = about.height;
  im->kind = about.has_alpha ? ACI_IMAGE_RGBA : ACI_IMAGE_RGB;
  size_t bytes;
  const uint8_t *exif = find_chunk(im, "EXIF", &bytes);
  if (exif != NULL && bytes > 6 && memcmp(exif, "Exif\0", 6) == 0) exif += 6, bytes -= 6;
  if (exif != NULL) im->orientation = aci_exif_orientation(exif, bytes);
  return AC_OK;
}

static ac_status read_first_frame(ac_image *im, uint8_t *whole, ac_err *e) {
  int (*init)(WebPAnimDecoderOptions *, int);
  WebPAnimDecoder *(*create)(const WebPData *, const WebPAnimDecoderOptions *, int);
  int (*next)(WebPAnimDecoder *, uint8_t **, int *);
  void (*destroy)(WebPAnimDecoder *);
  const aci_symbol symbols[] = {{"WebPAnimDecoderOptionsInitInternal", &init},
                                {"WebPAnimDecoderNewInternal", &create},
                                {"WebPAnimDecoderGetNext", &next},
                                {"WebPAnimDecoderDelete", &destroy}};
  AC_TRY(aci_library_open("webpdemux", symbols, sizeof symbols / sizeof *symbols, e));
  const WebPData data = {im->bytes, im->n};
  WebPAnimDecoderOptions options;
  if (!init(&options, WEBP_DEMUX_ABI_VERSION))
    return AC_FAIL(e, UNSUPPORTED, "%s: libwebpdemux has another version than accel was built with",
                   im->name);
  WebPAnimDecoder *d = create(&data, &options, WEBP_DEMUX_ABI_VERSION);
  if (d == NULL) return aci_image_fault(im, e, "it is cut or damaged");
  uint8_t *canvas;
  int time;
  const bool ok = next(d, &canvas, &time) != 0;
  const size_t n = (size_t)im->width * (size_t)im->height;
  if (ok && im->kind == ACI_IMAGE_RGBA) memcpy(whole, canvas, 4 * n);
  for (size_t i = 0; ok && im->kind == ACI_IMAGE_RGB && i < n; i++)
    memcpy(whole + 3 * i, canvas + 4 * i, 3);
  destroy(d);
  return ok ? AC_OK : aci_image_fault(im, e, "its first frame is cut or damaged");
}

static ac_status read_webp(ac_image *im, ac_err *e) {
  const webp *w = im->state;
  const size_t stride = aci_image_row_bytes(im), size = stride * (size_t)im->height;
  if (stride > INT32_MAX) return aci_image_fault(im, e, "its rows are too long");
  uint8_t *whole = aci_image_whole(im);
  if (whole == NULL) return AC_FAIL(e, OOM, "out of memory");
  ac_status st = AC_OK;
  if (w->animated) {
    st = read_first_frame(im, whole, e);
  } else {
    const bool alpha = im->kind == ACI_IMAGE_RGBA;
    if ((alpha ? w->rgba : w->rgb)(im->bytes, im->n, whole, size, (int)stride) == NULL)
      st = aci_image_fault(im, e, "it is cut or damaged");
  }
  aci_image_whole_done(im, whole, st == AC_OK);
  return st;
}

static void close_webp(ac_image *im) { free(im->state); }

const aci_image_format aci_image_webp = {"webp", matches, open_webp, read_webp, close_webp};
#else
static ac_status open_webp(ac_image *im, ac_err *e) {
  (void)im;
  return aci_library_absent("webp", e);
}

const aci_image_format aci_image_webp = {"webp", matches, open_webp, NULL, NULL};
#endif
