/* Elements of files that no dtype of accel has: each becomes one of a dtype that holds all its
 * values. The one table of them, for safetensors_read.c, the reader of PyTorch's files and the
 * bindings (accel.file.core.widen, unpack_bits), which decode quantised weights with it. */
#ifndef ACI_FILE_ELEMENTS_H
#define ACI_FILE_ELEMENTS_H
#include "accel/tensor.h"

typedef struct aci_element {
  const char *st_name;    /* in safetensors: "F8_E8M0" */
  const char *torch_name; /* in PyTorch: "float8_e8m0fnu" */
  int bits;
  ac_dtype to; /* of the values */
} aci_element;

/* The row with either name (NULL: not asked for). NULL: none. */
const aci_element *aci_element_of(const char *st_name, const char *torch_name);
/* n elements of src, little-endian, without padding, as k->to in dst. Two F4 share a byte, the first
 * in its low half. src and dst must not overlap. DTYPE: an integer that k->to cannot hold. */
ac_status aci_element_widen(const aci_element *k, const void *src, void *dst, int64_t n, ac_err *e);

/* Unsigned integers of `bits` (1 .. 8) bits, a stream in words of 32 bits with the low bits first, along
 * the middle dim: src [outer, words, inner] -> dst [outer, n, inner]. The caller has checked that n
 * integers fit into `words`. */
void aci_unpack_bits(ac_team *team, const uint32_t *src, int64_t outer, int64_t words,
                     int64_t inner, int bits, int64_t n, uint8_t *dst);

#endif
