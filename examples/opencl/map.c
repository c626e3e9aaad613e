/* Elementwise ops: the formula of an op with its operands laid out. Called as the kernel of every op of formulas.h. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formulas.h"
#include "kernels.h"
#include "layout.h"

enum { N_FORMULAS = sizeof formulas / sizeof formulas[0], N_PARTS = sizeof parts / sizeof parts[0] };

const char *ocl_map_name(int i) { return i < N_FORMULAS ? formulas[i].op : NULL; }

static const struct formula *find(const char *op) {
  for (int i = 0; i < N_FORMULAS; i++)
    if (strcmp(formulas[i].op, op) == 0) return &formulas[i];
  for (int i = 0; i < N_PARTS; i++)
    if (strcmp(parts[i].op, op) == 0) return &parts[i];
  return NULL;
}

static bool is(const ac_frame *f, const char *op) { return strcmp(f->desc->name, op) == 0; }

/* ---- numbers of a call ---- */
typedef struct numbers {
  union {
    float f32[10];
    double f64[10];
    int64_t i64[10];
  };
} numbers; /* struct numbers of map.cl: 4 operands, 6 parameters */

static void put(numbers *c, const char *type, int i, ac_scalar s) {
  const bool real = s.kind == AC_SCALAR_FLOAT;
  if (type[0] == 'f') c->f32[i] = (float)(real ? s.f : (double)s.i);
  else if (type[0] == 'd') c->f64[i] = real ? s.f : (double)s.i;
  else c->i64[i] = real ? (fabs(s.f) < 0x1p63 ? (int64_t)s.f : 0) : s.i;
}

static ac_scalar number_of(const ac_value *v) {
  ac_scalar s = {.kind = AC_SCALAR_FLOAT, .f = 0};
  if (v->kind == AC_T_SCALAR) return v->scalar;
  if (v->kind == AC_T_FLOAT) s.f = v->f;
  else if (v->kind == AC_T_BOOL) s.f = v->b ? 1 : 0;
  else if (v->kind == AC_T_INT || v->kind == AC_T_ENUM) s.f = (double)v->i;
  return s;
}

/* Bounds and values that were left out, as the ops mean them. */
static void complete(const ac_frame *f, ac_value *a) {
  const bool clamp = is(f, "clamp"), back = is(f, "clamp_backward");
  if (clamp || back) {
    const ac_dtype dt = ac_tensor_dtype(a[clamp ? 0 : 1].tensor);
    const bool real = ac_dtype_is_float(dt);
    for (int upper = 0; upper < 2; upper++) {
      ac_value *v = &a[(clamp ? 1 : 2) + upper];
      if (v->kind != AC_T_NONE) continue;
      *v = (ac_value){.kind = AC_T_SCALAR, .scalar = {.kind = real ? AC_SCALAR_FLOAT : AC_SCALAR_INT}};
      if (real) v->scalar.f = upper ? (double)INFINITY : -(double)INFINITY;
      else v->scalar.i = upper ? INT64_MAX : INT64_MIN;
    }
  } else if (is(f, "nan_to_num")) {
    const ac_dtype dt = ac_tensor_dtype(a[0].tensor);
    const double top = dt == AC_F64 ? DBL_MAX : dt == AC_F16 ? 65504 : dt == AC_BF16 ? 0x1.fep127 : (double)FLT_MAX;
    if (a[2].kind == AC_T_NONE) a[2] = (ac_value){.kind = AC_T_FLOAT, .f = top};
    if (a[3].kind == AC_T_NONE) a[3] = (ac_value){.kind = AC_T_FLOAT, .f = -top};
  }
}

/* A divisor of integers that is a tensor may have a 0, which the CPU says before anything is computed. */
static ac_status check_divisor(const ac_frame *f, const char *type, ac_err *e) {
  const bool divides = is(f, "remainder") || is(f, "fmod") || is(f, "floor_divide");
  if (!divides || type[0] != 'l') return AC_OK;
  const ac_value *v = &f->args[1];
  if (v->kind == AC_T_SCALAR && v->scalar.i != 0) return AC_OK;
  return v->kind == AC_T_SCALAR ? AC_FAIL(e, INVALID, "integers cannot be divided by zero")
                                : AC_FAIL(e, UNSUPPORTED, "OpenCL devices divide integers by a number alone; use floats, or :to(\"cpu\")");
}

static void define_operand(ocl_call *c, const ac_frame *g, int k, ac_dtype computed) {
  static const char letters[] = "XYZW";
  if (g->args[k].kind == AC_T_TENSOR) {
    ocl_define(c, "#define %c GET(%s, m%d, element(&l, %d, i))\n", letters[k], ac_dtype_name(ac_tensor_dtype(g->args[k].tensor)), k, k);
  } else { /* compared as a value of the tensor's dtype */
    const bool round = ac_tensor_dtype(g->out[0]) == AC_BOOL && (computed == AC_F16 || computed == AC_BF16);
    ocl_define(c, round ? "#define %c rounded_%s(c.number[%d])\n" : "#define %c c.number[%.0s%d]\n", letters[k], ac_dtype_name(computed), k);
  }
}

