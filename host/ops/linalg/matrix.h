/* Batches of matrices as columns of doubles, one matrix a task: what the factorisations of this
 * folder share. Called by eigh.c, cholesky_ex.c, lu_factor_ex.c, solve_ex.c and svd.c.
 *
 * Map of the folder: householder.[ch] qr.[c,cu], lu.[ch] for lu_factor_ex.c and solve_ex.c,
 * lapack.[ch] the optional library for svd.c and eigh.c, solve_triangular.[c,cu]. Everything is
 * computed in f64 and rounded once. */
#ifndef ACI_OPS_MATRIX_H
#define ACI_OPS_MATRIX_H
#include "ops/index/index.h"

/* Refuses x unless it is a float matrix or a batch of them, square if asked. */
ac_status aci_matrix_check(const ac_tensor *x, bool square, ac_err *e);
/* Offset in elements of the matrix `i` (row-major) of the leading dims `batch` in x, whose leading
 * dims broadcast to them. */
int64_t aci_matrix_offset(const ac_tensor *x, int n_batch_dims, const int64_t *batch, int64_t i);
/* Elements that the leading dims of x hold. */
int64_t aci_matrix_count(const ac_tensor *x);
/* The matrix at this offset of x as columns in a, or its transpose. */
void aci_matrix_load(const ac_tensor *x, int64_t offset, bool transposed, double *a);
/* Columns a (n of m, `ld` apart) to matrix i of the contiguous x, or their transpose. */
void aci_matrix_store(const ac_tensor *x, int64_t i, int64_t m, int64_t n, const double *a,
                      int64_t ld, bool transposed);

/* One matrix: i-th of n. team is NULL while several matrices share the threads, so that bits do
 * not depend on their number. */
typedef ac_status (*aci_matrix_fn)(const void *job, int64_t i, double *scratch, ac_team *team,
                                   ac_err *e);
/* Runs `one` for n matrices with `doubles` of scratch each. flops: of one, for the grain. */
ac_status aci_matrices(ac_frame *f, int64_t n, int64_t doubles, double flops, aci_matrix_fn one,
                       const void *job, ac_err *e);

/* c (rows x cols, row stride ldc) := c - a b, in f64. a_cs of a is 1. */
ac_status aci_matrix_subtract(ac_team *team, int64_t rows, int64_t cols, int64_t k, const double *a,
                              int64_t a_rs, const double *b, int64_t b_rs, int64_t b_cs, double *c,
                              int64_t ldc, ac_err *e);
#endif
