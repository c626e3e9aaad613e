/* LAPACK of the system (OpenBLAS or the reference library), loaded when a matrix is large enough for
 * it. Without it svd and eigh use their own rotations, which are slower, and the linalg_* ops raise. Called by
 * svd.c, eigh.c, pair_matrix.c and the linalg_*.c. */
#ifndef ACI_OPS_LAPACK_H
#define ACI_OPS_LAPACK_H
#include "accel/base.h"

enum { ACI_LAPACK_FROM = 17 }; /* least size for which the library is worth loading */

/* The smaller extent of an m x n matrix is large enough (and not too large for counts of 32 bits), and
 * the library is usable. */
bool aci_lapack(int64_t least);
/* Doubles of scratch. */
int64_t aci_lapack_svd_scratch(int64_t m, int64_t n);
int64_t aci_lapack_eigh_scratch(int64_t n);
/* a (n columns of m, lost) = u diag(s) vt with k = min(m, n): u k columns of m, vt n columns of k.
 * Returns false if it did not converge. */
bool aci_lapack_svd(int64_t m, int64_t n, double *a, double *u, double *s, double *vt,
                    double *scratch);
/* a (n columns of n, its lower triangle) becomes the eigenvectors, w the eigenvalues, ascending. */
bool aci_lapack_eigh(int64_t n, double *a, double *w, double *scratch);

/* The library is usable for a matrix of n rows, however small. */
bool aci_lapack_for(int64_t n);
/* The eigenvalues w (n pairs of real and imaginary part) and right eigenvectors v (n columns of n pairs)
 * of a (n columns of n, lost), a real or a complex matrix. Doubles of scratch: 70 n. */
bool aci_lapack_eig(int64_t n, double *a, double *w, double *v, double *scratch);
bool aci_lapack_eig_complex(int64_t n, double *a, double *w, double *v, double *scratch);

/* Complex matrices, as columns of pairs. eigh: as aci_lapack_eigh, of either triangle. svd: as
 * aci_lapack_svd, with vh k x n. lu: a becomes L and U, pivots (min(m, n)) from 1, returns the position
 * from 1 of the first zero on U's diagonal or 0. qr: a becomes R on and above its diagonal and reflections
 * under it, tau min(m, n) pairs; then q makes the first n columns of Q of k reflections in a. */
int64_t aci_lapack_eigh_complex_scratch(int64_t n);
bool aci_lapack_eigh_complex(int64_t n, bool upper, double *a, double *w, double *scratch);
int64_t aci_lapack_svd_complex_scratch(int64_t m, int64_t n);
bool aci_lapack_svd_complex(int64_t m, int64_t n, double *a, double *u, double *s, double *vh,
                            double *scratch);
int32_t aci_lapack_lu_complex(int64_t m, int64_t n, double *a, int32_t *pivots);
int64_t aci_lapack_qr_complex_scratch(int64_t n); /* n: the larger count of columns */
bool aci_lapack_qr_complex(int64_t m, int64_t n, double *a, double *tau, double *scratch);
bool aci_lapack_q_complex(int64_t m, int64_t n, int64_t k, double *a, const double *tau,
                          double *scratch);
#endif
