/* batch_norm and group_norm on CUDA. x is (n, c, l) in one run. Statistics belong to sets: a
 * channel over all samples, or a group of a sample's neighbouring channels. Sums (channel_sums.cuh)
 * are double. Backward sums dy and dy * (x - mean) over every channel (batch) or every sample's
 * channel (group). Both dx and the parameters' gradients follow from these sums. */
#include "ops/index/range.cuh"
#include "ops/norm/channel_sums.cuh"

/* A value per channel. ptr NULL: missing. */
struct values {
  void *ptr;
  ac_dtype dt;
  int64_t stride;
};
static values values_of(const ac_tensor *t) {
  const values v = {aci_data(t), (ac_dtype)t->dtype, t->ndim > 0 ? t->stride[0] : 0};
  return v;
}
static values values_of(const ac_value *a) {
  const values none = {NULL, AC_F32, 0};
  return a->kind == AC_T_TENSOR ? values_of(a->tensor) : none;
}

/* y = ((x - mean) - rest) * rstd * w + b. dx = dy * rstd * w - ((x - mean) - rest) * q - r. rest:
 * the rounding error of the mean. */
template <class C> struct coef_of { C mean, rest, rstd, q, r; };
template <class C> struct param_of { C w, b; };

struct channel_args {
  bool batch;
  bool given; /* mean and var are constants */
  int64_t n, c, l, n_sets, channels_of_set, members;
  double eps;
  const moments::state *part; /* of every set and piece. NULL: mean_in and var_in */
  int64_t n_pieces;
  values mean_in, var_in, w, b, dw, db;
  double *mean, *var; /* of the sets */
  void *coef, *param; /* coef_of the sets, param_of the channels */
  const dots::state *dot_part;
  dots::state *dot; /* of the lists */
  int64_t dot_pieces, n_lists;
  /* elements */
  const void *x, *dy;
  void *y;
  int64_t n_vectors;
  aci_divisor run_vectors, by_channel, by_set; /* runs are numbered (sample, channel) */
};

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    prepare(const __grid_constant__ channel_args a) {
  const int64_t n = a.n_sets > a.c ? a.n_sets : a.c;
  for (int64_t i = aci_first(); i < n; i += aci_step()) {
    if (i < a.n_sets) {
      double mean, var;
      if (a.part != NULL) {
        moments::state s = a.part[i * a.n_pieces];
        for (int64_t k = 1; k < a.n_pieces; k++) moments::join(s, a.part[i * a.n_pieces + k]);
        mean = s.mean;
        var = s.m2 / s.n;
      } else {
        mean = aci_get<double>(a.mean_in.dt, a.mean_in.ptr, i * a.mean_in.stride);
        var = aci_get<double>(a.var_in.dt, a.var_in.ptr, i * a.var_in.stride);
      }
      a.mean[i] = mean;
      a.var[i] = var;
      coef_of<C> k = {(C)mean, (C)(mean - (double)(C)mean), (C)(1 / sqrt(var + a.eps)), 0, 0};
      ((coef_of<C> *)a.coef)[i] = k;
    }
    if (i < a.c) {
      param_of<C> p = {1, 0};
      if (a.w.ptr != NULL) p.w = aci_get<C>(a.w.dt, a.w.ptr, i * a.w.stride);
      if (a.b.ptr != NULL) p.b = aci_get<C>(a.b.dt, a.b.ptr, i * a.b.stride);
      ((param_of<C> *)a.param)[i] = p;
    }
  }
}

/* ---- backward: pieces of lists, then sets and channels ---- */
static __global__ void __launch_bounds__(ACI_BLOCK)
    join_dots(const __grid_constant__ channel_args a) {
  for (int64_t i = aci_first(); i < a.n_lists; i += aci_step()) {
    dots::state s = a.dot_part[i * a.dot_pieces];
    for (int64_t k = 1; k < a.dot_pieces; k++) dots::join(s, a.dot_part[i * a.dot_pieces + k]);
    a.dot[i] = s;
  }
}

