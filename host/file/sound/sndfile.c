/* Sounds by libsndfile: FLAC, Ogg (Vorbis, Opus), MP3, AIFF, AU and its other formats, both ways.
 * Called by sound.c and encode.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "base/strbuf.h"
#include "file/sound/sound.h"
#include "tensor/tensor_impl.h"

#ifdef ACCEL_HAVE_SNDFILE
#include <sndfile.h>

#define FUNCTIONS(X) \
  X(open_virtual) X(close) X(seek) X(readf_float) X(writef_float) X(strerror) X(error) X(command)

enum { MPEG = 0x230000, MPEG_LAYER_III = 0x82 }; /* SF_FORMAT_* of libsndfile from 1.1 on */

typedef struct functions {
#define X(name) __typeof__(sf_##name) *name;
  FUNCTIONS(X)
#undef X
} functions;

typedef struct sound {
  functions lib;
  SNDFILE *file;
  sf_count_t at;    /* byte where libsndfile reads */
  int64_t position; /* frame that comes next */
} sound;

static ac_status load(functions *f, ac_err *e) {
#define X(name) {"sf_" #name, &f->name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  return aci_library_open("sndfile", symbols, sizeof symbols / sizeof *symbols, e);
}

static sf_count_t sought(sf_count_t at, sf_count_t size, sf_count_t offset, int whence) {
  return whence == SEEK_CUR ? at + offset : whence == SEEK_END ? size + offset : offset;
}

static sf_count_t in_length(void *user) { return (sf_count_t)((ac_sound *)user)->size; }

static sf_count_t in_seek(sf_count_t offset, int whence, void *user) {
  ac_sound *s = user;
  sound *d = s->state;
  const sf_count_t at = sought(d->at, (sf_count_t)s->size, offset, whence);
  if (at < 0) return -1;
  return d->at = at;
}

static sf_count_t in_read(void *to, sf_count_t n, void *user) {
  ac_sound *s = user;
  sound *d = s->state;
  const int64_t got = n > 0 ? aci_sound_bytes(s, (uint64_t)d->at, to, (uint64_t)n) : 0;
  if (got > 0) d->at += got;
  return got < 0 ? 0 : got;
}

static sf_count_t in_write(const void *from, sf_count_t n, void *user) {
  (void)from;
  (void)n;
  (void)user;
  return 0;
}

static sf_count_t in_tell(void *user) { return ((sound *)((ac_sound *)user)->state)->at; }

static const struct {
  int value;
  const char *name, *encoding; /* encoding: of a format that has one alone */
} majors[] = {
    {SF_FORMAT_WAV, "wav", NULL},  {SF_FORMAT_WAVEX, "wav", NULL},
    {SF_FORMAT_RF64, "wav", NULL}, {SF_FORMAT_FLAC, "flac", "FLAC"},
    {SF_FORMAT_OGG, "ogg", NULL},  {SF_FORMAT_AIFF, "aiff", NULL},
    {SF_FORMAT_AU, "au", NULL},    {SF_FORMAT_CAF, "caf", NULL},
    {MPEG, "mp3", "MP3"},
};

static const struct {
  int value, bits;
  const char *name;
} minors[] = {
    {SF_FORMAT_PCM_S8, 8, "PCM_S"},  {SF_FORMAT_PCM_U8, 8, "PCM_U"},
    {SF_FORMAT_PCM_16, 16, "PCM_S"}, {SF_FORMAT_PCM_24, 24, "PCM_S"},
    {SF_FORMAT_PCM_32, 32, "PCM_S"}, {SF_FORMAT_FLOAT, 32, "PCM_F"},
    {SF_FORMAT_DOUBLE, 64, "PCM_F"}, {SF_FORMAT_ULAW, 8, "ULAW"},
    {SF_FORMAT_ALAW, 8, "ALAW"},     {SF_FORMAT_VORBIS, 0, "VORBIS"},
    {SF_FORMAT_OPUS, 0, "OPUS"},
};

