/* Declarations shared by adafactor_step_ and its passes over tiles. */
#ifndef ACI_OPS_ADAFACTOR_H
#define ACI_OPS_ADAFACTOR_H
#include "ops/core/op.h"

enum { ACI_FACTOR_ROWS = 64, ACI_FACTOR_COLS = 1024, ACI_FACTOR_SMALL = 512 };

/* A parameter as `batch` matrices of rows x cols, cut into tiles of at most ACI_FACTOR_ROWS x
 * ACI_FACTOR_COLS. Small matrices of up to ACI_FACTOR_SMALL elements, such as those of
 * convolutions, share a tile of at most ACI_FACTOR_COLS elements and are computed in f64.
 * Unfactored parameters are one row. */
typedef struct aci_factor_part {
  const ac_tensor *p, *g, *r, *c, *v;
  int64_t batch, rows, cols, row_tiles, col_tiles, per_tile;
  bool wide;
  double eps1, eps, alpha, scale; /* eps: eps1 squared. scale: alpha / max(1, rms(u) / d) */
  /* (batch, rows, col_tiles), (batch, row_tiles, cols): sums of g^2 */
  double *row_part, *col_part;
  double *row, *col;       /* (batch, rows) R / mean of R, (batch, cols) C */
  double *p_part, *u_part; /* by tile: sums of p^2 and u^2 */
} aci_factor_part;

typedef struct aci_factor_job {
  int n;
  aci_factor_part *parts;
  int64_t *first; /* first tile of each part, n + 1 */
  double weight, keep, sign, eps2, rho, d;
  bool scaled; /* rates are relative to the size of the parameter */
  void (*tile)(const struct aci_factor_job *j, aci_factor_part *a, int64_t tile);
} aci_factor_job;

/* The sums of g^2 along rows and columns and of p^2 of a tile. Also updates the variances. */
void aci_factor_measure(const aci_factor_job *j, aci_factor_part *a, int64_t tile);
/* The sum of u^2 of a tile. */
void aci_factor_length(const aci_factor_job *j, aci_factor_part *a, int64_t tile);
/* Moves the parameters of a tile. */
void aci_factor_update(const aci_factor_job *j, aci_factor_part *a, int64_t tile);

#endif
