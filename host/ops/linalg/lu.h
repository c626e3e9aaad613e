/* LU factors with partial pivoting, in double, by columns. Called by lu_factor_ex.c and solve_ex.c. */
#ifndef ACI_OPS_LU_H
#define ACI_OPS_LU_H
#include "ops/linalg/matrix.h"

/* a (n columns of m) becomes L below the diagonal (of ones) and U on and above it. pivots (min(m,
 * n)): the row, from 0, that row i was exchanged with. info: 0, or the position from 1 of the first
 * pivot that is zero. pivot false: no rows are exchanged. */
ac_status aci_lu(ac_team *team, int64_t m, int64_t n, double *a, bool pivot, int64_t *pivots,
                 int64_t *info, ac_err *e);
/* x (k columns of n) := the solution of A X = x for the factors of a square matrix. */
ac_status aci_lu_solve(ac_team *team, int64_t n, const double *a, const int64_t *pivots, int64_t k,
                       double *x, ac_err *e);
#endif