/* Lists are channels (batch) or (sample, channel). Those of a set are neighbours. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) finish(const __grid_constant__ channel_args a) {
  const int64_t n = a.n_sets > a.c ? a.n_sets : a.c;
  for (int64_t i = aci_first(); i < n; i += aci_step()) {
    if (i < a.n_sets && !a.given) {
      double g = 0, gx = 0;
      for (int64_t k = 0; k < a.channels_of_set; k++) {
        const int64_t list = i * a.channels_of_set + k;
        const double w = (double)((const param_of<C> *)a.param)[list % a.c].w;
        g = fma(w, a.dot[list].g, g);
        gx = fma(w, a.dot[list].gx, gx);
      }
      const double rstd = 1 / sqrt(a.var[i] + a.eps);
      coef_of<C> &k = ((coef_of<C> *)a.coef)[i];
      k.r = (C)(rstd * (g / (double)a.members));
      k.q = (C)(rstd * rstd * rstd * (gx / (double)a.members));
    }
    if (i < a.c) {
      double dw = 0, db = 0;
      for (int64_t list = i; list < a.n_lists; list += a.c) {
        dw = fma(a.dot[list].gx, 1 / sqrt(a.var[list / a.channels_of_set] + a.eps), dw);
        db += a.dot[list].g;
      }
      aci_put(a.dw.dt, a.dw.ptr, i * a.dw.stride, dw);
      aci_put(a.db.dt, a.db.ptr, i * a.db.stride, db);
    }
  }
}

/* ---- elements ---- */
template <int D, class C, int V, bool BACK>
static __global__ void __launch_bounds__(ACI_BLOCK) apply(const __grid_constant__ channel_args a) {
  typedef aci_element<D> E;
  typedef aci_vector<typename E::bits, V> vector;
  for (int64_t i = aci_first(); i < a.n_vectors; i += aci_step()) {
    const int64_t run = aci_quotient(i, a.run_vectors);
    int64_t rest = run;
    const int64_t channel = aci_take(&rest, a.by_channel),
                  set = a.batch ? channel : aci_quotient(run, a.by_set);
    const coef_of<C> k = ((const coef_of<C> *)a.coef)[set];
    const param_of<C> p = ((const param_of<C> *)a.param)[channel];
    const vector x = ((const vector *)a.x)[i];
    vector dy, y;
    if (BACK) dy = ((const vector *)a.dy)[i];
#pragma unroll
    for (int j = 0; j < V; j++) {
      const C d = (E::template load<C>(x.v[j]) - k.mean) - k.rest;
      const C v = BACK ? E::template load<C>(dy.v[j]) * k.rstd * p.w - d * k.q - k.r
                       : fma(d * k.rstd, p.w, p.b);
      y.v[j] = E::template store<C>(v);
    }
    ((vector *)a.y)[i] = y;
  }
}

template <int D, class C, bool BACK>
static ac_status apply_to(ac_frame *f, channel_args a, ac_err *e) {
  enum { V = 16 / sizeof(typename aci_element<D>::bits) };
  const bool wide = a.l % V == 0 && ((uintptr_t)a.x | (uintptr_t)a.dy | (uintptr_t)a.y) % 16 == 0;
  const int64_t v = wide ? V : 1;
  a.n_vectors = a.n * a.c * a.l / v;
  a.run_vectors = aci_divide_by(a.l / v);
  a.by_channel = aci_divide_by(a.c);
  a.by_set = aci_divide_by(a.channels_of_set);
  const unsigned blocks = aci_blocks(f->device, a.n_vectors);
  if (wide) return aci_launch(f, "norm", apply<D, C, V, BACK>, blocks, e, a);
  return aci_launch(f, "norm", apply<D, C, 1, BACK>, blocks, e, a);
}
template <bool BACK>
static ac_status apply_all(ac_frame *f, ac_dtype dt, const channel_args &a, ac_err *e) {
  switch (dt) {
    case AC_F64: return apply_to<AC_F64, double, BACK>(f, a, e);
    case AC_BF16: return apply_to<AC_BF16, float, BACK>(f, a, e);
    case AC_F16: return apply_to<AC_F16, float, BACK>(f, a, e);
    default: return apply_to<AC_F32, float, BACK>(f, a, e);
  }
}

