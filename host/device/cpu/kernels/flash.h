/* Attention without a Tq x Tk matrix in memory: out = dropout(softmax(scale q k^T + mask)) v and
 * its
 * gradients, over raw strided pointers. Called by host/ops/attention.
 *
 * Numbers: f32, bf16 and f16 compute in f32 (bf16 multiplies as bf16 if the CPU has instructions
 * for that), f64 in f64. Rows with every key masked give zeros, as in PyTorch. Work is cut by
 * shape. Bits do not depend on the number of threads. */
#ifndef ACI_FLASH_H
#define ACI_FLASH_H
#include "device/cpu/gemm.h"

typedef enum aci_flash_mask {
  ACI_FLASH_NO_MASK,
  ACI_FLASH_BOOL_MASK /* nonzero byte: attend */,
  ACI_FLASH_ADD_MASK
} aci_flash_mask;

typedef struct aci_flash {
  aci_gemm_type type; /* of q k v out and gradients: F32, BF16, F16 or F64 */
  /* hq is a multiple of hkv. Query head h reads key head h / (hq / hkv) */
  int64_t b, hq, hkv, tq, tk, d;
  /* (b, hq, tq, d), (b, hkv, tk, d) twice. The last dimension is contiguous */
  const void *q, *k, *v;
  int64_t q_s[3], k_s[3], v_s[3]; /* strides of batch, head, position, in elements */
  double scale;
  bool causal; /* query i attends to keys 0..i, aligned at the top left when tq != tk */
  aci_flash_mask mask_kind;
  aci_gemm_type mask_type; /* of an additive mask: F32, F64, BF16 or F16 */
  const void *mask;
  int64_t mask_s[4]; /* strides of batch, head, query, key. 0 broadcasts */
  /* ALiBi: hq slopes, or NULL. Scores lose slope * |i + tk - tq - j| for query i and key j, |i - j|
   * when causal. */
  const double *alibi;
  /* Dropout: the weight of query i, key j is kept if word (e mod 4) of aci_philox(key, e / 4,
   * counter) is at least drop_below, with e = (((drop_0[0] + b) * drop_n[1] + drop_0[1] + h) *
   * drop_n[2] + drop_0[2] + i) * drop_n[3] + drop_0[3] + j. It is then divided by 1 - drop_p. */
  double drop_p; /* 0: no dropout */
  uint64_t drop_key, drop_counter;
  uint32_t drop_below;
  /* Position of this rank's part in the weights (batch, head, query, key) of all ranks, and the
   * extents of the whole (the batch extent is not read). */
  int64_t drop_0[4], drop_n[4];
  void *out; /* (b, hq, tq, d) */
  int64_t out_s[3];
  /* (b, hq, tq) contiguous: log of the sum of exp, -inf if all keys are masked. f64 for F64,
   * otherwise f32. Written by forward unless NULL, read by backward */
  void *lse;
  /* no backward reads lse: forward may take kernels whose scores round otherwise than those that
   * backward computes again */
  bool inference;
} aci_flash;

typedef struct aci_flash_grads {
  const void *dout;
  int64_t dout_s[3];
  void *dq, *dk, *dv; /* any may be NULL. Written, not added to */
  int64_t dq_s[3], dk_s[3], dv_s[3];
} aci_flash_grads;

/* OOM without memory for scratch. out is undefined then. team may be NULL. */
ac_status aci_flash_forward(ac_team *team, const aci_flash *f, ac_err *e);
ac_status aci_flash_backward(ac_team *team, const aci_flash *f, const aci_flash_grads *g,
                             ac_err *e);

#endif
