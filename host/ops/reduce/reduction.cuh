/* Reductions on CUDA: a tensor as kept times reduced dims (plan.h), elements joined into a state
 * per output.
 *
 *   struct sum_f32 {
 *     typedef float element;             the type x is read as: float, double or int64_t
 *     typedef float state;
 *     static __device__ state start();   of no elements
 *     static __device__ void step(state &s, element v, int64_t i, double p);   joins element i of
 *     the list
 *     static __device__ void join(state &s, const state &t);                   t's elements come
 *     after s's
 *     static __device__ void put(const aci_reduction_out &o, int64_t at, const state &s);
 *   };
 *   return aci_reduction_cuda<sum_f32>(f, &plan, p, out, e);
 *
 * A block holds `lists` outputs of `lanes` threads each. Lane k takes elements k, k + lanes, ...
 * and lanes are joined as a tree in shared memory. Neighbouring threads are neighbouring lanes, or,
 * if the outputs are adjacent in memory, neighbouring outputs. Few long lists are cut into pieces
 * whose states meet in a second kernel. All of it follows from shape and strides alone. */
#ifndef ACI_OPS_REDUCTION_CUH
#define ACI_OPS_REDUCTION_CUH
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/reduce/plan.h"

struct aci_reduction_out {
  void *out[2];
  ac_dtype dt[2];
  int64_t count; /* elements under each output */
  double p;
};

struct aci_reduction_args {
  aci_reduce_plan plan;
  aci_reduction_out out;
  void *part; /* states, [piece][output]. NULL: results go to out */
  int64_t n_pieces, piece;
  int lanes, lists; /* of a block. Powers of two, their product is ACI_BLOCK */
  bool columns;
};

template <class Op>
__global__ void __launch_bounds__(ACI_BLOCK)
    aci_reduction_lists(const __grid_constant__ aci_reduction_args a) {
  typedef typename Op::state state;
  __shared__ state shared[ACI_BLOCK];
  const aci_reduce_plan &p = a.plan;
  const int t = (int)threadIdx.x, lane = a.columns ? t / a.lists : t % a.lanes,
            list = a.columns ? t % a.lists : t / a.lanes;
  const int64_t tiles = (p.n_out + a.lists - 1) / a.lists;
  for (int64_t item = blockIdx.x; item < tiles * a.n_pieces; item += gridDim.x) {
    const int64_t o = item % tiles * a.lists + list, piece = item / tiles;
    const int64_t begin = piece * a.piece,
                  end = begin + a.piece < p.n_reduced ? begin + a.piece : p.n_reduced;
    state s = Op::start();
    if (o < p.n_out) {
      const int64_t base = aci_element_offset(o, p.n_keep, p.keep_shape, p.keep_stride);
      for (int64_t i = begin + lane; i < end; i += a.lanes) {
        const int64_t at =
            base + (p.n_red == 1 ? i * p.red_stride[0]
                                 : aci_element_offset(i, p.n_red, p.red_shape, p.red_stride));
        Op::step(s, aci_get<typename Op::element>(p.dt, p.ptr, at), i, a.out.p);
      }
    }
    const int mine = lane * a.lists + list;
    shared[mine] = s;
    for (int half = a.lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) Op::join(shared[mine], shared[mine + half * a.lists]);
    }
    if (lane == 0 && o < p.n_out) {
      if (a.part != NULL) ((state *)a.part)[piece * p.n_out + o] = shared[mine];
      else Op::put(a.out, o, shared[mine]);
    }
    __syncthreads(); /* shared is written again */
  }
}

template <class Op>
__global__ void __launch_bounds__(ACI_BLOCK)
    aci_reduction_pieces(const __grid_constant__ aci_reduction_args a) {
  typedef typename Op::state state;
  for (int64_t o = aci_first(); o < a.plan.n_out; o += aci_step()) {
    state s = ((const state *)a.part)[o];
    for (int64_t k = 1; k < a.n_pieces; k++)
      Op::join(s, ((const state *)a.part)[k * a.plan.n_out + o]);
    Op::put(a.out, o, s);
  }
}

/* How a block is cut, and the lists. */
void aci_reduction_cut(aci_reduction_args *a);

template <class Op>
ac_status aci_reduction_cuda(ac_frame *f, const aci_reduce_plan *plan, double p, ac_tensor *out,
                             ac_tensor *second, ac_err *e) {
  aci_reduction_args a = {};
  ac_block *scratch = NULL;
  if (plan->n_out == 0) return AC_OK;
  a.plan = *plan;
  ac_tensor *outs[2] = {out, second};
  for (int k = 0; k < 2; k++) {
    if (outs[k] == NULL) continue;
    a.out.out[k] = aci_data(outs[k]);
    a.out.dt[k] = (ac_dtype)outs[k]->dtype;
  }
  a.out.count = plan->n_reduced;
  a.out.p = p;
  aci_reduction_cut(&a);
  const int64_t items = (plan->n_out + a.lists - 1) / a.lists * a.n_pieces;
  if (a.n_pieces > 1) {
    AC_TRY(ac_block_alloc(f->device,
                          sizeof(typename Op::state) * (size_t)(a.n_pieces * plan->n_out),
                          AC_MEM_ACTIVATION, f->stream, &scratch, e));
    a.part = scratch->ptr;
  }
  ac_status st =
      aci_launch(f, "reduction", aci_reduction_lists<Op>, aci_blocks(f->device, items, 1), e, a);
  if (st == AC_OK && a.n_pieces > 1)
    st = aci_launch(f, "reduction (pieces)", aci_reduction_pieces<Op>,
                    aci_blocks(f->device, plan->n_out), e, a);
  ac_block_free(scratch); /* the next user works after us in the same order */
  return st;
}

#endif
