/* WAV: RIFF, RIFX (big-endian) and RF64 (EBU Tech 3306: sizes of 64 bits in a chunk ds64). Called by
 * sound.c.
 *
 * Sizes of 0xFFFFFFFF without a ds64 are those of a stream: the data goes to the end of the file. All
 * other sizes must be true. Codings that samples.c lacks are left to libsndfile. */
#include <stdlib.h>
#include <string.h>

#include "file/sound/sound.h"
#include "tensor/tensor_impl.h"

enum { PCM = 1, FLOAT = 3, ALAW = 6, ULAW = 7, EXTENSIBLE = 0xFFFE };
#define WAV "WAV file"

static uint64_t field(const ac_sound *s, const uint8_t *p, int n) {
  uint64_t v = 0;
  for (int i = 0; i < n; i++) v |= (uint64_t)p[s->big_endian ? n - 1 - i : i] << (8 * i);
  return v;
}

static bool choose_code(ac_sound *s, unsigned tag, unsigned bits) {
  const struct {
    unsigned tag, bits;
    aci_sample_code code;
    const char *name;
  } codes[] = {{PCM, 8, ACI_SAMPLE_U8, "PCM_U"},     {PCM, 16, ACI_SAMPLE_S16, "PCM_S"},
               {PCM, 24, ACI_SAMPLE_S24, "PCM_S"},   {PCM, 32, ACI_SAMPLE_S32, "PCM_S"},
               {FLOAT, 32, ACI_SAMPLE_F32, "PCM_F"}, {FLOAT, 64, ACI_SAMPLE_F64, "PCM_F"},
               {ULAW, 8, ACI_SAMPLE_ULAW, "ULAW"},   {ALAW, 8, ACI_SAMPLE_ALAW, "ALAW"}};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (codes[i].tag == tag && codes[i].bits == bits) {
      s->code = codes[i].code;
      s->info.encoding = codes[i].name;
      s->info.bits = (int)bits;
      return true;
    }
  return false;
}

/* The chunk fmt. *known: its coding is one of samples.c. */
static ac_status read_fmt(ac_sound *s, uint64_t at, uint64_t size, bool *known, ac_err *e) {
  /* the rest of the subtype that stands for a plain tag in an extensible fmt */
  static const uint8_t rest[] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
  uint8_t p[40] = {0};
  if (size < 16)
    return aci_sound_fault(s, WAV, e, "its chunk fmt has %llu bytes", (unsigned long long)size);
  const uint64_t n = size < sizeof p ? size : sizeof p;
  if (aci_sound_bytes(s, at, p, n) != (int64_t)n)
    return aci_sound_fault(s, WAV, e, "it ends in fmt");
  unsigned tag = (unsigned)field(s, p, 2);
  const unsigned bits = (unsigned)field(s, p + 14, 2), align = (unsigned)field(s, p + 12, 2);
  s->info.channels = (int64_t)field(s, p + 2, 2);
  s->info.rate = (int64_t)field(s, p + 4, 4);
  if (tag == EXTENSIBLE && size >= 40 && memcmp(p + 26, rest, sizeof rest) == 0)
    tag = (unsigned)field(s, p + 24, 2);
  if (s->info.channels < 1 || s->info.channels > 1024)
    return aci_sound_fault(s, WAV, e, "it has %lld channels", (long long)s->info.channels);
  if (s->info.rate == 0) return aci_sound_fault(s, WAV, e, "its sample rate is 0");
  *known = choose_code(s, tag, bits);
  if (!*known && (tag == PCM || tag == FLOAT))
    return aci_sound_fault(s, WAV, e, "%u bits a sample are not supported", bits);
  if (*known && align != (unsigned)(aci_sample_bytes(s->code) * s->info.channels))
    return aci_sound_fault(s, WAV, e, "frames of %u bytes for %lld channels of %u bits", align,
                           (long long)s->info.channels, bits);
  return AC_OK;
}

static ac_status read_data(ac_sound *s, uint64_t at, uint64_t size, bool streamed, ac_err *e) {
  const uint64_t frame = (uint64_t)aci_sample_bytes(s->code) * (uint64_t)s->info.channels;
  const uint64_t left = s->size - at;
  if (streamed) size = left;
  if (size > left)
    return aci_sound_fault(s, WAV, e, "its data has %llu of %llu bytes", (unsigned long long)left,
                           (unsigned long long)size);
  s->data = at;
  s->info.frames = (int64_t)(size / frame);
  return AC_OK;
}

