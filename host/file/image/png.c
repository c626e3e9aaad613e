/* PNG by libpng. Called by image.c.
 *
 * Chunks that pixels do not need are skipped unread, whatever they claim to unpack to, except eXIf,
 * which exif.c reads. A wrong CRC in a chunk that pixels need is an error, also in the last one. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "file/image/image.h"

static bool matches(const uint8_t *p, size_t n) {
  return n >= 8 && memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef ACCEL_HAVE_PNG
#include <png.h>
#include <setjmp.h>

#define FUNCTIONS(X)            \
  X(create_read_struct)         \
  X(create_info_struct)         \
  X(destroy_read_struct)        \
  X(get_error_ptr)              \
  X(set_read_fn)                \
  X(set_user_limits)            \
  X(set_keep_unknown_chunks)    \
  X(read_info)                  \
  X(get_IHDR)                   \
  X(get_valid)                  \
  X(set_expand_gray_1_2_4_to_8) \
  X(set_palette_to_rgb)         \
  X(set_tRNS_to_alpha)          \
  X(set_swap) X(set_interlace_handling) X(read_update_info) X(get_channels) X(read_row) X(read_end)

typedef struct png {
  struct {
#define X(name) __typeof__(png_##name) *name;
    FUNCTIONS(X)
#undef X
  } lib;
  png_structp read;
  png_infop info;
  const ac_image *im;
  size_t at;    /* bytes that libpng has taken */
  jmp_buf jump; /* set during each call into the library */
  char message[200];
  int passes;
  uint8_t *whole; /* of an interlaced picture */
} png;

/* State of the process: png_get_error_ptr, by which the callbacks below find their picture. Its value
 * is the same for all. */
static _Atomic(__typeof__(png_get_error_ptr) *) get_error_ptr;

static png *of(png_const_structp read) { return atomic_load(&get_error_ptr)(read); }

static void on_error(png_structp read, png_const_charp text) {
  png *p = of(read);
  snprintf(p->message, sizeof p->message, "%s", text);
  longjmp(p->jump, 1);
}

static void on_warning(png_structp read, png_const_charp text) {
  (void)read;
  (void)text;
}

static void on_read(png_structp read, png_bytep to, size_t n) {
  png *p = of(read);
  if (n > p->im->n - p->at) on_error(read, "it ends before the picture does");
  memcpy(to, p->im->bytes + p->at, n);
  p->at += n;
}

static ac_status guarded(ac_image *im, void (*work)(ac_image *im, png *p), ac_err *e) {
  png *p = im->state;
  if (setjmp(p->jump) != 0) return aci_image_fault(im, e, "%s", p->message);
  work(im, p);
  return AC_OK;
}

static void read_header(ac_image *im, png *p) {
  static const png_byte unread[] =
      "bKGD\0cHRM\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0"
      "zTXt\0eXIf\0acTL\0fcTL\0fdAT";
  p->lib.set_read_fn(p->read, p, on_read);
  p->lib.set_user_limits(p->read, INT32_MAX, INT32_MAX);
  p->lib.set_keep_unknown_chunks(p->read, PNG_HANDLE_CHUNK_NEVER, unread, (int)sizeof unread / 5);
  p->lib.read_info(p->read, p->info);
  png_uint_32 width, height;
  int depth, colour, interlace;
  p->lib.get_IHDR(p->read, p->info, &width, &height, &depth, &colour, &interlace, NULL, NULL);
  im->width = width;
  im->height = height;
  if (colour == PNG_COLOR_TYPE_PALETTE) p->lib.set_palette_to_rgb(p->read); /* and tRNS to alpha */
  if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) p->lib.set_expand_gray_1_2_4_to_8(p->read);
  if (aci_image_wants_alpha(im) && p->lib.get_valid(p->read, p->info, PNG_INFO_tRNS) != 0)
    p->lib.set_tRNS_to_alpha(p->read);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  if (depth == 16) p->lib.set_swap(p->read);
