/* cross_entropy on CUDA, forward and backward: a block per row, which is read once for its maximum
 * and sum. In backward the row goes into shared memory if it fits, and the gradients are made from
 * there. So no probabilities are in memory. Rows of few classes have a thread each. With m the
 * largest logit, S = sum of e^(x - m) and r[c] = w[c] * ((1 - s) q[c] + s / C), a row's loss is sum
 * of r[c] * (m + ln S - x[c]) and its gradient e^(x[c] - m) / S * sum(r) - r[c]. */
#include "ops/loss/cross_entropy.cuh"

#include "accel/ops.h"

struct ce_args {
  /* logits, target probabilities, gradients of logits and of the loss */
  aci_reduce_plan x, t, o, dy;
  ce_labels y;
  double smooth;
  double *loss, *weight; /* forward: of every row, */
  void *out;             /* or, with reduction = none, the result */
  ac_dtype out_dt;
  const double *totals; /* backward: aci_ce_totals. Of the rows only for mean */
  bool each, mean;
  bool keep; /* rows fit into shared memory */
};

/* r[c] of a row with label y or probabilities t. */
template <class C> struct ce_target {
  const ce_args &a;
  int64_t y;
  aci_row<C> t;
  double less; /* s / C */
  __device__ __forceinline__ ce_target(const ce_args &a, int64_t r, int64_t y)
      : a(a), y(y), t(a.t, r), less(a.smooth / (double)a.x.n_reduced) {}
  __device__ __forceinline__ double r(int64_t c) const {
    const double q = a.y.ids != NULL ? (c == y ? 1.0 : 0.0) : (double)t.get(c);
    return ((1 - a.smooth) * q + less) * a.y.weight(c);
  }
};

template <class C> struct ce_forward_row {
  const ce_target<C> target;
  const bool weigh; /* more than the label has a share in the loss */
  ce_sum<C> sum;
  double all, met; /* sum of r, of r x */
  __device__ __forceinline__ ce_forward_row(const ce_args &a, int64_t r, int64_t y, bool weigh)
      : target(a, r, y), weigh(weigh), all(0), met(0) {
    sum.clear();
  }
  __device__ __forceinline__ void take(const C (&x)[1], int64_t i) {
    sum.add(x);
    if (!weigh) return;
    const double r = target.r(i);
    all += r;
    met = fma(r, (double)x[0], met);
  }
};

template <class C> struct ce_backward_row {
  const ce_target<C> target;
  const aci_row<C> dx;
  const bool smooth;
  C shift, scale; /* e^(x - shift) * scale */
  double g;
  __device__ __forceinline__ void take(const C (&x)[1], int64_t i) const {
    C v = ce_exp(x[0] - shift) * scale;
    if (smooth || i == target.y) v -= (C)(g * target.r(i));
    dx.put(i, v);
  }
};

/* ---- contiguous rows, of labels, and without weights if smoothed: 16 bytes at a time ---- */
template <class C> struct ce_forward_run {
  ce_sum<C> sum;
  const bool smooth;
  double x_sum;
  template <int V> __device__ __forceinline__ void take(const C (&x)[V], int64_t) {
    sum.add(x);
    if (!smooth) return;
    C part = 0;
#pragma unroll
    for (int k = 0; k < V; k++) part += x[k];
    x_sum += (double)part;
  }
};
/* dx lies as the logits do. */
template <int DT, class C> struct ce_backward_run {
  typedef typename aci_element<DT>::bits S;
  S *dx;
  int64_t y;
  C shift, scale, each, at_label;
  template <int V> __device__ __forceinline__ void take(const C (&x)[V], int64_t i) const {
    aci_vector<S, V> piece;
#pragma unroll
    for (int k = 0; k < V; k++) {
      const C v = ce_exp(x[k] - shift) * scale - each;
      piece.v[k] = aci_element<DT>::template store<C>(i + k == y ? v - at_label : v);
    }
    *(aci_vector<S, V> *)(dx + i) = piece;
  }
};

