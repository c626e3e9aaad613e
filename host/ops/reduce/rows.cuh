/* Kernels of rows on CUDA: a block works on one row at a time (the list of an output of plan.h) and
 * its threads share their results. */
#ifndef ACI_OPS_ROWS_CUH
#define ACI_OPS_ROWS_CUH
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/reduce/plan.h"

/* A row of a plan. */
template <class C> struct aci_row {
  const aci_reduce_plan *p;
  int64_t base;
  __device__ __forceinline__ aci_row(const aci_reduce_plan &plan, int64_t o)
      : p(&plan), base(aci_element_offset(o, plan.n_keep, plan.keep_shape, plan.keep_stride)) {}
  __device__ __forceinline__ int64_t at(int64_t i) const {
    return base + (p->n_red == 1 ? i * p->red_stride[0]
                                 : aci_element_offset(i, p->n_red, p->red_shape, p->red_stride));
  }
  __device__ __forceinline__ C get(int64_t i) const { return aci_get<C>(p->dt, p->ptr, at(i)); }
  __device__ __forceinline__ void put(int64_t i, C v) const {
    aci_put(p->dt, (void *)p->ptr, at(i), v);
  }
};

struct aci_add_op {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
};
struct aci_max_op { /* NaN may be passed over: it comes back with its exponential */
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return b > a ? b : a; }
};
/* The values of all threads of the block, joined as a tree. Every thread gets the result. shared:
 * ACI_BLOCK values. */
template <class Op, class T> ACI_DEVICE T aci_block_join(T v, T *shared) {
  __syncthreads(); /* old contents were read */
  shared[threadIdx.x] = v;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      shared[threadIdx.x] = Op::of(shared[threadIdx.x], shared[threadIdx.x + half]);
  }
  __syncthreads();
  return shared[0];
}

/* ---- sums of columns that come in pieces: part[piece * step + column] ---- */
enum { ACI_COLUMNS = 32 };
/* Groups of threads take the pieces of a column in turns. Their results are added in order. */
template <class P>
__global__ void __launch_bounds__(ACI_BLOCK)
    aci_join_columns_kernel(const P *part, int64_t n_pieces, int64_t step, int64_t n,
                            double divisor, void *out, ac_dtype dt) {
  __shared__ double shared[ACI_BLOCK];
  const int column = (int)threadIdx.x % ACI_COLUMNS, group = (int)threadIdx.x / ACI_COLUMNS,
            groups = (int)blockDim.x / ACI_COLUMNS;
  for (int64_t c0 = (int64_t)blockIdx.x * ACI_COLUMNS; c0 < n;
       c0 += (int64_t)gridDim.x * ACI_COLUMNS) {
    const int64_t i = c0 + column;
    double sum = 0;
#pragma unroll 4
    for (int64_t k = group; k < n_pieces; k += groups)
      if (i < n) sum += (double)part[k * step + i];
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int g = 1; g < groups && group == 0; g++) sum += shared[g * ACI_COLUMNS + column];
    if (group == 0 && i < n) aci_put(dt, out, i, sum / divisor);
    __syncthreads();
  }
}
template <class P>
ac_status aci_join_columns(ac_frame *f, const P *part, int64_t n_pieces, int64_t step, int64_t n,
                           double divisor, void *out, ac_dtype dt, ac_err *e) {
  return aci_launch(f, "columns", aci_join_columns_kernel<P>, aci_blocks(f->device, n, ACI_COLUMNS),
                    e, part, n_pieces, step, n, divisor, out, dt);
}

#endif