static void describe(ac_sound *s, const SF_INFO *info) {
  s->info.format = "sound";
  s->info.encoding = "UNKNOWN";
  for (size_t i = 0; i < sizeof minors / sizeof *minors; i++)
    if ((info->format & SF_FORMAT_SUBMASK) == minors[i].value) {
      s->info.encoding = minors[i].name;
      s->info.bits = minors[i].bits;
    }
  for (size_t i = 0; i < sizeof majors / sizeof *majors; i++)
    if ((info->format & SF_FORMAT_TYPEMASK) == majors[i].value) {
      s->info.format = majors[i].name;
      if (majors[i].encoding != NULL) s->info.encoding = majors[i].encoding;
    }
  s->info.frames = info->frames;
  s->info.channels = info->channels;
  s->info.rate = info->samplerate;
}

static ac_status read_sound(ac_sound *s, int64_t first, int64_t n, float *to, int64_t *got,
                            ac_err *e) {
  sound *d = s->state;
  if (first != d->position && d->lib.seek(d->file, first, SEEK_SET) != first)
    return aci_sound_fault(s, s->info.format, e, "no frame %lld can be found", (long long)first);
  *got = d->lib.readf_float(d->file, to, n);
  d->position = first + *got;
  if (*got < n && d->lib.error(d->file) != 0)
    return aci_sound_fault(s, s->info.format, e, "%s", d->lib.strerror(d->file));
  return AC_OK;
}

static void close_sound(ac_sound *s) {
  sound *d = s->state;
  if (d != NULL && d->file != NULL) d->lib.close(d->file);
  free(d);
}

static const aci_sound_format reader = {read_sound, close_sound};

ac_status aci_sndfile_open(ac_sound *s, ac_err *e) {
  SF_VIRTUAL_IO io = {in_length, in_seek, in_read, in_write, in_tell};
  SF_INFO info = {0};
  sound *d = s->state = calloc(1, sizeof *d);
  if (d == NULL) return AC_FAIL(e, OOM, "out of memory");
  s->reader = &reader;
  AC_TRY(load(&d->lib, e));
  d->file = d->lib.open_virtual(&io, SFM_READ, &info, s);
  if (d->file == NULL)
    return aci_sound_fault(s, "sound file", e, "libsndfile: %s", d->lib.strerror(NULL));
  describe(s, &info);
  return AC_OK;
}

/* ---- writing ---- */

typedef struct sink {
  aci_strbuf b;
  size_t at;
} sink;

static sf_count_t out_length(void *user) { return (sf_count_t)((sink *)user)->b.len; }

static sf_count_t out_seek(sf_count_t offset, int whence, void *user) {
  sink *o = user;
  const sf_count_t at = sought((sf_count_t)o->at, (sf_count_t)o->b.len, offset, whence);
  if (at < 0) return -1;
  o->at = (size_t)at;
  return at;
}

static sf_count_t out_read(void *to, sf_count_t n, void *user) {
  sink *o = user;
  const size_t left = o->at < o->b.len ? o->b.len - o->at : 0;
  const size_t k = n < 0 ? 0 : (size_t)n < left ? (size_t)n : left;
  if (k > 0) memcpy(to, o->b.s + o->at, k);
  o->at += k;
  return (sf_count_t)k;
}

static sf_count_t out_write(const void *from, sf_count_t n, void *user) {
  sink *o = user;
  if (n <= 0) return 0;
  const size_t end = o->at + (size_t)n;
  if (end > o->b.len) {
    if (!aci_strbuf_reserve(&o->b, end - o->b.len)) return 0;
    memset(o->b.s + o->b.len, 0, end - o->b.len);
    o->b.len = end;
  }
  memcpy(o->b.s + o->at, from, (size_t)n);
  o->at += (size_t)n;
  return n;
}

static sf_count_t out_tell(void *user) { return (sf_count_t)((sink *)user)->at; }

