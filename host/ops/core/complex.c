/* Calls with complex tensors: see complex.h. */
#include <math.h>
#include "ops/core/complex.h"

#include "ops/core/ctx_impl.h"
#include "ops/core/op.h"

/* ---- pieces of formulas ---- */

static ac_tensor *part_of(ac_expr *x, ac_tensor *t, int part) {
  if (t == NULL) return NULL;
  if (!aci_is_complex(t)) return part == 0 ? t : x_zeros_like(x, t, NULL, NULL);
  return x_select(x, x_view_as_real(x, t), -1, part);
}
ac_tensor *aci_re(ac_expr *x, ac_tensor *t) { return part_of(x, t, 0); }
ac_tensor *aci_im(ac_expr *x, ac_tensor *t) { return part_of(x, t, 1); }

ac_operand aci_re_of(ac_expr *x, ac_operand o) {
  return o.tensor == NULL ? o : T(aci_re(x, o.tensor));
}
ac_operand aci_im_of(ac_expr *x, ac_operand o) {
  return o.tensor == NULL || !aci_is_complex(o.tensor) ? ac_operand_int(0) : T(aci_im(x, o.tensor));
}
bool aci_operand_is_complex(ac_operand o) { return o.tensor != NULL && aci_is_complex(o.tensor); }

ac_tensor *aci_complex_of(ac_expr *x, ac_tensor *pairs) {
  ac_tensor *z = x_view_as_complex(x, pairs);
  if (z != NULL) z->flags &= (uint8_t) ~(ACI_T_VIEW | ACI_T_LEAF_VIEW);
  return z;
}

ac_tensor *aci_join(ac_expr *x, ac_tensor *re, ac_tensor *im) {
  if (re == NULL || im == NULL) return NULL;
  if (re->dtype != im->dtype) {
    const ac_dtype wide = re->dtype == AC_F64 || im->dtype == AC_F64 ? AC_F64 : AC_F32;
    re = re->dtype == wide ? re : x_cast(x, re, wide);
    im = im == NULL || im->dtype == wide ? im : x_cast(x, im, wide);
  } else if (re->dtype != AC_F32 && re->dtype != AC_F64) {
    re = x_cast(x, re, AC_F32);
    im = x_cast(x, im, AC_F32);
  }
  if (re == NULL || im == NULL) return NULL;
  ac_tensor *both[2] = {re, im};
  return aci_complex_of(x, x_stack(x, both, 2, -1));
}

ac_tensor *aci_lift(ac_expr *x, ac_tensor *t) {
  if (t == NULL || aci_is_complex(t)) return t;
  return x_cast(x, t, aci_complex_dtype((ac_dtype)t->dtype));
}

ac_tensor *aci_complex_again(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor *first) {
  ac_value v[AC_MAX_ARGS];
  if (x->st == AC_OK) x->st = aci_op_parse(op, x->e);
  if (x->st != AC_OK) return NULL;
  memcpy(v, args, (size_t)op->n_params * sizeof *v);
  v[0] = (ac_value){.kind = AC_T_TENSOR, .tensor = first};
  return ac_expr_call(x, op, v, NULL, 0);
}

/* A number as a complex tensor of rank 0. */
static ac_tensor *number(ac_expr *x, ac_scalar s, ac_dtype dt, ac_device *d) {
  const double v[2] = {aci_scalar_f(s), 0};
  const float w[2] = {(float)v[0], 0};
  ac_tensor *t = NULL;
  if (x->st != AC_OK) return NULL;
  x->st = ac_tensor_from_host(d, dt, 0, NULL, dt == AC_C128 ? (const void *)v : w, &t, x->e);
  return ac_expr_own(x, t);
}

static bool is_wide(ac_dtype d) { return d == AC_F64 || d == AC_C128; }

/* Dimensioned tensors decide, those of rank 0 only if there is no other float or complex one. */
void aci_lift_both(ac_expr *x, ac_operand p, ac_operand q, ac_tensor **tp, ac_tensor **tq) {
  const ac_operand o[2] = {p, q};
  ac_tensor *t[2] = {NULL, NULL};
  bool wide[2] = {false, false}, have = false;
  ac_device *d = NULL;
  for (int i = 0; i < 2; i++) {
    if (o[i].tensor == NULL) continue;
    d = o[i].tensor->device;
    if (!aci_has_grad((ac_dtype)o[i].tensor->dtype)) continue;
    have |= o[i].tensor->ndim > 0;
    wide[o[i].tensor->ndim == 0] |= is_wide((ac_dtype)o[i].tensor->dtype);
  }
  const ac_dtype dt = wide[have ? 0 : 1] ? AC_C128 : AC_C64;
  for (int i = 0; i < 2 && d != NULL; i++) {
    if (o[i].tensor == NULL) t[i] = number(x, o[i].scalar, dt, d);
    else t[i] = o[i].tensor->dtype == dt ? o[i].tensor : x_cast(x, o[i].tensor, dt);
  }
  *tp = t[0];
  *tq = t[1];
}

