/* to: x in another dtype, on another device, or both. x itself when nothing changes.
   x (any shape) -> y (same shape). For a quantised tensor another dtype means the dtype of its values.
   gradient: dx = dy taken back to the dtype and device of x.
   example: accel.tensor({ 1.5, -2 }):to("i32") --> { 1, -2 }
   example: accel.tensor({ 1, 2 }):to("f64").dtype --> "f64" */
#include "device/capture.h"
#include "ops/core/ctx_impl.h"
#include "ops/core/op.h"

static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  if (a[1].kind == AC_T_DTYPE && a[1].dtype != (ac_dtype)t->dtype)
    t = t->storage->layout != NULL && ac_tensor_layout(t) != NULL ? x_dequantize(x, t, &a[1].dtype)
                                                                  : x_cast(x, t, a[1].dtype);
  if (t != NULL && a[2].kind == AC_T_DEVICE && !aci_same_device(a[2].device, t->device)) {
    if (!aci_is_contiguous(t)) t = x_clone(x, t);
    if (t != NULL && aci_accelerators_differ(t->device, a[2].device))
      t = x_copy_to(x, t, x->ctx->device[0], t->device);
    t = x_copy_to(x, t, a[2].device, t != NULL ? t->device : NULL);
  }
  out[0] = t;
  return 1;
}

/* copy_to: x (contiguous) on another device. The device that is not the host's copies. Between two
 * kinds neither of which is the host's there are two copies. */
static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_device *to = f->args[1].device;
  if (x->device->kind == AC_DEV_META && to->kind != AC_DEV_META)
    return AC_FAIL(e, DEVICE, "a meta tensor has no bytes to copy to %s", to->name);
  f->device = to;
  f->team = to->team;
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *y = f->out[0];
  ac_device *d = x->device;
  size_t bytes = (size_t)x->numel * aci_dsize((ac_dtype)x->dtype);
  if (bytes == 0) return AC_OK;
  if (!aci_is_accelerator(d)) {
    AC_TRY(aci_capture_refuse(y->device, ACI_CAPTURE_FROM_CPU, e));
    return aci_device_upload(y->device, f->stream, aci_data(y), aci_data(x), bytes, e);
  }
  AC_TRY(d->vt->copy(d, NULL, aci_data(y), aci_data(x), bytes, e));
  return ac_device_sync(d, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_to(&g->x, g->dout[0], NULL, ac_grad_device(g, 0, 0)));
}

AC_OP(to, .sig = "to(x: tensor, dtype: dtype?, device: device?) -> tensor", .composed = plain,
      .on_complex = aci_complex_composed);
AC_OP(copy_to, .sig = "copy_to(x: tensor, device: device, from: device) -> tensor", .shape = shape,
      .cpu = cpu, .by_vtable = true, .grad = grad, .hidden = true, .quantized = 1,
      .complex_as = AC_COMPLEX_NATIVE);
