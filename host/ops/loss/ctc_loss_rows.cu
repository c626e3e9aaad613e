/* ctc_loss_rows and its gradient on CUDA: a block per row of the batch, whose threads share the
 * states of a time. The gradient adds the probabilities of states of one class along a chain, in
 * their order. */
#include "base/vmath.h"
#include "ops/loss/ctc_loss.h"
#include "ops/reduce/rows.cuh"

namespace {
struct ctc_args {
  aci_ctc c;
  const void *lp;
  ac_dtype lp_dt;
  int64_t lp_stride[3];
  const int64_t *targets, *inputs, *lengths;
  int64_t target_stride[2], input_stride, length_stride;
  const void *dloss;
  void *loss, *alpha, *out; /* loss and alpha in the compute type */
  ac_dtype out_dt, dloss_dt;
  int64_t dloss_stride;
  void *beta;     /* backward: (rows, 3, states): two rows of states, and their probabilities */
  int32_t *chain; /* backward: (rows, states): the next state of the class or -1, -3 minus that if
                     it is not the first of its class */
};

struct ctc_row {
  int64_t n, states, times;
  __device__ __forceinline__ ctc_row(const ctc_args &a, int64_t row) : n(row) {
    const int64_t length = a.lengths[n * a.length_stride];
    states = length < 0 || length > a.c.width ? -1 : 2 * length + 1;
    times = a.inputs[n * a.input_stride];
    if (times > a.c.times) times = -1;
  }
  __device__ __forceinline__ int64_t cls(const ctc_args &a, int64_t s) const {
    if (s % 2 == 0) return a.c.blank;
    const int64_t v = a.targets[n * a.target_stride[0] + s / 2 * a.target_stride[1]];
    return v < 0 || v >= a.c.classes ? a.c.blank : v;
  }
  __device__ __forceinline__ bool skip(const ctc_args &a, int64_t s) const {
    return s % 2 != 0 && s > 1 && cls(a, s - 2) != cls(a, s);
  }
};
} // namespace

template <class C> ACI_DEVICE C log_prob(const ctc_args &a, int64_t t, int64_t n, int64_t c) {
  return aci_get<C>(a.lp_dt, a.lp, t * a.lp_stride[0] + n * a.lp_stride[1] + c * a.lp_stride[2]);
}
template <class C> ACI_DEVICE C join(C a, C b, C c) {
  const C ab = a > b ? a : b, m = ab > c ? ab : c;
  if (m == -(C)INFINITY) return m;
  return m + m_log(m_exp(a - m) + m_exp(b - m) + m_exp(c - m));
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    ctc_forward(const __grid_constant__ ctc_args a) {
  const C none = -(C)INFINITY;
  for (int64_t n = blockIdx.x; n < a.c.rows; n += gridDim.x) {
    const ctc_row r(a, n);
    C *alpha = (C *)a.alpha + n * a.c.times * a.c.states;
    for (int64_t i = threadIdx.x; i < a.c.times * a.c.states; i += blockDim.x) alpha[i] = none;
    __syncthreads();
    for (int64_t t = 0; t < r.times && r.states > 0; t++) {
      C *y = alpha + t * a.c.states;
      const C *x = y - a.c.states;
      for (int64_t s = threadIdx.x; s < r.states; s += blockDim.x) {
        const C lp = log_prob<C>(a, t, n, r.cls(a, s));
        if (t == 0) y[s] = s < 2 ? lp : none;
        else y[s] = join<C>(x[s], s > 0 ? x[s - 1] : none, r.skip(a, s) ? x[s - 2] : none) + lp;
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      const C *x = alpha + (r.times - 1) * a.c.states;
      C loss = r.states < 0 || r.times < 0 ? (C)NAN : r.states == 1 ? (C)0 : (C)INFINITY;
      if (r.states > 0 && r.times > 0)
        loss = -join<C>(x[r.states - 1], r.states > 1 ? x[r.states - 2] : none, none);
      ((C *)a.loss)[n] = loss;
    }
    __syncthreads();
  }
}

/* out was filled with 0. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    ctc_backward(const __grid_constant__ ctc_args a) {
  __shared__ double shared[ACI_BLOCK];
  const C none = -(C)INFINITY;
  for (int64_t n = blockIdx.x; n < a.c.rows; n += gridDim.x) {
    const ctc_row r(a, n);
    const C *alpha = (const C *)a.alpha + n * a.c.times * a.c.states;
    C *x = (C *)a.beta + n * 3 * a.c.states, *y = x + a.c.states, *p = y + a.c.states;
    int32_t *chain = a.chain + n * a.c.states;
    const C loss = ((const C *)a.loss)[n],
            dloss = aci_get<C>(a.dloss_dt, a.dloss, n * a.dloss_stride);
    if (r.states < 0 || dloss == 0) continue; /* the same for all threads */
    for (int64_t s = threadIdx.x; s < r.states; s += blockDim.x) {
      const int64_t mine = r.cls(a, s);
      int32_t next = -1;
      for (int64_t k = s + 1; k < r.states && next < 0 && s % 2 != 0; k++)
        if (k % 2 != 0 && r.cls(a, k) == mine) next = (int32_t)k;
      bool first = s % 2 != 0;
      for (int64_t k = 1; k < s && first; k += 2) first = r.cls(a, k) != mine;
      chain[s] = first ? next : -3 - next; /* not the first: -2 and below, next is kept */
      x[s] = y[s] = none;
    }
    __syncthreads();
    for (int64_t t = r.times - 1; t >= 0; t--) {
      for (int64_t s = threadIdx.x; s < r.states; s += blockDim.x) {
        const C lp = log_prob<C>(a, t, n, r.cls(a, s));
        if (t == r.times - 1) y[s] = s + 2 >= r.states ? lp : none;
        else
          y[s] = join<C>(x[s], s + 1 < r.states ? x[s + 1] : none,
                         s + 2 < r.states && r.skip(a, s + 2) ? x[s + 2] : none) +
                 lp;
        const C before = alpha[t * a.c.states + s];
        p[s] = before > none && y[s] > none ? m_exp(before + y[s] - lp + loss) : (C)0;
      }
      __syncthreads();
      double blank = 0;
      for (int64_t s = threadIdx.x; s < r.states; s += blockDim.x) {
        if (r.cls(a, s) == a.c.blank) { /* also a class value that is the blank's */
          blank += (double)p[s];
        } else if (chain[s] >= -1) {
          C sum = p[s];
          for (int32_t k = chain[s]; k >= 0;) {
            sum += p[k];
            k = chain[k] < -1 ? -3 - chain[k] : chain[k];
          }
          aci_put(a.out_dt, a.out, (t * a.c.rows + n) * a.c.classes + r.cls(a, s), -dloss * sum);
        }
      }
      blank = aci_block_join<aci_add_op>(blank, shared);
      if (threadIdx.x == 0)
        aci_put(a.out_dt, a.out, (t * a.c.rows + n) * a.c.classes + a.c.blank, -dloss * (C)blank);
      C *other = x;
      x = y;
      y = other;
      __syncthreads();
    }
  }
}

