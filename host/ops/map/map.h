/* Map-like ops: out[i] = f(a[i], b[i], ...; p) with broadcasting. The formula is written once. This
 * header makes the loops, the shape rule and the kernel from it.
 *
 *   #define FWD(T, p, x) m_exp(x)
 *   AC_MAP1(exp, FWD, .sig = "exp(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0), .inplace = true);
 *
 * The first parameters (1 to 4, the macro's number) are the elements, tensors or numbers. Further
 * scalar, float, int, bool or enum parameters arrive in p[0], p[1], ... converted to T. T is float
 * (for f32 f16 bf16) or double. In the N macros it can also be int64_t (for integers and bool), and
 * the result has the promoted dtype. Without N integer inputs are computed and returned in f32. B:
 * as N, result bool. .flops_per_element is 1 unless an op sets it. A formula may use m_* of
 * base/vmath.h, has no branches that keep the compiler from vectorising it (a ?: is fine), and
 * reads nothing but its arguments.
 *
 * Map of the folder. One op, one file of its name. Shared files:
 *
 *   map.[ch], plan.h        this frame: loops, shape rule and CPU driver, and a call laid out for
 *                           any device
 *   map.cu, map.cuh         the driver and the kernels on CUDA, made of the same formulas
 *   convert.[ch]            rows of any dtype to and from the compute types
 *   fill.[ch]               fill_ zero_ and the *_like ops
 *   angle.h exponential.h   formulas of the inverse circular functions, and of elu selu celu
 *   special.h               gamma, Bessel and error functions in double
 *   bitwise.h modulo.h      shape rules and checks of the bitwise ops, and of remainder and fmod
 *   swiglu.cu               the backward of swiglu on CUDA, which has two results */
#ifndef ACI_OPS_MAP_H
#define ACI_OPS_MAP_H
#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/map/plan.h"
#include "ops/core/op.h"

ac_status aci_map_shape(ac_frame *f, ac_err *e);
ac_status aci_map_shape_bool(ac_frame *f, ac_err *e);
/* Runs the map in .data, on the frame's device: the kernel of ops on every device. */
ac_status aci_map_cpu(ac_frame *f, ac_err *e);

/* Runs another map over the same arguments: for ops whose formula follows from a parameter. */
ACI_MODULE_API ac_status aci_map_run(ac_frame *f, const aci_map *m, ac_err *e);
/* Shape rule of maps that mean nothing for truth values: as aci_map_shape, but refuses bool among
 * the element arguments. */
ac_status aci_map_shape_nobool(ac_frame *f, ac_err *e);

/* Argument i of a recorded call as an operand: the saved tensor, or the number that was given. */
static inline ac_operand aci_grad_operand(const ac_grad *g, int i) {
  return g->args[i].kind == AC_T_SCALAR ? (ac_operand){NULL, g->args[i].scalar}
                                        : ac_operand_tensor(g->args[i].tensor);
}
static inline ac_operand aci_value_operand(const ac_value *v) {
  return v->kind == AC_T_SCALAR ? (ac_operand){NULL, v->scalar} : ac_operand_tensor(v->tensor);
}
/* Zeros of the shape and dtype of argument i: the gradient of a step function. */
static inline void aci_grad_zero(ac_grad *g, int i) {
  if (ac_grad_needs(g, i))
    ac_grad_set(g, i, ac_grad_reduce_to(g, i, x_zeros_like(&g->x, g->dout[0], NULL, NULL)));
}
/* Formulas for integers and floats in one expression. */
#define ACI_BY_INT(x, for_int, for_float) _Generic((x), int64_t : (for_int), default : (for_float))

#define ACI_MAP_HEAD(T)           \
  const T *restrict const p = pv; \
  T *o = out;                     \
  (void)p;
#define ACI_MAP_FN(name) \
  AC_ISA_FN(name, (int64_t n, void *out, const void *const *in, const void *pv), (n, out, in, pv))

