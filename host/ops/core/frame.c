/* Functions for shape rules: making outputs, reading dims, promoting dtypes. */
#include <math.h>
#include <stdio.h>

#include "ops/core/op.h"
#include "ops/core/ctx_impl.h"
#include "tensor/geometry.h"

static ac_status push(ac_frame *f, ac_tensor *t, ac_err *e) {
  if (t == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  AC_CHECK(f->n_out < AC_MAX_RESULTS, e);
  f->out[f->n_out++] = t;
  return AC_OK;
}

ac_status ac_frame_out(ac_frame *f, ac_dtype dt, int ndim, const int64_t *shape, ac_err *e) {
  ac_tensor *t = ndim <= AC_MAX_DIMS ? aci_tensor_shell(f->device, dt, ndim, shape) : NULL;
  if (t == NULL || t->numel < 0) {
    ac_tensor_release(t);
    AC_TRY(aci_shape_check(ndim, shape, e));
    t = NULL;
  }
  return push(f, t, e);
}

ac_status ac_frame_out_strided(ac_frame *f, ac_dtype dt, int ndim, const int64_t *shape,
                               const int64_t *stride, ac_err *e) {
  AC_TRY(aci_shape_check(ndim, shape, e));
  ac_tensor *t = aci_tensor_shell(f->device, dt, ndim, shape);
  if (t != NULL) memcpy(aci_stride_mut(t), stride, (size_t)ndim * sizeof *stride);
  return push(f, t, e);
}

ac_status ac_frame_view(ac_frame *f, int arg, int ndim, const int64_t *shape, const int64_t *stride,
                        int64_t offset, ac_err *e) {
  return aci_frame_view_as(f, arg, (ac_dtype)f->args[arg].tensor->dtype, ndim, shape, stride,
                           offset, e);
}

ac_status aci_frame_view_as(ac_frame *f, int arg, ac_dtype dt, int ndim, const int64_t *shape,
                            const int64_t *stride, int64_t offset, ac_err *e) {
  const ac_tensor *x = f->args[arg].tensor;
  AC_TRY(aci_shape_check(ndim, shape, e));
  int64_t span = aci_span(ndim, shape, stride), end;
  if (offset < 0 || span < 0 || __builtin_add_overflow(offset, span, &end) ||
      /* no elements: anywhere */
      (span > 0 && (uint64_t)end > x->storage->bytes / aci_dsize(dt)))
    return AC_FAIL(e, INTERNAL, "the view would leave the memory of its tensor");
  ac_tensor *t = aci_tensor_alias(x, ndim, shape, stride, offset);
  if (t == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  t->dtype = dt;
  t->flags |= ACI_T_VIEW;
  if ((aci_is_leaf(x) && aci_requires_grad(x)) || (x->flags & ACI_T_LEAF_VIEW))
    t->flags |= ACI_T_LEAF_VIEW;
  /* a stale view's views are stale */
  t->view_version = x->flags & ACI_T_VIEW ? x->view_version : x->storage->graph_version;
  return push(f, t, e);
}

ac_status ac_frame_alias(ac_frame *f, int arg, ac_err *e) {
  ac_tensor_retain(f->args[arg].tensor);
  return push(f, f->args[arg].tensor, e);
}

int64_t ac_frame_show(const ac_frame *f, int64_t i) { return i < 0 ? i : i + f->ctx->index_base; }

static ac_status check_dim(const ac_frame *f, int arg, int64_t v, int ndim, int *dim, ac_err *e) {
  int64_t d = v < 0 ? v + ndim : v;
  if (d < 0 || d >= ndim) {
    if (ndim == 0) {
      if (v == 0 || v == -1) { /* as PyTorch: a rank-0 tensor counts as one dim here */
        *dim = 0;
        return AC_OK;
      }
      return AC_FAIL(e, INDEX, "%s %lld is out of range: the tensor has rank 0",
                     aci_op_sig(f->op)->param[arg].name, (long long)ac_frame_show(f, v));
    }
    return AC_FAIL(e, INDEX, "%s %lld is out of range for %d dims (%d to %d, or -%d to -1)",
                   aci_op_sig(f->op)->param[arg].name, (long long)ac_frame_show(f, v), ndim,
                   f->ctx->index_base, ndim - 1 + f->ctx->index_base, ndim);
  }
  *dim = (int)d;
  return AC_OK;
}

ac_status ac_frame_dim(const ac_frame *f, int arg, int ndim, int *dim, ac_err *e) {
  return check_dim(f, arg, f->args[arg].i, ndim, dim, e);
}

ac_status ac_frame_dims(const ac_frame *f, int arg, int ndim, uint32_t *mask, ac_err *e) {
  const ac_value *v = &f->args[arg];
  *mask = 0;
  if (v->kind == AC_T_NONE) {
    *mask = ndim == 0 ? 0 : (uint32_t)((1ull << ndim) - 1);
    return AC_OK;
  }
  int n = v->kind == AC_T_DIM || v->kind == AC_T_INT ? 1 : v->n;
  const int64_t *dims = n == 1 && v->kind != AC_T_DIMS && v->kind != AC_T_INTS ? &v->i : v->ints;
  for (int i = 0; i < n; i++) {
    int d = 0;
    AC_TRY(check_dim(f, arg, dims[i], ndim, &d, e));
    if (*mask >> d & 1)
      return AC_FAIL(e, INVALID, "dim %lld appears twice", (long long)ac_frame_show(f, dims[i]));
    *mask |= 1u << d;
  }
  if (ndim == 0) *mask = 0;
  return AC_OK;
}

/* PyTorch's lattice for two dtypes of the same category rank. */
static ac_dtype promote2(ac_dtype a, ac_dtype b) {
  if (a == b) return a;
  if (a == AC_BOOL) return b;
  if (b == AC_BOOL) return a;
  bool fa = ac_dtype_is_float(a), fb = ac_dtype_is_float(b);
  if (fa != fb) return fa ? a : b;
  if (fa) {
    if (a == AC_F64 || b == AC_F64) return AC_F64;
    if (a == AC_F32 || b == AC_F32) return AC_F32;
    return AC_F32; /* f16 with bf16 */
  }
  if (a == AC_U8 || b == AC_U8) { /* u8 with a signed type needs the next wider signed one */
    ac_dtype o = a == AC_U8 ? b : a;
    return o == AC_I8 ? AC_I16 : o;
  }
  return aci_dsize(a) > aci_dsize(b) ? a : b;
}

static int category(ac_dtype d) { return d == AC_BOOL ? 0 : ac_dtype_is_float(d) ? 2 : 1; }

/* Dimensioned tensors decide. Rank-0 tensors, then numbers, count only when their category is
 * higher (torch.result_type). */
ac_dtype ac_frame_promote(const ac_frame *f, int first, int last) {
  /* tensors of one dtype, the common case */
  if (f->args[first].kind == AC_T_TENSOR && f->args[first].tensor->ndim > 0) {
    ac_dtype d = (ac_dtype)f->args[first].tensor->dtype;
    int i = first + 1;
    while (i <= last && f->args[i].kind == AC_T_TENSOR && f->args[i].tensor->dtype == d) i++;
    if (i > last) return d;
  }
  bool have[3] = {false, false, false};
  ac_dtype dt[3] = {AC_BOOL, AC_BOOL, AC_BOOL};
  for (int i = first; i <= last; i++) {
    const ac_value *v = &f->args[i];
    int n = v->kind == AC_T_TENSORS ? v->n : 1;
    for (int j = 0; j < n; j++) {
      int p;
      ac_dtype d;
      if (v->kind == AC_T_TENSOR || v->kind == AC_T_TENSORS) {
        const ac_tensor *t = v->kind == AC_T_TENSOR ? v->tensor : v->tensors[j];
        p = t->ndim > 0 ? 0 : 1;
        d = (ac_dtype)t->dtype;
      } else if (v->kind == AC_T_SCALAR) {
        p = 2;
        d = v->scalar.kind == AC_SCALAR_FLOAT ? AC_F32
            : v->scalar.kind == AC_SCALAR_INT ? AC_I64
                                              : AC_BOOL;
      } else {
        continue;
      }
      dt[p] = have[p] ? promote2(dt[p], d) : d;
      have[p] = true;
    }
  }
  if (!have[0] && !have[1]) return dt[2];
  ac_dtype r = have[0] ? dt[0] : dt[1];
  if (have[0] && have[1] && category(dt[1]) > category(r)) r = dt[1];
  if (have[2] && category(dt[2]) > category(r)) r = dt[2];
  return r;
}

ac_status aci_shape_like0(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

ac_status aci_factor_check(const ac_frame *f, int arg, ac_dtype dt, ac_err *e) {
  ac_scalar s = f->args[arg].scalar;
  if (ac_dtype_is_float(dt) || s.kind != AC_SCALAR_FLOAT ||
      (fabs(s.f) < 0x1p53 && s.f == trunc(s.f)))
    return AC_OK;
  return AC_FAIL(e, DTYPE, "%s is %g, but the result is %s: integers need an integer factor",
                 aci_op_sig(f->op)->param[arg].name, s.f, ac_dtype_name(dt));
}
