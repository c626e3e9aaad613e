/* Sounds to bytes. WAV is written here, other formats by libsndfile. Called by the bindings of
 * accel.audio. */
#include <stdlib.h>
#include <string.h>

#include "file/sound/sound.h"
#include "tensor/tensor_impl.h"

/* The coding of a WAV, by torchaudio's rules. false: there is none. */
static bool wav_code(const ac_tensor *t, const char *encoding, int bits, aci_sample_code *code) {
  const bool real = t->dtype == AC_F32;
  if (encoding == NULL)
    encoding = bits == 8 || (bits == 0 && t->dtype == AC_U8)      ? "PCM_U"
               : bits == 16 || bits == 24 || (bits == 0 && !real) ? "PCM_S"
               : real                                             ? "PCM_F"
                                                                  : "PCM_S";
  if (bits == 0)
    bits = strcmp(encoding, "PCM_U") == 0   ? 8
           : strcmp(encoding, "PCM_F") == 0 ? 32
           : t->dtype == AC_I32             ? 32
                                            : 16;
  if (strcmp(encoding, "PCM_U") == 0) *code = ACI_SAMPLE_U8;
  else if (strcmp(encoding, "PCM_F") == 0) *code = bits == 64 ? ACI_SAMPLE_F64 : ACI_SAMPLE_F32;
  else if (strcmp(encoding, "PCM_S") == 0)
    *code = bits == 16 ? ACI_SAMPLE_S16 : bits == 24 ? ACI_SAMPLE_S24 : ACI_SAMPLE_S32;
  else return false;
  return aci_sample_bytes(*code) * 8 == bits;
}

static uint8_t *put(uint8_t *p, uint64_t v, int n) {
  for (int i = 0; i < n; i++) *p++ = (uint8_t)(v >> (8 * i));
  return p;
}

/* RIFF, with a fact chunk for floats, as Microsoft asks. */
static ac_status encode_wav(const ac_tensor *t, int64_t rate, aci_sample_code code, void **out,
                            size_t *n, ac_err *e) {
  const bool real = code == ACI_SAMPLE_F32 || code == ACI_SAMPLE_F64;
  const uint64_t channels = (uint64_t)t->shape[0], frames = (uint64_t)t->shape[1];
  const uint64_t bytes = (uint64_t)aci_sample_bytes(code), data = channels * frames * bytes;
  const uint64_t head = real ? 58 : 44;
  if (data > UINT32_MAX - head)
    return AC_FAIL(e, INVALID,
                   "save: %llu bytes of samples are more than a WAV file holds; use flac",
                   (unsigned long long)data);
  uint8_t *all = malloc(head + data + 1), *p = all;
  if (all == NULL) return AC_FAIL(e, OOM, "out of memory");
  memcpy(p, "RIFF", 4);
  p = put(p + 4, head - 8 + data + data % 2, 4);
  memcpy(p, "WAVEfmt ", 8);
  p = put(p + 8, real ? 18 : 16, 4);
  p = put(p, real ? 3 : 1, 2);
  p = put(p, channels, 2);
  p = put(p, (uint64_t)rate, 4);
  p = put(p, (uint64_t)rate * channels * bytes, 4);
  p = put(p, channels * bytes, 2);
  p = put(p, bytes * 8, 2);
  if (real) {
    p = put(p, 0, 2);
    memcpy(p, "fact", 4);
    p = put(p + 4, 4, 4);
    p = put(p, frames, 4);
  }
  memcpy(p, "data", 4);
  p = put(p + 4, data, 4);
  aci_samples_from(t, code, 0, (int64_t)frames, p);
  if (data % 2 != 0) p[data] = 0;
  *out = all;
  *n = head + data + data % 2;
  return AC_OK;
}

ac_status ac_sound_encode(const ac_tensor *t, int64_t rate, const char *format,
                          const char *encoding, int bits, void **out, size_t *n, ac_err *e) {
  const bool known =
      t->dtype == AC_F32 || t->dtype == AC_I16 || t->dtype == AC_I32 || t->dtype == AC_U8;
  if (t->ndim != 2 || !aci_is_contiguous(t) || !known)
    return AC_FAIL(e, INVALID, "save: expected f32, i16, i32 or u8 of shape [channels, frames]");
  if (t->shape[0] < 1 || t->shape[0] > 1024)
    return AC_FAIL(e, INVALID, "save: %lld channels; expected 1 to 1024", (long long)t->shape[0]);
  if (rate < 1 || rate > INT32_MAX)
    return AC_FAIL(e, INVALID, "save: sample rate %lld", (long long)rate);
  aci_sample_code code;
  if (strcmp(format, "wav") == 0 && wav_code(t, encoding, bits, &code))
    return encode_wav(t, rate, code, out, n, e);
  return aci_sndfile_encode(t, rate, format, encoding, bits, out, n, e);
}