static ctc_args args_of(const ac_tensor *lp, const ac_value *v, int64_t blank) {
  const ac_tensor *targets = v[0].tensor, *inputs = v[1].tensor, *lengths = v[2].tensor;
  ctc_args a = {};
  a.c = aci_ctc_of(lp, targets, blank);
  a.lp = aci_data(lp);
  a.lp_dt = (ac_dtype)lp->dtype;
  for (int d = 0; d < 3; d++) a.lp_stride[d] = lp->stride[d];
  a.targets = (const int64_t *)aci_data(targets);
  a.target_stride[0] = targets->stride[0];
  a.target_stride[1] = targets->stride[1];
  a.inputs = (const int64_t *)aci_data(inputs);
  a.input_stride = inputs->stride[0];
  a.lengths = (const int64_t *)aci_data(lengths);
  a.length_stride = lengths->stride[0];
  return a;
}

static ac_status forward(ac_frame *f, ac_err *e) {
  ctc_args a = args_of(f->args[0].tensor, f->args + 1, f->args[4].i);
  if (a.c.rows == 0) return AC_OK;
  a.loss = aci_data(f->out[0]);
  a.alpha = aci_data(f->out[1]);
  const unsigned blocks = aci_blocks(f->device, a.c.rows, 1);
  return f->out[0]->dtype == AC_F64 ? aci_launch(f, "ctc", ctc_forward<double>, blocks, e, a)
                                    : aci_launch(f, "ctc", ctc_forward<float>, blocks, e, a);
}
AC_KERNEL(cuda, ctc_loss_rows, forward)

static ac_status backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dloss = f->args[0].tensor, *y = f->out[0];
  ctc_args a = args_of(f->args[1].tensor, f->args + 2, f->args[5].i);
  ac_block *scratch;
  if (y->numel == 0) return AC_OK;
  const bool wide = f->args[6].tensor->dtype == AC_F64;
  const int64_t cells = a.c.rows * a.c.states;
  a.loss = aci_data(f->args[6].tensor);
  a.alpha = aci_data(f->args[7].tensor);
  a.dloss = aci_data(dloss);
  a.dloss_dt = (ac_dtype)dloss->dtype;
  a.dloss_stride = dloss->stride[0];
  a.out = aci_data(y);
  a.out_dt = (ac_dtype)y->dtype;
  AC_TRY(f->device->vt->fill(f->device, f->stream, a.out, 0, (size_t)y->numel * aci_dsize(a.out_dt),
                             e));
  AC_TRY(ac_block_alloc(f->device, (size_t)cells * (3 * (wide ? 8 : 4) + 4), AC_MEM_ACTIVATION,
                        f->stream, &scratch, e));
  a.beta = scratch->ptr;
  a.chain = (int32_t *)((char *)scratch->ptr + cells * 3 * (wide ? 8 : 4));
  const unsigned blocks = aci_blocks(f->device, a.c.rows, 1);
  const ac_status st = wide ? aci_launch(f, "ctc (backward)", ctc_backward<double>, blocks, e, a)
                            : aci_launch(f, "ctc (backward)", ctc_backward<float>, blocks, e, a);
  ac_block_free(scratch);
  return st;
}
AC_KERNEL(cuda, ctc_loss_rows_backward, backward)
