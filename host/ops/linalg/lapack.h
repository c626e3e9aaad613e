/* LAPACK of the system (OpenBLAS or the reference library), loaded when a matrix is large enough for
 * it. Without it svd and eigh use their own rotations, which are slower, and linalg_eig raises. Called by
 * svd.c, eigh.c and linalg_eig.c. */
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
#endif
