/* Fuzz entry of the readers of pictures: any bytes are refused with a message that names them, or are a picture of the size that its header
 * promised. The mode of the result depends on the bytes, so that every conversion runs. Formats whose library is missing are refused as
 * unsupported. Built with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/device.h"
#include "accel/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

static ac_device *cpu;
static uint64_t sum; /* bytes that were looked at, so that sanitizers see every one */

static void decode(const uint8_t *data, size_t n, ac_image_options *o) {
  ac_err e;
  ac_image *im;
  const ac_status st = ac_image_open(data, n, o, &im, &e);
  if (st != AC_OK) {
    REQUIRE((st == AC_PARSE || st == AC_UNSUPPORTED) && im == NULL && strncmp(e.msg, "input: ", 7) == 0);
    return;
  }
  ac_image_info about;
  ac_image_about(im, &about);
  REQUIRE(about.height > 0 && about.width > 0 && about.height * about.width <= o->max_pixels);
  REQUIRE(about.channels >= 1 && about.channels <= 4 && about.orientation >= 1 && about.orientation <= 8);
  const int64_t shape[] = {about.height, about.width, about.channels};
  ac_tensor *out = NULL;
  REQUIRE(ac_tensor_new(cpu, about.dtype, 3, shape, &out, &e) == AC_OK);
  if (ac_image_decode(im, out, &e) == AC_OK) {
    const uint8_t *p = ac_tensor_data(out);
    for (uint64_t i = 0; i < (uint64_t)ac_tensor_numel(out) * ac_dtype_bytes(about.dtype); i++) sum += p[i];
  } else {
    REQUIRE(strncmp(e.msg, "input: ", 7) == 0);
  }
  ac_tensor_release(out);
  ac_image_close(im);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  if (cpu == NULL) REQUIRE(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &cpu, &e) == AC_OK);
  unsigned hash = (unsigned)n;
  for (size_t i = 0; i < n; i++) hash = hash * 31 + data[i];
  ac_image_options o = {.struct_size = sizeof o,
                        .name = "input",
                        .mode = (ac_image_mode)(hash % 5),
                        .apply_orientation = hash / 5 % 2,
                        .eight_bits = hash / 10 % 2,
                        .max_pixels = 1 << 18,
                        .draft_width = hash / 20 % 3 == 0 ? 9 : 0};
  o.draft_height = o.draft_width;
  decode(data, n, &o);
  REQUIRE(ac_tensor_live() == 0);
  return 0;
}