/* ---- a call ---- */
/* groups 0: batch. */
static channel_args args_of(const ac_tensor *x, int64_t groups, double eps) {
  channel_args a = {};
  a.batch = groups == 0;
  a.eps = eps;
  a.n = x->shape[0];
  a.c = x->shape[1];
  a.l = 1;
  for (int d = 2; d < x->ndim; d++) a.l *= x->shape[d];
  a.n_sets = a.batch ? a.c : a.n * groups;
  a.channels_of_set = a.batch ? 1 : a.c / groups;
  a.members = a.batch ? a.n * a.l : a.channels_of_set * a.l;
  a.n_lists = a.batch ? a.c : a.n * a.c;
  return a;
}

/* Scratch of a call: coef, param, mean, var (unless the caller has them) and dot. */
static ac_status scratch_of(ac_frame *f, channel_args *a, bool back, ac_block **block, ac_err *e) {
  const size_t sets = (size_t)a->n_sets, c = (size_t)a->c;
  const size_t coef = sets * sizeof(coef_of<double>), param = c * sizeof(param_of<double>),
               stat = sets * sizeof(double);
  AC_TRY(ac_block_alloc(
      f->device, coef + param + 2 * stat + (back ? (size_t)a->n_lists * sizeof(dots::state) : 0),
      AC_MEM_ACTIVATION, f->stream, block, e));
  char *p = (char *)(*block)->ptr;
  a->coef = p;
  a->param = p += coef;
  p += param;
  if (a->mean == NULL) {
    a->mean = (double *)p;
    a->var = a->mean + sets;
  }
  a->dot = (dots::state *)(p + 2 * stat);
  return AC_OK;
}

/* mean, var, coef and param of x. Statistics are given when mean_in is set. */
static ac_status prepared(ac_frame *f, ac_dtype dt, channel_args *a, ac_err *e) {
  const int64_t n = a->n_sets > a->c ? a->n_sets : a->c;
  ac_block *part = NULL;
  if (a->mean_in.ptr == NULL) {
    lists_args s = {};
    s.x = a->x;
    s.n_lists = a->n_sets;
    s.n_runs = a->batch ? a->n : 1;
    s.l = a->batch ? a->l : a->members;
    s.list_stride = s.l;
    s.run_stride = a->c * a->l;
    AC_TRY(sums<moments>(f, dt, &s, &part, e));
    a->part = (const moments::state *)s.part;
    a->n_pieces = s.n_pieces;
  }
  const unsigned blocks = aci_blocks(f->device, n);
  const ac_status st = dt == AC_F64 ? aci_launch(f, "norm (sets)", prepare<double>, blocks, e, *a)
                                    : aci_launch(f, "norm (sets)", prepare<float>, blocks, e, *a);
  ac_block_free(part);
  return st;
}

/* a: parameters and given statistics. x is argument `at`. */
static ac_status forward(ac_frame *f, channel_args a, const ac_tensor *x, ac_err *e) {
  ac_block *copy = NULL, *scratch = NULL;
  ac_status st = aci_cuda_in_a_run(f, x, &a.x, &copy, e);
  a.y = aci_data(f->out[0]);
  if (st == AC_OK) st = scratch_of(f, &a, false, &scratch, e);
  if (st == AC_OK) st = prepared(f, (ac_dtype)x->dtype, &a, e);
  if (st == AC_OK) st = apply_all<false>(f, (ac_dtype)x->dtype, a, e);
  ac_block_free(scratch);
  ac_block_free(copy);
  return st;
}

static ac_status backward_of(ac_frame *f, channel_args *a, ac_dtype dt, ac_err *e) {
  const int64_t n = a->n_sets > a->c ? a->n_sets : a->c;
  ac_block *part = NULL;
  lists_args s = {};
  AC_TRY(prepared(f, dt, a, e));
  s.x = a->x;
  s.dy = a->dy;
  s.n_lists = a->n_lists;
  s.n_runs = a->batch ? a->n : 1;
  s.l = s.list_stride = a->l;
  s.run_stride = a->c * a->l;
  s.mean = a->mean;
  s.lists_of_set = a->channels_of_set;
  AC_TRY(sums<dots>(f, dt, &s, &part, e));
  a->dot_part = (const dots::state *)s.part;
  a->dot_pieces = s.n_pieces;
  ac_status st = aci_launch(f, "norm (lists)", join_dots, aci_blocks(f->device, a->n_lists), e, *a);
  ac_block_free(part);
  const unsigned blocks = aci_blocks(f->device, n);
  if (st == AC_OK)
    st = dt == AC_F64 ? aci_launch(f, "norm (gradients)", finish<double>, blocks, e, *a)
                      : aci_launch(f, "norm (gradients)", finish<float>, blocks, e, *a);
  return st == AC_OK ? apply_all<true>(f, dt, *a, e) : st;
}