ac_tensor *aci_complex_product(ac_expr *x, ac_operand p, ac_operand q, bool divide) {
  ac_tensor *s, *t;
  if (!divide && !aci_operand_is_complex(p)) { /* a real factor */
    const ac_operand o = p;
    p = q;
    q = o;
  }
  if (!divide && q.tensor == NULL)
    return aci_complex_of(x, x_mul(x, T(x_view_as_real(x, p.tensor)), q));
  if (!divide && !aci_operand_is_complex(q))
    return aci_join(x, x_mul(x, T(aci_re(x, p.tensor)), q), x_mul(x, T(aci_im(x, p.tensor)), q));
  aci_lift_both(x, p, q, &s, &t);
  if (s == NULL || t == NULL) return NULL;
  s = x_view_as_real(x, s);
  t = x_view_as_real(x, t);
  return aci_complex_of(x, divide ? x_complex_div(x, s, t, false) : x_complex_mul(x, s, t, false));
}

/* e^(q ln p). 0 to a power is 1 if the power is 0, 0 if its real part is above 0, and otherwise NaN. */
ac_tensor *aci_complex_power(ac_expr *x, ac_operand p, ac_operand q) {
  ac_tensor *s, *t;
  aci_lift_both(x, p, q, &s, &t);
  if (s == NULL || t == NULL) return NULL;
  ac_tensor *zero = x_eq(x, T(s), F(0)), *none = x_eq(x, T(t), F(0));
  ac_tensor *safe = x_masked_fill(x, s, zero, F(1));
  ac_tensor *y = x_exp(x, x_mul(x, T(t), T(x_log(x, safe))));
  ac_tensor *falls = x_le(x, T(aci_re(x, t)), F(0));
  ac_tensor *at0 = x_where(x, none, F(1), T(x_where(x, falls, F(NAN), F(0))));
  return x_where(x, zero, T(at0), T(y));
}

/* ---- without autograd, for kernels ---- */

static ac_tensor *floats_alias(const ac_tensor *t) {
  int64_t dims[2 * AC_MAX_DIMS];
  const int n = t->ndim + 1;
  if (n > AC_MAX_DIMS) return NULL;
  for (int i = 0; i < t->ndim; i++) {
    dims[i] = t->shape[i];
    dims[n + i] = t->stride[i] * 2;
  }
  dims[n - 1] = 2;
  dims[2 * n - 1] = 1;
  ac_tensor *f = aci_tensor_alias(t, n, dims, dims + n, t->offset * 2);
  if (f != NULL) f->dtype = aci_part_dtype((ac_dtype)t->dtype);
  return f;
}

ac_status aci_complex_kernel(ac_frame *f, ac_kernel k, ac_err *e) {
  ac_value args[AC_MAX_ARGS];
  ac_frame g = *f;
  ac_status st = AC_OK;
  g.args = args;
  for (int i = 0; i < f->n_args; i++) {
    args[i] = f->args[i];
    if (args[i].kind != AC_T_TENSOR || !aci_is_complex(args[i].tensor)) continue;
    args[i].tensor = floats_alias(f->args[i].tensor);
    if (args[i].tensor == NULL) st = AC_FAIL(e, OOM, "no memory for a tensor's head");
  }
  g.out[0] = floats_alias(f->out[0]);
  if (g.out[0] == NULL) st = AC_FAIL(e, OOM, "no memory for a tensor's head");
  if (st == AC_OK) st = k(&g, e);
  for (int i = 0; i < f->n_args; i++)
    if (args[i].kind == AC_T_TENSOR && args[i].tensor != f->args[i].tensor)
      ac_tensor_release(args[i].tensor);
  ac_tensor_release(g.out[0]);
  return st;
}

/* ---- routes ---- */

bool aci_complex_among(const ac_value *args, int n) {
  for (int i = 0; i < n; i++) {
    const ac_value *v = &args[i];
    if (v->kind == AC_T_TENSOR && v->tensor != NULL && aci_is_complex(v->tensor)) return true;
    if (v->kind == AC_T_DTYPE && v->dtype >= AC_C64) return true;
    for (int j = 0; v->kind == AC_T_TENSORS && j < v->n; j++)
      if (v->tensors[j] != NULL && aci_is_complex(v->tensors[j])) return true;
  }
  return false;
}

bool aci_complex_replaces(const ac_op *op) {
  return op->desc->complex_as == AC_COMPLEX_NONE && !op->is_view;
}

