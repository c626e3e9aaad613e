/* The driver of map-like ops: broadcasting, strides, dtypes and threads, so that a formula only
 * sees contiguous rows of its type. */
#include "ops/map/map.h"

#include "ops/core/ctx_impl.h"
#include "ops/core/fuse.h"

enum { ROW = 1024, GRAIN = 32768 };

static ac_status out_shape(ac_frame *f, int n_in, int *ndim, int64_t *shape, ac_err *e) {
  *ndim = 0;
  for (int i = 0; i < n_in; i++)
    if (f->args[i].kind == AC_T_TENSOR) AC_TRY(aci_broadcast(ndim, shape, f->args[i].tensor, e));
  return AC_OK;
}

static ac_dtype compute_dtype(const ac_frame *f, const aci_map *m) {
  ac_dtype d = ac_frame_promote(f, 0, m->n_in - 1);
  return m->i64 == NULL && !ac_dtype_is_float(d) ? AC_F32 : d;
}

/* All elements are tensors of one dtype and shape, the common case: the result is as the first. */
static bool all_alike(const ac_frame *f, const aci_map *m) {
  const ac_tensor *a = f->args[0].tensor;
  if (f->args[0].kind != AC_T_TENSOR || a->dtype > AC_BOOL) return false;
  for (int i = 1; i < m->n_in; i++) {
    const ac_tensor *b = f->args[i].tensor;
    if (f->args[i].kind != AC_T_TENSOR || b->dtype != a->dtype || !aci_same_shape(a, b))
      return false;
  }
  return true;
}

static ac_status shape_as(ac_frame *f, bool is_bool, ac_err *e) {
  const aci_map *m = f->desc->data;
  if (all_alike(f, m)) {
    const ac_tensor *x = f->args[0].tensor;
    const bool as_f32 = m->i64 == NULL && !ac_dtype_is_float((ac_dtype)x->dtype);
    return ac_frame_out(f,
                        is_bool  ? AC_BOOL
                        : as_f32 ? AC_F32
                                 : (ac_dtype)x->dtype,
                        x->ndim, x->shape, e);
  }
  bool any = false;
  for (int i = 0; i < m->n_in; i++) {
    if (f->args[i].kind != AC_T_TENSOR) continue;
    any = true;
    if (f->args[i].tensor->dtype > AC_BOOL)
      return AC_FAIL(e, DTYPE, "%s is a storage dtype; cast it first",
                     ac_dtype_name((ac_dtype)f->args[i].tensor->dtype));
  }
  if (!any) return AC_FAIL(e, INVALID, "needs at least one tensor");
  ac_dtype d = is_bool ? AC_BOOL : compute_dtype(f, m);
  const ac_tensor *a = f->args[0].kind == AC_T_TENSOR ? f->args[0].tensor : NULL;
  if (a != NULL && m->n_in == 2 && f->args[1].kind != AC_T_TENSOR)
    return ac_frame_out(f, d, a->ndim, a->shape, e);
  int ndim;
  int64_t shape[AC_MAX_DIMS];
  AC_TRY(out_shape(f, m->n_in, &ndim, shape, e));
  return ac_frame_out(f, d, ndim, shape, e);
}
ac_status aci_map_shape(ac_frame *f, ac_err *e) { return shape_as(f, false, e); }
ac_status aci_map_shape_bool(ac_frame *f, ac_err *e) { return shape_as(f, true, e); }
ac_status aci_map_shape_nobool(ac_frame *f, ac_err *e) {
  const aci_map *m = f->desc->data;
  for (int i = 0; i < m->n_in; i++) {
    const ac_value *v = &f->args[i];
    if ((v->kind == AC_T_TENSOR && v->tensor->dtype == AC_BOOL) ||
        (v->kind == AC_T_SCALAR && v->scalar.kind == AC_SCALAR_BOOL))
      return AC_FAIL(e, DTYPE, "is not defined for bool; cast to an integer or float dtype first");
  }
  return shape_as(f, false, e);
}

typedef aci_map_operand operand;
typedef struct map_job {
  aci_map_fn loop;
  aci_map_plan plan;
} map_job;

static bool direct(const aci_map_plan *j, const operand *o, int64_t stride) {
  static const ac_dtype same[] = {AC_F32, AC_F64, AC_I64};
  return stride == 1 && o->dt == same[j->ct];
}

