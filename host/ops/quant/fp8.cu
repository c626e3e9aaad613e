/* fp8_cast, fp8_update_scale_ and scaled_mm on CUDA. Casts and scales are the CPU's to the bit.
 * Products go to cuBLASLt on chips that multiply 8 bits (from Ada on). Both operands must have the
 * inner dim contiguous, as in forward. Other layouts, as of gradients, are copied first, a byte an
 * element. If cuBLASLt does not take a product, its operands become bf16, which holds their
 * values. */
#include <float.h>

#include "base/float8.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/matmul/product.cuh"

namespace {
enum { X, SCALE, AMAX, FORMAT, POW2 };
struct cast_args {
  const void *x;
  uint8_t *y;
  const float *scale;
  uint32_t *most; /* by block. NULL: not wanted */
  ac_dtype dt;
  int ndim; /* 0: contiguous */
  int64_t n, shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  bool e5m2, write;
};
struct scale_args {
  const uint32_t *most; /* NULL: none */
  unsigned blocks;
  const float *given; /* NULL: from the amax found */
  float *made, *amax, *inverse;
  float top;
  int pow2;
};
struct matrix8 { /* rows x cols at these strides, in elements */
  const uint8_t *p;
  int64_t rows, cols, rs, cs;
  bool e5m2;
};
} // namespace

static __global__ void __launch_bounds__(ACI_BLOCK)
    fp8_cast_kernel(const __grid_constant__ cast_args a) {
  __shared__ uint32_t shared[ACI_BLOCK];
  const float scale = a.write ? *a.scale : 1;
  uint32_t most = 0; /* magnitudes as integers. NaN counts as 0 */
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const float v = aci_get<float>(
        a.dt, a.x, a.ndim == 0 ? i : aci_element_offset(i, a.ndim, a.shape, a.stride));
    const uint32_t u = aci_bits32(v) & 0x7fffffffu, m = u > 0x7f800000u ? 0 : u;
    most = m > most ? m : most;
    if (a.write) a.y[i] = a.e5m2 ? aci_e5m2_saturated(v * scale) : aci_e4m3_saturated(v * scale);
  }
  if (a.most == NULL) return;
  shared[threadIdx.x] = most;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half && shared[threadIdx.x + half] > shared[threadIdx.x])
      shared[threadIdx.x] = shared[threadIdx.x + half];
  }
  if (threadIdx.x == 0) a.most[blockIdx.x] = shared[0];
}

static __global__ void fp8_scale_kernel(const __grid_constant__ scale_args a) {
  if (aci_first() != 0) return;
  uint32_t most = 0;
  for (unsigned i = 0; a.most != NULL && i < a.blocks; i++)
    most = a.most[i] > most ? a.most[i] : most;
  const float amax = aci_float32(most),
              scale = a.given != NULL ? *a.given : aci_float8_scale(amax, a.top, a.pow2);
  if (a.made != NULL) *a.made = scale;
  if (a.amax != NULL && amax > *a.amax) *a.amax = amax;
  *a.inverse = 1 / scale;
}

static ac_status cast(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[X].tensor;
  const bool current = f->args[SCALE].kind == AC_T_NONE,
             wanted = current || f->args[AMAX].kind != AC_T_NONE;
  const unsigned blocks = aci_blocks(f->device, x->numel);
  cast_args a = {};
  scale_args s = {};
  ac_block *block;
  void *scratch;
  AC_TRY(aci_workspace(f, wanted ? (size_t)blocks * 4 + 4 : 0, &block, &scratch, e));
  a.x = aci_data(x);
  a.y = (uint8_t *)aci_data(f->out[0]);
  a.dt = (ac_dtype)x->dtype;
  if (!aci_is_contiguous(x)) {
    a.ndim = x->ndim;
    memcpy(a.shape, x->shape, 8 * (size_t)x->ndim);
    memcpy(a.stride, x->stride, 8 * (size_t)x->ndim);
  }
  a.n = x->numel;
  a.e5m2 = f->args[FORMAT].i != 0;
  a.most = wanted ? (uint32_t *)scratch + 1 : NULL;
  a.write = !current;
  if (!current) a.scale = (const float *)aci_data(f->args[SCALE].tensor);
  s.most = a.most;
  s.blocks = blocks;
  s.given = a.scale;
  s.made = current ? (float *)scratch : NULL;
  s.amax = f->args[AMAX].kind != AC_T_NONE ? (float *)aci_data(f->args[AMAX].tensor) : NULL;
  s.inverse = (float *)aci_data(f->out[1]);
  s.top = a.e5m2 ? ACI_E5M2_MAX : ACI_E4M3_MAX;
  s.pow2 = f->args[POW2].b;
  ac_status st = aci_launch(f, "fp8_cast", fp8_cast_kernel, blocks, e, a);
  if (st == AC_OK) st = aci_launch(f, "fp8_scale", fp8_scale_kernel, 1u, e, s);
  if (st == AC_OK && current) {
    a.scale = s.made;
    a.most = NULL;
    a.write = true;
    st = aci_launch(f, "fp8_cast", fp8_cast_kernel, blocks, e, a);
  }
  ac_block_free(block);
  return st;
}
AC_KERNEL(cuda, fp8_cast, cast)

