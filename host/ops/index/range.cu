/* Ranges copied on CUDA (range.cuh): contiguous ones by the driver's copy, others by one thread per
 * element. Called by the kernels of cat, slices and views through the context's table of
 * drivers. */
#include "ops/index/range.cuh"

#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

struct range_args {
  aci_range dst, src;
  int64_t n, shape[AC_MAX_DIMS];
  int ndim;
  bool zero;
};

/* Same dtype: the bits. */
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    range_bits(const __grid_constant__ range_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step())
    ((S *)a.dst.ptr)[aci_element_offset(i, a.ndim, a.shape, a.dst.stride)] =
        a.zero ? (S)0
               : ((const S *)a.src.ptr)[aci_element_offset(i, a.ndim, a.shape, a.src.stride)];
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    range_cast(const __grid_constant__ range_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step())
    aci_put(
        a.dst.dtype, a.dst.ptr, aci_element_offset(i, a.ndim, a.shape, a.dst.stride),
        aci_get<C>(a.src.dtype, a.src.ptr, aci_element_offset(i, a.ndim, a.shape, a.src.stride)));
}

ac_status aci_cuda_copy_range(ac_frame *f, int ndim, const int64_t *shape, const aci_range *dst,
                              const aci_range *src, ac_err *e) {
  range_args a = {};
  int w = -1;
  a.dst = *dst;
  a.zero = src == NULL;
  if (!a.zero) a.src = *src;
  a.n = 1;
  for (int d = 0; d < ndim; d++) a.n *= shape[d];
  if (a.n == 0) return AC_OK;
  for (int d = 0; d < ndim; d++) { /* drop extents of 1, join dims that both sides walk as one */
    if (shape[d] == 1) continue;
    const int64_t ds = dst->stride[d], ss = a.zero ? 0 : src->stride[d];
    if (w >= 0 && a.dst.stride[w] == ds * shape[d] && (a.zero || a.src.stride[w] == ss * shape[d]))
      a.shape[w] *= shape[d];
    else a.shape[++w] = shape[d];
    a.dst.stride[w] = ds;
    a.src.stride[w] = ss;
  }
  if (w < 0) {
    w = 0;
    a.shape[0] = a.dst.stride[0] = a.src.stride[0] = 1;
  }
  a.ndim = w + 1;
  const ac_dtype to = dst->dtype, from = a.zero ? to : src->dtype;
  const size_t size = aci_dsize(to);
  if (w == 0 && a.dst.stride[0] == 1 && a.zero)
    return f->device->vt->fill(f->device, f->stream, dst->ptr, 0, (size_t)a.n * size, e);
  if (w == 0 && a.dst.stride[0] == 1 && to == from && a.src.stride[0] == 1)
    return f->device->vt->copy(f->device, f->stream, dst->ptr, src->ptr, (size_t)a.n * size, e);
  const unsigned blocks = aci_blocks(f->device, a.n);
  if (to == from) {
    if (size == 1) return aci_launch(f, "copy_range", range_bits<uint8_t>, blocks, e, a);
    if (size == 2) return aci_launch(f, "copy_range", range_bits<uint16_t>, blocks, e, a);
    if (size == 4) return aci_launch(f, "copy_range", range_bits<uint32_t>, blocks, e, a);
    return aci_launch(f, "copy_range", range_bits<uint64_t>, blocks, e, a);
  }
  const bool ft = ac_dtype_is_float(to), ff = ac_dtype_is_float(from);
  if (to == AC_F64 || from == AC_F64 || ft != ff)
    return aci_launch(f, "copy_range (cast)", range_cast<double>, blocks, e, a);
  if (ft) return aci_launch(f, "copy_range (cast)", range_cast<float>, blocks, e, a);
  return aci_launch(f, "copy_range (cast)", range_cast<int64_t>, blocks, e, a);
}

ac_status aci_cuda_copy_tensor(ac_frame *f, const ac_tensor *y, const ac_tensor *x, ac_err *e) {
  aci_range dst = {}, src = {};
  dst.ptr = aci_data(y);
  dst.dtype = (ac_dtype)y->dtype;
  src.ptr = aci_data(x);
  src.dtype = (ac_dtype)x->dtype;
  memcpy(dst.stride, y->stride, 8 * (size_t)y->ndim);
  memcpy(src.stride, x->stride, 8 * (size_t)x->ndim);
  return aci_cuda_copy_range(f, y->ndim, y->shape, &dst, &src, e);
}

ac_status aci_cuda_in_a_run(ac_frame *f, const ac_tensor *t, const void **data, ac_block **block,
                            ac_err *e) {
  *block = NULL;
  *data = aci_data(t);
  if (aci_is_contiguous(t) || t->numel == 0) return AC_OK;
  AC_TRY(ac_block_alloc(f->device, (size_t)t->numel * aci_dsize((ac_dtype)t->dtype),
                        AC_MEM_ACTIVATION, f->stream, block, e));
  aci_range dst = {}, src = {};
  *data = dst.ptr = (*block)->ptr;
  src.ptr = aci_data(t);
  dst.dtype = src.dtype = (ac_dtype)t->dtype;
  int64_t step = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    dst.stride[d] = step;
    step *= t->shape[d];
    src.stride[d] = t->stride[d];
  }
  return aci_cuda_copy_range(f, t->ndim, t->shape, &dst, &src, e);
}

ac_status aci_cuda_aligned(ac_frame *f, const void **p, int64_t n, ac_dtype dt, ac_block **block,
                           ac_err *e) {
  *block = NULL;
  if ((uintptr_t)*p % 16 == 0) return AC_OK;
  const size_t bytes = (size_t)n * aci_dsize(dt);
  AC_TRY(ac_block_alloc(f->device, bytes, AC_MEM_ACTIVATION, f->stream, block, e));
  AC_TRY(f->device->vt->copy(f->device, f->stream, (*block)->ptr, *p, bytes, e));
  *p = (*block)->ptr;
  return AC_OK;
}