/* One stretch of the innermost dim. */
static void stretch(const map_job *all, const char *const *in, char *out, int64_t n) {
  const aci_map_plan *j = &all->plan;
  const int d = j->ndim - 1;
  _Alignas(64) char buf[ACI_MAP_MAX_IN + 1][ROW * 8];
  const void *src[ACI_MAP_MAX_IN];
  const int64_t os = j->out.stride[d];
  bool out_direct = direct(j, &j->out, os), plain = out_direct;
  for (int k = 0; k < j->n_in; k++) plain &= direct(j, &j->in[k], j->in[k].stride[d]);
  if (plain) {
    all->loop(n, out, (const void *const *)in, &j->p);
    return;
  }
  const size_t es = aci_ctype_bytes(j->ct);
  for (int k = 0; k < j->n_in; k++) /* a repeated value is expanded once */
    if (j->in[k].stride[d] == 0) aci_load(j->ct, buf[k], j->in[k].dt, in[k], 0, n < ROW ? n : ROW);
  for (int64_t b = 0; b < n; b += ROW) {
    int64_t m = n - b < ROW ? n - b : ROW;
    for (int k = 0; k < j->n_in; k++) {
      int64_t s = j->in[k].stride[d];
      if (s == 0) {
        src[k] = buf[k];
      } else if (direct(j, &j->in[k], s)) {
        src[k] = in[k] + b * (int64_t)es;
      } else {
        aci_load(j->ct, buf[k], j->in[k].dt, in[k] + b * s * (int64_t)aci_dsize(j->in[k].dt), s, m);
        src[k] = buf[k];
      }
    }
    if (out_direct) {
      all->loop(m, out + b * (int64_t)es, src, &j->p);
    } else {
      all->loop(m, buf[ACI_MAP_MAX_IN], src, &j->p);
      aci_store(j->ct, buf[ACI_MAP_MAX_IN], j->out.dt, out + b * os * (int64_t)aci_dsize(j->out.dt),
                os, m);
    }
  }
}

static void range(void *arg, int64_t begin, int64_t end) {
  const map_job *all = arg;
  const aci_map_plan *j = &all->plan;
  const int last = j->ndim - 1;
  const int64_t inner = j->shape[last];
  int64_t idx[AC_MAX_DIMS];
  int64_t r = begin;
  for (int d = last; d >= 0; d--) {
    idx[d] = r % j->shape[d];
    r /= j->shape[d];
  }
  while (begin < end) {
    const char *in[ACI_MAP_MAX_IN];
    int64_t n = inner - idx[last] < end - begin ? inner - idx[last] : end - begin;
    for (int k = 0; k < j->n_in; k++) {
      int64_t off = 0;
      for (int d = 0; d <= last; d++) off += idx[d] * j->in[k].stride[d];
      in[k] = j->in[k].ptr + off * (int64_t)aci_dsize(j->in[k].dt);
    }
    int64_t off = 0;
    for (int d = 0; d <= last; d++) off += idx[d] * j->out.stride[d];
    stretch(all, in, (char *)(uintptr_t)j->out.ptr + off * (int64_t)aci_dsize(j->out.dt), n);
    begin += n;
    idx[last] += n;
    for (int d = last; d > 0 && idx[d] == j->shape[d]; d--) {
      idx[d] = 0;
      idx[d - 1]++;
    }
  }
}

/* Drops dims of extent 1 and joins neighbours that every operand walks as one. */
static void coalesce(aci_map_plan *j) {
  operand *all[ACI_MAP_MAX_IN + 1];
  int n = 0, w = -1;
  for (int k = 0; k < j->n_in; k++) all[n++] = &j->in[k];
  all[n++] = &j->out;
  for (int d = 0; d < j->ndim; d++) {
    if (j->shape[d] == 1) continue;
    bool join = w >= 0;
    for (int k = 0; k < n && join; k++) join = all[k]->stride[w] == all[k]->stride[d] * j->shape[d];
    if (join) {
      j->shape[w] *= j->shape[d];
    } else {
      j->shape[++w] = j->shape[d];
    }
    for (int k = 0; k < n; k++) all[k]->stride[w] = all[k]->stride[d];
  }
  if (w < 0) { /* one element */
    w = 0;
    j->shape[0] = 1;
    for (int k = 0; k < n; k++) all[k]->stride[0] = 1;
  }
  j->ndim = w + 1;
}

static void put_number(aci_map_plan *j, ac_scalar s, void *dst) {
  if (j->ct == ACI_C_F32) *(float *)dst = (float)aci_scalar_f(s);
  else if (j->ct == ACI_C_F64) *(double *)dst = aci_scalar_f(s);
  else *(int64_t *)dst = aci_scalar_i(s);
}

static void put_param(aci_map_plan *j, int i, const ac_value *v) {
  ac_scalar s = {.kind = AC_SCALAR_FLOAT, .f = 0};
  if (v->kind == AC_T_SCALAR) s = v->scalar;
  else if (v->kind == AC_T_FLOAT) s.f = v->f;
  else if (v->kind == AC_T_BOOL) s.f = v->b ? 1 : 0;
  else if (v->kind == AC_T_INT || v->kind == AC_T_ENUM) s.f = (double)v->i;
  put_number(j, s, (char *)&j->p + (size_t)i * aci_ctype_bytes(j->ct));
}

/* The common case on its own path: contiguous tensors of one shape in a type that kernels compute
 * in. */
typedef struct contiguous_map_job {
  aci_map_fn loop;
  int n_in;
  int64_t bytes; /* of an element */
  const char *in[ACI_MAP_MAX_IN];
  char *out;
  const void *p;
} contiguous_map_job;

static void plain_range(void *arg, int64_t begin, int64_t end) {
  const contiguous_map_job *j = arg;
  const void *in[ACI_MAP_MAX_IN];
  for (int k = 0; k < j->n_in; k++) in[k] = j->in[k] + begin * j->bytes;
  j->loop(end - begin, j->out + begin * j->bytes, in, j->p);
}