static __global__ void fp8_update_kernel(float *scale, float *history, int64_t rows, int64_t n,
                                         float top, bool most_recent, bool update) {
  for (int64_t i = aci_first(); i < n; i += aci_step()) {
    const float first = history[i];
    float amax = first;
    for (int64_t r = 1; r < rows; r++) {
      const float v = history[r * n + i];
      amax = most_recent ? amax : fmaxf(amax, v);
      if (r > 1) history[(r - 1) * n + i] = v;
    }
    if (rows > 1) history[(rows - 1) * n + i] = first;
    history[i] = 0;
    if (!update || !(amax > 0) || !(amax <= FLT_MAX)) continue;
    const float s = top / amax;
    scale[i] = s > FLT_MAX ? FLT_MAX : s;
  }
}
static ac_status update(ac_frame *f, ac_err *e) {
  const ac_tensor *h = f->args[1].tensor;
  return aci_launch(f, "fp8_update_scale", fp8_update_kernel, aci_blocks(f->device, h->shape[1]), e,
                    (float *)aci_data(f->args[0].tensor), (float *)aci_data(h), h->shape[0],
                    h->shape[1], ldexpf((float)f->args[2].f, -(int)f->args[3].i), f->args[4].b,
                    f->args[5].b);
}
AC_KERNEL(cuda, fp8_update_scale_, update)

/* ---- products ---- */
static __global__ void fp8_rows_kernel(const __grid_constant__ matrix8 m, uint8_t *y,
                                       uint16_t *wide) {
  for (int64_t i = aci_first(); i < m.rows * m.cols; i += aci_step()) {
    const uint8_t b = m.p[i / m.cols * m.rs + i % m.cols * m.cs];
    if (y != NULL) y[i] = b;
    else wide[i] = aci_bf16_bits(m.e5m2 ? aci_e5m2_value(b) : aci_e4m3_value(b));
  }
}
static __global__ void fp8_finish_kernel(const float *sums, const float *sx, const float *so,
                                         const void *bias, ac_dtype bias_dt, int64_t bias_stride,
                                         int64_t n, int64_t numel, ac_dtype dt, void *y) {
  const float scale = sx == NULL ? 1 : *sx * *so;
  for (int64_t i = aci_first(); i < numel; i += aci_step())
    aci_put(dt, y, i,
            sums[i] * scale +
                (bias == NULL ? 0 : aci_get<float>(bias_dt, bias, i % n * bias_stride)));
}

/* m's elements row after row in scratch, as they are or as bf16. */
static ac_status rows_of(ac_frame *f, const matrix8 &m, bool wide, ac_block **block, void **p,
                         ac_err *e) {
  AC_TRY(aci_workspace(f, (size_t)(m.rows * m.cols) * (wide ? 2 : 1), block, p, e));
  return aci_launch(f, "fp8_rows", fp8_rows_kernel, aci_blocks(f->device, m.rows * m.cols), e, m,
                    wide ? (uint8_t *)NULL : (uint8_t *)*p,
                    wide ? (uint16_t *)*p : (uint16_t *)NULL);
}

struct product8 {
  ac_frame *f;
  matrix8 x, o; /* o: the other's transpose, (n, k) */
  const float *sx, *so;
  const ac_tensor *bias;
  ac_tensor *y;
};

static ac_status finish(const product8 &j, const float *sums, bool scales, ac_err *e) {
  const ac_tensor *b = j.bias;
  return aci_launch(j.f, "fp8_finish", fp8_finish_kernel, aci_blocks(j.f->device, j.y->numel), e,
                    sums, scales ? j.sx : (const float *)NULL, j.so,
                    b != NULL ? (const void *)aci_data(b) : (const void *)NULL,
                    b != NULL ? (ac_dtype)b->dtype : AC_F32, b != NULL ? b->stride[0] : (int64_t)0,
                    j.o.rows, j.y->numel, (ac_dtype)j.y->dtype, (void *)aci_data(j.y));
}

/* By cuBLASLt. UNSUPPORTED, without a message, if it cannot. A bias is added in its epilogue if it
 * has the dtype of the result. */
