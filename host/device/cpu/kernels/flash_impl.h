/* Code shared by forward and backward attention: the micro-kernel, sizes of panels, and moving
 * tiles in and out.
 */
#ifndef ACI_FLASH_IMPL_H
#define ACI_FLASH_IMPL_H
#include "device/cpu/kernels/flash.h"
#include "device/cpu/kernels/flash_tile.h"

typedef struct aci_flash_kind {
  const aci_gemm_kernel *kn;   /* multiplies operands */
  const aci_gemm_kernel *wide; /* moves accumulators: the kernel of their type */
  aci_gemm_type acc;           /* F32 or F64 */
  int es;                      /* bytes of an accumulator */
  int mr, nr;
  bool paired; /* operands are bf16 pairs: tiles are converted before they multiply */
} aci_flash_kind;

static inline aci_flash_kind aci_flash_kind_of(aci_gemm_type type) {
  aci_gemm_type acc = type == ACI_GEMM_F64 ? ACI_GEMM_F64 : ACI_GEMM_F32;
  const aci_gemm_kernel *kn = aci_gemm_kernel_for(type), *wide = aci_gemm_kernel_for(acc);
  aci_flash_kind k = {kn, wide, acc, aci_gemm_type_bytes(acc), kn->mr, kn->nr, kn->pair == 2};
  return k;
}

static inline int64_t aci_ceil_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static inline int64_t aci_least(int64_t a, int64_t b) { return a < b ? a : b; }
/* Address of position t of head (b, h). */
static inline const char *aci_flash_at(aci_gemm_type type, const void *p, const int64_t s[3],
                                       int64_t b, int64_t h, int64_t t) {
  return (const char *)p + (b * s[0] + h * s[1] + t * s[2]) * aci_gemm_type_bytes(type);
}

/* Bytes of a packed operand, a multiple of 64. */
static inline int64_t aci_flash_packed(const aci_flash_kind *k, int64_t w, int64_t panel,
                                       int64_t kc) {
  return aci_ceil_to(aci_gemm_packed_bytes(k->kn, w, panel, kc), 64);
}

/* out[i][0..d) = alpha * x[.][i], for an x of d rows of ldx accumulators: the way back from
 * transposed accumulators. tmp: 32 columns for n rows. */
void aci_flash_store(const aci_flash_kind *k, aci_gemm_type type, double alpha, const void *x,
                     int64_t ldx, int64_t n, int64_t d, void *out, int64_t out_stride, void *tmp);

/* Rows of one task, so that there are tasks for a few dozen threads: from most down to least while
 * fewer than 32. */
int64_t aci_flash_rows(int64_t heads, int64_t length, int64_t most, int64_t least);

/* Forward of one query (flash_decode.c). False: the call does not fit, and nothing is done. */
bool aci_flash_decode(ac_team *team, const aci_flash *f);

#endif
