/* Rows of softmax and of the norms: a work-group each, which reads its row again for each pass over it. */
#include <float.h>
#include <string.h>

#include "kernels.h"
#include "layout.h"

/* ---- softmax along any dim ---- */
static ac_status softmax_rows(ac_frame *f, const char *kernel, bool log, const ac_tensor *a, const ac_tensor *b, int64_t dim, ac_err *e) {
  const ac_tensor *y = f->out[0];
  const int nd = ac_tensor_ndim(a);
  int64_t outer, n, inner;
  const void *x = NULL, *z = NULL;
  ac_block *b1 = NULL, *b2 = NULL;
  const char *type, *unused;
  ocl_call c;
  if (ac_tensor_numel(y) == 0) return AC_OK;
  ocl_around(nd, ac_tensor_shape(a), ocl_dim(dim, nd), &outer, &n, &inner);
  AC_TRY(ocl_type(f, ac_tensor_dtype(y), &type, e));
  AC_TRY(ocl_type(f, ac_tensor_dtype(a), &unused, e));
  AC_TRY(ocl_contiguous(f, a, &x, &b1, e));
  ac_status st = b != NULL ? ocl_contiguous(f, b, &z, &b2, e) : AC_OK;
  if (st == AC_OK) {
    ocl_begin(&c, f, ocl_softmax_cl, kernel);
    ocl_define(&c, "#define T %s\n#define IN %s\n#define IN2 %s\n#define OUT %s\n#define GROUP %d\n%s", type, ac_dtype_name(ac_tensor_dtype(a)),
               ac_dtype_name(ac_tensor_dtype(b != NULL ? b : a)), ac_dtype_name(ac_tensor_dtype(y)), OCL_GROUP, log ? "#define LOG\n" : "");
    ocl_long(&c, n);
    ocl_long(&c, inner);
    ocl_memory(&c, x);
    ocl_memory(&c, z);
    ocl_memory(&c, ac_tensor_data(y));
    st = ocl_run(&c, outer * inner * OCL_GROUP, OCL_GROUP, e);
  }
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}
static ac_status softmax(ac_frame *f, ac_err *e) { return softmax_rows(f, "softmax", false, f->args[0].tensor, NULL, f->args[1].i, e); }
static ac_status log_softmax(ac_frame *f, ac_err *e) { return softmax_rows(f, "softmax", true, f->args[0].tensor, NULL, f->args[1].i, e); }
static ac_status softmax_backward(ac_frame *f, ac_err *e) {
  return softmax_rows(f, "softmax_backward", false, f->args[0].tensor, f->args[1].tensor, f->args[2].i, e);
}
static ac_status log_softmax_backward(ac_frame *f, ac_err *e) {
  return softmax_rows(f, "softmax_backward", true, f->args[0].tensor, f->args[1].tensor, f->args[2].i, e);
}

/* ---- layer_norm and rms_norm ---- */
enum { MAX_OPERANDS = 5, COLUMN_PARTS = 64, COLUMN_ROWS = 16 };
typedef struct norm {
  ac_frame *f;
  bool rms;
  int64_t n, rows;
  double eps;
  const char *type;
  const void *data[MAX_OPERANDS];
  ac_block *block[MAX_OPERANDS];
  ac_dtype dtype[MAX_OPERANDS];
} norm;

static void norm_end(norm *o) {
  for (int i = 0; i < MAX_OPERANDS; i++) ac_block_free(o->block[i]);
}

/* Operand i in one run; NULL: none, which is read as dtype like. */
static ac_status operand(norm *o, int i, const ac_value *v, ac_dtype like, ac_err *e) {
  const char *unused;
  o->dtype[i] = like;
  if (v == NULL || v->kind != AC_T_TENSOR) return AC_OK;
  o->dtype[i] = ac_tensor_dtype(v->tensor);
  AC_TRY(ocl_type(o->f, o->dtype[i], &unused, e));
  return ocl_contiguous(o->f, v->tensor, &o->data[i], &o->block[i], e);
}

static ac_status norm_begin(norm *o, ac_frame *f, bool rms, const ac_tensor *x, const ac_value *shape, const ac_value *eps, ac_err *e) {
  *o = (norm){.f = f, .rms = rms, .n = 1};
  for (int i = 0; i < shape->n; i++) o->n *= shape->ints[i];
  o->rows = o->n > 0 ? ac_tensor_numel(x) / o->n : 0;
  o->eps = eps->kind == AC_T_FLOAT ? eps->f : ac_tensor_dtype(x) == AC_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
  return ocl_type(f, ac_tensor_dtype(x), &o->type, e);
}

