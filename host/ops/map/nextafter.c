/* nextafter: y = the number of x's dtype next to x in the direction of other, other itself if they are equal.
   x, other (floating point, of one dtype, any shapes that broadcast) -> y
   gradient: dx = dy where x and other differ, dother = 0.
   example: accel.tensor({ 1.0, 0 }, { dtype = "f64" }):nextafter(accel.ones(2, { dtype = "f64" }) * 2):sub(1)[1]:item() == 2 ^ -52 --> true */
#include "ops/map/map.h"

/* step: the distance of neighbours in units of the bits of f32. bf16 is computed in its upper half. */
static inline AC_HOSTDEV float next_f32(float x, float y, uint32_t step) {
  const uint32_t u = aci_bits32(x), a = u & 0x7fffffffu;
  const uint32_t up = (x < y) == (x > 0.0f) ? u + step : u - step; /* away from 0 or towards it */
  float z = aci_float32(a == 0u ? (aci_bits32(y) & 0x80000000u) | step : up);
  z = x == y ? y : z;
  return x != x || y != y ? x + y : z;
}
static inline AC_HOSTDEV double next_f64(double x, double y) {
  const uint64_t u = aci_bits64(x), a = u & 0x7fffffffffffffffu;
  const uint64_t up = (x < y) == (x > 0.0) ? u + 1u : u - 1u;
  double z = aci_float64(a == 0u ? (aci_bits64(y) & 0x8000000000000000u) | 1u : up);
  z = x == y ? y : z;
  return x != x || y != y ? x + y : z;
}
/* f16 in f32: 13 bits less, and below 2^-14 one distance. */
static inline AC_HOSTDEV float next_f16(float x, float y) {
  const float a = __builtin_fabsf(x), d = x < y ? 0x1p-24f : -0x1p-24f;
  float z = next_f32(x, y, 0x2000u);
  z = a < 0x1p-14f || (a == 0x1p-14f && (x < y) != (x > 0.0f)) ? x + d : z;
  z = a == INFINITY ? __builtin_copysignf(65504.0f, x) : z;
  return x == y || x != x || y != y ? next_f32(x, y, 0x2000u) : z;
}
#define FWD32(T, p, x, y) next_f32(x, y, 1u)
#define FWD64(T, p, x, y) next_f64(x, y)
#define SHORT(T, p, x, y) next_f32(x, y, 0x10000u)
#define HALF(T, p, x, y) next_f16(x, y)
ACI_LOOP2(nextafter, float, f32, FWD32)
ACI_LOOP2(nextafter, double, f64, FWD64)
ACI_LOOP2(nextafter, float, bf16, SHORT)
ACI_LOOP2(nextafter, float, f16, HALF)
static const aci_map nextafter_map = {2, nextafter_f32, nextafter_f64, NULL};
static const aci_map short_map = {2, nextafter_bf16, nextafter_f64, NULL};
static const aci_map half_map = {2, nextafter_f16, nextafter_f64, NULL};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *y = ARG_T(f, 1);
  if (x->dtype != y->dtype || !ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "takes two float tensors of one dtype, got %s and %s; cast them",
                   ac_dtype_name((ac_dtype)x->dtype), ac_dtype_name((ac_dtype)y->dtype));
  return aci_map_shape(f, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_dtype dt = (ac_dtype)ARG_T(f, 0)->dtype;
  return aci_map_run(f, dt == AC_BF16 ? &short_map : dt == AC_F16 ? &half_map : &nextafter_map, e);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *same = x_eq(x, T(ARG_T(g, 0)), T(ARG_T(g, 1))), *dy = g->dout[0];
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_masked_fill(x, dy, same, F(0))));
  aci_grad_zero(g, 1);
}

AC_OP(nextafter, .sig = "nextafter(x: tensor, other: tensor) -> tensor", .shape = shape, .cpu = cpu,
      .any_device = true, .elementwise = true, .data = &nextafter_map, .grad = grad,
      .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .inplace = true, .flops_per_element = 2);
