/* flash_attention and its backward on CUDA: converts the ops' arguments into kernel arguments
 * (flash.cuh), and computes the sums over rows that both gradient kernels need. */
#include "ops/attention/flash.cuh"
#include "ops/cuda/warp.cuh"

/* ---- arguments. Those of the backward op follow dout, out and lse ---- */
static flash_tensor tensor_of(const ac_tensor *t) {
  const int64_t es = (int64_t)aci_dsize((ac_dtype)t->dtype);
  flash_tensor x = {aci_data(t), {t->stride[0], t->stride[1], t->stride[2]}, false};
  x.vectors = (uintptr_t)x.p % 16 == 0 && t->shape[3] * es % 16 == 0;
  for (int d = 0; d < 3; d++)
    x.vectors = x.vectors && (t->shape[d] <= 1 || t->stride[d] * es % 16 == 0);
  return x;
}

/* A call's data for a kernel: tensors (borrowed, with strides), mask and slopes, and the constants
 * of dropout, which must draw as the CPU does (random/draw.h). q and mask: numbers of the query's
 * and of the mask's argument. */
static flash_args args_of(const ac_frame *f, int q, int mask) {
  const ac_tensor *query = f->args[q].tensor, *key = f->args[q + 1].tensor;
  const ac_value *o = f->args + mask; /* mask, dropout, causal, scale, generator, slopes */
  flash_args a = {};
  a.dt = (ac_dtype)query->dtype;
  a.b = query->shape[0];
  a.hq = query->shape[1];
  a.tq = query->shape[2];
  a.d = query->shape[3];
  a.hkv = key->shape[1];
  a.tk = key->shape[2];
  a.q = tensor_of(query);
  a.k = tensor_of(key);
  a.v = tensor_of(f->args[q + 2].tensor);
  a.causal = o[2].b;
  a.scale = o[3].f;
  if (o[0].kind == AC_T_TENSOR) {
    const ac_tensor *m = o[0].tensor;
    a.mask = aci_data(m);
    a.mask_dt = (ac_dtype)m->dtype;
    for (int d = 0; d < 4; d++) {
      const int i = d - (4 - m->ndim);
      a.mask_s[d] = i < 0 || m->shape[i] == 1 ? 0 : m->stride[i];
    }
  }
  if (o[5].kind == AC_T_TENSOR) {
    const ac_tensor *s = o[5].tensor;
    a.alibi = aci_data(s);
    a.alibi_dt = (ac_dtype)s->dtype;
    a.alibi_s = s->stride[0];
  }
  const double p = o[1].f;
  if (p > 0) {
    a.drop = true;
    /* random/draw.h */
    a.drop_key = f->rng_counter.seed ^ (uint64_t)f->rng_counter.stream * 0x9E3779B97F4A7C15u;
    a.drop_counter =
        aci_counter_of(f, (uint64_t)f->rng_counter.step << 32 | f->rng_counter.ordinal);
    a.drop_below = (uint32_t)(p * 0x1p32);
    if (a.drop_below == 0) a.drop_below = 1;
    a.drop_b0 = f->rng_counter.row0;
    a.drop_by = 1 / (1 - p);
  }
  return a;
}

static ac_status forward(ac_frame *f, ac_err *e) {
  if (f->out[0]->numel == 0) return AC_OK;
  flash_args a = args_of(f, 0, 3);
  if (a.drop && f->rng_counter.range[0].dim != 0)
    return AC_FAIL(e, UNSUPPORTED,
                   "dropout of a part of the heads or positions is not supported on this device");
  a.out = tensor_of(f->out[0]);
  a.lse = aci_data(f->out[1]);
  return aci_flash_warp_fits(f, a) ? aci_flash_warp_forward(f, a, e)
                                   : aci_flash_plain_forward(f, a, e);
}
AC_KERNEL(cuda, flash_attention, forward)

/* ---- backward ---- */
/* A warp per query. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    flash_rows(const __grid_constant__ flash_args a) {
  const int lane = aci_lane();
  for (int64_t r = aci_first() / 32; r < a.b * a.hq * a.tq_pad; r += aci_step() / 32) {
    const int64_t i = r % a.tq_pad, bh = r / a.tq_pad,
                  es = (int64_t)(a.dt == AC_F64   ? 8
                                 : a.dt == AC_F32 ? 4
                                                  : 2);
    C sum = 0, lse2 = (C)INFINITY;
    if (i < a.tq) {
      const char *o = flash_row<char>(a.out, 0, 0, 0), *g = flash_row<char>(a.dout, 0, 0, 0);
      const int64_t b = bh / a.hq, h = bh % a.hq;
      o += (b * a.out.s[0] + h * a.out.s[1] + i * a.out.s[2]) * es;
      g += (b * a.dout.s[0] + h * a.dout.s[1] + i * a.dout.s[2]) * es;
      for (int64_t d = lane; d < a.d; d += 32)
        sum += aci_get<C>(a.dt, o, d) * aci_get<C>(a.dt, g, d);
      const C lse = ((const C *)a.lse)[bh * a.tq + i];
      if (lse != (C)-INFINITY) lse2 = lse * (C)1.4426950408889634074;
    }
    for (int half = 16; half > 0; half /= 2) sum += aci_from_lane_xor(sum, half);
    if (lane == 0) {
      ((C *)a.lse2)[r] = lse2;
      ((C *)a.delta)[r] = sum;
    }
  }
}

static ac_status zeros(ac_frame *f, const ac_tensor *t, ac_err *e) {
  if (t->numel == 0) return AC_OK;
  AC_TRY(aci_cuda_enter(f->device, e));
  return aci_cuda_check(f->device,
                        cudaMemsetAsync(aci_data(t), 0,
                                        (size_t)t->numel * aci_dsize((ac_dtype)t->dtype),
                                        aci_cuda_stream(f->device, f->stream)),
                        "fill", e);
}

static ac_status backward(ac_frame *f, ac_err *e) {
  if (f->out[0]->numel == 0 || f->out[1]->numel == 0) {
    for (int i = 0; i < 3; i++) AC_TRY(zeros(f, f->out[i], e));
    return AC_OK;
  }
  flash_args a = args_of(f, 1, 6);
  ac_block *scratch;
  a.dout = tensor_of(f->args[0].tensor);
  a.out = tensor_of(f->args[4].tensor);
  a.lse = aci_data(f->args[5].tensor);
  a.dq = tensor_of(f->out[0]);
  a.dk = tensor_of(f->out[1]);
  a.dv = tensor_of(f->out[2]);
  a.tq_pad = (a.tq + FLASH_PAD - 1) / FLASH_PAD * FLASH_PAD;
  const bool wide = a.dt == AC_F64;
  const int64_t rows = a.b * a.hq * a.tq_pad;
  const size_t bytes = (size_t)rows * (wide ? sizeof(double) : sizeof(float));
  AC_TRY(ac_block_alloc(f->device, 2 * bytes, AC_MEM_ACTIVATION, f->stream, &scratch, e));
  a.lse2 = scratch->ptr;
  a.delta = (char *)scratch->ptr + bytes;
  ac_status st = aci_launch(f, "attention (rows)", wide ? flash_rows<double> : flash_rows<float>,
                            aci_blocks(f->device, rows * 32), e, a);
  if (st == AC_OK)
    st = aci_flash_warp_fits(f, a) ? aci_flash_warp_backward(f, a, e)
                                   : aci_flash_plain_backward(f, a, e);
  ac_block_free(scratch);
  return st;
}
AC_KERNEL(cuda, flash_attention_backward, backward)
