/* A tile of linear_cross_entropy on CUDA, between linear_cross_entropy.cu, which cuts and
 * multiplies, and linear_cross_entropy_tile.cu, whose kernels read and turn it. */
#ifndef ACI_OPS_LINEAR_CROSS_ENTROPY_CUH
#define ACI_OPS_LINEAR_CROSS_ENTROPY_CUH
#include "ops/loss/cross_entropy.cuh"

/* The state of a row of logits, tile by tile. */
struct lce_state {
  double max, sum, at_target, weighted;
};
struct lce_args {
  void *tile; /* logits, (n_rows, n_cols) */
  void *dl;   /* backward: their gradients in the product's dtype. May be tile */
  ac_dtype acc, product;
  int64_t n, v, i0, n_rows, j0, n_cols;
  const void *bias;
  ac_dtype bias_dt;
  int64_t bias_stride;
  ce_labels y;
  double smooth;
  void *kept;     /* (n, v) of e^(x - m) in the dtype that is multiplied, or NULL */
  double *shifts; /* m of this tile's rows */
  lce_state *state;
  double *lse, *loss, *weight;
  aci_reduce_plan dy, saved; /* backward: of the loss, lse as saved */
  const double *totals;
  bool each, mean;
  void *out;
  ac_dtype out_dt;
};

/* Adds the tile to the state of its rows, and copies it to `kept` if backward needs the logits. */
ac_status aci_lce_take_tile(ac_frame *f, const lce_args &a, ac_err *e);
/* lse, and losses with their weights, or the result, of all rows. */
ac_status aci_lce_finish_rows(ac_frame *f, const lce_args &a, ac_err *e);
/* dl := gradients of the tile's logits, or of their kept values. */
ac_status aci_lce_turn_tile(ac_frame *f, const lce_args &a, ac_err *e);
/* Adds the columns of dl to the sums of earlier rows. part: (ACI_LCE_PIECES + 1, n_cols). The last
 * rows write the result. */
enum { ACI_LCE_PIECES = 32 };
ac_status aci_lce_add_bias(ac_frame *f, const lce_args &a, double *part, ac_err *e);

#endif
