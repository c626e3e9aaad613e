/* Little-endian numbers at any address. */
#ifndef ACI_TABLE_LOAD_H
#define ACI_TABLE_LOAD_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "file/table/table.h"

#define ACI_LOAD(T, name)                  \
  static inline T name(const uint8_t *p) { \
    T v;                                   \
    memcpy(&v, p, sizeof v);               \
    return v;                              \
  }
ACI_LOAD(uint16_t, aci_load_u16)
ACI_LOAD(uint32_t, aci_load_u32)
ACI_LOAD(int32_t, aci_load_i32)
ACI_LOAD(uint64_t, aci_load_u64)
ACI_LOAD(int64_t, aci_load_i64)
#undef ACI_LOAD

/* Entry i of integers of `width` bytes. */
static inline int64_t aci_load_int(const uint8_t *p, int64_t i, int width, bool is_unsigned) {
  switch (width) {
    case 1: return is_unsigned ? (int64_t)p[i] : (int64_t)(int8_t)p[i];
    case 2: {
      const uint16_t v = aci_load_u16(p + 2 * i);
      return is_unsigned ? (int64_t)v : (int64_t)(int16_t)v;
    }
    case 4: {
      const uint32_t v = aci_load_u32(p + 4 * i);
      return is_unsigned ? (int64_t)v : (int64_t)(int32_t)v;
    }
    default: return aci_load_i64(p + 8 * i);
  }
}

static inline int64_t aci_offset_at(const aci_column *c, int64_t i) {
  return aci_load_int(c->values, i, c->type->large ? 8 : 4, false);
}

static inline bool aci_bit(const uint8_t *bits, int64_t i) { return bits[i >> 3] >> (i & 7) & 1; }

static inline bool aci_is_valid(const aci_column *c, int64_t i) {
  return c->valid == NULL || aci_bit(c->valid, i);
}

#endif
