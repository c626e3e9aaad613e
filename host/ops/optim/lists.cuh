/* Lists of tensors on CUDA: optimizer formulas walk several tensors in one launch, so that a
 * model's hundreds of parameters cost a few launches. Tables of tensors travel as kernel parameters
 * (4 KiB), LIST_MOST tensors at a time: no copy, nothing to keep alive. */
#ifndef ACI_OPS_LISTS_CUH
#define ACI_OPS_LISTS_CUH
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

enum { ACI_LIST_LISTS = 5, ACI_LIST_MOST = 40, ACI_LIST_PIECE = 4 * 1024 };

/* Tensor i of every list, elements in runs of ACI_LIST_PIECE. */
struct aci_list_batch {
  void *ptr[ACI_LIST_LISTS][ACI_LIST_MOST]; /* NULL: the list is missing */
  unsigned char dt[ACI_LIST_LISTS][ACI_LIST_MOST];
  int64_t n[ACI_LIST_MOST];
  double scale[ACI_LIST_MOST];        /* a number that each tensor may have */
  int first_piece[ACI_LIST_MOST + 1]; /* pieces of the tensors before */
  /* four elements of any list lie at a multiple of their size */
  bool fours[ACI_LIST_MOST];
  int tensors;
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

/* Four elements at once. i is a multiple of 4. */
template <class C> ACI_DEVICE void aci_list_get4(ac_dtype dt, const void *p, int64_t i, C *v) {
  switch (dt) {
#define ACI_LIST_GET4(D)                                                                        \
  case AC_##D: {                                                                                \
    typedef aci_element<AC_##D> E;                                                              \
    const aci_vector<E::bits, 4> x = *(const aci_vector<E::bits, 4> *)((const E::bits *)p + i); \
    for (int j = 0; j < 4; j++) v[j] = E::load<C>(x.v[j]);                                      \
  } break;
    ACI_LIST_GET4(F32)
    ACI_LIST_GET4(BF16)
    ACI_LIST_GET4(F16)
    ACI_LIST_GET4(F64)
#undef ACI_LIST_GET4
    default: break;
  }
}
template <class C> ACI_DEVICE void aci_list_put4(ac_dtype dt, void *p, int64_t i, const C *v) {
  switch (dt) {
#define ACI_LIST_PUT4(D)                                 \
  case AC_##D: {                                         \
    typedef aci_element<AC_##D> E;                       \
    aci_vector<E::bits, 4> x;                            \
    for (int j = 0; j < 4; j++) x.v[j] = E::store(v[j]); \
    *(aci_vector<E::bits, 4> *)((E::bits *)p + i) = x;   \
  } break;
    ACI_LIST_PUT4(F32)
    ACI_LIST_PUT4(BF16)
    ACI_LIST_PUT4(F16)
    ACI_LIST_PUT4(F64)
#undef ACI_LIST_PUT4
    default: break;
  }
}

/* F::prepare(): once a thread, before its elements. False: there is nothing to do. f.element(v, b,
 * t): v[k] is the element of list k, of tensor t of the batch. The new values of the lists in
 * `writes` are stored. */
template <class C, class F>
__global__ void __launch_bounds__(ACI_BLOCK)
    aci_list_kernel(const __grid_constant__ aci_list_batch b, unsigned writes, F f) {
  enum { N = F::LISTS };
  if (!f.prepare()) return;
  for (int piece = (int)blockIdx.x; piece < b.first_piece[b.tensors]; piece += (int)gridDim.x) {
    const int t = aci_list_tensor(b, piece);
    const int64_t begin = (int64_t)(piece - b.first_piece[t]) * ACI_LIST_PIECE;
    const int64_t end = begin + ACI_LIST_PIECE < b.n[t] ? begin + ACI_LIST_PIECE : b.n[t];
    const int64_t fours = b.fours[t] ? end - (end - begin) % 4 : begin;
    for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < fours; i += 4 * (int64_t)blockDim.x) {
      C x[N][4] = {};
#pragma unroll
      for (int k = 0; k < N; k++)
        if (b.ptr[k][t] != NULL) aci_list_get4((ac_dtype)b.dt[k][t], b.ptr[k][t], i, x[k]);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        C v[N];
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = x[k][j];
        f.element(v, b, t);
#pragma unroll
        for (int k = 0; k < N; k++) x[k][j] = v[k];
      }
#pragma unroll
      for (int k = 0; k < N; k++)
        if ((writes >> k & 1) && b.ptr[k][t] != NULL)
          aci_list_put4((ac_dtype)b.dt[k][t], b.ptr[k][t], i, x[k]);
    }
    /* elements outside groups of four */
    for (int64_t i = fours + threadIdx.x; i < end; i += blockDim.x) {
      C v[N];
#pragma unroll
      for (int k = 0; k < N; k++)
        v[k] = b.ptr[k][t] != NULL ? aci_get<C>((ac_dtype)b.dt[k][t], b.ptr[k][t], i) : (C)0;
      f.element(v, b, t);
#pragma unroll
      for (int k = 0; k < N; k++)
        if ((writes >> k & 1) && b.ptr[k][t] != NULL)
          aci_put((ac_dtype)b.dt[k][t], b.ptr[k][t], i, v[k]);
    }
  }
}

/* Lists of a call. Tensors that do not lie in one run are worked on as copies, which go back when
 * all is done. */
struct aci_lists {
  ac_frame *f;
  int n, n_lists;
  ac_tensor *const *list[ACI_LIST_LISTS]; /* NULL: missing */
  const double *scale;                    /* by tensor. NULL: 1 */
  /* `front` bytes, then the copies. NULL: neither is needed */
  ac_block *room;
  size_t front;
};
/* Allocates all memory that the call needs, so that nothing has been written when there is none.
 * Then makes the copies. */
ac_status aci_lists_open(aci_lists *l, size_t front, ac_err *e);
/* The working address of tensor i of list k. *at as in aci_lists_batch. */
void *aci_lists_data(const aci_lists *l, int k, int i, size_t *at);
/* The next tensors from *i and, of the copies, *at on (0 at first), of one width. */
void aci_lists_batch(const aci_lists *l, int *i, size_t *at, aci_list_batch *b);
/* Copies of the lists in `writes` go back. */
ac_status aci_lists_back(const aci_lists *l, unsigned writes, ac_err *e);

/* Runs formula F<float> or F<double>, made by make(C()), over all tensors. */
template <template <class> class F, class Make>
ac_status aci_lists_run(const aci_lists *l, const char *name, unsigned writes, Make make,
                        ac_err *e) {
  size_t at = 0;
  for (int i = 0; i < l->n;) {
    aci_list_batch b;
    aci_lists_batch(l, &i, &at, &b);
    const unsigned blocks = aci_blocks(l->f->device, b.first_piece[b.tensors], 1);
    if (b.wide)
      AC_TRY((aci_launch(l->f, name, aci_list_kernel<double, F<double>>, blocks, e, b, writes,
                         make(double()))));
    else
      AC_TRY((aci_launch(l->f, name, aci_list_kernel<float, F<float>>, blocks, e, b, writes,
                         make(float()))));
  }
  return aci_lists_back(l, writes, e);
}

/* The same over one list of the call. */
template <template <class> class F, class Make>
ac_status aci_list_launch(ac_frame *f, const char *name, const ac_value *list, Make make,
                          ac_err *e) {
  aci_lists l = {f, list->n, 1, {list->tensors}};
  AC_TRY(aci_lists_open(&l, 0, e));
  const ac_status st = aci_lists_run<F>(&l, name, 1u, make, e);
  ac_block_free(l.room); /* the next user works after us in the same order */
  return st;
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
