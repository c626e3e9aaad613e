/* PNG files from pixels, by libpng. Called by the bindings of accel.vision.io. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "accel/image.h"
#include "base/library.h"
#include "base/strbuf.h"
#include "tensor/tensor_impl.h"

#ifdef ACCEL_HAVE_PNG
#include <png.h>
#include <setjmp.h>

#define FUNCTIONS(X)     \
  X(create_write_struct) \
  X(create_info_struct)  \
  X(get_error_ptr)       \
  X(set_write_fn)        \
  X(set_IHDR)            \
  X(set_compression_level) X(write_info) X(write_row) X(write_end) X(destroy_write_struct)

typedef struct writer {
  struct {
#define X(name) __typeof__(png_##name) *name;
    FUNCTIONS(X)
#undef X
  } lib;
  png_structp png;
  png_infop info;
  jmp_buf jump;
  aci_strbuf b;
  char message[200];
} writer;

/* State of the process: png_get_error_ptr, by which the callbacks find their writer. Its value is the
 * same for all. */
static _Atomic(__typeof__(png_get_error_ptr) *) get_error_ptr;

static void on_error(png_structp png, png_const_charp text) {
  writer *w = atomic_load(&get_error_ptr)(png);
  snprintf(w->message, sizeof w->message, "%s", text);
  longjmp(w->jump, 1);
}

static void on_warning(png_structp png, png_const_charp text) {
  (void)png;
  (void)text;
}

static void on_write(png_structp png, png_bytep p, size_t n) {
  writer *w = atomic_load(&get_error_ptr)(png);
  aci_strbuf_add(&w->b, (const char *)p, n);
}

static void on_flush(png_structp png) { (void)png; }

static void write(writer *w, const ac_tensor *t, int level) {
  static const int colours[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                PNG_COLOR_TYPE_RGB_ALPHA};
  w->lib.set_write_fn(w->png, w, on_write, on_flush);
  w->lib.set_compression_level(w->png, level);
  w->lib.set_IHDR(w->png, w->info, (png_uint_32)t->shape[1], (png_uint_32)t->shape[0], 8,
                  colours[t->shape[2] - 1], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                  PNG_FILTER_TYPE_DEFAULT);
  w->lib.write_info(w->png, w->info);
  const size_t row = (size_t)(t->shape[1] * t->shape[2]);
  const uint8_t *p = ac_tensor_data((ac_tensor *)(uintptr_t)t);
  for (int64_t y = 0; y < t->shape[0]; y++) w->lib.write_row(w->png, p + (size_t)y * row);
  w->lib.write_end(w->png, NULL);
}

/* Apart, so that no variable of its caller lives across the jump. */
static __attribute__((noinline)) bool guarded(writer *w, const ac_tensor *t, int level) {
  if (setjmp(w->jump) != 0) return false;
  write(w, t, level);
  return true;
}

static ac_status open_writer(writer *w, ac_err *e) {
#define X(name) {"png_" #name, &w->lib.name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  AC_TRY(aci_library_open("png", symbols, sizeof symbols / sizeof *symbols, e));
  atomic_store(&get_error_ptr, w->lib.get_error_ptr);
  w->png = w->lib.create_write_struct(PNG_LIBPNG_VER_STRING, w, on_error, on_warning);
  w->info = w->png != NULL ? w->lib.create_info_struct(w->png) : NULL;
  return w->info != NULL ? AC_OK : AC_FAIL(e, OOM, "out of memory");
}

ac_status ac_image_encode_png(const ac_tensor *t, int level, void **out, size_t *n, ac_err *e) {
  *out = NULL;
  if (t->dtype != AC_U8 || t->ndim != 3 || !aci_is_contiguous(t) || t->numel == 0 ||
      t->shape[2] > 4 || t->shape[0] > 1000000 || t->shape[1] > 1000000)
    return AC_FAIL(e, INVALID, "encode_png: expected a u8 picture of 1 to 4 channels");
  if (level < 0 || level > 9)
    return AC_FAIL(e, INVALID, "encode_png: compression_level must lie in 0 .. 9, got %d", level);
  writer *w = calloc(1, sizeof *w);
  if (w == NULL) return AC_FAIL(e, OOM, "out of memory");
  ac_status st = open_writer(w, e);
  if (st == AC_OK && !guarded(w, t, level)) st = AC_FAIL(e, INVALID, "encode_png: %s", w->message);
  if (w->png != NULL) w->lib.destroy_write_struct(&w->png, &w->info);
  if (st == AC_OK) *out = aci_strbuf_take(&w->b, n);
  if (st == AC_OK && *out == NULL) st = AC_FAIL(e, OOM, "out of memory");
  aci_strbuf_fini(&w->b);
  free(w);
  return st;
}
#else
ac_status ac_image_encode_png(const ac_tensor *t, int level, void **out, size_t *n, ac_err *e) {
  (void)t, (void)level, (void)out, (void)n;
  return aci_library_absent("png", e);
}
#endif
