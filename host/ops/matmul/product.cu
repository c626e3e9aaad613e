/* Matrix products on CUDA: cuBLASLt for floats that have one of its layouts, tiles of our own for
 * everything else - integers, any strides - and if cuBLASLt is not installed. The tiles are simple:
 * products that matter go through cuBLASLt. */
#include "ops/matmul/product.cuh"

#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

#ifdef ACI_CUDA_EMULATED
enum { TILE = 8 };
#else
enum { TILE = 16 };
#endif

struct product_args {
  aci_product p;
  int64_t n_batch;
};

/* A TILE x TILE piece of C per block. k goes in steps of TILE through shared memory, added in
 * order. ACC: f32 for floats up to 32 bits, f64, i64. */
template <class ACC>
static __global__ void __launch_bounds__(TILE *TILE)
    product_tiles(const __grid_constant__ product_args a) {
  __shared__ ACC left[TILE][TILE + 1], right[TILE][TILE + 1];
  const aci_product &p = a.p;
  const int row = (int)threadIdx.x / TILE, col = (int)threadIdx.x % TILE;
  const int64_t mt = (p.m + TILE - 1) / TILE, nt = (p.n + TILE - 1) / TILE;
  for (int64_t t = blockIdx.x; t < a.n_batch * mt * nt; t += gridDim.x) {
    const int64_t b = t / (mt * nt), i = t / nt % mt * TILE + row, j = t % nt * TILE + col;
    const int64_t ao =
        p.n_batch_dims > 0 ? aci_element_offset(b, p.n_batch_dims, p.batch, p.a_batch) : 0;
    const int64_t bo =
        p.n_batch_dims > 0 ? aci_element_offset(b, p.n_batch_dims, p.batch, p.b_batch) : 0;
    ACC sum = 0;
    for (int64_t k = 0; k < p.k; k += TILE) {
      left[row][col] = i < p.m && k + col < p.k
                           ? aci_get<ACC>(p.dtype, p.a, ao + i * p.a_rs + (k + col) * p.a_cs)
                           : (ACC)0;
      right[row][col] = j < p.n && k + row < p.k
                            ? aci_get<ACC>(p.dtype, p.b, bo + (k + row) * p.b_rs + j * p.b_cs)
                            : (ACC)0;
      __syncthreads();
      for (int s = 0; s < TILE; s++) sum += left[row][s] * right[s][col];
      __syncthreads();
    }
    if (i >= p.m || j >= p.n) continue;
    const int64_t at = (b * p.m + i) * p.n + j;
    const ac_dtype c = p.wide ? AC_F32 : p.dtype;
    sum = (ACC)p.alpha * sum;
    if (p.beta != 0) sum += (ACC)p.beta * aci_get<ACC>(c, p.c, at);
    if (p.bias != NULL) sum += aci_get<ACC>(p.bias_dtype, p.bias, j);
    aci_put(c, p.c, at, sum);
  }
}

ac_status aci_cuda_product(ac_frame *f, const aci_product *p, ac_err *e) {
  product_args a;
  if (p->k > 0 && ac_dtype_is_float(p->dtype)) {
    const ac_status st = aci_cuda_product_lt(f, p, e);
    if (st != AC_UNSUPPORTED) return st;
  }
  if (p->epilogue != ACI_EPILOGUE_NONE) return AC_UNSUPPORTED;
  a.p = *p;
  a.n_batch = 1;
  for (int d = 0; d < p->n_batch_dims; d++) a.n_batch *= p->batch[d];
  const int64_t tiles = a.n_batch * ((p->m + TILE - 1) / TILE) * ((p->n + TILE - 1) / TILE);
  const aci_shape_of_launch shape(dim3(aci_blocks(f->device, tiles, 1)), dim3(TILE * TILE));
  if (p->dtype == AC_F64) return aci_launch(f, "product", product_tiles<double>, shape, e, a);
  if (ac_dtype_is_float(p->dtype))
    return aci_launch(f, "product", product_tiles<float>, shape, e, a);
  return aci_launch(f, "product", product_tiles<int64_t>, shape, e, a);
}