static bool is_plain(const ac_frame *f, const aci_map *m, const ac_tensor *o) {
  if (o->dtype != AC_F32 && o->dtype != AC_F64 && (o->dtype != AC_I64 || m->i64 == NULL))
    return false;
  for (int k = 0; k < m->n_in; k++) {
    const ac_tensor *t = f->args[k].tensor;
    if (f->args[k].kind != AC_T_TENSOR || t->dtype != o->dtype || t->numel != o->numel ||
        !aci_is_contiguous(t) || !aci_same_shape(t, o))
      return false;
  }
  return aci_is_contiguous(o);
}

static const aci_map_loop *loop_of(const aci_map *m, aci_ctype ct) {
  return ct == ACI_C_F32 ? m->f32 : ct == ACI_C_F64 ? m->f64 : m->i64;
}

static void run_plain(const ac_frame *f, const aci_map *m, const ac_tensor *o) {
  aci_map_plan params;
  contiguous_map_job j = {.n_in = m->n_in,
                          .bytes = (int64_t)aci_dsize((ac_dtype)o->dtype),
                          .out = aci_data(o),
                          .p = &params.p};
  params.ct = aci_ctype_of((ac_dtype)o->dtype);
  j.loop = loop_of(m, params.ct)->run;
  for (int i = m->n_in; i < f->n_args && i - m->n_in < ACI_MAP_MAX_P; i++)
    put_param(&params, i - m->n_in, &f->args[i]);
  for (int k = 0; k < m->n_in; k++) j.in[k] = aci_data(f->args[k].tensor);
  if (o->numel <= GRAIN) j.loop(o->numel, j.out, (const void *const *)j.in, j.p);
  else ac_parallel_for(f->team, o->numel, GRAIN, plain_range, &j);
}

ac_status aci_map_cpu(ac_frame *f, ac_err *e) { return aci_map_run(f, f->desc->data, e); }

const aci_map_loop *aci_map_plan_make(const ac_frame *f, const aci_map *m, aci_map_plan *j) {
  const ac_tensor *o = f->out[0];
  ac_dtype cd = compute_dtype(f, m);
  j->ct = aci_ctype_of(cd);
  j->n_in = m->n_in;
  j->ndim = o->ndim;
  j->numel = o->numel;
  memcpy(j->shape, o->shape, (size_t)o->ndim * 8);
  j->out.ptr = aci_data(o);
  j->out.dt = (ac_dtype)o->dtype;
  j->out.number = false;
  memcpy(j->out.stride, o->stride, (size_t)o->ndim * 8);
  for (int i = m->n_in; i < f->n_args && i - m->n_in < ACI_MAP_MAX_P; i++)
    put_param(j, i - m->n_in, &f->args[i]);
  for (int k = 0; k < m->n_in; k++) {
    operand *p = &j->in[k];
    /* one element of the compute type, repeated */
    if ((p->number = f->args[k].kind != AC_T_TENSOR)) {
      static const ac_dtype of[] = {AC_F32, AC_F64, AC_I64};
      put_number(j, f->args[k].scalar, &j->number[k]);
      if (o->dtype == AC_BOOL && j->ct == ACI_C_F32 &&
          cd != AC_F32) { /* compared as a value of the tensor's dtype */
        uint16_t h;
        aci_store(j->ct, &j->number[k], cd, &h, 1, 1);
        aci_load(j->ct, &j->number[k], cd, &h, 1, 1);
      }
      p->ptr = (const char *)&j->number[k];
      p->dt = of[j->ct];
      memset(p->stride, 0, (size_t)o->ndim * 8);
    } else {
      const ac_tensor *t = f->args[k].tensor;
      int lead = o->ndim - t->ndim;
      p->ptr = aci_data(t);
      p->dt = (ac_dtype)t->dtype;
      for (int d = 0; d < o->ndim; d++)
        p->stride[d] =
            d < lead || (t->shape[d - lead] == 1 && o->shape[d] != 1) ? 0 : t->stride[d - lead];
    }
  }
  coalesce(j);
  return loop_of(m, j->ct);
}

ac_status aci_map_run(ac_frame *f, const aci_map *m, ac_err *e) {
  const ac_tensor *o = f->out[0];
  map_job j;
  if (o->numel == 0) return AC_OK;
  if (__builtin_expect(f->ctx->n_observers != 0, 0)) {
    bool waits;
    AC_TRY(aci_fuse_map(f, m, &waits, e));
    if (waits) return AC_OK;
  }
  if (f->ctx->drivers[f->device->kind] != NULL)
    return f->ctx->drivers[f->device->kind]->run_map(f, m, e);
  if (is_plain(f, m, o)) {
    run_plain(f, m, o);
    return AC_OK;
  }
  j.loop = aci_map_plan_make(f, m, &j.plan)->run;
  if (o->numel <= GRAIN) range(&j, 0, o->numel);
  else ac_parallel_for(f->team, o->numel, GRAIN, range, &j);
  return AC_OK;
}
