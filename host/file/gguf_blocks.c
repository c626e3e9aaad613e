/* Types of GGUF's tensors: the bytes of their blocks, blocks to f32 and f32 to blocks. Types with
 * blocks of 256 elements are in gguf_k.c, gguf_iq.c and gguf_k_write.c. Called by gguf.c and gguf_write.c. */
#include <math.h>
#include <string.h>

#include "file/gguf_types.h"

enum { BLOCK = 32, NV_BLOCK = 64, BIT_BLOCK = 128, N_TYPES = 42 };

/* Nibbles: the low ones are elements 0 .. 15, the high ones 16 .. 31. bits: the fifth of each, or
 * 0. */
static void nibbles(const unsigned char *q, uint32_t bits, int zero, float *y) {
  for (int j = 0; j < BLOCK / 2; j++) {
    y[j] = (float)(((q[j] & 15) | (int)(bits >> j & 1) << 4) - zero);
    y[j + BLOCK / 2] = (float)((q[j] >> 4 | (int)(bits >> (j + 16) & 1) << 4) - zero);
  }
}

static void scaled(float *y, float d) {
  for (int j = 0; j < BLOCK; j++) y[j] *= d;
}

static void scaled_and_moved(float *y, float d, float m) {
  for (int j = 0; j < BLOCK; j++) y[j] = y[j] * d + m;
}

static void from_q4_0(const unsigned char *p, float *y) {
  nibbles(p + 2, 0, 8, y);
  scaled(y, aci_gguf_half(p));
}
static void from_q4_1(const unsigned char *p, float *y) {
  nibbles(p + 4, 0, 0, y);
  scaled_and_moved(y, aci_gguf_half(p), aci_gguf_half(p + 2));
}
static void from_q5_0(const unsigned char *p, float *y) {
  nibbles(p + 6, aci_gguf_u32(p + 2), 16, y);
  scaled(y, aci_gguf_half(p));
}
static void from_q5_1(const unsigned char *p, float *y) {
  nibbles(p + 8, aci_gguf_u32(p + 4), 0, y);
  scaled_and_moved(y, aci_gguf_half(p), aci_gguf_half(p + 2));
}
static void bytes_of(const unsigned char *q, float d, float *y) {
  for (int j = 0; j < BLOCK; j++) y[j] = (float)(int8_t)q[j] * d;
}
static void from_q8_0(const unsigned char *p, float *y) { bytes_of(p + 2, aci_gguf_half(p), y); }
static void from_q8_1(const unsigned char *p, float *y) { bytes_of(p + 4, aci_gguf_half(p), y); }