/* The format of a name, an encoding and bits; 0 if libsndfile has no such format. */
static int format_of(const char *format, const char *encoding, int bits) {
  int major = 0, minor = 0;
  for (size_t i = 0; i < sizeof majors / sizeof *majors && major == 0; i++)
    if (strcmp(majors[i].name, format) == 0) major = majors[i].value;
  if (major == 0) return 0;
  if (encoding == NULL && strcmp(format, "ogg") == 0) encoding = "VORBIS";
  if (major == MPEG) return encoding == NULL ? MPEG | MPEG_LAYER_III : 0;
  if (encoding == NULL) encoding = "PCM_S";
  if (strcmp(format, "flac") == 0 && strcmp(encoding, "FLAC") == 0) encoding = "PCM_S";
  if (bits == 0)
    bits = strcmp(encoding, "PCM_S") == 0 ? 16 : strcmp(encoding, "PCM_F") == 0 ? 32 : 0;
  for (size_t i = 0; i < sizeof minors / sizeof *minors && minor == 0; i++)
    if (strcmp(minors[i].name, encoding) == 0 && (bits == 0 || bits == minors[i].bits))
      minor = minors[i].value;
  return minor == 0 ? 0 : major | minor;
}

static ac_status write_frames(const functions *lib, SNDFILE *file, const ac_tensor *t, ac_err *e) {
  const int64_t channels = t->shape[0], frames = t->shape[1];
  float *block = malloc(sizeof *block * ACI_SOUND_BLOCK * (size_t)channels);
  if (block == NULL) return AC_FAIL(e, OOM, "out of memory");
  ac_status st = AC_OK;
  for (int64_t at = 0; st == AC_OK && at < frames; at += ACI_SOUND_BLOCK) {
    const int64_t n = frames - at < ACI_SOUND_BLOCK ? frames - at : ACI_SOUND_BLOCK;
    for (int64_t i = 0; i < n; i++)
      for (int64_t c = 0; c < channels; c++)
        block[i * channels + c] = aci_sample_f32(t, c * frames + at + i);
    if (lib->writef_float(file, block, n) != n)
      st = AC_FAIL(e, INVALID, "save: %s", lib->strerror(file));
  }
  free(block);
  return st;
}

ac_status aci_sndfile_encode(const ac_tensor *t, int64_t rate, const char *format,
                             const char *encoding, int bits, void **out, size_t *n, ac_err *e) {
  SF_VIRTUAL_IO io = {out_length, out_seek, out_read, out_write, out_tell};
  functions lib;
  AC_TRY(load(&lib, e));
  SF_INFO info = {.samplerate = (int)rate, .channels = (int)t->shape[0]};
  info.format = format_of(format, encoding, bits);
  if (info.format == 0)
    return AC_FAIL(e, INVALID,
                   "save: format '%s' has no encoding %s of %d bits; leave out encoding and "
                   "bits_per_sample, or use wav",
                   format, encoding != NULL ? encoding : "(default)", bits);
  sink o = {0};
  SNDFILE *file = lib.open_virtual(&io, SFM_WRITE, &info, &o);
  ac_status st = AC_OK;
  if (file == NULL) {
    st = AC_FAIL(e, INVALID, "save: %s", lib.strerror(NULL));
  } else {
    lib.command(file, SFC_SET_CLIPPING, NULL, SF_TRUE); /* as the WAV writer does */
    st = write_frames(&lib, file, t, e);
    lib.close(file);
  }
  if (st == AC_OK && o.b.failed) st = AC_FAIL(e, OOM, "out of memory");
  if (st == AC_OK) *out = aci_strbuf_take(&o.b, n);
  aci_strbuf_fini(&o.b);
  return st;
}
#else
ac_status aci_sndfile_open(ac_sound *s, ac_err *e) {
  (void)s;
  return aci_library_absent("sndfile", e);
}

ac_status aci_sndfile_encode(const ac_tensor *t, int64_t rate, const char *format,
                             const char *encoding, int bits, void **out, size_t *n, ac_err *e) {
  (void)t, (void)rate, (void)format, (void)encoding, (void)bits, (void)out, (void)n;
  return aci_library_absent("sndfile", e);
}
#endif
