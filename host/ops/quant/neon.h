/* Lookups of 4-bit codes by NEON, for codes.c and dot_4bit.c. An instruction looks up 16 bytes in a
 * table of 16, so the table of 16 floats is kept as four tables of their bytes. */
#ifndef ACI_OPS_QUANT_NEON_H
#define ACI_OPS_QUANT_NEON_H
#include <arm_neon.h>

#include "device/cpu/arm.h"
#include "device/cpu/isa.h"

static inline AC_INLINE uint8x16x4_t aci_neon_table(const float *map) {
  return vld4q_u8((const uint8_t *)(const void *)map);
}

/* to[i] = the values of codes 4 i .. 4 i + 3 */
static inline AC_INLINE void aci_neon_lookup(uint8x16x4_t table, uint8x16_t code,
                                             float32x4_t to[4]) {
  const uint8x16_t a = vqtbl1q_u8(table.val[0], code), b = vqtbl1q_u8(table.val[1], code),
                   c = vqtbl1q_u8(table.val[2], code), d = vqtbl1q_u8(table.val[3], code);
  const uint16x8_t low[2] = {vreinterpretq_u16_u8(vzip1q_u8(a, b)),
                             vreinterpretq_u16_u8(vzip2q_u8(a, b))},
                   high[2] = {vreinterpretq_u16_u8(vzip1q_u8(c, d)),
                              vreinterpretq_u16_u8(vzip2q_u8(c, d))};
  for (int i = 0; i < 2; i++) {
    to[2 * i] = vreinterpretq_f32_u16(vzip1q_u16(low[i], high[i]));
    to[2 * i + 1] = vreinterpretq_f32_u16(vzip2q_u16(low[i], high[i]));
  }
}

#endif
