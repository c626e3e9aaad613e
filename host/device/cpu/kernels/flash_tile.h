/* Element-wise passes over tiles of scores, between the micro-kernels of attention. Called by
 * flash.c and flash_backward.c.
 *
 * A tile has rows of nr values (nr: columns of the B panel of this CPU's micro-kernel for the
 * type). Forward keeps keys as rows and queries as columns, so that the softmax runs down the
 * columns and the tile is the next B panel. Backward keeps queries as rows. Scores are in units of
 * log 2: t = score * scale * log2(e), so that a weight is 2^(t - max). */
#ifndef ACI_FLASH_TILE_H
#define ACI_FLASH_TILE_H
#include "device/cpu/gemm_impl.h"
#include "device/cpu/kernels/flash.h"

#define ACI_LOG2E_64 1.4426950408889634074
#define ACI_LN2_64 0.69314718055994530942

/* One tile: rows r0.. and columns c0.. of the score matrix of head (b, h). keys_are_rows selects
 * the orientation.
 */
typedef struct aci_tile {
  const aci_flash *f;
  int64_t b, h, row0, col0;
  int64_t rows;
  int nr;
  bool keys_are_rows;
} aci_tile;

/* t = s * c + mask, in place. Keys and queries beyond the matrix are not touched (n_cols: those
 * within). */
void aci_tile_mask_f32(const aci_tile *t, int n_cols, float *s, float c);
void aci_tile_mask_f64(const aci_tile *t, int n_cols, double *s, double c);

/* t = s * c - slope of ALiBi * distance, in place. Use c = 1 after a mask. */
void aci_tile_alibi_f32(const aci_tile *t, float *s, float c);
void aci_tile_alibi_f64(const aci_tile *t, double *s, double c);

/* Dropout of a tile: a weight is kept if its word is at least `below`, and is multiplied by
 * `by`. */
typedef struct aci_drop {
  const uint32_t *words; /* (rows, nr) */
  uint32_t below;
  double by;
} aci_drop;
/* Fills w (rows rounded up to 4, of nr) and *drop, and returns it. NULL when there is no
 * dropout. */
const aci_drop *aci_tile_drop(const aci_tile *t, uint32_t *w, aci_drop *drop);

/* Forward. t = s * c in place, -inf if row > column + diag. m (per column) becomes the larger of
 * itself and t. */
void aci_tile_max_f32(float *s, int64_t rows, float c, int64_t diag, float *m);
void aci_tile_max_f64(double *s, int64_t rows, double c, int64_t diag, double *m);
/* p = 2^(t - m) in place. Its sum down the columns is added to l, then dropout is applied to p. */
void aci_tile_exp_f32(float *s, int64_t rows, const float *m, float *l, const aci_drop *drop);
void aci_tile_exp_f64(double *s, int64_t rows, const double *m, double *l, const aci_drop *drop);

/* At the end: 1 / l and the natural log-sum-exp of each column. 0 and -inf if l is 0. */
void aci_tile_lse_f32(const float *m, const float *l, float *inverse, float *lse);
void aci_tile_lse_f64(const double *m, const double *l, double *inverse, double *lse);

/* Backward. p = 2^(s * c - lse2[row]), 0 for column > row + diag and from column cols on. ds = p *
 * (dp * k
 * - delta[row]) replaces dp, p * k replaces s, with the dropout factor k. */
void aci_tile_grad_f32(float *s, float *dp, int64_t rows, int cols, float c, int64_t diag,
                       const float *lse2, const float *delta, const aci_drop *drop);
void aci_tile_grad_f64(double *s, double *dp, int64_t rows, int cols, double c, int64_t diag,
                       const double *lse2, const double *delta, const aci_drop *drop);

/* A tile of f32 as a B panel of bf16 pairs (rows 2i and 2i+1 interleaved, a missing last row is 0).
 * dst may be src. */
void aci_tile_pairs(uint32_t *dst, const float *src, int64_t rows);
/* n values to bf16. No NaN with a full payload occurs here. */
void aci_tile_bf16(uint16_t *dst, const float *src, int64_t n);
/* The sum of x[i] * y[i]. */
double aci_tile_dot(aci_gemm_type type, const void *x, const void *y, int64_t n);
/* x[i][j] *= by[j] */
void aci_tile_scale_f32(float *x, int64_t rows, const float *by);
void aci_tile_scale_f64(double *x, int64_t rows, const double *by);

#endif
