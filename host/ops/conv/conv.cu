/* Convolutions, their gradients and transposed convolutions on CUDA: reads the call, lays operands out in runs, and chooses: cuDNN where it
 * is installed, kernels for few channels, the tiles of conv_gemm.cu. */
#include "ops/conv/conv.cuh"

#include "ops/cuda/launch.cuh"
#include "ops/index/boxes.cuh"

/* operand: of k.a, k.b and bias, arguments of the frame; bias -1: none. */
static ac_status run(ac_frame *f, aci_conv_call k, int a, int b, int bias, ac_err *e) {
  const ac_tensor *y = f->out[0];
  const int arg[3] = {a, b, bias};
  const void *data[3] = {NULL, NULL, NULL};
  ac_block *block[3] = {NULL, NULL, NULL};
  ac_status st = AC_OK;
  if (y->numel == 0) return AC_OK;
  for (int i = 0; i < 3 && st == AC_OK; i++)
    if (arg[i] >= 0 && f->args[arg[i]].kind == AC_T_TENSOR)
      st = aci_cuda_contiguous(f, f->args[arg[i]].tensor, &data[i], &block[i], e);
  k.dt = (ac_dtype)y->dtype;
  k.a = data[0], k.b = data[1], k.bias = data[2];
  k.y = aci_data(y);
  k.numel = y->numel;
  k.plane = aci_conv_volume(k.kind == ACI_CONV_INPUT ? k.c.in : k.c.out);
  if (st == AC_OK) st = aci_cuda_conv_dnn(f, &k, e);
  if (st == AC_UNSUPPORTED)
    st = aci_cuda_conv_is_direct(&k) ? aci_cuda_conv_direct(f, &k, e) : aci_cuda_conv_gemm(f, &k, e);
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
  const aci_conv_operands o = {dx->shape, w->shape, dy->shape, dx->ndim, w->ndim, dy->ndim, 3, 5, 6};
  aci_conv_call k = {ACI_CONV_INPUT};
  AC_TRY(aci_conv_describe(f, &o, &k.c, e));
  return run(f, k, 0, 1, -1, e);
}
/* (dy, x, size, stride, padding, dilation, groups) */
static ac_status backward_weight(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor, *x = f->args[1].tensor, *dw = f->out[0];
  const aci_conv_operands o = {x->shape, dw->shape, dy->shape, x->ndim, dw->ndim, dy->ndim, 3, 5, 6};
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
