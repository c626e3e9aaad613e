/* The inside of the matrix product, shared by the gemm_*.c files: micro-kernels, packing, scratch,
 * and the paths.
 *
 * A product is cut into blocks of k (kc), blocks of rows (TM) and blocks of columns (TN). Operands
 * are packed into panels: A into [k][rows], B into [k][cols] with `pair` values of k side by side,
 * so that a micro-kernel reads both in order. Every element of C is one chain of fma over k inside
 * a block and one addition per block. The thread and the tile that compute it do not change the
 * result.
 *
 * Map of the folder:
 *
 *   cpu.c provider.c isa.[ch]   the device, its entry in the table of devices, the choice of clones
 *                               for this CPU
 *   gemm.h, gemm.c              matrix products: the interface, the choice of a path, the blocked
 *                               plans
 *   gemm_kernel.c gemm_pack.c   micro-kernels, and packing operands into panels, accumulators into
 *                               C
 *   gemm_skinny.c               products of few rows
 *   gemm_few.c                  products of very few rows, which read B in place
 *   gemm_split.c                f32 as products of bf16
 *   gemm_simple.c               integers
 *   gemm_scratch.c              scratch per thread
 *   onednn.h, onednn_load.c     oneDNN, the library's side. The module accel_onednn.so is onednn.c
 *                               (products), onednn_conv.c, onednn_cache.c and onednn_module.h
 *   kernels/                    convolutions and attention, which are made of panels and
 *                               micro-kernels */
#ifndef ACI_GEMM_IMPL_H
#define ACI_GEMM_IMPL_H
#include <stdatomic.h>
#include <stdbool.h>

#include "device/cpu/gemm.h"

#if defined(__clang__) /* it would drop the whole attribute over the width */
#define ACI_TARGET_AVX512_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,bmi2")))
#else
#define ACI_TARGET_AVX512_BF16 \
  __attribute__((target(       \
      "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,bmi2,prefer-vector-width=512")))
#endif

/* Types of packed operands. */
typedef enum aci_pack {
  ACI_PACK_F32,
  ACI_PACK_F64,
  ACI_PACK_BF16 /* pairs, for dot-product instructions */
} aci_pack;

enum { ACI_GEMM_MR_MAX = 14, ACI_GEMM_NR_MAX = 32 };

/* c (rows x cols, row stride ldc, f32, or f64 for f64 panels) = or += panel_a * panel_b over kc
 * steps (of `pair` values). rows comes from aci_gemm_rows, cols is nr, or nr/2 for a half panel.
 * All of rows x cols is written. */
typedef void (*aci_gemm_micro)(int rows, int cols, int64_t kc, const void *a, const void *b,
                               void *c, int64_t ldc, bool add);

/* The same for mr whole rows of A in place, row_bytes apart, the values of k adjacent. */
typedef void (*aci_gemm_micro_rows)(int cols, int64_t kc, const void *a, int64_t row_bytes,
                                    const void *b, void *c, int64_t ldc, bool add);

/* The same with the values of a step adjacent, steps step_bytes apart (not for pairs, which lie
 * along k). */
typedef aci_gemm_micro_rows aci_gemm_micro_across;

typedef struct aci_gemm_kernel {
  aci_gemm_micro run;
  aci_gemm_micro_rows run_rows;
  aci_gemm_micro_across run_across;
  aci_pack pack;
  int mr, nr; /* rows of an A panel. Columns of a B panel (its last panel may be nr/2 wide) */
  int pair;   /* values of k that lie side by side: 2 for ACI_PACK_BF16, else 1 */
  int bytes;  /* of one packed value */
} aci_gemm_kernel;

/* The smallest row count >= rows that a micro-kernel computes. rows <= mr. */
static inline int aci_gemm_rows(const aci_gemm_kernel *kn, int rows) {
  int r = rows <= 2 ? rows : rows <= 4 ? 4 : rows <= 8 ? 8 : kn->mr;
  return r < kn->mr ? r : kn->mr;
}

/* The micro-kernel for an input type on this CPU. NULL for integers. */
const aci_gemm_kernel *aci_gemm_kernel_for(aci_gemm_type in);

/* Bytes that a packed operand of w rows (or columns) in panels of width `panel` takes over kc
 * steps. */
static inline int64_t aci_gemm_packed_bytes(const aci_gemm_kernel *kn, int64_t w, int64_t panel,
                                            int64_t kc) {
  int64_t ks = (kc + kn->pair - 1) / kn->pair * kn->pair;
  return (w + panel - 1) / panel * panel * ks * kn->bytes;
}

/* Packs w x kc values, element (i,k) at src + i*ws + k*ks (in elements of `type`), into panels of
 * `width`. Elements with i beyond w or k beyond kc become zeros. With half_tail a last panel of at
 * most width/2 is packed width/2 wide. Nothing is written beyond the panels. */
void aci_gemm_pack(const aci_gemm_kernel *kn, aci_gemm_type type, void *dst, int width,
                   bool half_tail, int64_t w, int64_t kc, const void *src, int64_t ws, int64_t ks);

