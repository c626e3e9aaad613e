/* Fuzz entry of the readers of sounds: any bytes are refused with a message that names them, or are a sound whose frames can be read. Built
 * with libFuzzer by clang, with driver.c otherwise (CMakeLists.txt here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/device.h"
#include "accel/sound.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

enum { MOST = 1 << 20 }; /* values that are read */

/* What libsndfile 1.2.0 leaves behind of Ogg files that it refuses. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libvorbis\nleak:libsndfile\nleak:libogg\nleak:libmpg123\n"; }

static ac_device *cpu;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  ac_sound *s;
  if (cpu == NULL) REQUIRE(ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &cpu, &e) == AC_OK);
  const ac_status st = ac_sound_open_bytes(data, n, "input", &s, &e);
  if (st != AC_OK) {
    REQUIRE((st == AC_PARSE || st == AC_UNSUPPORTED) && s == NULL && strncmp(e.msg, "input: ", 7) == 0);
    return 0;
  }
  ac_sound_info about;
  ac_sound_about(s, &about);
  REQUIRE(about.channels >= 1 && about.channels <= 1024 && about.rate > 0 && about.frames >= 0);
  const int64_t most = MOST / about.channels;
  const int64_t shape[] = {about.channels, about.frames < most ? about.frames : most};
  ac_tensor *out = NULL;
  REQUIRE(ac_tensor_new(cpu, AC_F32, 2, shape, &out, &e) == AC_OK);
  if (ac_sound_read(s, 0, out, &e) != AC_OK) REQUIRE(strncmp(e.msg, "input: ", 7) == 0);
  ac_tensor_release(out);
  ac_sound_close(s);
  REQUIRE(ac_tensor_live() == 0);
  return 0;
}
