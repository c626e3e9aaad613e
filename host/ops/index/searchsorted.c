/* searchsorted: the index (from 0) at which each value would be inserted into an ascending sequence to keep it
   sorted: before equal elements, with right after them. NaN is larger than every number.
   sorted_sequence (n), values (any shape, or a number) -> y (shape of values, i64)
   sorted_sequence (..., n), values (..., m) -> y (..., m): each row in its own sequence.          No gradient.
   example: accel.searchsorted(accel.tensor { 1, 3, 5 }, accel.tensor { 3, 6 }) --> { 1, 3 }
   example: accel.searchsorted(accel.tensor { 1, 3, 5 }, 3, { right = true }) --> 2 */
#include "ops/index/search.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_search_shape(f, 0, 1, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_search_run(f, 0, 1, ARG_B(f, 2), e); }

AC_OP(
    searchsorted,
    .sig = "searchsorted(sorted_sequence: tensor, values: operand, right: bool = false) -> tensor",
    .shape = shape, .cpu = cpu, .nondiff = true);
