/* blockwise_step_ and blockwise_step_stochastic_ on CUDA, in the CPU's numbers. A first kernel of
 * one thread computes the factors from learning rate and step count, which live on the device, so
 * that a captured step can be replayed. Then a block of threads takes 256 elements of a parameter
 * at a time, and decodes, steps and encodes their states in shared memory. */
#include "base/philox.h"
#include "ops/optim/blockwise_formula.h"
#include "ops/optim/lists.cuh"
#include "ops/quant/layout.cuh"

namespace {
enum { MOST = 18 /* tensors of a launch: the table must fit 4 KiB */, STATES = 3 };

struct batch {
  float map[2][256]; /* signed, unsigned */
  void *param[MOST], *grad[MOST], *state[STATES][MOST], *absmax[STATES][MOST];
  int64_t n[MOST], drawn[MOST], first[MOST + 1]; /* first: blocks of the tensors before */
  unsigned char param_dt[MOST], grad_dt[MOST], coded[STATES][MOST];
  int tensors;
};
struct step_args {
  const aci_bw_factors *k;
  aci_counter call;
  uint64_t key;
  int rule;
  bool stochastic;
};
static_assert(sizeof(batch) + sizeof(step_args) <= 4096, "parameters of a kernel");
} // namespace

static __global__ void prepare_kernel(aci_bw_options o, aci_number lr, aci_number step,
                                      aci_bw_factors *k) {
  if (aci_first() != 0) return;
  const double t = step.get() + 1;
  *k = aci_bw_factors_of(&o, lr.get(), t);
  step.set(t);
}

/* State s of a rule holds values of any sign, or is a mean of squares. */
ACI_DEVICE int map_of(int s) { return s == 1 ? 1 : 0; }

static __global__ void __launch_bounds__(ACI_BLOCK)
    step_kernel(const __grid_constant__ batch b, const __grid_constant__ step_args a) {
  __shared__ float map[2][256], row[STATES][ACI_BW_BLOCK], most[ACI_BLOCK];
  for (int i = (int)threadIdx.x; i < 512; i += (int)blockDim.x)
    map[i / 256][i % 256] = b.map[i / 256][i % 256];
  const aci_bw_factors k = *a.k;
  __syncthreads();
  for (int64_t block = blockIdx.x; block < b.first[b.tensors]; block += gridDim.x) {
    int t = 0;
    while (block >= b.first[t + 1]) t++;
    const int64_t own = block - b.first[t], at = own * ACI_BW_BLOCK;
    const int n = (int)(b.n[t] - at < ACI_BW_BLOCK ? b.n[t] - at : ACI_BW_BLOCK);
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
      float x = aci_get<float>((ac_dtype)b.param_dt[t], b.param[t], at + i), v[STATES] = {};
      const float g = aci_get<float>((ac_dtype)b.grad_dt[t], b.grad[t], at + i);
#pragma unroll
      for (int s = 0; s < STATES; s++) {
        if (b.state[s][t] == NULL) continue;
        v[s] = b.coded[s][t] ? map[map_of(s)][((const uint8_t *)b.state[s][t])[at + i]] *
                                   ((const float *)b.absmax[s][t])[own]
                             : ((const float *)b.state[s][t])[at + i];
      }
      switch (a.rule) {
        case ACI_BW_ADAM: aci_bw_adam(&k, &x, g, &v[0], &v[1]); break;
        case ACI_BW_MOMENTUM: aci_bw_momentum(&k, &x, g, &v[0]); break;
        case ACI_BW_LION: aci_bw_lion(&k, &x, g, &v[0]); break;
        case ACI_BW_ADEMAMIX: aci_bw_ademamix(&k, &x, g, &v[0], &v[1], &v[2]); break;
        default: aci_bw_squares(&k, &x, g, &v[0]);
      }
      if (a.stochastic && b.param_dt[t] == AC_BF16) {
        const uint64_t drawn = (uint64_t)(b.drawn[t] + at + i);
        x = aci_float32(
            aci_bw_round(aci_bits32(x), aci_philox(a.key, drawn / 4, a.call).v[drawn % 4]));
      }
      aci_put((ac_dtype)b.param_dt[t], b.param[t], at + i, x);
#pragma unroll
      for (int s = 0; s < STATES; s++) {
        row[s][i] = v[s];
        if (b.state[s][t] != NULL && !b.coded[s][t]) ((float *)b.state[s][t])[at + i] = v[s];
      }
    }
    for (int s = 0; s < STATES; s++) {
      if (b.state[s][t] == NULL || !b.coded[s][t]) continue;
      float mine = 0;
      for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        mine = aci_larger(mine, aci_magnitude(row[s][i]));
      }
      __syncthreads(); /* the old value of most was read */
      most[threadIdx.x] = mine;
      for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
          most[threadIdx.x] = aci_larger(most[threadIdx.x], most[threadIdx.x + half]);
      }
      __syncthreads();
      const float absmax = most[0];
      if (threadIdx.x == 0) ((float *)b.absmax[s][t])[own] = absmax;
      for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        ((uint8_t *)b.state[s][t])[at + i] = aci_dynamic_code(map[map_of(s)], row[s][i], absmax);
    }
  }
}

