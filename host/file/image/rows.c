/* Decoded rows to the result: channels, samples of 16 bits as 8, orientation. Where the decoded rows
 * are the result's, readers write into its memory and nothing is copied. Called by the readers.
 *
 * Conversions are Pillow's: gray = (19595 r + 38470 g + 7471 b + 32768) >> 16 (ITU-R 601), alpha is
 * dropped or full, r = (255 - k) - (255 - k) c / 255. */
#include <stdlib.h>
#include <string.h>

#include "file/image/image.h"

static int channels_of(aci_image_kind kind) { return kind == ACI_IMAGE_CMYK ? 4 : (int)kind; }

static size_t pixel_bytes(aci_image_kind kind, ac_dtype dt) {
  return (size_t)channels_of(kind) * (size_t)ac_dtype_bytes(dt);
}

void aci_image_result(const ac_image *im, aci_image_kind *kind, ac_dtype *dtype, int64_t *height,
                      int64_t *width) {
  *kind = im->o.mode == AC_IMAGE_UNCHANGED ? im->kind : (aci_image_kind)im->o.mode;
  *dtype = im->dtype == AC_U16 && im->o.eight_bits ? AC_U8 : im->dtype;
  const bool turned = im->o.apply_orientation && im->orientation >= 5;
  *height = turned ? im->width : im->height;
  *width = turned ? im->height : im->width;
}

bool aci_image_wants_alpha(const ac_image *im) {
  return im->o.mode == AC_IMAGE_GRAY_ALPHA || im->o.mode == AC_IMAGE_RGB_ALPHA;
}

size_t aci_image_row_bytes(const ac_image *im) {
  return (size_t)im->width * pixel_bytes(im->kind, im->dtype);
}

/* ---- one pixel ---- */

typedef struct pixel {
  uint32_t c[4];
} pixel;

