/* Orthogonal factors by reflections, in double, as LAPACK's geqrf and orgqr do it. Matrices are
 * given by columns: row j of an array is column j. Called by qr.c. */
#ifndef ACI_OPS_HOUSEHOLDER_H
#define ACI_OPS_HOUSEHOLDER_H
#include "accel/base.h"

/* Doubles of scratch for an m x n matrix with kq columns of Q (0: none wanted). */
int64_t aci_householder_scratch(int64_t m, int64_t n, int64_t kq);
/* a (n columns of m): its columns up to the diagonal become R. The part below holds the
 * reflections. q (kq columns of m, NULL when kq is 0): the first kq columns of the orthogonal
 * factor. Bits do not depend on the team, which may be NULL. */
ac_status aci_householder_qr(ac_team *team, int64_t m, int64_t n, double *a, int64_t kq, double *q,
                             double *scratch, ac_err *e);

#endif