static void norm_call(const norm *o, ocl_call *c, const char *kernel) {
  static const char *const names[MAX_OPERANDS] = {"X", "W", "B", "DY", "DSUM"};
  ocl_begin(c, o->f, ocl_norm_cl, kernel);
  ocl_define(c, "#define T %s\n#define GROUP %d\n%s", o->type, OCL_GROUP, o->rms ? "#define RMS\n" : "");
  for (int i = 0; i < MAX_OPERANDS; i++)
    ocl_define(c, "#define %s %s\n%s%s%s", names[i], ac_dtype_name(o->dtype[i]), o->data[i] != NULL ? "#define HAS_" : "",
               o->data[i] != NULL ? names[i] : "", o->data[i] != NULL ? "\n" : "");
  ocl_long(c, o->rows);
  ocl_long(c, o->n);
  ocl_real(c, o->type, o->eps);
}

/* x: what is normalised; arguments from `at` on: shape, weight, bias unless rms, eps. */
static ac_status forward(ac_frame *f, bool rms, const ac_tensor *x, int at, ac_err *e) {
  const ac_value v = {.kind = AC_T_TENSOR, .tensor = (ac_tensor *)(uintptr_t)x};
  const ac_dtype dt = ac_tensor_dtype(x);
  norm o;
  ocl_call c;
  if (ac_tensor_numel(x) == 0) return AC_OK;
  AC_TRY(norm_begin(&o, f, rms, x, &f->args[at], &f->args[at + (rms ? 2 : 3)], e));
  ac_status st = operand(&o, 0, &v, dt, e);
  if (st == AC_OK) st = operand(&o, 1, &f->args[at + 1], dt, e);
  if (st == AC_OK) st = operand(&o, 2, rms ? NULL : &f->args[at + 2], dt, e);
  if (st == AC_OK) st = operand(&o, 3, NULL, dt, e);
  if (st == AC_OK) st = operand(&o, 4, NULL, dt, e);
  if (st == AC_OK) {
    norm_call(&o, &c, "norm");
    for (int i = 0; i < 3; i++) ocl_memory(&c, o.data[i]);
    ocl_memory(&c, ac_tensor_data(f->out[0]));
    st = ocl_run(&c, o.rows * OCL_GROUP, OCL_GROUP, e);
  }
  norm_end(&o);
  return st;
}
static ac_status layer_norm(ac_frame *f, ac_err *e) { return forward(f, false, f->args[0].tensor, 1, e); }
static ac_status rms_norm(ac_frame *f, ac_err *e) { return forward(f, true, f->args[0].tensor, 1, e); }

/* sum := residual + x as the map `add` rounds it, then its rows. */
static ac_status add_norm(ac_frame *f, bool rms, ac_err *e) {
  const ac_tensor *s = f->out[1];
  ocl_call c;
  int64_t stride[OCL_OPERANDS][AC_MAX_DIMS] = {{0}};
  ocl_layout l;
  const char *type;
  for (int k = 0; k < 2; k++) ocl_broadcast(f->args[k].tensor, ac_tensor_ndim(s), ac_tensor_shape(s), stride[k + 1]);
  memcpy(stride[0], ac_tensor_stride(s), sizeof(int64_t) * (size_t)ac_tensor_ndim(s));
  AC_TRY(ocl_layout_make(&l, ac_tensor_ndim(s), ac_tensor_shape(s), 3, (const int64_t(*)[AC_MAX_DIMS])stride, e));
  AC_TRY(ocl_type(f, ac_tensor_dtype(s), &type, e));
  ocl_begin(&c, f, ocl_norm_cl, "add");
  ocl_define(&c, "#define T %s\n#define ADD\n#define OUT %s\n#define A %s\n#define B %s\n", type, ac_dtype_name(ac_tensor_dtype(s)),
             ac_dtype_name(ac_tensor_dtype(f->args[0].tensor)), ac_dtype_name(ac_tensor_dtype(f->args[1].tensor)));
  ocl_value(&c, &l, sizeof l);
  ocl_memory(&c, ac_tensor_data(s));
  for (int k = 0; k < 2; k++) ocl_memory(&c, ac_tensor_data(f->args[k].tensor));
  AC_TRY(ocl_run(&c, l.n, OCL_GROUP, e));
  return forward(f, rms, s, 2, e);
}
static ac_status add_layer_norm(ac_frame *f, ac_err *e) { return add_norm(f, false, e); }
static ac_status add_rms_norm(ac_frame *f, ac_err *e) { return add_norm(f, true, e); }

