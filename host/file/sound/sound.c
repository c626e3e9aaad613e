/* The public calls of accel/sound.h. Called by the bindings of accel.audio. */
#include "file/sound/sound.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/io.h"
#include "tensor/tensor_impl.h"

ac_status aci_sound_fault(const ac_sound *s, const char *what, ac_err *e, const char *fmt, ...) {
  char text[300];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return AC_FAIL(e, PARSE, "%s: not a valid %s: %s", s->name, what, text);
}

int64_t aci_sound_bytes(const ac_sound *s, uint64_t at, void *to, uint64_t n) {
  if (at >= s->size) return 0;
  if (n > s->size - at) n = s->size - at;
  if (s->fd < 0) {
    memcpy(to, s->bytes + at, n);
    return (int64_t)n;
  }
  uint64_t got = 0;
  while (got < n) {
    ssize_t k;
    ACI_AGAIN(k, pread(s->fd, (char *)to + got, n - got, (off_t)(at + got)));
    if (k < 0) return -1;
    if (k == 0) break;
    got += (uint64_t)k;
  }
  return (int64_t)got;
}

/* A header may claim any length. The best codecs put at most this many frames into a byte (FLAC: 65535
 * equal samples in a frame of 9 bytes). */
static ac_status check(const ac_sound *s, ac_err *e) {
  const ac_sound_info *i = &s->info;
  if (i->channels < 1 || i->channels > 1024)
    return aci_sound_fault(s, "sound", e, "it has %lld channels", (long long)i->channels);
  if (i->rate < 1 || i->rate > INT32_MAX)
    return aci_sound_fault(s, "sound", e, "its sample rate is %lld", (long long)i->rate);
  if (i->frames < 0 || (uint64_t)i->frames / 8192 > s->size)
    return aci_sound_fault(s, "sound", e,
                           "its header promises %lld frames, more than %llu bytes hold",
                           (long long)i->frames, (unsigned long long)s->size);
  return AC_OK;
}

static ac_status open_reader(ac_sound *s, ac_err *e) {
  bool wav = false;
  if (s->size == 0) return aci_sound_fault(s, "sound", e, "it is empty");
  AC_TRY(aci_wav_open(s, &wav, e));
  if (!wav) {
    ac_err own;
    const ac_status st = aci_sndfile_open(s, &own);
    if (st == AC_UNSUPPORTED) return AC_FAIL(e, UNSUPPORTED, "%s: %s", s->name, own.msg);
    if (st != AC_OK && e != NULL) *e = own;
    if (st != AC_OK) return st;
  }
  return check(s, e);
}

static ac_status begin(ac_sound *s, const char *name, ac_sound **out, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  snprintf(s->name, sizeof s->name, "%s", aci_path_shown(name, shown));
  const ac_status st = open_reader(s, e);
  if (st == AC_OK) *out = s;
  else ac_sound_close(s);
  return st;
}

ac_status ac_sound_open(const char *path, ac_sound **out, ac_err *e) {
  *out = NULL;
  ac_sound *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "out of memory");
  const ac_status st = aci_open_read(path, &s->fd, &s->size, e);
  if (st != AC_OK) {
    free(s);
    return st;
  }
  return begin(s, path, out, e);
}

ac_status ac_sound_open_bytes(const void *bytes, size_t n, const char *name, ac_sound **out,
                              ac_err *e) {
  *out = NULL;
  ac_sound *s = calloc(1, sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "out of memory");
  s->fd = -1;
  s->bytes = bytes;
  s->size = n;
  return begin(s, name, out, e);
}

void ac_sound_about(const ac_sound *s, ac_sound_info *info) { *info = s->info; }

static ac_status read_blocks(ac_sound *s, int64_t first, float *to, int64_t frames, float *block,
                             ac_err *e) {
  const int64_t channels = s->info.channels;
  for (int64_t at = 0; at < frames;) {
    const int64_t n = frames - at < ACI_SOUND_BLOCK ? frames - at : ACI_SOUND_BLOCK;
    int64_t got = 0;
    AC_TRY(s->reader->read(s, first + at, n, block, &got, e));
    if (got <= 0)
      return aci_sound_fault(s, "sound", e, "it ends after %lld of %lld frames",
                             (long long)(first + at), (long long)s->info.frames);
    for (int64_t c = 0; c < channels; c++)
      for (int64_t i = 0; i < got; i++) to[c * frames + at + i] = block[i * channels + c];
    at += got;
  }
  return AC_OK;
}

ac_status ac_sound_read(ac_sound *s, int64_t first, ac_tensor *dst, ac_err *e) {
  if (dst->ndim != 2 || dst->shape[0] != s->info.channels || !aci_is_contiguous(dst) || first < 0 ||
      first > s->info.frames || dst->shape[1] > s->info.frames - first)
    return AC_FAIL(e, SHAPE, "%s: the tensor does not fit the frames asked for", s->name);
  if (dst->dtype != AC_F32) return aci_wav_read_native(s, first, dst, e);
  float *block = malloc(sizeof *block * ACI_SOUND_BLOCK * (size_t)s->info.channels);
  if (block == NULL) return AC_FAIL(e, OOM, "out of memory");
  const ac_status st = read_blocks(s, first, ac_tensor_data(dst), dst->shape[1], block, e);
  free(block);
  return st;
}

void ac_sound_close(ac_sound *s) {
  if (s == NULL) return;
  if (s->reader != NULL && s->reader->close != NULL) s->reader->close(s);
  if (s->fd >= 0) close(s->fd);
  free(s);
}
