/* JPEG by libjpeg-turbo. Called by image.c.
 *
 * The defaults of the library: exact integer DCT, smooth chroma upsampling. A warning of the library
 * for damaged data is an error here, and so are bytes that end before the picture does. CMYK is
 * inverted where Adobe's marker tells so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "file/image/image.h"

static bool matches(const uint8_t *p, size_t n) {
  return n >= 3 && p[0] == 0xFF && p[1] == 0xD8 && p[2] == 0xFF;
}

#ifdef ACCEL_HAVE_JPEG
#include <setjmp.h>
/* after stdio.h, which it needs */
#include <jpeglib.h>
/* the numbers of messages */
#include <jerror.h>

#define FUNCTIONS(X)    \
  X(std_error)          \
  X(CreateDecompress)   \
  X(destroy_decompress) \
  X(save_markers)       \
  X(read_header)        \
  X(resync_to_restart)  \
  X(calc_output_dimensions) X(start_decompress) X(read_scanlines) X(finish_decompress)

enum { APP1 = JPEG_APP0 + 1, MAX_SCANS = 500 };

typedef struct jpeg {
  struct jpeg_decompress_struct c;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  struct {
#define X(name) __typeof__(jpeg_##name) *name;
    FUNCTIONS(X)
#undef X
  } lib;
  jmp_buf jump; /* set during each call into the library */
  bool created;
  char message[JMSG_LENGTH_MAX];
} jpeg;

static void fail(jpeg *j, const char *text) {
  snprintf(j->message, sizeof j->message, "%s", text);
  longjmp(j->jump, 1);
}

static void on_error(j_common_ptr c) {
  jpeg *j = c->client_data;
  c->err->format_message(c, j->message);
  longjmp(j->jump, 1);
}

/* Warnings are negative levels, and those of other levels are for tracing. */
static void on_message(j_common_ptr c, int level) {
  static const int harmless[] = {JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR};
  if (level >= 0) return;
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (c->err->msg_code == harmless[i]) return;
  on_error(c);
}

static void on_text(j_common_ptr c) { (void)c; }
static void on_source(j_decompress_ptr c) { (void)c; }

static boolean on_empty(j_decompress_ptr c) {
  fail(c->client_data, "it ends before the picture does");
  return FALSE;
}

static void on_skip(j_decompress_ptr c, long n) {
  if (n <= 0) return;
  if ((size_t)n > c->src->bytes_in_buffer)
    fail(c->client_data, "a segment is longer than the file");
  c->src->next_input_byte += n;
  c->src->bytes_in_buffer -= (size_t)n;
}

/* Thousands of scans in a small file take hours. */
static void on_progress(j_common_ptr c) {
  if (((j_decompress_ptr)c)->input_scan_number > MAX_SCANS)
    fail(c->client_data, "it has more than 500 scans");
}

/* Runs work with errors as its result. */
static ac_status guarded(ac_image *im, void (*work)(ac_image *im, jpeg *j), ac_err *e) {
  jpeg *j = im->state;
  if (setjmp(j->jump) != 0) return aci_image_fault(im, e, "%s", j->message);
  work(im, j);
  return AC_OK;
}

static void read_header(ac_image *im, jpeg *j) {
  struct jpeg_decompress_struct *c = &j->c;
  c->err = j->lib.std_error(&j->errors);
  j->errors.error_exit = on_error;
  j->errors.emit_message = on_message;
  j->errors.output_message = on_text;
  c->client_data = j;
  j->lib.CreateDecompress(c, JPEG_LIB_VERSION, sizeof *c);
  j->created = true;
  c->client_data = j; /* CreateDecompress keeps it, but older versions did not */
  j->source = (struct jpeg_source_mgr){.next_input_byte = im->bytes,
                                       .bytes_in_buffer = im->n,
                                       .init_source = on_source,
                                       .fill_input_buffer = on_empty,
                                       .skip_input_data = on_skip,
                                       .resync_to_restart = j->lib.resync_to_restart,
                                       .term_source = on_source};
  c->src = &j->source;
  j->progress.progress_monitor = on_progress;
  c->progress = &j->progress;
  j->lib.save_markers(c, APP1, 0xFFFF);
  j->lib.read_header(c, TRUE);
}

