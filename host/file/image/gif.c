/* GIF by giflib: the first frame on its screen. Called by image.c.
 *
 * Later frames are not read. Pixels of the screen outside the frame have the transparent colour, or
 * without one the background's, as in Pillow. */
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "file/image/image.h"

static bool matches(const uint8_t *p, size_t n) {
  return n >= 6 && (memcmp(p, "GIF87a", 6) == 0 || memcmp(p, "GIF89a", 6) == 0);
}

#ifdef ACCEL_HAVE_GIF
#include <gif_lib.h>

#define FUNCTIONS(X)   \
  X(DGifOpen)          \
  X(DGifCloseFile)     \
  X(DGifGetRecordType) \
  X(DGifGetImageDesc) X(DGifGetLine) X(DGifGetExtension) X(DGifGetExtensionNext) X(GifErrorString)

typedef struct gif {
  struct {
#define X(name) __typeof__(name) *name;
    FUNCTIONS(X)
#undef X
  } lib;
  GifFileType *file;
  const ac_image *im;
  size_t at;       /* bytes that giflib has taken */
  int transparent; /* index, -1: none */
} gif;

static int on_read(GifFileType *file, GifByteType *to, int n) {
  gif *g = file->UserData;
  size_t k = n < 0 ? 0 : (size_t)n;
  if (k > g->im->n - g->at) k = g->im->n - g->at;
  memcpy(to, g->im->bytes + g->at, k);
  g->at += k;
  return (int)k;
}

static ac_status fault(const ac_image *im, int error, ac_err *e) {
  const gif *g = im->state;
  const char *text = g->lib.GifErrorString(error);
  if (g->at >= im->n) text = "it ends before the picture does";
  return aci_image_fault(im, e, "%s", text != NULL ? text : "it is damaged");
}

/* One extension. A graphics control (GIF89a, section 23) names the transparent colour. */
static bool read_extension(gif *g) {
  int code;
  GifByteType *block;
  if (g->lib.DGifGetExtension(g->file, &code, &block) == GIF_ERROR) return false;
  if (code == GRAPHICS_EXT_FUNC_CODE && block != NULL && block[0] >= 4)
    g->transparent = block[1] & 1 ? block[4] : -1;
  while (block != NULL)
    if (g->lib.DGifGetExtensionNext(g->file, &block) == GIF_ERROR) return false;
  return true;
}

/* The colours of the frame. NULL: it has none. */
static const ColorMapObject *map_of(const gif *g) {
  return g->file->Image.ColorMap != NULL ? g->file->Image.ColorMap : g->file->SColorMap;
}

/* Whether the colours are the gray levels in order, so that the picture is a gray one. As Pillow has
 * it. */
static bool is_gray(const ColorMapObject *map) {
  for (int i = 0; map != NULL && i < map->ColorCount; i++) {
    const GifColorType c = map->Colors[i];
    if (c.Red != i || c.Green != i || c.Blue != i) return false;
  }
  return map != NULL;
}

static ac_status open_gif(ac_image *im, ac_err *e) {
  gif *g = im->state = calloc(1, sizeof *g);
  if (g == NULL) return AC_FAIL(e, OOM, "out of memory");
#define X(name) {#name, &g->lib.name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  AC_TRY(aci_library_open("gif", symbols, sizeof symbols / sizeof *symbols, e));
  int error = 0;
  g->im = im;
  g->transparent = -1;
  g->file = g->lib.DGifOpen(g, on_read, &error);
  if (g->file == NULL) return fault(im, error, e);
  for (;;) {
    GifRecordType type;
    if (g->lib.DGifGetRecordType(g->file, &type) == GIF_ERROR) return fault(im, g->file->Error, e);
    if (type == TERMINATE_RECORD_TYPE) return aci_image_fault(im, e, "it has no picture");
    if (type == IMAGE_DESC_RECORD_TYPE) break;
    if (type != EXTENSION_RECORD_TYPE || !read_extension(g)) return fault(im, g->file->Error, e);
  }
  im->width = g->file->SWidth;
  im->height = g->file->SHeight;
  AC_TRY(aci_image_check_size(im, im->width, im->height, e));
  if (g->lib.DGifGetImageDesc(g->file) == GIF_ERROR) return fault(im, g->file->Error, e);
  im->kind = g->transparent >= 0  ? ACI_IMAGE_RGBA
             : is_gray(map_of(g)) ? ACI_IMAGE_GRAY
                                  : ACI_IMAGE_RGB;
  return AC_OK;
}

/* Indices of the frame to the screen. */
static ac_status read_frame(const ac_image *im, gif *g, uint8_t *screen, ac_err *e) {
  static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
  const GifImageDesc *f = &g->file->Image;
  const int passes = f->Interlace ? 4 : 1;
  for (int pass = 0; pass < passes; pass++)
    for (int y = f->Interlace ? first[pass] : 0; y < f->Height;
         y += f->Interlace ? step[pass] : 1) {
      uint8_t *line = screen + (size_t)(f->Top + y) * (size_t)im->width + f->Left;
      if (g->lib.DGifGetLine(g->file, line, f->Width) == GIF_ERROR)
        return fault(im, g->file->Error, e);
    }
  return AC_OK;
}

static ac_status pass_rows(ac_image *im, const gif *g, const uint8_t *screen, ac_err *e) {
  const ColorMapObject *map = map_of(g);
  if (map == NULL) return aci_image_fault(im, e, "it has no palette");
  for (int64_t y = 0; y < im->height; y++) {
    uint8_t *row = aci_image_row(im, y);
    const uint8_t *line = screen + (size_t)y * (size_t)im->width;
    for (int64_t x = 0; x < im->width; x++, row += im->kind) {
      const GifColorType none = {0, 0, 0};
      const GifColorType c = line[x] < map->ColorCount ? map->Colors[line[x]] : none;
      row[0] = c.Red;
      if (im->kind == ACI_IMAGE_GRAY) continue;
      row[1] = c.Green, row[2] = c.Blue;
      if (im->kind == ACI_IMAGE_RGBA) row[3] = line[x] == g->transparent ? 0 : 255;
    }
    aci_image_row_done(im, y);
  }
  return AC_OK;
}

static ac_status read_gif(ac_image *im, ac_err *e) {
  gif *g = im->state;
  const GifImageDesc *f = &g->file->Image;
  if (f->Left < 0 || f->Top < 0 || f->Width <= 0 || f->Height <= 0 ||
      f->Left + f->Width > im->width || f->Top + f->Height > im->height)
    return aci_image_fault(im, e, "its first frame leaves the screen");
  const size_t n = (size_t)im->width * (size_t)im->height;
  uint8_t *screen = malloc(n);
  if (screen == NULL) return AC_FAIL(e, OOM, "out of memory");
  memset(screen, g->transparent >= 0 ? g->transparent : g->file->SBackGroundColor, n);
  ac_status st = read_frame(im, g, screen, e);
  if (st == AC_OK) st = pass_rows(im, g, screen, e);
  free(screen);
  return st;
}

static void close_gif(ac_image *im) {
  gif *g = im->state;
  if (g != NULL && g->file != NULL) g->lib.DGifCloseFile(g->file, NULL);
  free(g);
}

const aci_image_format aci_image_gif = {"gif", matches, open_gif, read_gif, close_gif};
#else
static ac_status open_gif(ac_image *im, ac_err *e) {
  (void)im;
  return aci_library_absent("gif", e);
}

const aci_image_format aci_image_gif = {"gif", matches, open_gif, NULL, NULL};
#endif
