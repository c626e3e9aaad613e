/* Values everywhere, copies of tensors and of pieces, and the masks of attention. */
#include <string.h>

#include "kernels.h"
#include "layout.h"

/* ---- one value everywhere ---- */
static ac_status set_all(ac_frame *f, ac_scalar v, ac_err *e) {
  const ac_tensor *t = f->out[0];
  const ac_dtype dt = ac_tensor_dtype(t);
  int64_t stride[OCL_OPERANDS][AC_MAX_DIMS] = {{0}};
  const char *type;
  ocl_layout l;
  ocl_call c;
  if (ac_tensor_numel(t) == 0) return AC_OK;
  if (dt > AC_BOOL) return AC_FAIL(e, UNSUPPORTED, "OpenCL devices write no numbers of %s", ac_dtype_name(dt));
  AC_TRY(ocl_type(f, dt, &type, e));
  memcpy(stride[0], ac_tensor_stride(t), sizeof(int64_t) * (size_t)ac_tensor_ndim(t));
  AC_TRY(ocl_layout_make(&l, ac_tensor_ndim(t), ac_tensor_shape(t), 1, (const int64_t(*)[AC_MAX_DIMS])stride, e));
  ocl_begin(&c, f, ocl_fill_cl, "fill");
  ocl_define(&c, "#define DST %s\n#define T %s\n", ac_dtype_name(dt), type);
  ocl_value(&c, &l, sizeof l);
  if (type[0] != 'l') ocl_real(&c, type, ocl_scalar(v));
  else ocl_long(&c, v.kind != AC_SCALAR_FLOAT ? v.i : dt == AC_BOOL ? v.f != 0 : (int64_t)v.f);
  ocl_memory(&c, ac_tensor_data(t));
  return ocl_run(&c, l.n, OCL_GROUP, e);
}
static const ac_scalar zero = {.kind = AC_SCALAR_INT, .i = 0}, one = {.kind = AC_SCALAR_INT, .i = 1};
static ac_status fill_(ac_frame *f, ac_err *e) { return set_all(f, f->args[1].scalar, e); }
static ac_status zero_(ac_frame *f, ac_err *e) { return set_all(f, zero, e); }
static ac_status ones(ac_frame *f, ac_err *e) { return set_all(f, one, e); }

/* ---- pieces ---- */
/* shape's positions of y from `at` on along dim := t, or zeros. */
static ac_status place(ac_frame *f, const ac_tensor *y, int dim, int64_t at, const int64_t *shape, const ac_tensor *t, ac_err *e) {
  char *dst = (char *)ac_tensor_data(y) + at * ac_tensor_stride(y)[dim] * ocl_size(y);
  const ac_dtype dt = ac_tensor_dtype(y);
  return ocl_copy(f, ac_tensor_ndim(y), shape, dst, dt, ac_tensor_stride(y), t != NULL ? ac_tensor_data(t) : NULL,
                  t != NULL ? ac_tensor_dtype(t) : dt, t != NULL ? ac_tensor_stride(t) : NULL, e);
}

static ac_status cat(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  const ac_value *ts = &f->args[0];
  const int d = ocl_dim(f->args[1].i, ac_tensor_ndim(y));
  int64_t at = 0;
  for (int i = 0; i < ts->n; i++) {
    const ac_tensor *t = ts->tensors[i];
    if (ac_tensor_ndim(t) == 1 && ac_tensor_shape(t)[0] == 0) continue; /* joins anything */
    AC_TRY(place(f, y, d, at, ac_tensor_shape(t), t, e));
    at += ac_tensor_shape(t)[d];
  }
  return AC_OK;
}

static ac_status slice_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  const ac_value *dys = &f->args[0];
  const int d = (int)f->args[2].i;
  int64_t at = 0, gap[AC_MAX_DIMS];
  memcpy(gap, ac_tensor_shape(y), sizeof *gap * (size_t)ac_tensor_ndim(y));
  for (int i = 0; i <= dys->n; i++) {
    const int64_t start = i < dys->n ? f->args[3].ints[i] : ac_tensor_shape(y)[d];
    gap[d] = start - at;
    AC_TRY(place(f, y, d, at, gap, NULL, e));
    if (i == dys->n) break;
    const ac_tensor *t = dys->tensors[i];
    AC_TRY(place(f, y, d, start, ac_tensor_shape(t), t, e));
    at = start + ac_tensor_shape(t)[d];
  }
  return AC_OK;
}

/* ---- masks over (rows, columns), the last two dims ---- */
static ac_status matrix(ac_frame *f, const char *kernel, const ac_tensor *x, int64_t diagonal, ac_err *e) {
  const ac_tensor *y = f->out[0];
  const int nd = ac_tensor_ndim(y);
  const char *type;
  const void *data = NULL;
  ac_block *block = NULL;
  ocl_call c;
  if (ac_tensor_numel(y) == 0) return AC_OK;
  AC_TRY(ocl_type(f, ac_tensor_dtype(y), &type, e));
  if (x != NULL) AC_TRY(ocl_contiguous(f, x, &data, &block, e));
  ocl_begin(&c, f, ocl_fill_cl, kernel);
  ocl_define(&c, "#define DST %s\n#define T %s\n", ac_dtype_name(ac_tensor_dtype(y)), type);
  ocl_long(&c, ac_tensor_numel(y));
  ocl_long(&c, ac_tensor_shape(y)[nd - 2]);
  ocl_long(&c, ac_tensor_shape(y)[nd - 1]);
  ocl_long(&c, diagonal);
  ocl_memory(&c, data);
  ocl_memory(&c, ac_tensor_data(y));
  const ac_status st = ocl_run(&c, ac_tensor_numel(y), OCL_GROUP, e);
  ac_block_free(block);
  return st;
}
static ac_status causal_mask(ac_frame *f, ac_err *e) { return matrix(f, "causal_mask", NULL, 0, e); }
static ac_status tril(ac_frame *f, ac_err *e) { return matrix(f, "tril", f->args[0].tensor, f->args[1].i, e); }
static ac_status triu(ac_frame *f, ac_err *e) { return matrix(f, "triu", f->args[0].tensor, f->args[1].i, e); }

const ac_device_kernel ocl_move_kernels[] = {
    {"fill_", fill_},     {"zero_", zero_},           {"full_like", fill_}, {"zeros_like", zero_},
    {"ones_like", ones},  {"cat", cat},               {"slice_backward", slice_backward},
    {"causal_mask", causal_mask}, {"tril", tril},     {"triu", triu},       {NULL, NULL},
};