static ac_status read_wav(ac_sound *s, int64_t first, int64_t n, float *to, int64_t *got,
                          ac_err *e) {
  const int64_t values = n * s->info.channels, bytes = aci_sample_bytes(s->code);
  uint8_t *raw = malloc((size_t)(values * bytes));
  if (raw == NULL) return AC_FAIL(e, OOM, "out of memory");
  const int64_t at = first * s->info.channels * bytes;
  const int64_t have = aci_sound_bytes(s, s->data + (uint64_t)at, raw, (uint64_t)(values * bytes));
  if (have == values * bytes) aci_samples_to_f32(s->code, s->big_endian, raw, values, to);
  free(raw);
  *got = n;
  if (have == values * bytes) return AC_OK;
  return AC_FAIL(e, IO, "%s: it was cut while it was read", s->name);
}

static const aci_sound_format reader = {read_wav, NULL};

ac_status aci_wav_open(ac_sound *s, bool *known, ac_err *e) {
  uint8_t p[36];
  *known = false;
  if (aci_sound_bytes(s, 0, p, 12) != 12 || memcmp(p + 8, "WAVE", 4) != 0) return AC_OK;
  const bool rf64 = memcmp(p, "RF64", 4) == 0;
  s->big_endian = memcmp(p, "RIFX", 4) == 0;
  if (!rf64 && !s->big_endian && memcmp(p, "RIFF", 4) != 0) return AC_OK;
  const bool streamed = field(s, p + 4, 4) == UINT32_MAX && !rf64;
  uint64_t at = 12, data_size = 0;
  bool has_fmt = false;
  while (s->size - at >= 8) {
    if (aci_sound_bytes(s, at, p, 8) != 8) break;
    uint64_t size = field(s, p + 4, 4);
    at += 8;
    if (memcmp(p, "data", 4) == 0) {
      if (!has_fmt) return aci_sound_fault(s, WAV, e, "it has no chunk fmt before its data");
      if (!*known) return AC_OK; /* libsndfile may know the coding */
      s->info.format = "wav";
      s->reader = &reader;
      return read_data(s, at, rf64 && size == UINT32_MAX ? data_size : size,
                       streamed && size == UINT32_MAX, e);
    }
    if (size > s->size - at)
      return aci_sound_fault(s, WAV, e, "the chunk at byte %llu is larger than the file",
                             (unsigned long long)(at - 8));
    if (memcmp(p, "ds64", 4) == 0 && rf64 && size >= 24 && aci_sound_bytes(s, at, p, 24) == 24)
      data_size = field(s, p + 8, 8);
    else if (memcmp(p, "fmt ", 4) == 0 && !has_fmt) {
      AC_TRY(read_fmt(s, at, size, known, e));
      has_fmt = true;
    }
    at += size + size % 2;
    if (at > s->size) break;
  }
  return aci_sound_fault(s, WAV, e, "it has no data");
}

ac_status aci_wav_read_native(ac_sound *s, int64_t first, ac_tensor *dst, ac_err *e) {
  const int bytes = aci_sample_bytes(s->code);
  const ac_dtype dt = s->code == ACI_SAMPLE_U8    ? AC_U8
                      : s->code == ACI_SAMPLE_S16 ? AC_I16
                                                  : AC_I32;
  if (s->reader != &reader || s->code > ACI_SAMPLE_S32 || dst->dtype != dt)
    return AC_FAIL(e, INVALID, "%s: its samples are not integers of a WAV file", s->name);
  const int64_t channels = s->info.channels, frames = dst->shape[1];
  const uint64_t n = (uint64_t)(frames * channels * bytes);
  uint8_t *raw = malloc(n + 1), *to = ac_tensor_data(dst);
  if (raw == NULL) return AC_FAIL(e, OOM, "out of memory");
  const uint64_t at = s->data + (uint64_t)(first * channels * bytes);
  const bool ok = aci_sound_bytes(s, at, raw, n) == (int64_t)n;
  for (int64_t i = 0; ok && i < frames; i++)
    for (int64_t c = 0; c < channels; c++) {
      const uint64_t v = field(s, raw + (i * channels + c) * bytes, bytes) << (bytes == 3 ? 8 : 0);
      const int64_t place = c * frames + i;
      const uint32_t wide = (uint32_t)v;
      const uint16_t narrow = (uint16_t)v;
      if (bytes == 1) to[place] = (uint8_t)v;
      else if (bytes == 2) memcpy(to + 2 * place, &narrow, 2);
      else memcpy(to + 4 * place, &wide, 4);
    }
  free(raw);
  return ok ? AC_OK : AC_FAIL(e, IO, "%s: it was cut while it was read", s->name);
}