static ac_status run(ac_frame *g, const struct formula *m, ac_err *e) {
  const ac_tensor *o = g->out[0];
  const ac_dtype promoted = ac_frame_promote(g, 0, m->n_in - 1), out = ac_tensor_dtype(o);
  const ac_dtype computed = m->whole == NULL && !ac_dtype_is_float(promoted) ? AC_F32 : promoted;
  int64_t stride[OCL_OPERANDS][AC_MAX_DIMS] = {{0}};
  ocl_layout l;
  ocl_call c;
  numbers n;
  const char *type, *unused;
  if (ac_tensor_numel(o) == 0) return AC_OK;
  AC_TRY(ocl_type(g, computed, &type, e));
  AC_TRY(ocl_type(g, out, &unused, e));
  AC_TRY(check_divisor(g, type, e));
  for (int k = 0; k < m->n_in; k++) {
    const ac_tensor *t = g->args[k].kind == AC_T_TENSOR ? g->args[k].tensor : NULL;
    if (t != NULL) AC_TRY(ocl_type(g, ac_tensor_dtype(t), &unused, e));
    ocl_broadcast(t, ac_tensor_ndim(o), ac_tensor_shape(o), stride[k]);
  }
  memcpy(stride[4], ac_tensor_stride(o), sizeof(int64_t) * (size_t)ac_tensor_ndim(o));
  AC_TRY(ocl_layout_make(&l, ac_tensor_ndim(o), ac_tensor_shape(o), OCL_OPERANDS, (const int64_t(*)[AC_MAX_DIMS])stride, e));

  ocl_begin(&c, g, ocl_map_cl, "map");
  ocl_define(&c, "#define T %s\n#define OUT %s\n#define OUT_IS_BOOL %d\n#define N %d\n", type, ac_dtype_name(out), out == AC_BOOL, m->n_in);
  if (type[0] != 'l') ocl_define(&c, "#define REAL\n");
  ocl_define(&c, "#define FORMULA %s\n", type[0] == 'l' ? m->whole : m->real);
  memset(&n, 0, sizeof n);
  for (int k = 0; k < m->n_in; k++) {
    define_operand(&c, g, k, computed);
    if (g->args[k].kind != AC_T_TENSOR) put(&n, type, k, number_of(&g->args[k]));
  }
  for (int i = m->n_in; i < g->n_args && i - m->n_in < 6; i++) put(&n, type, 4 + i - m->n_in, number_of(&g->args[i]));
  ocl_value(&c, &l, sizeof l);
  ocl_value(&c, &n, 10 * (type[0] == 'f' ? sizeof(float) : 8));
  for (int k = 0; k < 4; k++) ocl_memory(&c, k < m->n_in && g->args[k].kind == AC_T_TENSOR ? ac_tensor_data(g->args[k].tensor) : NULL);
  ocl_memory(&c, ac_tensor_data(o));
  return ocl_run(&c, l.n, OCL_GROUP, e);
}

ac_status ocl_map_as(const ac_frame *f, const char *op, const ac_value *args, int n_args, ac_tensor *out, ac_err *e) {
  ac_frame g = *f;
  g.args = args;
  g.n_args = n_args;
  g.out[0] = out;
  g.n_out = 1;
  return run(&g, find(op), e);
}

/* Contexts open a device each for themselves: the same one has the same kind and number. */
static bool away(const ac_frame *f, const ac_tensor *t) {
  const ac_device *d = ac_tensor_device(t);
  return ac_device_kind_of(d) != ac_device_kind_of(f->device) || ac_device_index(d) != ac_device_index(f->device);
}

ac_status ocl_map(ac_frame *f, ac_err *e) {
  ac_frame g = *f;
  ac_value args[AC_MAX_ARGS];
  const bool copies = is(f, "copy_");
  if (copies && away(f, f->args[1].tensor)) { /* of one dtype and shape, both in one run */
    const ac_tensor *x = f->out[0];
    return ocl_fetch(f, ac_tensor_data(x), ac_tensor_data(f->args[1].tensor), (size_t)(ac_tensor_numel(x) * ocl_size(x)), e);
  }
  memcpy(args, f->args, sizeof *args * (size_t)f->n_args);
  complete(f, args);
  g.args = copies ? args + 1 : args;
  g.n_args = f->n_args - copies;
  return run(&g, find(f->desc->name), e);
}

/* (dz, x, y) -> dx, dy */
static ac_status swiglu_backward(ac_frame *f, ac_err *e) {
  AC_TRY(ocl_map_as(f, "swiglu_dx", f->args, 3, f->out[0], e));
  return ocl_map_as(f, "swiglu_dy", f->args, 3, f->out[1], e);
}

const ac_device_kernel ocl_map_kernels[] = {{"swiglu_backward", swiglu_backward}, {NULL, NULL}};
