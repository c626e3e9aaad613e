/* Included by every op file: the public interface for writing ops plus the internals that kernels
 * of this tree may use. */
#ifndef ACI_OPS_OP_H
#define ACI_OPS_OP_H
#include "accel/opdef.h"
#include "accel/ops.h" /* generated */
#include "ops/core/complex.h"
#include "ops/core/dynamic.h"
#include "ops_x.h" /* generated */
#include "tensor/tensor_impl.h"

/* Arguments of a frame or a gradient by position. */
#define ARG_T(fr, k) ((fr)->args[k].tensor)
#define ARG_I(fr, k) ((fr)->args[k].i)
#define ARG_F(fr, k) ((fr)->args[k].f)
#define ARG_B(fr, k) ((fr)->args[k].b)
#define ARG_NONE(fr, k) ((fr)->args[k].kind == AC_T_NONE)

/* Operands and numbers in expressions. */
static inline ac_operand T(ac_tensor *t) { return ac_operand_tensor(t); }
static inline ac_operand F(double f) { return ac_operand_float(f); }
static inline ac_scalar aci_float(double f) {
  ac_scalar s;
  s.kind = AC_SCALAR_FLOAT;
  s.f = f;
  return s;
}
static inline double aci_scalar_f(ac_scalar s) {
  return s.kind == AC_SCALAR_FLOAT ? s.f : (double)s.i;
}
static inline int64_t aci_scalar_i(ac_scalar s) {
  return s.kind == AC_SCALAR_FLOAT ? (int64_t)s.f : s.i;
}

/* The plain quotient, which gradient rules take. */
#define x_div(x, a, b) x_div(x, a, b, AC_DIV_ROUNDING_MODE_NONE)

/* Next output is a view of argument arg as another dtype: strides and offset count its elements. */
ac_status aci_frame_view_as(ac_frame *f, int arg, ac_dtype dt, int ndim, const int64_t *shape,
                            const int64_t *stride, int64_t offset, ac_err *e);
/* Common shape rules: output like argument 0, in its dtype. */
ac_status aci_shape_like0(ac_frame *f, ac_err *e);
/* A factor such as alpha: for integers it must be one, or it would be cut to 0. DTYPE names the
 * parameter. */
ac_status aci_factor_check(const ac_frame *f, int arg, ac_dtype dt, ac_err *e);

#endif
