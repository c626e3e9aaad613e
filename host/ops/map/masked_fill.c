/* masked_fill: y = value if mask, else x.          x, mask (bool, shapes that broadcast), value (a number, or a tensor of
   rank 0) -> y (dtype of x)
   gradient: dx = dy if not mask, else 0, summed over the dims of x that were broadcast. dvalue = the sum of dy at mask.
   example: accel.tensor({ 1.0, 2, 3 }):masked_fill(accel.tensor { true, false, true }, -1) --> { -1, 2, -1 } */
#include "ops/map/map.h"

#define FWD(T, p, x, m) ((m) != 0 ? p[0] : (x))
ACI_LOOP2(masked_fill, float, f32, FWD)
ACI_LOOP2(masked_fill, double, f64, FWD)
ACI_LOOP2(masked_fill, int64_t, i64, FWD)
#define FWD3(T, p, x, m, v) ((m) != 0 ? (v) : (x))
ACI_LOOP3(masked_fill_tensor, float, f32, FWD3)
ACI_LOOP3(masked_fill_tensor, double, f64, FWD3)
ACI_LOOP3(masked_fill_tensor, int64_t, i64, FWD3)
static const aci_map tensor_map = {3, masked_fill_tensor_f32, masked_fill_tensor_f64,
                                   masked_fill_tensor_i64};
static const aci_map masked_fill_map = {2, masked_fill_f32, masked_fill_f64, masked_fill_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *m = ARG_T(f, 1);
  const ac_value *given = &f->args[2];
  const ac_scalar v = given->scalar;
  if (m->dtype != AC_BOOL)
    return AC_FAIL(e, DTYPE, "the mask must be bool, not %s", ac_dtype_name((ac_dtype)m->dtype));
  if (given->kind == AC_T_TENSOR) {
    const ac_tensor *t = given->tensor;
    char s[128];
    if (t->ndim != 0)
      return AC_FAIL(e, SHAPE,
                     "value must be a number or a tensor of rank 0, not of shape %s; use where",
                     aci_shape_str(t->ndim, t->shape, s, sizeof s));
    if (ac_dtype_is_float((ac_dtype)t->dtype) && !ac_dtype_is_float((ac_dtype)x->dtype))
      return AC_FAIL(e, DTYPE,
                     "value is %s, which a tensor of dtype %s does not hold; cast it first",
                     ac_dtype_name((ac_dtype)t->dtype), ac_dtype_name((ac_dtype)x->dtype));
    return aci_map_shape(f, e);
  }
  if (!ac_dtype_is_float((ac_dtype)x->dtype) && v.kind == AC_SCALAR_FLOAT && !(fabs(v.f) < 0x1p63))
    return AC_FAIL(e, DTYPE, "the value %g cannot be stored in a tensor of dtype %s", v.f,
                   ac_dtype_name((ac_dtype)x->dtype));
  return aci_map_shape(f, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  return aci_map_run(f, f->args[2].kind == AC_T_TENSOR ? &tensor_map : &masked_fill_map, e);
}

static void grad(ac_grad *g) {
  ac_tensor *dy = g->dout[0], *mask = ARG_T(g, 1);
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_masked_fill(&g->x, dy, mask, F(0))));
  if (ac_grad_needs(g, 2))
    ac_grad_set(g, 2, ac_grad_reduce_to(g, 2, x_where(&g->x, mask, T(dy), F(0))));
}

AC_OP(masked_fill, .sig = "masked_fill(x: tensor, mask: tensor, value: operand) -> tensor",
      .shape = shape, .cpu = cpu, .any_device = true, .data = &masked_fill_map, .grad = grad,
      .save = AC_SAVE_IN(1), .inplace = true, .on_complex = aci_complex_parts);