/* The same for f32 that counts rounded to bf16, with a micro-kernel for those. */
void aci_gemm_pack_rounded(const aci_gemm_kernel *kn, void *dst, int width, bool half_tail,
                           int64_t w, int64_t kc, const float *src, int64_t ws, int64_t ks);

/* n values of BF16 or F16 as f32. */
void aci_gemm_widen(aci_gemm_type type, float *dst, const void *src, int64_t n);

/* out[i,j] = alpha*acc[i,j] + beta*out[i,j] + bias[j]. acc and bias are f64 if f64, otherwise
 * f32. */
typedef struct aci_gemm_out {
  aci_gemm_type type;
  double alpha, beta;
  const void *bias; /* of the accumulator's type, or NULL */
} aci_gemm_out;
void aci_gemm_finish(const aci_gemm_out *o, int rows, int cols, const void *acc, int64_t ldacc,
                     void *c, int64_t ldc, int64_t j0);

/* Scratch of the calling thread, 64-byte aligned, contents undefined. NULL without memory. The next
 * call for the same slot reuses it, so the holder of a slot must not call another kernel that takes
 * it. It is freed with the thread. SHARED: data that a caller prepares for all pieces of its work.
 * TILE: data of one piece. COLUMNS: data of the caller of the matrix product, which takes the other
 * slots. SPLIT: of gemm_split.c, which also calls it. WIDENED: of a convolution that calls
 * others. */
typedef enum aci_scratch_slot {
  ACI_SCRATCH_SHARED,
  ACI_SCRATCH_TILE,
  ACI_SCRATCH_COLUMNS,
  ACI_SCRATCH_SPLIT,
  ACI_SCRATCH_WIDENED,
  ACI_SCRATCH_SLOTS
} aci_scratch_slot;
void *aci_scratch(aci_scratch_slot slot, size_t bytes);
size_t aci_scratch_bytes(void); /* held by all threads together */

/* gemm_skinny.c: arguments of a product of few rows. acc, kc and n_kb as in gemm.c, out with the
 * bias in the accumulator's type. */
typedef struct aci_gemm_skinny {
  const aci_gemm *g;
  const aci_gemm_kernel *kn;
  aci_gemm_out out;
  aci_gemm_type acc;
  int64_t kc, n_kb;
  _Atomic bool *oom;
  char *packed; /* set by aci_gemm_skinny_run */
  int64_t panels;
} aci_gemm_skinny;
bool aci_gemm_skinny_fits(const aci_gemm *g, const aci_gemm_kernel *kn);
size_t aci_gemm_skinny_bytes(const aci_gemm_skinny *p); /* of the scratch that is given to run */
void aci_gemm_skinny_run(ac_team *team, aci_gemm_skinny *p, void *packed);

/* gemm_few.c: products of so few rows that reading B dominates. */
bool aci_gemm_few_fits(const aci_gemm *g);
size_t aci_gemm_few_bytes(const aci_gemm *g); /* of the scratch that is given to run */
void aci_gemm_few_run(ac_team *team, const aci_gemm *g, const aci_gemm_out *out, _Atomic bool *oom,
                      void *mem);

/* gemm_split.c: f32 in parts of bf16, on request. split: false, with C untouched, when the operands
 * do not allow it. Otherwise its status is in *st. force: on or off regardless of the request, for
 * tests. */
bool aci_gemm_split_wants(const aci_gemm *g);
bool aci_gemm_split(ac_team *team, const aci_gemm *g, ac_status *st, ac_err *e);
void aci_gemm_split_force(bool on);

/* Integers: C = alpha A B + beta C + bias in i64, wrapping. */
void aci_gemm_integer(ac_team *team, const aci_gemm *g);
/* Element j of an array of floats, as double. */
double aci_gemm_load(aci_gemm_type t, const void *p, int64_t j);

static inline int aci_gemm_type_bytes(aci_gemm_type t) {
  switch (t) {
    case ACI_GEMM_F64:
    case ACI_GEMM_I64: return 8;
    case ACI_GEMM_F32:
    case ACI_GEMM_I32: return 4;
    case ACI_GEMM_BF16:
    case ACI_GEMM_F16:
    case ACI_GEMM_I16: return 2;
    case ACI_GEMM_I8:
    case ACI_GEMM_U8: return 1;
  }
  return 0;
}

/* Whole cache lines. */
static inline int64_t aci_gemm_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }
static inline int64_t aci_gemm_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t aci_gemm_max(int64_t a, int64_t b) { return a > b ? a : b; }

static inline const char *aci_gemm_at(const void *base, aci_gemm_type t, int64_t index) {
  /* NULL: no elements */
  return base == NULL ? NULL : (const char *)base + index * aci_gemm_type_bytes(t);
}

/* Whether rows of k values, `stride` elements apart, can be read in place: in the micro-kernel's
 * layout, the last pair whole, and not all in one set of L1. */
static inline bool aci_gemm_rows_lie(const aci_gemm_kernel *kn, aci_gemm_type t, int64_t k,
                                     int64_t stride) {
  const int64_t bytes = aci_gemm_type_bytes(t);
  return bytes == kn->bytes && k % kn->pair == 0 && stride * bytes % 4096 != 0;
}

#endif
