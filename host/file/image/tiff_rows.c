/* The pixels of a TIFF file: strips or tiles, channels together or in planes apart. Called by
 * tiff.c. */
#ifdef ACCEL_HAVE_TIFF
#include <stdlib.h>
#include <string.h>

#include "file/image/tiff.h"

/* Sample i of a line: of less than 8 bits spread over 0 to 255, of a palette its index. */
static uint8_t small_sample(const aci_tiff *t, const uint8_t *line, size_t i) {
  const size_t bit = i * t->bits;
  const unsigned most = (1u << t->bits) - 1;
  const unsigned v = line[bit / 8] >> (8 - t->bits - bit % 8) & most;
  if (t->photometric == PHOTOMETRIC_PALETTE) return (uint8_t)v;
  return (uint8_t)((t->photometric == PHOTOMETRIC_MINISWHITE ? most - v : v) * 255 / most);
}

/* n pixels of a line to the pixels of row from x on. plane: the channel that the line holds, or -1:
 * all. Samples beyond the picture's channels are left out. */
static void store(const ac_image *im, uint8_t *row, int64_t x, int64_t n, const uint8_t *line,
                  int plane) {
  const aci_tiff *t = im->state;
  const size_t channels = im->kind == ACI_IMAGE_CMYK ? 4 : (size_t)im->kind;
  const size_t size = (size_t)ac_dtype_bytes(im->dtype);
  const size_t per = plane < 0 ? t->samples : 1;
  if (t->photometric == PHOTOMETRIC_PALETTE) {
    for (int64_t i = 0; i < n; i++) {
      const uint8_t v = t->bits < 8 ? small_sample(t, line, (size_t)i) : line[i];
      for (int c = 0; c < 3; c++) row[3 * (x + i) + c] = (uint8_t)(t->palette[c][v] >> 8);
    }
  } else if (t->bits < 8) {
    for (int64_t i = 0; i < n; i++) row[x + i] = small_sample(t, line, (size_t)i);
  } else if (plane < 0 && per == channels) {
    memcpy(row + (size_t)x * channels * size, line, (size_t)n * channels * size);
  } else {
    const size_t first = plane < 0 ? 0 : (size_t)plane, count = plane < 0 ? channels : 1;
    for (int64_t i = 0; i < n; i++)
      memcpy(row + ((size_t)(x + i) * channels + first) * size, line + (size_t)i * per * size,
             count * size);
  }
}

/* Bytes of n pixels of a line. */
static size_t line_bytes(const aci_tiff *t, int64_t n) {
  const size_t per = t->planes == PLANARCONFIG_SEPARATE ? 1 : t->samples;
  return ((size_t)n * per * t->bits + 7) / 8;
}

static ac_status read_strips(ac_image *im, uint8_t *whole, int plane, ac_err *e) {
  aci_tiff *t = im->state;
  const tmsize_t bytes = t->lib.TIFFScanlineSize(t->file);
  if (bytes < 0 || (size_t)bytes < line_bytes(t, im->width))
    return aci_image_fault(im, e, "its rows are shorter than its width");
  uint8_t *line = calloc(1, (size_t)bytes);
  if (line == NULL) return AC_FAIL(e, OOM, "out of memory");
  ac_status st = AC_OK;
  for (int64_t y = 0; st == AC_OK && y < im->height; y++) {
    uint8_t *row =
        whole != NULL ? whole + (size_t)y * aci_image_row_bytes(im) : aci_image_row(im, y);
    if (t->lib.TIFFReadScanline(t->file, line, (uint32_t)y, (uint16_t)(plane < 0 ? 0 : plane)) < 0)
      st = aci_tiff_fault(im, e);
    else store(im, row, 0, im->width, line, plane);
    if (st == AC_OK && whole == NULL) aci_image_row_done(im, y);
  }
  free(line);
  return st;
}

