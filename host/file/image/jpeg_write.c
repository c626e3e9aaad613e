/* JPEG files from pixels, by libjpeg-turbo: 4:2:0, as its defaults are. Called by the bindings of
 * accel.vision.io. */
#include <stdio.h>
#include <stdlib.h>

#include "accel/image.h"
#include "base/library.h"
#include "base/strbuf.h"
#include "tensor/tensor_impl.h"

#ifdef ACCEL_HAVE_JPEG
#include <setjmp.h>
/* after stdio.h, which it needs */
#include <jpeglib.h>

#define FUNCTIONS(X) \
  X(std_error)       \
  X(CreateCompress)  \
  X(set_defaults)    \
  X(set_quality) X(start_compress) X(write_scanlines) X(finish_compress) X(destroy_compress)

enum { PIECE = 1 << 14 };

typedef struct writer {
  struct jpeg_compress_struct c;
  struct jpeg_error_mgr errors;
  struct jpeg_destination_mgr to;
  struct {
#define X(name) __typeof__(jpeg_##name) *name;
    FUNCTIONS(X)
#undef X
  } lib;
  jmp_buf jump;
  aci_strbuf b;
  JOCTET piece[PIECE];
  char message[JMSG_LENGTH_MAX];
} writer;

static void on_error(j_common_ptr c) {
  writer *w = c->client_data;
  c->err->format_message(c, w->message);
  longjmp(w->jump, 1);
}

static void on_message(j_common_ptr c, int level) {
  (void)c;
  (void)level;
}

static void on_begin(j_compress_ptr c) {
  writer *w = c->client_data;
  w->to.next_output_byte = w->piece;
  w->to.free_in_buffer = PIECE;
}

static boolean on_full(j_compress_ptr c) {
  writer *w = c->client_data;
  aci_strbuf_add(&w->b, (const char *)w->piece, PIECE);
  on_begin(c);
  return TRUE;
}

static void on_end(j_compress_ptr c) {
  writer *w = c->client_data;
  aci_strbuf_add(&w->b, (const char *)w->piece, PIECE - w->to.free_in_buffer);
}

static void write(writer *w, const ac_tensor *t, int quality) {
  w->c.err = w->lib.std_error(&w->errors);
  w->errors.error_exit = on_error;
  w->errors.emit_message = on_message;
  w->c.client_data = w;
  w->lib.CreateCompress(&w->c, JPEG_LIB_VERSION, sizeof w->c);
  w->c.client_data = w;
  w->to.init_destination = on_begin;
  w->to.empty_output_buffer = on_full;
  w->to.term_destination = on_end;
  w->c.dest = &w->to;
  w->c.image_height = (JDIMENSION)t->shape[0];
  w->c.image_width = (JDIMENSION)t->shape[1];
  w->c.input_components = (int)t->shape[2];
  w->c.in_color_space = t->shape[2] == 1 ? JCS_GRAYSCALE : JCS_RGB;
  w->lib.set_defaults(&w->c);
  w->lib.set_quality(&w->c, quality, TRUE);
  w->lib.start_compress(&w->c, TRUE);
  const size_t row = (size_t)(t->shape[1] * t->shape[2]);
  uint8_t *p = ac_tensor_data((ac_tensor *)(uintptr_t)t);
  for (int64_t y = 0; y < t->shape[0]; y++) {
    JSAMPROW line = p + (size_t)y * row;
    w->lib.write_scanlines(&w->c, &line, 1);
  }
  w->lib.finish_compress(&w->c);
}

/* Apart, so that no variable of its caller lives across the jump. */
static __attribute__((noinline)) bool guarded(writer *w, const ac_tensor *t, int quality) {
  if (setjmp(w->jump) != 0) return false;
  write(w, t, quality);
  return true;
}

ac_status ac_image_encode_jpeg(const ac_tensor *t, int quality, void **out, size_t *n, ac_err *e) {
  *out = NULL;
  if (t->dtype != AC_U8 || t->ndim != 3 || !aci_is_contiguous(t) || t->numel == 0 ||
      (t->shape[2] != 1 && t->shape[2] != 3) || t->shape[0] > 65500 || t->shape[1] > 65500)
    return AC_FAIL(e, INVALID, "encode_jpeg: expected a u8 picture of 1 or 3 channels");
  if (quality < 1 || quality > 100)
    return AC_FAIL(e, INVALID, "encode_jpeg: quality must lie in 1 .. 100, got %d", quality);
  writer *w = calloc(1, sizeof *w);
  if (w == NULL) return AC_FAIL(e, OOM, "out of memory");
#define X(name) {"jpeg_" #name, &w->lib.name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  ac_status st = aci_library_open("jpeg", symbols, sizeof symbols / sizeof *symbols, e);
  if (st == AC_OK) {
    if (!guarded(w, t, quality)) st = AC_FAIL(e, INVALID, "encode_jpeg: %s", w->message);
    w->lib.destroy_compress(&w->c);
  }
  if (st == AC_OK) *out = aci_strbuf_take(&w->b, n);
  if (st == AC_OK && *out == NULL) st = AC_FAIL(e, OOM, "out of memory");
  aci_strbuf_fini(&w->b);
  free(w);
  return st;
}
#else
ac_status ac_image_encode_jpeg(const ac_tensor *t, int quality, void **out, size_t *n, ac_err *e) {
  (void)t, (void)quality, (void)out, (void)n;
  return aci_library_absent("jpeg", e);
}
#endif
