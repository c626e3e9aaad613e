/* fill_ and add of f32, contiguous and of one shape. */
#include <math.h>

#include "kernels.h"

static ac_status check(const ac_tensor *t, ac_err *e) {
  return ac_tensor_dtype(t) == AC_F32 && ac_tensor_is_contiguous(t) ? AC_OK : AC_FAIL(e, UNSUPPORTED, "tiny devices take contiguous f32");
}

ac_status tiny_fill(ac_frame *f, ac_err *e) {
  float *y = ac_tensor_data(f->out[0]);
  const ac_scalar v = f->args[1].scalar;
  AC_TRY(check(f->out[0], e));
  for (int64_t i = 0, n = ac_tensor_numel(f->out[0]); i < n; i++) y[i] = v.kind == AC_SCALAR_FLOAT ? (float)v.f : (float)v.i;
  return AC_OK;
}

ac_status tiny_add(ac_frame *f, ac_err *e) {
  const bool rounds = ac_frame_flag(f, TINY_ROUND) != 0;
  for (int i = 0; i < 2; i++) {
    if (f->args[i].kind != AC_T_TENSOR || ac_tensor_numel(f->args[i].tensor) != ac_tensor_numel(f->out[0]))
      return AC_FAIL(e, UNSUPPORTED, "tiny devices add tensors of one shape");
    AC_TRY(check(f->args[i].tensor, e));
  }
  const float *a = ac_tensor_data(f->args[0].tensor), *b = ac_tensor_data(f->args[1].tensor);
  float *y = ac_tensor_data(f->out[0]);
  for (int64_t i = 0, n = ac_tensor_numel(f->out[0]); i < n; i++) y[i] = rounds ? roundf(a[i] + b[i]) : a[i] + b[i];
  return AC_OK;
}