static ac_status read_tiles(ac_image *im, uint8_t *whole, int plane, ac_err *e) {
  aci_tiff *t = im->state;
  uint32_t width = 0, height = 0;
  const tmsize_t bytes = t->lib.TIFFTileSize(t->file), row_bytes = t->lib.TIFFTileRowSize(t->file);
  t->lib.TIFFGetField(t->file, TIFFTAG_TILEWIDTH, &width);
  t->lib.TIFFGetField(t->file, TIFFTAG_TILELENGTH, &height);
  if (width == 0 || height == 0 || bytes <= 0 || (size_t)row_bytes < line_bytes(t, width) ||
      row_bytes > bytes / (tmsize_t)height || bytes > 1 << 30)
    return aci_image_fault(im, e, "its tiles are %u x %u", width, height);
  uint8_t *tile = calloc(1, (size_t)bytes);
  if (tile == NULL) return AC_FAIL(e, OOM, "out of memory");
  ac_status st = AC_OK;
  for (int64_t y = 0; st == AC_OK && y < im->height; y += height)
    for (int64_t x = 0; st == AC_OK && x < im->width; x += width) {
      if (t->lib.TIFFReadTile(t->file, tile, (uint32_t)x, (uint32_t)y, 0,
                              (uint16_t)(plane < 0 ? 0 : plane)) < 0)
        st = aci_tiff_fault(im, e);
      const int64_t n = im->width - x < width ? im->width - x : width;
      const int64_t rows = im->height - y < height ? im->height - y : height;
      for (int64_t i = 0; st == AC_OK && i < rows; i++)
        store(im, whole + (size_t)(y + i) * aci_image_row_bytes(im), x, n, tile + i * row_bytes,
              plane);
    }
  free(tile);
  return st;
}

static ac_status read_rgba(ac_image *im, ac_err *e) {
  aci_tiff *t = im->state;
  uint32_t *raster = calloc((size_t)im->width * (size_t)im->height, sizeof *raster);
  if (raster == NULL) return AC_FAIL(e, OOM, "out of memory");
  const bool ok =
      t->lib.TIFFReadRGBAImageOriented(t->file, (uint32_t)im->width, (uint32_t)im->height, raster,
                                       im->orientation, 1) == 1;
  for (int64_t y = 0; ok && y < im->height; y++) {
    uint8_t *row = aci_image_row(im, y);
    for (int64_t x = 0; x < im->width; x++, row += im->kind) {
      const uint32_t v = raster[y * im->width + x];
      row[0] = (uint8_t)TIFFGetR(v), row[1] = (uint8_t)TIFFGetG(v), row[2] = (uint8_t)TIFFGetB(v);
      if (im->kind == ACI_IMAGE_RGBA) row[3] = (uint8_t)TIFFGetA(v);
    }
    aci_image_row_done(im, y);
  }
  free(raster);
  return ok ? AC_OK : aci_tiff_fault(im, e);
}

ac_status aci_tiff_read(ac_image *im, ac_err *e) {
  aci_tiff *t = im->state;
  if (t->by_rgba) return read_rgba(im, e);
  const bool apart = t->planes == PLANARCONFIG_SEPARATE && t->samples > 1;
  const bool tiled = t->lib.TIFFIsTiled(t->file);
  if (!apart && !tiled) return read_strips(im, NULL, -1, e);
  uint8_t *whole = aci_image_whole(im);
  if (whole == NULL) return AC_FAIL(e, OOM, "out of memory");
  const int channels = im->kind == ACI_IMAGE_CMYK ? 4 : (int)im->kind;
  ac_status st = AC_OK;
  for (int c = 0; st == AC_OK && c < (apart ? channels : 1); c++)
    st = (tiled ? read_tiles : read_strips)(im, whole, apart ? c : -1, e);
  aci_image_whole_done(im, whole, st == AC_OK);
  return st;
}
#else
typedef int aci_image_no_tiff; /* a file of C holds at least a declaration */
#endif