/* ---- kernels ---- */
/* met: the sum of r x. all: the sum of r. */
ACI_DEVICE void ce_put_loss(const ce_args &a, int64_t r, int64_t y, double m, double s, double all,
                            double met) {
  double loss = 0, weight = 0;
  if (a.x.n_reduced > 0 && y >= 0) {
    weight = a.y.ids != NULL ? a.y.weight(y) : 1;
    loss = (m + log(s)) * all - met;
  }
  if (a.each) {
    aci_put(a.out_dt, a.out, r, loss);
  } else {
    a.loss[r] = loss;
    a.weight[r] = weight;
  }
}
/* The gradient that comes to row r. */
ACI_DEVICE double ce_dy(const ce_args &a, int64_t r) {
  const double g = aci_get<double>(a.dy.dt, a.dy.ptr, a.each ? aci_row<double>(a.dy, r).base : 0);
  return !a.mean ? g : g / (a.y.ids != NULL ? a.totals[1] : (double)a.x.n_out);
}

template <int DT, class C>
static __global__ void __launch_bounds__(ACI_BLOCK) ce_runs(const __grid_constant__ ce_args a) {
  typedef typename aci_element<DT>::bits S;
  __shared__ ce_sum<C> sums[ACI_BLOCK];
  __shared__ double shared[ACI_BLOCK];
  for (int64_t r = blockIdx.x; r < a.x.n_out; r += gridDim.x) {
    const int64_t y = a.y.id(r);
    const S *x = (const S *)a.x.ptr + aci_row<C>(a.x, r).base;
    ce_forward_run<C> row = {{(C)-INFINITY, 0}, a.smooth > 0, 0};
    if (y >= 0) {
      ce_walk<DT, C>(x, a.x.n_reduced, row, NULL);
      row.sum = aci_block_join<ce_sum<C>>(row.sum, sums);
      if (row.smooth) row.x_sum = aci_block_join<aci_add_op>(row.x_sum, shared);
    }
    if (threadIdx.x > 0) continue;
    double all = 0, met = 0;
    if (y >= 0) {
      const double at_label = aci_element<DT>::template load<double>(x[y]);
      all = row.smooth ? 1 : a.y.weight(y);
      met = row.smooth ? (1 - a.smooth) * at_label + a.smooth / (double)a.x.n_reduced * row.x_sum
                       : all * at_label;
    }
    ce_put_loss(a, r, y, (double)row.sum.m, (double)row.sum.s, all, met);
  }
}

template <int DT, class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    ce_runs_back(const __grid_constant__ ce_args a) {
  typedef typename aci_element<DT>::bits S;
  ACI_SHARED(kept);
  __shared__ ce_sum<C> sums[ACI_BLOCK];
  for (int64_t r = blockIdx.x; r < a.x.n_out; r += gridDim.x) {
    const int64_t y = a.y.id(r), n = a.x.n_reduced;
    const S *x = (const S *)a.x.ptr + aci_row<C>(a.x, r).base;
    const aci_row<C> dx(a.o, r);
    if (y < 0) {
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x) dx.put(i, (C)0);
      continue;
    }
    S *keep = a.keep ? (S *)kept + (uintptr_t)x % 16 / sizeof(S) : NULL;
    ce_forward_run<C> row = {{(C)-INFINITY, 0}, false, 0};
    ce_walk<DT, C>(x, n, row, keep);
    row.sum = aci_block_join<ce_sum<C>>(row.sum, sums);
    const double g = ce_dy(a, r), hit = a.smooth > 0 ? 1 - a.smooth : a.y.weight(y);
    const ce_backward_run<DT, C> turn = {
        (S *)a.o.ptr + dx.base,        y,
        ce_sum<C>::base(row.sum.m),    (C)(g * (hit + a.smooth) / (double)row.sum.s),
        (C)(g * a.smooth / (double)n), (C)(g * hit)};
    ce_walk<DT, C>(a.keep ? keep : x, n, turn, NULL);
    /* the next row may begin elsewhere within 16 bytes: other threads write values that were read
     * here */
    __syncthreads();
  }
}

/* Rows of any strides and kind of target. ALONE: one thread per row, otherwise one block. row.all
 * is the sum of the target's weights, row.met the sum of weight times logit. back: writes the
 * gradient of the logits instead of the loss. */