#endif
  p->passes = p->lib.set_interlace_handling(p->read);
  p->lib.read_update_info(p->read, p->info);
  im->kind = (aci_image_kind)p->lib.get_channels(p->read, p->info);
  im->dtype = depth == 16 ? AC_U16 : AC_U8;
}

/* The orientation of an eXIf chunk. Its place is anywhere, so that this walks over all chunks. */
static int find_orientation(const ac_image *im) {
  size_t at = 8;
  while (im->n - at >= 12) {
    const uint32_t bytes = aci_be32(im->bytes + at);
    if (bytes > im->n - at - 12) break;
    if (memcmp(im->bytes + at + 4, "eXIf", 4) == 0)
      return aci_exif_orientation(im->bytes + at + 8, bytes);
    at += 12 + (size_t)bytes;
  }
  return 1;
}

/* PLTE after the pixels, which libpng only warns of, or none for a palette. */
static ac_status check_order(const ac_image *im, ac_err *e) {
  bool pixels = false;
  size_t at = 8;
  while (im->n - at >= 12) {
    const uint32_t bytes = aci_be32(im->bytes + at);
    if (bytes > im->n - at - 12) break;
    if (memcmp(im->bytes + at + 4, "IDAT", 4) == 0) pixels = true;
    if (memcmp(im->bytes + at + 4, "PLTE", 4) == 0 && pixels)
      return aci_image_fault(im, e, "its palette comes after its pixels");
    at += 12 + (size_t)bytes;
  }
  return AC_OK;
}

static ac_status open_png(ac_image *im, ac_err *e) {
  png *p = im->state = calloc(1, sizeof *p);
  if (p == NULL) return AC_FAIL(e, OOM, "out of memory");
#define X(name) {"png_" #name, &p->lib.name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  AC_TRY(aci_library_open("png", symbols, sizeof symbols / sizeof *symbols, e));
  atomic_store(&get_error_ptr, p->lib.get_error_ptr);
  p->im = im;
  p->read = p->lib.create_read_struct(PNG_LIBPNG_VER_STRING, p, on_error, on_warning);
  p->info = p->read != NULL ? p->lib.create_info_struct(p->read) : NULL;
  if (p->info == NULL) return AC_FAIL(e, OOM, "out of memory");
  if (im->n >= 24 && memcmp(im->bytes + 12, "IHDR", 4) == 0)
    AC_TRY(aci_image_check_size(im, aci_be32(im->bytes + 16), aci_be32(im->bytes + 20), e));
  AC_TRY(guarded(im, read_header, e));
  im->orientation = find_orientation(im);
  return check_order(im, e);
}

static void read_rows(ac_image *im, png *p) {
  const size_t bytes = aci_image_row_bytes(im);
  for (int pass = 0; pass < p->passes; pass++)
    for (int64_t y = 0; y < im->height; y++) {
      uint8_t *row = p->whole != NULL ? p->whole + (size_t)y * bytes : aci_image_row(im, y);
      p->lib.read_row(p->read, row, NULL);
      if (p->whole == NULL) aci_image_row_done(im, y);
    }
  p->lib.read_end(p->read, NULL);
}

static ac_status read_png(ac_image *im, ac_err *e) {
  png *p = im->state;
  if (p->passes > 1) {
    p->whole = aci_image_whole(im);
    if (p->whole == NULL) return AC_FAIL(e, OOM, "out of memory");
  }
  const ac_status st = guarded(im, read_rows, e);
  if (p->whole != NULL) aci_image_whole_done(im, p->whole, st == AC_OK);
  p->whole = NULL;
  return st;
}

static void close_png(ac_image *im) {
  png *p = im->state;
  if (p != NULL && p->read != NULL) p->lib.destroy_read_struct(&p->read, &p->info, NULL);
  free(p);
}

const aci_image_format aci_image_png = {"png", matches, open_png, read_png, close_png};
#else
static ac_status open_png(ac_image *im, ac_err *e) {
  (void)im;
  return aci_library_absent("png", e);
}

const aci_image_format aci_image_png = {"png", matches, open_png, NULL, NULL};
#endif