/* IQ4_NL: 16 values that are denser around 0. */
void aci_gguf_nl_nibbles(const unsigned char *q, float scale, float *y) {
  static const signed char value[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
  for (int j = 0; j < BLOCK / 2; j++) {
    y[j] = scale * (float)value[q[j] & 15];
    y[j + BLOCK / 2] = scale * (float)value[q[j] >> 4];
  }
}
static void from_iq4_nl(const unsigned char *p, float *y) {
  aci_gguf_nl_nibbles(p + 2, aci_gguf_half(p), y);
}

/* Twice the value of an e2m1 code, an integer. */
static float e2m1_twice(int code) {
  static const signed char value[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  return (float)(code & 8 ? -value[code & 7] : value[code & 7]);
}

/* MXFP4: e2m1 codes times 2^(byte - 127). */
static void from_mxfp4(const unsigned char *p, float *y) {
  const float half = ldexpf(1, p[0] - 128);
  for (int j = 0; j < BLOCK / 2; j++) {
    y[j] = e2m1_twice(p[1 + j] & 15) * half;
    y[j + BLOCK / 2] = e2m1_twice(p[1 + j] >> 4) * half;
  }
}

/* NVFP4: 4 parts of 16 e2m1 codes with a scale of 8 bits each, e4m3 without a sign. */
static void from_nvfp4(const unsigned char *p, float *y) {
  for (int s = 0; s < 4; s++) {
    const int exponent = p[s] >> 3 & 15, fraction = p[s] & 7;
    const float d =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(fraction + 8), exponent - 10);
    const float half = (p[s] & 0x7f) == 0x7f ? 0 : d / 2;
    for (int j = 0; j < 8; j++) {
      y[16 * s + j] = e2m1_twice(p[4 + 8 * s + j] & 15) * half;
      y[16 * s + 8 + j] = e2m1_twice(p[4 + 8 * s + j] >> 4) * half;
    }
  }
}

/* Q1_0: a sign for each element. */
static void from_q1_0(const unsigned char *p, float *y) {
  const float d = aci_gguf_half(p);
  for (int j = 0; j < BIT_BLOCK; j++) y[j] = p[2 + j / 8] >> (j % 8) & 1 ? d : -d;
}

/* ---- the way back, rounded as llama.cpp does ---- */

static void to_q8_0(const float *x, unsigned char *p) {
  float most = 0;
  for (int j = 0; j < BLOCK; j++) most = fmaxf(most, fabsf(x[j]));
  const float d = most / 127, inverse = d != 0 ? 1 / d : 0;
  aci_gguf_put_half(p, d);
  for (int j = 0; j < BLOCK; j++) p[2 + j] = (unsigned char)(int8_t)roundf(x[j] * inverse);
}

static int cut(float v, int most) { return v < 0 ? 0 : v > (float)most ? most : (int)v; }

/* Codes of `most` + 1 values: nibbles to q, fifth bits returned. */
static uint32_t put_codes(const float *x, float inverse, float shift, int most, unsigned char *q) {
  uint32_t fifth = 0;
  for (int j = 0; j < BLOCK / 2; j++) {
    const int low = cut(x[j] * inverse + shift, most);
    const int high = cut(x[j + BLOCK / 2] * inverse + shift, most);
    q[j] = (unsigned char)((low & 15) | (high & 15) << 4);
    fifth |= (uint32_t)(low >> 4) << j | (uint32_t)(high >> 4) << (j + BLOCK / 2);
  }
  return fifth;
}

/* The scale under which the element of the largest magnitude has the code 0. */
static float scale_around_zero(const float *x, int zero) {
  float most = 0, signed_most = 0;
  for (int j = 0; j < BLOCK; j++)
    if (fabsf(x[j]) > most) most = fabsf(x[j]), signed_most = x[j];
  return signed_most / (float)-zero;
}

static void put_u32(unsigned char *p, uint32_t v) {
  for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static void to_q4_0(const float *x, unsigned char *p) {
  const float d = scale_around_zero(x, 8);
  aci_gguf_put_half(p, d);
  put_codes(x, d != 0 ? 1 / d : 0, 8.5f, 15, p + 2);
}
static void to_q5_0(const float *x, unsigned char *p) {
  const float d = scale_around_zero(x, 16);
  aci_gguf_put_half(p, d);
  put_u32(p + 2, put_codes(x, d != 0 ? 1 / d : 0, 16.5f, 31, p + 6));
}

/* d and m with x = d code + m. */
static void scale_and_least(const float *x, int most, float *d, float *m) {
  float high = x[0];
  *m = x[0];
  for (int j = 1; j < BLOCK; j++) {
    *m = fminf(*m, x[j]);
    high = fmaxf(high, x[j]);
  }
  *d = (high - *m) / (float)most;
}

static uint32_t put_moved(const float *x, int most, unsigned char *p, unsigned char *q) {
  float d, m, moved[BLOCK];
  scale_and_least(x, most, &d, &m);
  aci_gguf_put_half(p, d);
  aci_gguf_put_half(p + 2, m);
  for (int j = 0; j < BLOCK; j++) moved[j] = x[j] - m;
  return put_codes(moved, d != 0 ? 1 / d : 0, 0.5f, most, q);
}
static void to_q4_1(const float *x, unsigned char *p) { put_moved(x, 15, p, p + 4); }
static void to_q5_1(const float *x, unsigned char *p) {
  put_u32(p + 4, put_moved(x, 31, p, p + 8));
}

/* ---- the table ---- */

static const aci_gguf_type types[N_TYPES] = {
    [0] = {"F32", 1, 4, AC_F32, NULL, NULL, 0},
    [1] = {"F16", 1, 2, AC_F16, NULL, NULL, 0},
    [2] = {"Q4_0", BLOCK, 18, -1, from_q4_0, to_q4_0, 0},
    [3] = {"Q4_1", BLOCK, 20, -1, from_q4_1, to_q4_1, 0},
    [6] = {"Q5_0", BLOCK, 22, -1, from_q5_0, to_q5_0, 0},
    [7] = {"Q5_1", BLOCK, 24, -1, from_q5_1, to_q5_1, 0},
    [8] = {"Q8_0", BLOCK, 34, -1, from_q8_0, to_q8_0, 0},
    [9] = {"Q8_1", BLOCK, 36, -1, from_q8_1, NULL, 0},
    [10] = {"Q2_K", 256, 84, -1, aci_gguf_q2_k, NULL, 0},
    [11] = {"Q3_K", 256, 110, -1, aci_gguf_q3_k, NULL, 0},
    [12] = {"Q4_K", 256, 144, -1, aci_gguf_q4_k, aci_gguf_to_q4_k, 0},
    [13] = {"Q5_K", 256, 176, -1, aci_gguf_q5_k, aci_gguf_to_q5_k, 0},
    [14] = {"Q6_K", 256, 210, -1, aci_gguf_q6_k, aci_gguf_to_q6_k, 208},
    [15] = {"Q8_K", 256, 292, -1, aci_gguf_q8_k, NULL, 0},
    [16] = {"IQ2_XXS", 256, 66, -1, aci_gguf_iq2_xxs, NULL, 0},
    [17] = {"IQ2_XS", 256, 74, -1, aci_gguf_iq2_xs, NULL, 0},
    [18] = {"IQ3_XXS", 256, 98, -1, aci_gguf_iq3_xxs, NULL, 0},
    [19] = {"IQ1_S", 256, 50, -1, aci_gguf_iq1_s, NULL, 0},
    [20] = {"IQ4_NL", BLOCK, 18, -1, from_iq4_nl, NULL, 0},
    [21] = {"IQ3_S", 256, 110, -1, aci_gguf_iq3_s, NULL, 0},
    [22] = {"IQ2_S", 256, 82, -1, aci_gguf_iq2_s, NULL, 0},
    [23] = {"IQ4_XS", 256, 136, -1, aci_gguf_iq4_xs, NULL, 0},
    [24] = {"I8", 1, 1, AC_I8, NULL, NULL, 0},
    [25] = {"I16", 1, 2, AC_I16, NULL, NULL, 0},
    [26] = {"I32", 1, 4, AC_I32, NULL, NULL, 0},
    [27] = {"I64", 1, 8, AC_I64, NULL, NULL, 0},
    [28] = {"F64", 1, 8, AC_F64, NULL, NULL, 0},
    [29] = {"IQ1_M", 256, 56, -1, aci_gguf_iq1_m, NULL, 0},
    [30] = {"BF16", 1, 2, AC_BF16, NULL, NULL, 0},
    [34] = {"TQ1_0", 256, 54, -1, aci_gguf_tq1_0, NULL, 0},
    [35] = {"TQ2_0", 256, 66, -1, aci_gguf_tq2_0, NULL, 0},
    [39] = {"MXFP4", BLOCK, 17, -1, from_mxfp4, NULL, 0},
    [40] = {"NVFP4", NV_BLOCK, 36, -1, from_nvfp4, NULL, 0},
    [41] = {"Q1_0", BIT_BLOCK, 18, -1, from_q1_0, NULL, 0},
};

const aci_gguf_type *aci_gguf_type_at(uint32_t number) {
  return number < N_TYPES && types[number].name != NULL ? &types[number] : NULL;
}

/* A block with a NaN or an infinity has the scale NaN: ac_quantize_4bit and its kind do the same
 * (ops/quant/nonfinite.h). */
static bool not_finite(const aci_gguf_type *k, const float *x, unsigned char *p) {
  bool finite = true;
  for (int j = 0; j < k->block; j++) finite = finite && isfinite(x[j]);
  if (finite) return false;
  memset(p, 0, (size_t)k->bytes);
  aci_gguf_put_half(p + k->scale_at, NAN);
  return true;
}

typedef struct block_job {
  const aci_gguf_type *k;
  const void *src;
  void *dst;
} block_job;

static void decode_blocks(void *arg, int64_t begin, int64_t end) {
  const block_job *j = arg;
  const unsigned char *p = j->src;
  float *y = j->dst;
  for (int64_t b = begin; b < end; b++) j->k->decode(p + b * j->k->bytes, y + b * j->k->block);
}

static void encode_blocks(void *arg, int64_t begin, int64_t end) {
  const block_job *j = arg;
  const float *x = j->src;
  unsigned char *p = j->dst;
  for (int64_t b = begin; b < end; b++)
    if (!not_finite(j->k, x + b * j->k->block, p + b * j->k->bytes))
      j->k->encode(x + b * j->k->block, p + b * j->k->bytes);
}

void aci_gguf_to_f32(ac_team *team, const aci_gguf_type *k, const unsigned char *src, float *dst,
                     int64_t blocks) {
  block_job j = {k, src, dst};
  ac_parallel_for(team, blocks, 16384 / k->block, decode_blocks, &j);
}

void aci_gguf_from_f32(ac_team *team, const aci_gguf_type *k, const float *src, unsigned char *dst,
                       int64_t blocks) {
  block_job j = {k, src, dst};
  ac_parallel_for(team, blocks, 2048 / k->block, encode_blocks, &j);
}
