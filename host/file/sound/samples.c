/* Codings of samples, of WAV files. Called by wav.c and encode.c. mu-law and A-law: ITU-T G.711. */
#include <math.h>
#include <string.h>

#include "file/sound/sound.h"
#include "tensor/tensor_impl.h"

int aci_sample_bytes(aci_sample_code code) {
  static const int bytes[] = {1, 2, 3, 4, 4, 8, 1, 1};
  return bytes[code];
}

static uint64_t number(const uint8_t *p, int n, bool big_endian) {
  uint64_t v = 0;
  for (int i = 0; i < n; i++) v |= (uint64_t)p[big_endian ? n - 1 - i : i] << (8 * i);
  return v;
}

/* In units of 1 / 32768. */
static int mu_law(uint8_t byte) {
  const int v = ~byte & 0xFF;
  const int size = ((((v & 15) << 3) + 132) << (v >> 4 & 7)) - 132;
  return v & 0x80 ? -size : size;
}

static int a_law(uint8_t byte) {
  const int v = byte ^ 0x55, exponent = v >> 4 & 7;
  const int base = ((v & 15) << 4) + 8;
  const int size = exponent == 0 ? base : (base + 256) << (exponent - 1);
  return v & 0x80 ? size : -size;
}

static float one(aci_sample_code code, uint64_t v) {
  double d;
  float f;
  switch (code) {
    case ACI_SAMPLE_U8: return (float)((int)v - 128) / 128.0f;
    case ACI_SAMPLE_S16: return (float)(int16_t)v / 32768.0f;
    case ACI_SAMPLE_S24: return (float)((int32_t)(uint32_t)(v << 8) >> 8) / 8388608.0f;
    case ACI_SAMPLE_S32: return (float)(int32_t)v / 2147483648.0f;
    case ACI_SAMPLE_F32: {
      const uint32_t bits = (uint32_t)v;
      memcpy(&f, &bits, sizeof f);
      return f;
    }
    case ACI_SAMPLE_F64: memcpy(&d, &v, sizeof d); return (float)d;
    case ACI_SAMPLE_ULAW: return (float)mu_law((uint8_t)v) / 32768.0f;
    case ACI_SAMPLE_ALAW: return (float)a_law((uint8_t)v) / 32768.0f;
  }
  return 0;
}

void aci_samples_to_f32(aci_sample_code code, bool big_endian, const uint8_t *from, int64_t n,
                        float *to) {
  const int bytes = aci_sample_bytes(code);
  if (code == ACI_SAMPLE_S16 && !big_endian) { /* by far the most */
    for (int64_t i = 0; i < n; i++)
      to[i] = (float)(int16_t)(from[2 * i] | from[2 * i + 1] << 8) / 32768.0f;
    return;
  }
  for (int64_t i = 0; i < n; i++) to[i] = one(code, number(from + i * bytes, bytes, big_endian));
}

float aci_sample_f32(const ac_tensor *t, int64_t i) {
  const void *p = ac_tensor_data((ac_tensor *)(uintptr_t)t);
  switch (t->dtype) {
    case AC_U8: return (float)(((const uint8_t *)p)[i] - 128) / 128.0f;
    case AC_I16: return (float)((const int16_t *)p)[i] / 32768.0f;
    case AC_I32: return (float)((const int32_t *)p)[i] / 2147483648.0f;
    default: return ((const float *)p)[i];
  }
}

/* A sample as an integer of so many bits, rounded to even and cut at the largest. Integers are moved
 * by whole bits. */
static int64_t integer_of(const ac_tensor *t, int64_t i, int bits) {
  const void *p = ac_tensor_data((ac_tensor *)(uintptr_t)t);
  int64_t v;
  int have;
  switch (t->dtype) {
    case AC_U8: v = ((const uint8_t *)p)[i] - 128, have = 8; break;
    case AC_I16: v = ((const int16_t *)p)[i], have = 16; break;
    case AC_I32: v = ((const int32_t *)p)[i], have = 32; break;
    default: {
      const double most = (double)(INT64_C(1) << (bits - 1));
      const double x = rint((double)((const float *)p)[i] * most);
      if (!(x > -most)) return x != x ? 0 : -(int64_t)most;
      return x >= most ? (int64_t)most - 1 : (int64_t)x;
    }
  }
  return bits >= have ? v * (INT64_C(1) << (bits - have)) : v >> (have - bits);
}

static uint64_t code_of(const ac_tensor *t, int64_t i, aci_sample_code code) {
  const float f = code == ACI_SAMPLE_F32 || code == ACI_SAMPLE_F64 ? aci_sample_f32(t, i) : 0;
  const double d = f;
  uint64_t wide;
  uint32_t narrow;
  switch (code) {
    case ACI_SAMPLE_U8: return (uint64_t)(integer_of(t, i, 8) + 128);
    case ACI_SAMPLE_S16: return (uint64_t)integer_of(t, i, 16);
    case ACI_SAMPLE_S24: return (uint64_t)integer_of(t, i, 24);
    case ACI_SAMPLE_S32: return (uint64_t)integer_of(t, i, 32);
    case ACI_SAMPLE_F32: memcpy(&narrow, &f, sizeof narrow); return narrow;
    default: memcpy(&wide, &d, sizeof wide); return wide;
  }
}

void aci_samples_from(const ac_tensor *t, aci_sample_code code, int64_t first, int64_t n,
                      uint8_t *to) {
  const int bytes = aci_sample_bytes(code);
  const int64_t channels = t->shape[0], frames = t->shape[1];
  for (int64_t i = first; i < first + n; i++)
    for (int64_t c = 0; c < channels; c++) {
      const uint64_t v = code_of(t, c * frames + i, code);
      for (int k = 0; k < bytes; k++) *to++ = (uint8_t)(v >> (8 * k));
    }
}
