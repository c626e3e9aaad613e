/* cast: y = x in another dtype (rounding to nearest even, floats truncate to integers, bool is x != 0), always a new tensor.
   x (any shape) -> y (same shape).          gradient: dx = dy in the dtype of x.
   example: accel.tensor({ 1.7, -1.7 }):cast("i64") --> { 1, -1 } */
#include "ops/map/map.h"

#include "ops/core/ctx_impl.h"

#define FWD(T, p, x) (x)
ACI_LOOP1(cast, float, f32, FWD)
ACI_LOOP1(cast, double, f64, FWD)
ACI_LOOP1(cast, int64_t, i64, FWD)
static const aci_map cast_map = {1, cast_f32, cast_f64, cast_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return ac_frame_out(f, f->args[1].dtype, x->ndim, x->shape, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_cast(&g->x, g->dout[0], ac_grad_dtype(g, 0, 0)));
}

/* a real dtype takes the real part, bool compares with 0 */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *z = a[0].tensor;
  const ac_dtype to = a[1].dtype;
  if (!aci_is_complex(z)) {
    ac_tensor *re = x_cast(x, z, aci_part_dtype(to));
    out[0] = aci_join(x, re, re == NULL ? NULL : x_zeros_like(x, re, NULL, NULL));
  } else if (ac_dtype_is_complex(to)) {
    out[0] = aci_complex_of(x, x_cast(x, x_view_as_real(x, z), aci_part_dtype(to)));
  } else {
    out[0] = to == AC_BOOL ? x_ne(x, T(z), F(0)) : x_cast(x, aci_re(x, z), to);
  }
  return 1;
}

AC_OP(cast, .sig = "cast(x: tensor, dtype: dtype) -> tensor", .shape = shape, .cpu = aci_map_cpu,
      .data = &cast_map, .grad = grad, .on_complex = on_complex);