/* The smallest scale of n/8 at which the picture has the size asked for. */
static void choose_scale(const ac_image *im, jpeg *j) {
  const bool turned = im->o.apply_orientation && im->orientation >= 5;
  const int64_t h = turned ? im->o.draft_width : im->o.draft_height;
  const int64_t w = turned ? im->o.draft_height : im->o.draft_width;
  const unsigned most = h > 0 || w > 0 ? 8 : 0;
  for (unsigned scale = 1; scale <= most; scale++) {
    j->c.scale_num = scale;
    j->c.scale_denom = 8;
    j->lib.calc_output_dimensions(&j->c);
    if (j->c.output_height >= h && j->c.output_width >= w) return;
  }
  j->c.scale_num = j->c.scale_denom = 1;
}

static void choose_output(ac_image *im, jpeg *j) {
  struct jpeg_decompress_struct *c = &j->c;
  for (jpeg_saved_marker_ptr m = c->marker_list; m != NULL && im->orientation == 1; m = m->next)
    if (m->marker == APP1 && m->data_length > 6 && memcmp(m->data, "Exif\0", 6) == 0)
      im->orientation = aci_exif_orientation(m->data + 6, m->data_length - 6);
  const bool gray = im->o.mode == AC_IMAGE_GRAY || im->o.mode == AC_IMAGE_GRAY_ALPHA;
  if (c->jpeg_color_space == JCS_CMYK || c->jpeg_color_space == JCS_YCCK) {
    c->out_color_space = JCS_CMYK;
    im->kind = ACI_IMAGE_CMYK;
  } else if (c->num_components == 1
                 ? im->o.mode == AC_IMAGE_UNCHANGED || gray
                 : gray && c->jpeg_color_space == JCS_YCbCr) { /* its luma is the gray picture */
    c->out_color_space = JCS_GRAYSCALE;
    im->kind = ACI_IMAGE_GRAY;
  } else if (c->num_components == 1 || c->num_components == 3) {
    c->out_color_space = JCS_RGB;
    im->kind = ACI_IMAGE_RGB;
  } else {
    fail(j, "it has neither 1, 3 nor 4 components");
  }
  choose_scale(im, j);
  j->lib.calc_output_dimensions(c);
  im->width = c->output_width;
  im->height = c->output_height;
}

static ac_status open_jpeg(ac_image *im, ac_err *e) {
  jpeg *j = im->state = calloc(1, sizeof *j);
  if (j == NULL) return AC_FAIL(e, OOM, "out of memory");
#define X(name) {"jpeg_" #name, &j->lib.name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  AC_TRY(aci_library_open("jpeg", symbols, sizeof symbols / sizeof *symbols, e));
  AC_TRY(guarded(im, read_header, e));
  AC_TRY(aci_image_check_size(im, j->c.image_width, j->c.image_height, e));
  return guarded(im, choose_output, e);
}

static void read_rows(ac_image *im, jpeg *j) {
  struct jpeg_decompress_struct *c = &j->c;
  const bool inverted = im->kind == ACI_IMAGE_CMYK && c->saw_Adobe_marker;
  const size_t bytes = aci_image_row_bytes(im);
  j->lib.start_decompress(c);
  for (int64_t y = 0; y < im->height; y++) {
    JSAMPROW row = aci_image_row(im, y);
    if (j->lib.read_scanlines(c, &row, 1) != 1) fail(j, "it ends before the picture does");
    for (size_t i = 0; inverted && i < bytes; i++) row[i] = (uint8_t)(255 - row[i]);
    aci_image_row_done(im, y);
  }
  j->lib.finish_decompress(c);
}

static ac_status read_jpeg(ac_image *im, ac_err *e) { return guarded(im, read_rows, e); }

static void close_jpeg(ac_image *im) {
  jpeg *j = im->state;
  if (j != NULL && j->created) j->lib.destroy_decompress(&j->c);
  free(j);
}

const aci_image_format aci_image_jpeg = {"jpeg", matches, open_jpeg, read_jpeg, close_jpeg};
#else
static ac_status open_jpeg(ac_image *im, ac_err *e) {
  (void)im;
  return aci_library_absent("jpeg", e);
}

const aci_image_format aci_image_jpeg = {"jpeg", matches, open_jpeg, NULL, NULL};
#endif
