/* Batches of complex matrices (..., m, n, 2), whose last dim is real and imaginary part, as columns of pairs of doubles
 * for LAPACK. Called by linalg_eig.c, linalg_eigh.c, linalg_svd.c, linalg_lu.c and linalg_qr.c, which the files of
 * stdlib/accel/linalg call for complex tensors. */
#ifndef ACI_OPS_PAIR_MATRIX_H
#define ACI_OPS_PAIR_MATRIX_H
#include "ops/linalg/matrix.h"

/* Refuses x unless it holds matrices of pairs of floats, square if asked. */
ac_status aci_pair_matrix_check(const ac_tensor *x, bool square, ac_err *e);
/* LAPACK must be there and its 32-bit counts large enough for an m x n matrix: UNSUPPORTED. */
ac_status aci_pair_matrix_lapack(int64_t m, int64_t n, ac_err *e);
/* Matrices of x. */
int64_t aci_pair_matrix_count(const ac_tensor *x);
/* The matrix i of x as columns of pairs. Returns whether it is finite. */
bool aci_pair_matrix_load(const ac_tensor *x, int64_t i, double *a);
/* n columns of m pairs, ld pairs apart, to matrix i of the contiguous x. parts: 2, or 1 if both are real. */
void aci_pair_matrix_store(const ac_tensor *x, int64_t i, int64_t m, int64_t n, const double *a,
                           int64_t ld, int parts);

#endif