static ac_status zeros(ac_frame *f, const ac_tensor *t, ac_err *e) {
  return f->device->vt->fill(f->device, f->stream, aci_data(t), 0,
                             (size_t)t->numel * aci_dsize((ac_dtype)t->dtype), e);
}

static ac_status backward(ac_frame *f, channel_args a, const ac_tensor *dy, const ac_tensor *x,
                          ac_err *e) {
  ac_block *copy[2] = {NULL, NULL}, *scratch = NULL;
  if (x->numel == 0) {
    AC_TRY(zeros(f, f->out[1], e));
    return zeros(f, f->out[2], e);
  }
  ac_status st = aci_cuda_in_a_run(f, x, &a.x, &copy[0], e);
  if (st == AC_OK) st = aci_cuda_in_a_run(f, dy, &a.dy, &copy[1], e);
  a.y = aci_data(f->out[0]);
  a.dw = values_of(f->out[1]);
  a.db = values_of(f->out[2]);
  if (st == AC_OK) st = scratch_of(f, &a, true, &scratch, e);
  if (st == AC_OK) st = backward_of(f, &a, (ac_dtype)x->dtype, e);
  ac_block_free(scratch);
  ac_block_free(copy[1]);
  ac_block_free(copy[0]);
  return st;
}

/* (x, weight, bias, eps) -> (y, mean, var) */
static ac_status batch_train(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  channel_args a = args_of(x, 0, f->args[3].f);
  if (x->numel == 0) {
    AC_TRY(zeros(f, f->out[1], e));
    return zeros(f, f->out[2], e);
  }
  a.w = values_of(&f->args[1]);
  a.b = values_of(&f->args[2]);
  a.mean = (double *)aci_data(f->out[1]);
  a.var = (double *)aci_data(f->out[2]);
  return forward(f, a, x, e);
}
/* (x, mean, var, weight, bias, eps) */
static ac_status batch_infer(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  channel_args a = args_of(x, 0, f->args[5].f);
  if (x->numel == 0) return AC_OK;
  a.given = true;
  a.mean_in = values_of(&f->args[1]);
  a.var_in = values_of(&f->args[2]);
  a.w = values_of(&f->args[3]);
  a.b = values_of(&f->args[4]);
  return forward(f, a, x, e);
}
/* (dy, x, mean, var, weight, eps, training) */
static ac_status batch_backward(ac_frame *f, ac_err *e) {
  channel_args a = args_of(f->args[1].tensor, 0, f->args[5].f);
  a.given = !f->args[6].b;
  a.mean_in = values_of(&f->args[2]);
  a.var_in = values_of(&f->args[3]);
  a.w = values_of(&f->args[4]);
  return backward(f, a, f->args[0].tensor, f->args[1].tensor, e);
}
/* (x, num_groups, weight, bias, eps) */
static ac_status group(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  if (x->numel == 0) return AC_OK;
  channel_args a = args_of(x, f->args[1].i, f->args[4].f);
  a.w = values_of(&f->args[2]);
  a.b = values_of(&f->args[3]);
  return forward(f, a, x, e);
}
/* (dy, x, num_groups, weight, eps) */
static ac_status group_backward(ac_frame *f, ac_err *e) {
  channel_args a = args_of(f->args[1].tensor, f->args[2].i, f->args[4].f);
  a.w = values_of(&f->args[3]);
  return backward(f, a, f->args[0].tensor, f->args[1].tensor, e);
}
AC_KERNEL(cuda, batch_norm_train, batch_train)
AC_KERNEL(cuda, batch_norm_infer, batch_infer)
AC_KERNEL(cuda, batch_norm_backward, batch_backward)
AC_KERNEL(cuda, group_norm, group)
AC_KERNEL(cuda, group_norm_backward, group_backward)