/* dweight and dbias: parts of the rows for each column, then the parts. */
static ac_status columns(const norm *o, const void *stats, ac_err *e) {
  const int n_out = o->rms ? 1 : 2;
  int64_t parts = (o->rows + COLUMN_ROWS - 1) / COLUMN_ROWS;
  ac_block *sums;
  ocl_call c;
  if (parts > COLUMN_PARTS) parts = COLUMN_PARTS;
  AC_TRY(ocl_scratch(o->f, (size_t)(parts * o->n * n_out) * ocl_type_bytes(o->dtype[0]), &sums, e));
  norm_call(o, &c, "norm_columns");
  ocl_long(&c, parts);
  ocl_memory(&c, o->data[0]);
  ocl_memory(&c, o->data[3]);
  ocl_memory(&c, stats);
  ocl_memory(&c, ac_block_ptr(sums));
  ac_status st = ocl_run(&c, parts * o->n, OCL_GROUP, e);
  for (int k = 0; k < n_out && st == AC_OK; k++) {
    norm_call(o, &c, "norm_meet");
    ocl_long(&c, parts);
    ocl_long(&c, k);
    ocl_memory(&c, ac_block_ptr(sums));
    ocl_memory(&c, ac_tensor_data(o->f->out[1 + k]));
    st = ocl_run(&c, o->n, OCL_GROUP, e);
  }
  ac_block_free(sums);
  return st;
}

static ac_status backward(ac_frame *f, bool rms, ac_err *e) {
  const ac_tensor *x = f->args[1].tensor;
  const ac_dtype dt = ac_tensor_dtype(x);
  const bool weight = f->args[3].kind == AC_T_TENSOR;
  ac_block *stats = NULL;
  norm o;
  ocl_call c;
  for (int k = 1; k < f->n_out && ac_tensor_numel(x) == 0; k++) {
    const size_t bytes = (size_t)(ac_tensor_numel(f->out[k]) * ocl_size(f->out[k]));
    AC_TRY(ocl_vtable()->fill(f->device, f->stream, ac_tensor_data(f->out[k]), 0, bytes, e));
  }
  if (ac_tensor_numel(x) == 0) return AC_OK;
  AC_TRY(norm_begin(&o, f, rms, x, &f->args[2], &f->args[4], e));
  ac_status st = operand(&o, 0, &f->args[1], dt, e);
  if (st == AC_OK) st = operand(&o, 1, &f->args[3], dt, e);
  if (st == AC_OK) st = operand(&o, 2, NULL, dt, e);
  if (st == AC_OK) st = operand(&o, 3, &f->args[0], dt, e);
  if (st == AC_OK) st = operand(&o, 4, &f->args[5], dt, e);
  if (st == AC_OK) st = ocl_scratch(f, (size_t)o.rows * 3 * ocl_type_bytes(dt) /* struct stat of norm.cl */, &stats, e);
  if (st == AC_OK) {
    norm_call(&o, &c, "norm_backward");
    ocl_memory(&c, o.data[0]);
    ocl_memory(&c, o.data[1]);
    ocl_memory(&c, o.data[3]);
    ocl_memory(&c, o.data[4]);
    ocl_memory(&c, ac_block_ptr(stats));
    ocl_memory(&c, ac_tensor_data(f->out[0]));
    st = ocl_run(&c, o.rows * OCL_GROUP, OCL_GROUP, e);
  }
  if (st == AC_OK && weight) st = columns(&o, ac_block_ptr(stats), e);
  ac_block_free(stats);
  norm_end(&o);
  return st;
}
static ac_status layer_norm_backward(ac_frame *f, ac_err *e) { return backward(f, false, e); }
static ac_status rms_norm_backward(ac_frame *f, ac_err *e) { return backward(f, true, e); }

const ac_device_kernel ocl_row_kernels[] = {
    {"softmax", softmax},
    {"log_softmax", log_softmax},
    {"softmax_backward", softmax_backward},
    {"log_softmax_backward", log_softmax_backward},
    {"layer_norm", layer_norm},
    {"rms_norm", rms_norm},
    {"add_layer_norm", add_layer_norm},
    {"add_rms_norm", add_rms_norm},
    {"layer_norm_backward", layer_norm_backward},
    {"rms_norm_backward", rms_norm_backward},
    {NULL, NULL},
};