template <class C, bool ALONE>
static __global__ void __launch_bounds__(ACI_BLOCK)
    ce_rows(const __grid_constant__ ce_args a, bool back) {
  __shared__ ce_sum<C> sums[ACI_BLOCK];
  __shared__ double shared[ACI_BLOCK];
  const int64_t begin = ALONE ? 0 : threadIdx.x, step = ALONE ? 1 : blockDim.x, n = a.x.n_reduced;
  for (int64_t r = ALONE ? aci_first() : blockIdx.x; r < a.x.n_out;
       r += ALONE ? aci_step() : gridDim.x) {
    const int64_t y = a.y.ids != NULL ? a.y.id(r) : 0;
    const aci_row<C> x(a.x, r);
    const bool weigh = a.y.ids == NULL || (a.smooth > 0 && !back);
    ce_forward_row<C> row(a, r, y, weigh);
    if (y >= 0) {
      for (int64_t i = begin; i < n; i += step) {
        const C v[1] = {x.get(i)};
        row.take(v, i);
      }
      if (!ALONE) {
        row.sum = aci_block_join<ce_sum<C>>(row.sum, sums);
        if (weigh) row.all = aci_block_join<aci_add_op>(row.all, shared);
        if (weigh) row.met = aci_block_join<aci_add_op>(row.met, shared);
      }
    }
    if (!back) {
      if (!ALONE && threadIdx.x > 0) continue;
      if (!weigh && y >= 0) {
        row.all = a.y.weight(y);
        row.met = row.all * (double)x.get(y);
      }
      ce_put_loss(a, r, y, (double)row.sum.m, (double)row.sum.s, row.all, row.met);
      continue;
    }
    const double g = y < 0 ? 0 : ce_dy(a, r), less = a.smooth / (double)n;
    if (a.y.ids != NULL && y >= 0)
      row.all = (1 - a.smooth) * a.y.weight(y) +
                less * (a.y.w != NULL && a.smooth > 0 ? a.totals[0] : (double)n);
    const ce_backward_row<C> turn = {row.target,
                                     aci_row<C>(a.o, r),
                                     weigh || a.smooth > 0,
                                     ce_sum<C>::base(row.sum.m),
                                     (C)(g * row.all / (double)row.sum.s),
                                     g};
    for (int64_t i = begin; i < n; i += step) {
      const C v[1] = {x.get(i)};
      if (y < 0) turn.dx.put(i, (C)0);
      else turn.take(v, i);
    }
  }
}

/* ---- launches ---- */
#ifdef ACI_CUDA_EMULATED
enum { FEW = 4, KEPT = 1 << 10 };
#else
enum {
  FEW = 48,
  KEPT = 96 << 10
}; /* classes that a thread walks alone. Bytes of a row kept in shared memory */
#endif

/* Whether rows of the plan are contiguous. */
static bool in_runs(const aci_reduce_plan &p) {
  return p.n_red == 1 && (p.n_reduced == 1 || p.red_stride[0] == 1);
}

static ac_status run_rows(ac_frame *f, ce_args &a, bool back, ac_err *e) {
  const bool wide = a.x.ct == ACI_C_F64;
  const char *name = back ? "cross entropy (backward)" : "cross entropy";
  if (a.x.n_out == 0) return AC_OK;
  if (a.x.n_reduced <= FEW)
    return aci_launch(f, name, wide ? ce_rows<double, true> : ce_rows<float, true>,
                      aci_blocks(f->device, a.x.n_out), e, a, back);
  const int64_t es = (int64_t)aci_dsize(a.x.dt);
  bool runs = in_runs(a.x) && a.y.ids != NULL && (a.smooth == 0 || a.y.w == NULL) && !wide;
  if (back) { /* gradients at the logits' positions modulo 16 bytes */
    runs = runs && in_runs(a.o) && (uintptr_t)a.x.ptr % 16 == (uintptr_t)a.o.ptr % 16 &&
           a.x.n_keep == a.o.n_keep;
    for (int d = 0; runs && d < a.x.n_keep; d++)
      runs = a.x.keep_shape[d] == a.o.keep_shape[d] &&
             (a.x.keep_stride[d] - a.o.keep_stride[d]) * es % 16 == 0;
  }
  aci_shape_of_launch shape(aci_blocks(f->device, a.x.n_out, 1));
  if (!runs)
    return aci_launch(f, name, wide ? ce_rows<double, false> : ce_rows<float, false>, shape, e, a,
                      back);
  /* shifted by the elements before whole pieces */
  const int64_t bytes = (a.x.n_reduced * es + 16 + 15) / 16 * 16;
  const int64_t room =
      /* less the kernel's declared bytes */
      (int64_t)aci_cuda_of(f->device)->shared_bytes - (4 << 10);
  a.keep = back && bytes <= KEPT && bytes <= room;
  if (a.keep) shape.shared = (size_t)bytes;
  void (*kernel)(ce_args);
  switch (a.x.dt) {
    case AC_BF16: kernel = back ? ce_runs_back<AC_BF16, float> : ce_runs<AC_BF16, float>; break;
    case AC_F16: kernel = back ? ce_runs_back<AC_F16, float> : ce_runs<AC_F16, float>; break;
    default: kernel = back ? ce_runs_back<AC_F32, float> : ce_runs<AC_F32, float>;
  }
  return aci_launch(f, name, kernel, shape, e, a);
}