static uint32_t scaled(uint32_t a, uint32_t b) { /* a * b / 255, rounded */
  const uint32_t t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

static uint32_t gray_of(const uint32_t c[4]) {
  return (uint32_t)(((uint64_t)c[0] * 19595 + (uint64_t)c[1] * 38470 + (uint64_t)c[2] * 7471 +
                     0x8000) >>
                    16);
}

/* To RGBA, or for a gray picture gray and alpha in the places 0 and 3. */
static pixel spread(const uint32_t s[4], aci_image_kind from, uint32_t full) {
  switch (from) {
    case ACI_IMAGE_GRAY: return (pixel){{s[0], s[0], s[0], full}};
    case ACI_IMAGE_GRAY_ALPHA: return (pixel){{s[0], s[0], s[0], s[1]}};
    case ACI_IMAGE_RGB: return (pixel){{s[0], s[1], s[2], full}};
    case ACI_IMAGE_RGBA: return (pixel){{s[0], s[1], s[2], s[3]}};
    case ACI_IMAGE_CMYK: break;
  }
  const uint32_t ink = 255 - s[3];
  return (pixel){{ink - scaled(s[0], ink), ink - scaled(s[1], ink), ink - scaled(s[2], ink), full}};
}

static void join(const pixel *p, bool gray, aci_image_kind to, uint32_t out[4]) {
  const bool one = to == ACI_IMAGE_GRAY || to == ACI_IMAGE_GRAY_ALPHA;
  if (one) {
    out[0] = gray ? p->c[0] : gray_of(p->c);
    out[1] = p->c[3];
  } else {
    memcpy(out, p->c, sizeof p->c);
  }
}

static void convert_integer(const ac_image *im, const uint8_t *src, uint8_t *d) {
  const int n = channels_of(im->kind), m = channels_of(im->out_kind);
  const bool gray = im->kind == ACI_IMAGE_GRAY || im->kind == ACI_IMAGE_GRAY_ALPHA;
  const bool wide = im->dtype == AC_U16;
  const uint32_t full = wide ? 65535 : 255;
  uint32_t s[4] = {0}, out[4];
  for (int i = 0; i < n; i++) {
    uint16_t v;
    if (wide) memcpy(&v, src + 2 * i, 2);
    s[i] = wide ? v : src[i];
  }
  if (im->kind == im->out_kind) {
    memcpy(out, s, sizeof s);
  } else {
    const pixel p = spread(s, im->kind, full);
    join(&p, gray, im->out_kind, out);
  }
  for (int i = 0; i < m; i++) {
    const uint16_t v = (uint16_t)out[i];
    if (im->out_dtype == AC_U16) memcpy(d + 2 * i, &v, 2);
    else d[i] = (uint8_t)(wide ? v >> 8 : v);
  }
}

static void convert_float(const ac_image *im, const uint8_t *src, uint8_t *d) {
  const int n = channels_of(im->kind), m = channels_of(im->out_kind);
  float s[4] = {0}, out[4];
  memcpy(s, src, (size_t)n * sizeof *s);
  if (im->kind == im->out_kind) {
    memcpy(out, s, sizeof s);
  } else {
    const float alpha = n == 2 ? s[1] : n == 4 ? s[3] : 1.0f;
    if (n <= 2) s[2] = s[1] = s[0];
    const float l = n <= 2 ? s[0] : 0.299f * s[0] + 0.587f * s[1] + 0.114f * s[2];
    const float rgba[4] = {s[0], s[1], s[2], alpha}, la[4] = {l, alpha, 0, 0};
    memcpy(out, m <= 2 ? la : rgba, sizeof out);
  }
  memcpy(d, out, (size_t)m * sizeof *out);
}

/* ---- rows ---- */

/* Byte of the result that pixel (x, y) of the decoded picture goes to, as first + x * dx + y * dy.
 * EXIF's orientations: 2 mirrored, 3 turned by 180 degrees, 4 upside down, 5 transposed, 6 turned
 * clockwise, 7 transposed along the other diagonal, 8 turned counter-clockwise. */
static void path_of(const ac_image *im, int64_t *first, int64_t *dx, int64_t *dy) {
  const int64_t w = im->width, h = im->height;
  const int64_t size = (int64_t)pixel_bytes(im->out_kind, im->out_dtype);
  switch (im->o.apply_orientation ? im->orientation : 1) {
    case 2: *first = w - 1, *dx = -1, *dy = w; break;
    case 3: *first = w * h - 1, *dx = -1, *dy = -w; break;
    case 4: *first = (h - 1) * w, *dx = 1, *dy = -w; break;
    case 5: *first = 0, *dx = h, *dy = 1; break;
    case 6: *first = h - 1, *dx = h, *dy = -1; break;
    case 7: *first = w * h - 1, *dx = -h, *dy = -1; break;
    case 8: *first = (w - 1) * h, *dx = -h, *dy = 1; break;
    default: *first = 0, *dx = 1, *dy = w; break;
  }
  *first *= size, *dx *= size, *dy *= size;
}

static void pass_on(ac_image *im, const uint8_t *row, int64_t y) {
  int64_t first, dx, dy;
  path_of(im, &first, &dx, &dy);
  uint8_t *d = im->dst + first + y * dy;
  const size_t step = pixel_bytes(im->kind, im->dtype);
  if (im->dtype == AC_F32)
    for (int64_t x = 0; x < im->width; x++, d += dx, row += step) convert_float(im, row, d);
  else if (im->kind == im->out_kind && im->dtype == im->out_dtype)
    for (int64_t x = 0; x < im->width; x++, d += dx, row += step) memcpy(d, row, step);
  else
    for (int64_t x = 0; x < im->width; x++, d += dx, row += step) convert_integer(im, row, d);
}

uint8_t *aci_image_row(ac_image *im, int64_t y) {
  return im->direct ? im->dst + (size_t)y * aci_image_row_bytes(im) : im->scratch;
}

void aci_image_row_done(ac_image *im, int64_t y) {
  if (!im->direct) pass_on(im, im->scratch, y);
}

uint8_t *aci_image_whole(ac_image *im) {
  return im->direct ? im->dst : malloc(aci_image_row_bytes(im) * (size_t)im->height);
}

void aci_image_whole_done(ac_image *im, uint8_t *whole, bool filled) {
  if (im->direct) return;
  const size_t bytes = aci_image_row_bytes(im);
  for (int64_t y = 0; filled && y < im->height; y++) pass_on(im, whole + (size_t)y * bytes, y);
  free(whole);
}

ac_status aci_image_to(ac_image *im, void *dst, ac_err *e) {
  int64_t height, width;
  aci_image_result(im, &im->out_kind, &im->out_dtype, &height, &width);
  im->dst = dst;
  im->direct = im->kind == im->out_kind && im->dtype == im->out_dtype &&
               (im->orientation == 1 || !im->o.apply_orientation);
  if (!im->direct) {
    free(im->scratch);
    im->scratch = malloc(aci_image_row_bytes(im));
    if (im->scratch == NULL) return AC_FAIL(e, OOM, "out of memory");
  }
  return im->format->read(im, e);
}
