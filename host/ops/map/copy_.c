/* copy_: x := src, broadcast and converted to the dtype of x. src may be on another device.
   x (any shape)!, src (broadcasts to it) -> x
   gradient: dsrc = dx (reduced). The old x gets none.
   example: accel.zeros(2):copy_(accel.tensor { 3, 4 }) --> { 3, 4 } */
#include "ops/map/map.h"

#include "ops/core/ctx_impl.h"

#define FWD(T, p, x) (x)
ACI_LOOP1(copy_, float, f32, FWD)
ACI_LOOP1(copy_, double, f64, FWD)
ACI_LOOP1(copy_, int64_t, i64, FWD)
static const aci_map copy_map = {1, copy__f32, copy__f64, copy__i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *src = ARG_T(f, 1);
  char a[128], b[128];
  int nd = x->ndim;
  int64_t s[AC_MAX_DIMS];
  memcpy(s, x->shape, (size_t)nd * 8);
  ac_status st = aci_broadcast(&nd, s, src, e);
  if (st != AC_OK || nd != x->ndim || memcmp(s, x->shape, (size_t)nd * 8) != 0)
    return AC_FAIL(e, SHAPE, "a source of shape %s does not broadcast to the tensor written, %s",
                   aci_shape_str(src->ndim, src->shape, a, sizeof a),
                   aci_shape_str(x->ndim, x->shape, b, sizeof b));
  return ac_frame_alias(f, 0, e);
}

/* From another device bytes that lie as they are to lie go straight to their position. */
static ac_status across(const ac_frame *f, ac_err *e) {
  const ac_value args[3] = {f->args[1],
                            {.kind = AC_T_DEVICE, .device = f->device},
                            {.kind = AC_T_DEVICE, .device = ARG_T(f, 1)->device}};
  ac_frame g = *f;
  g.op = ac_op_find(f->ctx, "copy_to");
  g.desc = g.op->desc;
  g.args = args;
  g.n_args = 3;
  const ac_kernel k = g.op->kernel[f->device->kind];
  return k != NULL ? k(&g, e)
                   : AC_FAIL(e, UNSUPPORTED, "%s takes no bytes of other devices", f->device->name);
}

/* The map kernel reads its first argument and writes the output: run it on (src) -> x. */
static ac_status cpu(ac_frame *f, ac_err *e) {
  if (!aci_same_device(ARG_T(f, 1)->device, f->device)) return across(f, e);
  ac_frame g = *f;
  ac_op_desc d = *f->desc;
  d.data = &copy_map;
  g.desc = &d;
  g.args = f->args + 1;
  g.n_args = 1;
  return aci_map_cpu(&g, e);
}

static void grad(ac_grad *g) { ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, g->dout[0])); }

AC_OP(copy_, .sig = "copy_(x!: tensor, src: tensor) -> tensor", .shape = shape, .cpu = cpu,
      .any_device = true, .device_copies = 1 << 1, .elementwise = true, .grad = grad,
      .quantized = 3, .complex_as = AC_COMPLEX_PAIRS);