/* at: position of input among the arguments. */
static ce_args args_of(const ac_frame *f, int at) {
  const ac_tensor *x = f->args[at].tensor, *t = f->args[at + 1].tensor;
  const aci_ctype ct = aci_ctype_of((ac_dtype)x->dtype);
  const uint32_t mask = 1u << (x->ndim > 1 ? 1 : 0);
  const int64_t reduction = f->args[at + 4].i;
  ce_args a = {};
  aci_reduce_plan_make(&a.x, x, mask, ct);
  a.y = aci_ce_labels(f, t, a.x.n_reduced, f->args[at + 3].i, &f->args[at + 2]);
  if (a.y.ids == NULL) aci_reduce_plan_make(&a.t, t, mask, ct);
  else a.t.n_keep = a.t.n_red = 1; /* never read */
  a.smooth = f->args[at + 5].f;
  a.each = reduction == AC_CROSS_ENTROPY_REDUCTION_NONE;
  a.mean = reduction == AC_CROSS_ENTROPY_REDUCTION_MEAN;
  return a;
}

static ac_status forward(ac_frame *f, ac_err *e) {
  ce_args a = args_of(f, 0);
  const ac_tensor *out = f->out[0];
  ac_block *scratch = NULL;
  a.out = aci_data(out);
  a.out_dt = (ac_dtype)out->dtype;
  if (!a.each && a.x.n_out > 0) {
    AC_TRY(ac_block_alloc(f->device, (size_t)a.x.n_out * 2 * sizeof(double), AC_MEM_ACTIVATION,
                          f->stream, &scratch, e));
    a.loss = (double *)scratch->ptr;
    a.weight = a.loss + a.x.n_out;
  }
  ac_status st = run_rows(f, a, false, e);
  if (st == AC_OK && !a.each)
    st = aci_ce_finish(f, a.loss, a.y.ids != NULL ? a.weight : NULL, a.x.n_out, a.mean, out, e);
  ac_block_free(scratch);
  return st;
}

static ac_status backward(ac_frame *f, ac_err *e) {
  ce_args a = args_of(f, 1);
  ac_block *scratch = NULL;
  if (f->out[0]->numel == 0) return AC_OK;
  aci_reduce_plan_make(&a.o, f->out[0], 1u << (f->out[0]->ndim > 1 ? 1 : 0), a.x.ct);
  aci_reduce_plan_make(&a.dy, f->args[0].tensor, 0, ACI_C_F64);
  ac_status st = AC_OK;
  if (a.y.ids != NULL && (a.mean || (a.smooth > 0 && a.y.w != NULL))) {
    AC_TRY(
        ac_block_alloc(f->device, 2 * sizeof(double), AC_MEM_ACTIVATION, f->stream, &scratch, e));
    a.totals = (double *)scratch->ptr;
    st = aci_ce_totals(f, a.y, a.mean ? a.x.n_out : 0, (double *)scratch->ptr, e);
  }
  if (st == AC_OK) st = run_rows(f, a, true, e);
  ac_block_free(scratch);
  return st;
}
AC_KERNEL(cuda, cross_entropy, forward)
AC_KERNEL(cuda, cross_entropy_backward, backward)
