/* Convolutions, their gradients and transposed convolutions on CUDA. Reads the call, lays operands
 * out in runs, and chooses cuDNN if installed, products of matrices, kernels for few channels, or
 * the tiles of conv_gemm.cu. */
#include "ops/conv/conv.cuh"

#include "ops/cuda/launch.cuh"
#include "ops/index/range.cuh"
#include "ops/matmul/product.cuh"

/* y := bias of its channel, bit for bit. */
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    bias_kernel(S *y, const S *bias, int64_t n, int64_t plane, int64_t channels) {
  for (int64_t i = aci_first(); i < n; i += aci_step()) y[i] = bias[i / plane % channels];
}
ac_status aci_cuda_conv_bias(ac_frame *f, const aci_conv_call *k, ac_err *e) {
  const unsigned blocks = aci_blocks(f->device, k->numel);
  const int64_t channels = k->c.groups * (k->kind == ACI_CONV_INPUT ? k->c.ci : k->c.co);
  const size_t size = aci_dsize(k->dt);
#define BIAS(S)                                                                             \
  aci_launch(f, "bias", bias_kernel<S>, blocks, e, (S *)k->y, (const S *)k->bias, k->numel, \
             k->plane, channels)
  return size == 2 ? BIAS(uint16_t) : size == 4 ? BIAS(uint32_t) : BIAS(uint64_t);
#undef BIAS
}

#ifdef ACI_CUDA_EMULATED
#define ACI_CONV_PRODUCT aci_cuda_product /* the twin has no cuBLASLt, and the tiles in its place */
#else
#define ACI_CONV_PRODUCT aci_cuda_product_lt
#endif
/* A kernel of one tap over every position is a product per image, y = w x or dx = w^T dy, which
 * cuBLASLt has tensor cores for. UNSUPPORTED, without a message, for other convolutions or without
 * cuBLASLt. */
static ac_status pointwise(ac_frame *f, const aci_conv_call *k, ac_err *e) {
  const aci_conv &c = k->c;
  const bool back = k->kind == ACI_CONV_INPUT;
  if (k->kind == ACI_CONV_WEIGHT || c.groups != 1 || c.ci < 1 || c.co < 1) return AC_UNSUPPORTED;
  for (int d = 0; d < 3; d++)
    if (c.k[d] != 1 || c.stride[d] != 1 || c.pad[d] != 0 || c.in[d] != c.out[d])
      return AC_UNSUPPORTED;
  aci_product p = {};
  p.dtype = p.bias_dtype = k->dt;
  p.m = back ? c.ci : c.co;
  p.k = back ? c.co : c.ci;
  p.n = k->plane;
  p.n_batch_dims = 1;
  p.batch[0] = c.n;
  p.a = k->b; /* the weight (co, ci), the same for all images */
  p.a_rs = back ? 1 : c.ci;
  p.a_cs = back ? c.ci : 1;
  p.b = k->a;
  p.b_batch[0] = p.k * p.n;
  p.b_rs = p.n;
  p.b_cs = 1;
  p.c = k->y;
  p.alpha = 1;
  p.beta = k->bias != NULL ? 1 : 0; /* the bias is there first, so that there is one rounding */
  if (k->bias != NULL) AC_TRY(aci_cuda_conv_bias(f, k, e));
  return ACI_CONV_PRODUCT(f, &p, e);
}

/* operand: of k.a, k.b and bias, arguments of the frame. bias -1: none. */
static ac_status run(ac_frame *f, aci_conv_call k, int a, int b, int bias, ac_err *e) {
  const ac_tensor *y = f->out[0];
  const int arg[3] = {a, b, bias};
  const void *data[3] = {NULL, NULL, NULL};
  ac_block *block[3] = {NULL, NULL, NULL};
  ac_status st = AC_OK;
  if (y->numel == 0) return AC_OK;
  for (int i = 0; i < 3 && st == AC_OK; i++)
    if (arg[i] >= 0 && f->args[arg[i]].kind == AC_T_TENSOR)
      st = aci_cuda_in_a_run(f, f->args[arg[i]].tensor, &data[i], &block[i], e);
  k.dt = (ac_dtype)y->dtype;
  k.a = data[0], k.b = data[1], k.bias = data[2];
  k.y = aci_data(y);
  k.numel = y->numel;
  k.plane = aci_conv_volume(k.kind == ACI_CONV_INPUT ? k.c.in : k.c.out);
  if (st == AC_OK) st = aci_cuda_conv_dnn(f, &k, e);
  if (st == AC_UNSUPPORTED) st = pointwise(f, &k, e);
  if (st == AC_UNSUPPORTED)
    st =
        aci_cuda_conv_is_direct(&k) ? aci_cuda_conv_direct(f, &k, e) : aci_cuda_conv_gemm(f, &k, e);
  for (int i = 0; i < 3; i++) ac_block_free(block[i]);
  return st;
}

/* (x, weight, bias, stride, padding, dilation, groups) */
static ac_status forward(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *w = f->args[1].tensor, *y = f->out[0];
  const aci_conv_operands o = {x->shape, w->shape, y->shape, x->ndim, w->ndim, y->ndim, 3, 5, 6};
  aci_conv_call k = {ACI_CONV_FORWARD};
  AC_TRY(aci_conv_describe(f, &o, &k.c, e));
  return run(f, k, 0, 1, 2, e);
}
/* (x, weight, bias, stride, padding, output_padding, groups, dilation) */
static ac_status transposed(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *w = f->args[1].tensor, *y = f->out[0];
  const aci_conv_operands o = {y->shape, w->shape, x->shape, y->ndim, w->ndim, x->ndim, 3, 7, 6};
  aci_conv_call k = {ACI_CONV_INPUT};
  AC_TRY(aci_conv_describe(f, &o, &k.c, e));
  return run(f, k, 0, 1, 2, e);
}
/* (dy, weight, size, stride, padding, dilation, groups) */
static ac_status backward_input(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor, *w = f->args[1].tensor, *dx = f->out[0];
  const aci_conv_operands o = {dx->shape, w->shape, dy->shape, dx->ndim, w->ndim,
                               dy->ndim,  3,        5,         6};
  aci_conv_call k = {ACI_CONV_INPUT};
  AC_TRY(aci_conv_describe(f, &o, &k.c, e));
  return run(f, k, 0, 1, -1, e);
}
/* (dy, x, size, stride, padding, dilation, groups) */
static ac_status backward_weight(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor, *x = f->args[1].tensor, *dw = f->out[0];
  const aci_conv_operands o = {x->shape, dw->shape, dy->shape, x->ndim, dw->ndim,
                               dy->ndim, 3,         5,         6};
  aci_conv_call k = {ACI_CONV_WEIGHT};
  AC_TRY(aci_conv_describe(f, &o, &k.c, e));
  return run(f, k, 0, 1, -1, e);
}
AC_KERNEL(cuda, conv1d, forward)
AC_KERNEL(cuda, conv2d, forward)
AC_KERNEL(cuda, conv3d, forward)
AC_KERNEL(cuda, conv_transpose1d, transposed)
AC_KERNEL(cuda, conv_transpose2d, transposed)
AC_KERNEL(cuda, conv_transpose3d, transposed)
AC_KERNEL(cuda, conv_backward_input, backward_input)
AC_KERNEL(cuda, conv_backward_weight, backward_weight)
