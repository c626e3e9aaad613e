/* The kernels of linear_cross_entropy: rows of logits in tiles of the vocabulary, none of which
 * outlives its pass unless it is asked to be kept. */
#ifndef ACI_OPS_LINEAR_CROSS_ENTROPY_H
#define ACI_OPS_LINEAR_CROSS_ENTROPY_H
#include "device/cpu/gemm.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/linear_cross_entropy_args.h"

static inline int64_t aci_lce_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t aci_lce_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* How n rows over v classes are cut: extents of a full tile and, if tiles is given, how many lie
 * side by side. */
void aci_lce_plan(int64_t n, int64_t v, int64_t *rows, int64_t *cols, int64_t *tiles);

ac_status aci_lce_run(ac_frame *f, ac_err *e);
ac_status aci_lce_run_backward(ac_frame *f, ac_err *e);

/* ---- a tile, between linear_cross_entropy_tile.c and linear_cross_entropy_kernel.c ---- */

/* The state of a row of logits, tile by tile. */
typedef struct aci_lce_state {
  double max, sum, at_target, weighted;
} aci_lce_state;

/* How a row's logits become gradients: e^(x - shift) * scale - each * w, less at_target at its
 * class. From the kept value e^(x - m), the factor is e^(m - shift) * scale. */
typedef struct aci_lce_back {
  double shift, scale, each, at_target;
} aci_lce_back;

/* A call and its current tile. */
typedef struct aci_lce {
  ac_frame *f;
  aci_ce_targets y;
  int64_t n, v, k;
  double smooth;
  ac_dtype product, acc; /* dtypes of products and of tiles: f64 for f64, otherwise f32 */
  aci_gemm_type in_type, acc_type;
  const ac_tensor *linear;
  /* as multiplied: input, and the tile's rows of linear_weight (f32 if round_w) */
  const char *x, *w;
  int64_t x_rs, x_cs, w_rs, w_cs;
  bool round_w;     /* w stays f32 and is rounded to bf16 as products read it */
  const void *bias; /* v values, or NULL */
  aci_gemm_type bias_type;
  int64_t rows, cols, ld;         /* extents of a full tile. Elements from row to row */
  int64_t i0, n_rows, j0, n_cols; /* the current tile */
  /* w_copy: of the tile's weights in the dtype that is multiplied */
  char *tile, *w_copy;
  char *kept;     /* (n, v) of e^(x - m) in the dtype that is multiplied, or NULL */
  double *shifts; /* m of each tile and row: (tiles, n) */
  aci_lce_state *state;
  aci_lce_back *back;
  double *dbias; /* of the tile's classes */
  ac_block *block[12];
  int n_blocks;
} aci_lce;

static inline const char *aci_lce_x(const aci_lce *j) {
  return j->x + j->i0 * j->x_rs * (int64_t)aci_dsize(j->product);
}
static inline char *aci_lce_row(const aci_lce *j, int64_t i) {
  return j->tile + i * j->ld * (int64_t)aci_dsize(j->acc);
}
static inline char *aci_lce_kept(const aci_lce *j, int64_t i) {
  return j->kept + ((j->i0 + i) * j->v + j->j0) * (int64_t)aci_dsize(j->product);
}
static inline double *aci_lce_shift(const aci_lce *j, int64_t i) {
  return &j->shifts[j->j0 / j->cols * j->n + j->i0 + i];
}

/* Reads the arguments that both ops have, the first of which is number `at`, and the values kept
 * between them (none if empty), and cuts tiles. Call aci_lce_release, also after a failure. */
ac_status aci_lce_prepare(aci_lce *j, ac_frame *f, int at, ac_tensor *kept, ac_tensor *shifts,
                          ac_err *e);
void aci_lce_release(aci_lce *j);
/* Scratch until the end of the call. Its address goes to *pointer. */
ac_status aci_lce_take(aci_lce *j, size_t bytes, void *pointer, ac_err *e);
/* dst (contiguous) := src, rows x cols, converted. */
void aci_lce_convert(const aci_lce *j, int64_t rows, int64_t cols, void *dst, ac_dtype to,
                     const void *src, ac_dtype from, int64_t rs, int64_t cs);
/* Moves to the classes from j0, to the rows from i0. */
void aci_lce_to_classes(aci_lce *j, int64_t j0);
void aci_lce_to_rows(aci_lce *j, int64_t i0);
/* A product g (types of its inputs, factors and pointers are filled in) into c. */
ac_status aci_lce_multiply(const aci_lce *j, aci_gemm *g, const void *a, const void *b, void *c,
                           ac_err *e);
/* Fills the tile with logits. */
ac_status aci_lce_logits(const aci_lce *j, ac_err *e);
/* Forward: adds the tile to the state of its rows, and keeps it if asked. Backward: turns it, or
 * its kept values, into gradients in the product's dtype. */
void aci_lce_take_rows(aci_lce *j);
void aci_lce_turn_rows(aci_lce *j);

#endif
