/* Shared by the two halves of blockwise quantisation: the number of bytes and scales of a
 * tensor. */
#ifndef ACI_OPS_QUANT_H
#define ACI_OPS_QUANT_H
#include "ops/index/index.h"

enum { ACI_QUANT_MAX_BLOCK = 4096 };

/* INVALID unless bits is 4 or 8 and the block size even and at most ACI_QUANT_MAX_BLOCK. */
static inline ac_status aci_quant_check(int64_t bits, int64_t block, ac_err *e) {
  if (bits != 8 && bits != 4)
    return AC_FAIL(e, INVALID, "bits must be 8 or 4, got %lld", (long long)bits);
  if (block < 2 || block > ACI_QUANT_MAX_BLOCK || block % 2 != 0)
    return AC_FAIL(e, INVALID, "block_size must be even and lie in 2 .. %d, got %lld",
                   ACI_QUANT_MAX_BLOCK, (long long)block);
  return AC_OK;
}

static inline int64_t aci_quant_bytes(int64_t n, int64_t bits) {
  return bits == 8 ? n : (n + 1) / 2;
}
static inline int64_t aci_quant_blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }
/* Blocks that one piece of a parallel loop takes. */
static inline int64_t aci_quant_grain(int64_t block) { return 1 + 16384 / block; }

#endif