ac_status aci_complex_cast_args(ac_frame *f, ac_value *args, ac_expr *x, ac_err *e) {
  if (f->op->mutates != 1 || args[0].kind != AC_T_TENSOR) return AC_OK;
  const ac_dtype to = (ac_dtype)args[0].tensor->dtype;
  for (int i = 1; i < f->n_args; i++) {
    if (args[i].kind == AC_T_SCALAR && aci_op_sig(f->op)->param[i].type == AC_T_OPERAND &&
        ac_dtype_is_complex(to)) {
      args[i].tensor = number(x, args[i].scalar, to, args[0].tensor->device);
      args[i].kind = AC_T_TENSOR;
    } else if (args[i].kind == AC_T_TENSOR && args[i].tensor->dtype != to) {
      if (aci_is_complex(args[i].tensor) && !ac_dtype_is_complex(to))
        return AC_FAIL(e, DTYPE, "%s is %s and is written into a tensor of %s; take its real part",
                       aci_op_sig(f->op)->param[i].name,
                       ac_dtype_name((ac_dtype)args[i].tensor->dtype), ac_dtype_name(to));
      args[i].tensor = x_cast(x, args[i].tensor, to);
    }
    if (x->st != AC_OK) return x->st;
  }
  return AC_OK;
}

/* The in-place form writes the result of the plain one. */
static int write_first(ac_expr *x, ac_tensor *into, ac_tensor **out) {
  char a[128], b[128];
  ac_tensor *y = out[0];
  if (y == NULL) return 1;
  if (!aci_same_shape(into, y))
    x->st = AC_FAIL(x->e, SHAPE, "the result has shape %s but the tensor written in place has %s",
                    aci_shape_str(y->ndim, y->shape, a, sizeof a),
                    aci_shape_str(into->ndim, into->shape, b, sizeof b));
  else if (aci_is_complex(y) != aci_is_complex(into))
    x->st = AC_FAIL(x->e, DTYPE, "the result is %s and cannot be written in place into %s",
                    ac_dtype_name((ac_dtype)y->dtype), ac_dtype_name((ac_dtype)into->dtype));
  out[0] = x->st == AC_OK ? x_copy_(x, into, y) : NULL;
  return 1;
}

ac_status aci_complex_run(ac_ctx *c, const ac_op *op, const ac_value *args, ac_value *results,
                          int *n_results, ac_err *e) {
  ac_tensor *out[AC_MAX_RESULTS] = {0};
  ac_expr x;
  if (op->desc->on_complex == NULL)
    return AC_FAIL(e, DTYPE,
                   "complex tensors have no %s; take their real, imag, abs, angle or view_as_real",
                   op->name);
  ac_expr_init(&x, c, e);
  ac_value first[AC_MAX_ARGS];
  if (op->inplace) { /* the op may save its argument, which the copy overwrites */
    memcpy(first, args, (size_t)op->n_params * sizeof *first);
    if (c->grad_enabled && args[0].tensor->grad_fn != NULL)
      first[0].tensor = x_clone(&x, args[0].tensor);
  }
  int n = op->desc->on_complex(&x, op->inplace ? aci_op_base(c, op) : op,
                               op->inplace ? first : args, out);
  if (op->inplace && x.st == AC_OK) n = write_first(&x, args[0].tensor, out);
  for (int i = 0; i < n && x.st == AC_OK; i++)
    if (out[i] == NULL) x.st = AC_FAIL(e, INTERNAL, "complex form left result %d empty", i + 1);
  const ac_status st = x.st;
  for (int i = 0; i < n && st == AC_OK; i++) {
    ac_tensor_retain(out[i]);
    results[i] = (ac_value){.kind = AC_T_TENSOR, .tensor = out[i]};
  }
  if (st == AC_OK) *n_results = n;
  ac_expr_end(&x);
  if (e != NULL && st != AC_OK) e->op[0] = 0; /* name the op that was called */
  return st;
}

int aci_complex_composed(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **out) {
  return op->desc->composed(x, args, out);
}

/* ---- ops that treat both parts alike ---- */

/* Integers and truth values next to complex tensors are positions and masks, if they are not
 * operands or in a list of tensors. */
static bool is_value(const aci_param *p, const ac_tensor *t) {
  return p->type != AC_T_TENSOR || aci_is_complex(t) || ac_dtype_is_float((ac_dtype)t->dtype);
}

/* A list of positions. In other lists integers are values next to complex ones. */
static bool is_positions(const aci_param *p) { return strcmp(p->name, "indices") == 0; }

/* A real number that fills elements: its imaginary part is 0. Other numbers are factors. */
static bool is_number_value(const aci_param *p) {
  return p->type == AC_T_OPERAND || strcmp(p->name, "value") == 0;
}

