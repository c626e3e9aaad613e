/* Lists of tensors on CUDA: optimizer formulas walk several tensors in one launch, so that a model's hundreds of parameters cost a few
 * launches. Tables of tensors travel as kernel parameters (4 KiB), LIST_MOST tensors at a time: no copy, nothing to keep alive. */
#ifndef ACI_OPS_LISTS_CUH
#define ACI_OPS_LISTS_CUH
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

enum { ACI_LIST_LISTS = 5, ACI_LIST_MOST = 40, ACI_LIST_PIECE = 4 * 1024 };

/* Tensor i of every list, elements in runs of ACI_LIST_PIECE. */
struct aci_list_batch {
  void *ptr[ACI_LIST_LISTS][ACI_LIST_MOST];
  unsigned char dt[ACI_LIST_LISTS][ACI_LIST_MOST];
  int64_t n[ACI_LIST_MOST];
  int first_piece[ACI_LIST_MOST + 1]; /* pieces of the tensors before */
  int tensors, lists;
  bool wide; /* any list is f64: all is computed in it */
};

/* The tensor that a piece belongs to. */
ACI_DEVICE int aci_list_tensor(const aci_list_batch &b, int piece) {
  int lo = 0, hi = b.tensors;
  while (hi - lo > 1) {
    const int mid = (lo + hi) / 2;
    if (b.first_piece[mid] <= piece) lo = mid;
    else hi = mid;
  }
  return lo;
}

/* F::prepare(): once a block, before its elements. f.element(v): v[k] is the element of list k; what the lists in `writes` became is
 * stored. */
template <class C, class F>
__global__ void __launch_bounds__(ACI_BLOCK)
    aci_list_kernel(const __grid_constant__ aci_list_batch b, unsigned writes, F f) {
  f.prepare();
  for (int piece = (int)blockIdx.x; piece < b.first_piece[b.tensors]; piece += (int)gridDim.x) {
    const int t = aci_list_tensor(b, piece);
    const int64_t begin = (int64_t)(piece - b.first_piece[t]) * ACI_LIST_PIECE;
    const int64_t end = begin + ACI_LIST_PIECE < b.n[t] ? begin + ACI_LIST_PIECE : b.n[t];
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
      C v[ACI_LIST_LISTS];
#pragma unroll
      for (int k = 0; k < F::LISTS; k++)
        v[k] = b.ptr[k][t] != NULL ? aci_get<C>((ac_dtype)b.dt[k][t], b.ptr[k][t], i) : (C)0;
      f.element(v, (ac_dtype)b.dt[0][t]);
#pragma unroll
      for (int k = 0; k < F::LISTS; k++)
        if ((writes >> k & 1) && b.ptr[k][t] != NULL) aci_put((ac_dtype)b.dt[k][t], b.ptr[k][t], i, v[k]);
    }
  }
}

/* Runs formula F<float> or F<double>, made by make(C()), over n tensors of each list (NULL: none). Tensors are contiguous. */
template <template <class> class F, class Make>
ac_status aci_list_launch(ac_frame *f, const char *name, int n, ac_tensor *const *const *lists, int n_lists,
                          unsigned writes, Make make, ac_err *e) {
  for (int i = 0; i < n;) {
    aci_list_batch b = {};
    b.lists = n_lists;
    b.wide = false;
    /* one width a launch: a tensor of the other width ends the batch */
    for (; i < n && b.tensors < ACI_LIST_MOST; i++) {
      bool wide = false;
      for (int k = 0; k < n_lists; k++) {
        if (lists[k] == NULL) continue;
        wide = wide || lists[k][i]->dtype == AC_F64;
        if (!aci_is_contiguous(lists[k][i]))
          return AC_FAIL(e, UNSUPPORTED,
                         "unsupported on device %s: tensors of a list that are not contiguous",
                         f->device->name);
      }
      if (b.tensors > 0 && wide != b.wide) break;
      b.wide = wide;
      const int t = b.tensors++;
      for (int k = 0; k < n_lists; k++) {
        if (lists[k] == NULL) continue;
        b.ptr[k][t] = aci_data(lists[k][i]);
        b.dt[k][t] = lists[k][i]->dtype;
      }
      b.n[t] = lists[0][i]->numel;
      b.first_piece[t + 1] = b.first_piece[t] + (int)((b.n[t] + ACI_LIST_PIECE - 1) / ACI_LIST_PIECE);
    }
    const unsigned blocks = aci_blocks(f->device, b.first_piece[b.tensors], 1);
    if (b.wide)
      AC_TRY((aci_launch(f, name, aci_list_kernel<double, F<double>>, blocks, e, b, writes, make(double()))));
    else AC_TRY((aci_launch(f, name, aci_list_kernel<float, F<float>>, blocks, e, b, writes, make(float()))));
  }
  return AC_OK;
}

/* A number that lives on the device: learning rate, step count, loss scale. */
struct aci_number {
  void *ptr;
  ac_dtype dt;
  __device__ __forceinline__ double get() const { return aci_get<double>(dt, ptr, 0); }
  __device__ __forceinline__ void set(double v) const { aci_put(dt, ptr, 0, v); }
};
static inline aci_number aci_number_of(const ac_tensor *t) {
  aci_number n = {aci_data(t), (ac_dtype)t->dtype};
  return n;
}

#endif