static ac_status step(ac_frame *f, bool stochastic, ac_err *e) {
  const ac_value *v = f->args;
  const int n = v[ACI_BW_PARAMS].n, rule = (int)v[ACI_BW_RULE].i;
  static const int states[STATES] = {ACI_BW_STATE1, ACI_BW_STATE2, ACI_BW_STATE3};
  const bool wanted[STATES] = {true, aci_bw_needs_second(rule), rule == ACI_BW_ADEMAMIX};
  aci_lists l = {
      f,
      n,
      2,
      {v[ACI_BW_PARAMS].tensors, v[ACI_BW_GRADS].tensors}}; /* copies of non-contiguous tensors */
  AC_TRY(aci_lists_open(&l, sizeof(aci_bw_factors), e));
  const aci_bw_options o = {rule,
                            v[ACI_BW_BETA1].f,
                            v[ACI_BW_BETA2].f,
                            v[ACI_BW_BETA3].f,
                            v[ACI_BW_ALPHA].f,
                            v[ACI_BW_EPS].f,
                            v[ACI_BW_DECAY].f};
  step_args a = {(const aci_bw_factors *)l.room->ptr, {}, 0, rule, stochastic};
  if (stochastic) {
    const ac_generator *g = &f->rng_counter;
    a.key = g->seed ^ (uint64_t)g->stream * 0x9E3779B97F4A7C15u;
    a.call = aci_counter_of(f, ((uint64_t)g->step << 32 | g->ordinal) +
                                   (g->drawn != 0 ? g->drawn | UINT32_C(1) << 31 : 0));
  }
  ac_status st = aci_launch(f, "blockwise_step (factors)", prepare_kernel, 1u, e, o,
                            aci_number_of(v[ACI_BW_LR].tensor),
                            aci_number_of(v[ACI_BW_STEP].tensor), (aci_bw_factors *)l.room->ptr);
  int64_t drawn = stochastic ? v[ACI_BW_FIRST].i : 0;
  size_t at = 0;
  for (int i = 0; i < n && st == AC_OK;) {
    batch b = {};
    int size;
    memcpy(b.map[0], ac_quant_map(AC_QUANT_DYNAMIC, &size), sizeof b.map[0]);
    memcpy(b.map[1], ac_quant_map(AC_QUANT_UDYNAMIC, &size), sizeof b.map[1]);
    for (; i < n && b.tensors < MOST; i++) {
      const ac_tensor *p = l.list[0][i];
      const int t = b.tensors++;
      const int64_t blocks = (p->numel + ACI_BW_BLOCK - 1) / ACI_BW_BLOCK;
      b.param[t] = aci_lists_data(&l, 0, i, &at);
      b.grad[t] = aci_lists_data(&l, 1, i, &at);
      b.param_dt[t] = p->dtype;
      b.grad_dt[t] = l.list[1][i]->dtype;
      b.n[t] = p->numel;
      b.drawn[t] = drawn;
      b.first[t + 1] = b.first[t] + blocks;
      drawn += blocks * ACI_BW_BLOCK;
      for (int s = 0; s < STATES && wanted[s]; s++) {
        const ac_tensor *state = v[states[s]].tensors[i];
        b.state[s][t] = aci_data(state);
        b.coded[s][t] = state->dtype == AC_U8;
        b.absmax[s][t] = b.coded[s][t] ? aci_data(v[states[s] + 1].tensors[i]) : NULL;
      }
    }
    if (b.first[b.tensors] > 0)
      st = aci_launch(f, "blockwise_step", step_kernel,
                      aci_blocks(f->device, b.first[b.tensors], 1), e, b, a);
  }
  if (st == AC_OK) st = aci_lists_back(&l, 1u, e);
  ac_block_free(l.room); /* the next user works after us in the same order */
  return st;
}

static ac_status nearest(ac_frame *f, ac_err *e) { return step(f, false, e); }
static ac_status at_random(ac_frame *f, ac_err *e) { return step(f, true, e); }
AC_KERNEL(cuda, blockwise_step_, nearest)
AC_KERNEL(cuda, blockwise_step_stochastic_, at_random)