static ac_status by_library(const product8 &j, ac_err *e) {
  ac_frame *f = j.f;
  aci_product p = {};
  ac_block *bx = NULL, *bo = NULL, *sums = NULL;
  void *x = (void *)j.x.p, *o = (void *)j.o.p, *c = aci_data(j.y);
  if (j.x.cols % 16 != 0 || j.o.rows % 16 != 0 || (j.x.e5m2 && j.o.e5m2)) return AC_UNSUPPORTED;
  const bool in_epilogue = j.bias != NULL && j.bias->dtype == j.y->dtype && j.y->dtype != AC_F32 &&
                           j.bias->stride[0] == 1;
  const bool apart = j.bias != NULL && !in_epilogue;
  ac_status st = AC_OK;
  if (j.x.cs != 1 || j.x.rs % 16 != 0 || (uintptr_t)x % 16 != 0)
    st = rows_of(f, j.x, false, &bx, &x, e);
  if (st == AC_OK && (j.o.cs != 1 || j.o.rs % 16 != 0 || (uintptr_t)o % 16 != 0))
    st = rows_of(f, j.o, false, &bo, &o, e);
  if (st == AC_OK && apart) st = aci_workspace(f, (size_t)j.y->numel * 4, &sums, &c, e);
  if (st == AC_OK) {
    p.dtype = apart ? AC_F32 : (ac_dtype)j.y->dtype;
    p.m = j.x.rows;
    p.n = j.o.rows;
    p.k = j.x.cols;
    p.a = x;
    p.b = o;
    p.c = c;
    p.a_rs = bx != NULL ? p.k : j.x.rs;
    p.a_cs = 1;
    p.b_rs = 1;
    p.b_cs = bo != NULL ? p.k : j.o.rs;
    p.alpha = 1;
    p.a_scale = j.sx;
    p.b_scale = j.so;
    p.a_f8 = j.x.e5m2 ? AC_F8_E5M2 : AC_F8_E4M3;
    p.b_f8 = j.o.e5m2 ? AC_F8_E5M2 : AC_F8_E4M3;
    if (in_epilogue) {
      p.bias = aci_data(j.bias);
      p.bias_dtype = (ac_dtype)j.bias->dtype;
    }
    st = aci_cuda_product_lt(f, &p, e);
  }
  if (st == AC_OK && apart) st = finish(j, (const float *)c, false, e);
  ac_block_free(sums);
  ac_block_free(bo);
  ac_block_free(bx);
  return st;
}

static ac_status by_bf16(const product8 &j, ac_err *e) {
  ac_frame *f = j.f;
  aci_product p = {};
  ac_block *bx = NULL, *bo = NULL, *sums = NULL;
  void *x, *o, *c;
  ac_status st = rows_of(f, j.x, true, &bx, &x, e);
  if (st == AC_OK) st = rows_of(f, j.o, true, &bo, &o, e);
  if (st == AC_OK) st = aci_workspace(f, (size_t)j.y->numel * 4, &sums, &c, e);
  if (st == AC_OK) {
    p.dtype = AC_BF16;
    p.wide = true;
    p.m = j.x.rows;
    p.n = j.o.rows;
    p.k = j.x.cols;
    p.a = x;
    p.b = o;
    p.c = c;
    p.a_rs = p.k;
    p.a_cs = 1;
    p.b_rs = 1;
    p.b_cs = p.k;
    p.alpha = 1;
    st = aci_cuda_product(f, &p, e);
  }
  if (st == AC_OK) st = finish(j, (const float *)c, true, e);
  ac_block_free(sums);
  ac_block_free(bo);
  ac_block_free(bx);
  return st;
}

static ac_status multiply(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *o = f->args[1].tensor;
  product8 j = {};
  if (f->out[0]->numel == 0) return AC_OK;
  j.f = f;
  j.x = {(const uint8_t *)aci_data(x), x->shape[0], x->shape[1], x->stride[0], x->stride[1],
         x->dtype == AC_F8_E5M2};
  j.o = {(const uint8_t *)aci_data(o), o->shape[1], o->shape[0], o->stride[1], o->stride[0],
         o->dtype == AC_F8_E5M2};
  j.sx = (const float *)aci_data(f->args[2].tensor);
  j.so = (const float *)aci_data(f->args[3].tensor);
  j.bias = f->args[4].kind == AC_T_NONE ? NULL : f->args[4].tensor;
  j.y = f->out[0];
  if (x->shape[1] > 0) {
    const ac_status st = by_library(j, e);
    if (st != AC_UNSUPPORTED) return st;
  }
  return by_bf16(j, e);
}
AC_KERNEL(cuda, scaled_mm, multiply)