/* The name becomes an array of one, so that it serves as a pointer in constant tables. */
#define ACI_MAP_LOOP(id, text) static const aci_map_loop id[1] = {{id##_run, __FILE__, text}};

#define ACI_LOOP1(op, T, sfx, F)                                                  \
  ACI_MAP_FN(op##_##sfx##_run) {                                                  \
    ACI_MAP_HEAD(T) const T *a = in[0];                                           \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = (T)F(T, p, a[i]); \
  }                                                                               \
  ACI_MAP_LOOP(op##_##sfx, #op "_" #sfx)
#define ACI_LOOP2(op, T, sfx, F)                                                        \
  ACI_MAP_FN(op##_##sfx##_run) {                                                        \
    ACI_MAP_HEAD(T) const T *a = in[0], *b = in[1];                                     \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = (T)F(T, p, a[i], b[i]); \
  }                                                                                     \
  ACI_MAP_LOOP(op##_##sfx, #op "_" #sfx)
#define ACI_LOOP3(op, T, sfx, F)                                                              \
  ACI_MAP_FN(op##_##sfx##_run) {                                                              \
    ACI_MAP_HEAD(T) const T *a = in[0], *b = in[1], *c = in[2];                               \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = (T)F(T, p, a[i], b[i], c[i]); \
  }                                                                                           \
  ACI_MAP_LOOP(op##_##sfx, #op "_" #sfx)
#define ACI_LOOP4(op, T, sfx, F)                                            \
  ACI_MAP_FN(op##_##sfx##_run) {                                            \
    ACI_MAP_HEAD(T) const T *a = in[0], *b = in[1], *c = in[2], *d = in[3]; \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] =             \
        (T)F(T, p, a[i], b[i], c[i], d[i]);                                 \
  }                                                                         \
  ACI_MAP_LOOP(op##_##sfx, #op "_" #sfx)

#define ACI_MAP_FLT(op, K, F, ...)                                                                 \
  ACI_LOOP##K(op, float, f32, F) ACI_LOOP##K(op, double, f64, F) static const aci_map op##_map = { \
      K, op##_f32, op##_f64, NULL};                                                                \
  AC_OP(op, .shape = aci_map_shape, .cpu = aci_map_cpu, .elementwise = true, .data = &op##_map,    \
        __VA_ARGS__)
#define ACI_MAP_NUM(op, K, F, SHAPE, ...)                                                     \
  ACI_LOOP##K(op, float, f32, F) ACI_LOOP##K(op, double, f64, F) ACI_LOOP##K(                 \
      op, int64_t, i64, F) static const aci_map op##_map = {K, op##_f32, op##_f64, op##_i64}; \
  AC_OP(op, .shape = SHAPE, .cpu = aci_map_cpu, .elementwise = true, .data = &op##_map, __VA_ARGS__)

#define AC_MAP1(op, F, ...) ACI_MAP_FLT(op, 1, F, __VA_ARGS__)
#define AC_MAP2(op, F, ...) ACI_MAP_FLT(op, 2, F, __VA_ARGS__)
#define AC_MAP3(op, F, ...) ACI_MAP_FLT(op, 3, F, __VA_ARGS__)
#define AC_MAP4(op, F, ...) ACI_MAP_FLT(op, 4, F, __VA_ARGS__)
#define AC_MAP1N(op, F, ...) ACI_MAP_NUM(op, 1, F, aci_map_shape, __VA_ARGS__)
#define AC_MAP2N(op, F, ...) ACI_MAP_NUM(op, 2, F, aci_map_shape, __VA_ARGS__)
#define AC_MAP3N(op, F, ...) ACI_MAP_NUM(op, 3, F, aci_map_shape, __VA_ARGS__)
#define AC_MAP1B(op, F, ...) ACI_MAP_NUM(op, 1, F, aci_map_shape_bool, .nondiff = true, __VA_ARGS__)
#define AC_MAP2B(op, F, ...) ACI_MAP_NUM(op, 2, F, aci_map_shape_bool, .nondiff = true, __VA_ARGS__)

#endif
