/* bmm: the products of the matrices of two batches, pair by pair. Nothing broadcasts.
   x (b, m, k), mat2 (b, k, n) -> y (b, m, n). Dtypes: floats and integers.
   gradient: as for matmul.
   example: accel.tensor({ { { 1.0, 2.0 } } }):bmm(accel.tensor { { { 3.0 }, { 4.0 } } }) --> { { { 11 } } } */
#include "ops/matmul/check.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const ac_tensor *p = a[0].tensor, *q = a[1].tensor;
  char s[128], t[128];
  if (!aci_product_ranks(x, p, 3, q, 3, "matmul takes other ranks")) return 0;
  if (p->shape[0] != q->shape[0])
    x->st = AC_FAIL(x->e, SHAPE,
                    "batches of %lld and %lld differ in shapes %s and %s; matmul broadcasts",
                    (long long)p->shape[0], (long long)q->shape[0],
                    aci_shape_str(p->ndim, p->shape, s, sizeof s),
                    aci_shape_str(q->ndim, q->shape, t, sizeof t));
  out[0] = x_matmul(x, a[0].tensor, a[1].tensor);
  return 1;
}

AC_OP(bmm, .sig = "bmm(x: tensor, mat2: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
