/* Blocks of GGUF's types, shared by the files that decode and encode them: gguf_blocks.c has the table and
 * the types of small blocks, gguf_k.c and gguf_iq.c those with blocks of 256, gguf_k_write.c the way back. */
#ifndef ACI_FILE_GGUF_TYPES_H
#define ACI_FILE_GGUF_TYPES_H
#include "base/vmath.h"
#include "file/gguf.h"

static inline uint16_t aci_gguf_u16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t aci_gguf_u32(const unsigned char *p) {
  return (uint32_t)aci_gguf_u16(p) | (uint32_t)aci_gguf_u16(p + 2) << 16;
}
static inline float aci_gguf_half(const unsigned char *p) {
  return aci_f16_to_f32(aci_gguf_u16(p));
}
static inline void aci_gguf_put_half(unsigned char *p, float v) {
  const uint16_t h = aci_f32_to_f16(v);
  p[0] = (unsigned char)h;
  p[1] = (unsigned char)(h >> 8);
}

/* 32 values of 16 bytes: low nibbles first. Nibbles number the values of IQ4_NL. */
void aci_gguf_nl_nibbles(const unsigned char *q, float scale, float *y);

/* One block to f32. */
void aci_gguf_q2_k(const unsigned char *p, float *y);
void aci_gguf_q3_k(const unsigned char *p, float *y);
void aci_gguf_q4_k(const unsigned char *p, float *y);
void aci_gguf_q5_k(const unsigned char *p, float *y);
void aci_gguf_q6_k(const unsigned char *p, float *y);
void aci_gguf_q8_k(const unsigned char *p, float *y);
void aci_gguf_iq4_xs(const unsigned char *p, float *y);
void aci_gguf_tq1_0(const unsigned char *p, float *y);
void aci_gguf_tq2_0(const unsigned char *p, float *y);
void aci_gguf_iq1_s(const unsigned char *p, float *y);
void aci_gguf_iq1_m(const unsigned char *p, float *y);
void aci_gguf_iq2_xxs(const unsigned char *p, float *y);
void aci_gguf_iq2_xs(const unsigned char *p, float *y);
void aci_gguf_iq2_s(const unsigned char *p, float *y);
void aci_gguf_iq3_xxs(const unsigned char *p, float *y);
void aci_gguf_iq3_s(const unsigned char *p, float *y);

/* 256 values to one block: rounded so that the weighted squared error is small (gguf_k_write.c). */
void aci_gguf_to_q4_k(const float *x, unsigned char *p);
void aci_gguf_to_q5_k(const float *x, unsigned char *p);
void aci_gguf_to_q6_k(const float *x, unsigned char *p);

#endif
