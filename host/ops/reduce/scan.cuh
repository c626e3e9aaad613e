/* Running results along lines on CUDA: a thread a line if many are adjacent, a block of threads a
 * line if it is long.
 *
 *   struct sum {
 *     typedef double element;              the type x is read as
 *     typedef double state;
 *     static __device__ state none();      of no elements
 *     static __device__ state of(element v, int64_t i);
 *     static __device__ state join(const state &a, const state &b);   b's elements come after a's
 *     static __device__ void put(const aci_scan_args &a, int64_t line, int64_t i, const state &s);
 *   };
 *   return aci_scan_cuda<sum>(f, a, e); */
#ifndef ACI_OPS_REDUCE_SCAN_CUH
#define ACI_OPS_REDUCE_SCAN_CUH
#include "ops/reduce/rows.cuh"

enum { ACI_SCAN_OWN = 8 };

struct aci_scan_args {
  aci_reduce_plan x, y, at; /* at: of a second result */
  bool reverse;
};

template <class Op>
ACI_DEVICE typename Op::state aci_scan_step(const aci_scan_args &a,
                                            const aci_row<typename Op::element> &x, int64_t k,
                                            const typename Op::state &s, int64_t *position) {
  *position = a.reverse ? a.x.n_reduced - 1 - k : k;
  return Op::join(s, Op::of(x.get(*position), *position));
}

template <class Op>
static __global__ void __launch_bounds__(ACI_BLOCK)
    aci_scan_threads(const __grid_constant__ aci_scan_args a) {
  for (int64_t r = aci_first(); r < a.x.n_out; r += aci_step()) {
    const aci_row<typename Op::element> x(a.x, r);
    typename Op::state s = Op::none();
    for (int64_t k = 0, i; k < a.x.n_reduced; k++) {
      s = aci_scan_step<Op>(a, x, k, s, &i);
      Op::put(a, r, i, s);
    }
  }
}

template <class Op>
static __global__ void __launch_bounds__(ACI_BLOCK)
    aci_scan_blocks(const __grid_constant__ aci_scan_args a) {
  typedef typename Op::state state;
  __shared__ state shared[ACI_BLOCK];
  const int64_t n = a.x.n_reduced;
  const unsigned t = threadIdx.x;
  for (int64_t r = blockIdx.x; r < a.x.n_out; r += gridDim.x) {
    const aci_row<typename Op::element> x(a.x, r);
    state before = Op::none();
    for (int64_t chunk = 0; chunk < n; chunk += ACI_BLOCK * ACI_SCAN_OWN) {
      const int64_t first = chunk + (int64_t)t * ACI_SCAN_OWN;
      const int64_t end = first + ACI_SCAN_OWN < n ? first + ACI_SCAN_OWN : n;
      state own = Op::none();
      for (int64_t k = first, i; k < end; k++) own = aci_scan_step<Op>(a, x, k, own, &i);
      __syncthreads(); /* old contents were read */
      shared[t] = own;
      for (unsigned step = 1; step < ACI_BLOCK; step *= 2) {
        __syncthreads();
        const state left = t >= step ? shared[t - step] : Op::none();
        __syncthreads();
        if (t >= step) shared[t] = Op::join(left, shared[t]);
      }
      __syncthreads();
      state s = t > 0 ? Op::join(before, shared[t - 1]) : before;
      before = Op::join(before, shared[ACI_BLOCK - 1]);
      for (int64_t k = first, i; k < end; k++) {
        s = aci_scan_step<Op>(a, x, k, s, &i);
        Op::put(a, r, i, s);
      }
    }
  }
}

template <class Op> static ac_status aci_scan_cuda(ac_frame *f, const aci_scan_args &a, ac_err *e) {
  enum { LONG = 64, MANY = 4096 };
  const bool side_by_side = a.x.red_stride[0] != 1 && a.x.n_out >= MANY;
  if (a.x.n_reduced > LONG && !side_by_side)
    return aci_launch(f, "scan", aci_scan_blocks<Op>, aci_blocks(f->device, a.x.n_out, 1), e, a);
  return aci_launch(f, "scan", aci_scan_threads<Op>, aci_blocks(f->device, a.x.n_out), e, a);
}

/* Bit of a dim as the caller gave it, for plans. */
static inline uint32_t aci_scan_mask(const ac_tensor *x, int64_t dim) {
  return x->ndim > 0 ? 1u << (dim < 0 ? dim + x->ndim : dim) : 0;
}

#endif