static void take_part(ac_expr *x, const aci_sig *s, const ac_value *args, int part, ac_value *v) {
  for (int i = 0; i < s->n_params; i++) {
    v[i] = args[i];
    if (args[i].kind == AC_T_TENSOR && is_value(&s->param[i], args[i].tensor)) {
      v[i].tensor = part_of(x, args[i].tensor, part);
    } else if (part == 1 && args[i].kind == AC_T_SCALAR && is_number_value(&s->param[i])) {
      v[i].scalar = (ac_scalar){.kind = AC_SCALAR_INT, .i = 0};
    } else if (part == 1 && args[i].kind == AC_T_FLOAT && is_number_value(&s->param[i])) {
      v[i].f = 0;
    } else if (args[i].kind == AC_T_TENSORS && !is_positions(&s->param[i])) {
      v[i].tensors = aci_expr_list(x, args[i].n);
      if (v[i].tensors == NULL && x->st == AC_OK)
        x->st = AC_FAIL(x->e, OOM, "no memory for a list of tensors");
      for (int j = 0; j < args[i].n && x->st == AC_OK; j++)
        v[i].tensors[j] = part_of(x, args[i].tensors[j], part);
    } else if (args[i].kind == AC_T_TENSORS) {
      for (int j = 0; j < args[i].n && x->st == AC_OK; j++)
        if (aci_is_complex(args[i].tensors[j]))
          x->st =
              AC_FAIL(x->e, DTYPE, "%s: tensor %d must hold positions, got %s", s->param[i].name,
                      j + 1, ac_dtype_name((ac_dtype)args[i].tensors[j]->dtype));
    } else if (args[i].kind == AC_T_DTYPE) {
      v[i].dtype = aci_part_dtype(args[i].dtype);
    }
  }
}

int aci_complex_parts(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **out) {
  ac_value v[AC_MAX_ARGS];
  ac_tensor *re[AC_MAX_RESULTS] = {0}, *im[AC_MAX_RESULTS] = {0};
  const aci_sig *s = aci_op_sig(op);
  if (s == NULL) {
    x->st = aci_op_parse(op, x->e);
    if (x->st != AC_OK) return 0;
    s = aci_op_sig(op);
  }
  take_part(x, s, args, 0, v);
  if (x->st == AC_OK) re[0] = ac_expr_call(x, op, v, re + 1, s->n_results - 1);
  take_part(x, s, args, 1, v);
  if (x->st == AC_OK) im[0] = ac_expr_call(x, op, v, im + 1, s->n_results - 1);
  for (int i = 0; i < s->n_results; i++) out[i] = aci_join(x, re[i], im[i]);
  return s->n_results;
}

int aci_complex_in_place(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **out) {
  ac_value v[AC_MAX_ARGS];
  (void)out;
  for (int i = 0; i < op->n_params; i++) {
    v[i] = args[i];
    if (args[i].kind == AC_T_TENSOR && aci_is_complex(args[i].tensor) && x->st == AC_OK)
      x->st =
          AC_FAIL(x->e, DTYPE, "%s is %s, expected a real tensor", aci_op_sig(op)->param[i].name,
                  ac_dtype_name((ac_dtype)args[i].tensor->dtype));
    if (args[i].kind != AC_T_TENSORS) continue;
    v[i].tensors = aci_expr_list(x, args[i].n);
    if (v[i].tensors == NULL && x->st == AC_OK)
      x->st = AC_FAIL(x->e, OOM, "no memory for a list of tensors");
    for (int j = 0; j < args[i].n && x->st == AC_OK; j++) {
      ac_tensor *t = args[i].tensors[j];
      v[i].tensors[j] = aci_is_complex(t) ? x_view_as_real(x, t) : t;
    }
  }
  if (x->st == AC_OK) ac_expr_call(x, op, v, NULL, 0);
  return 0;
}

int aci_complex_pairs(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **out) {
  ac_value v[AC_MAX_ARGS];
  const aci_sig *s = aci_op_sig(op);
  ac_dtype first = AC_DTYPE_COUNT;
  if (s == NULL) return aci_complex_parts(x, op, args, out);
  for (int i = 0; i < s->n_params; i++) {
    v[i] = args[i];
    const bool tensor = args[i].kind == AC_T_TENSOR;
    if ((tensor && !aci_is_complex(args[i].tensor)) ||
        (args[i].kind == AC_T_SCALAR && s->param[i].type == AC_T_OPERAND))
      return aci_complex_parts(x, op, args, out);
    if (tensor && first != AC_DTYPE_COUNT && first != (ac_dtype)args[i].tensor->dtype)
      return aci_complex_parts(x, op, args, out); /* rank-0 tensors promote in their own way */
    if (tensor) first = (ac_dtype)args[i].tensor->dtype;
    if (tensor) v[i].tensor = x_view_as_real(x, args[i].tensor);
  }
  /* broadcast by position from the last dim: lower ranks get their missing dims from the left */
  out[0] = aci_complex_of(x, ac_expr_call(x, op, v, NULL, 0));
  return 1;
}
