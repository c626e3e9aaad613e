/* The twin's stand-in for cuDNN (CUDA_TWIN_CUDNN names its file): the calls of ops/conv/dnn.h by plain loops over the twin's memory, and
 * everything that the real library would refuse or do wrong with is refused: descriptors that do not belong together, strides that are not
 * in one run, an algorithm whose workspace is not there, a handle without a stream, memory that begins at no multiple of 16. Its heuristic
 * names what must not be taken first: an algorithm that is not deterministic, one with a huge workspace, one that rounds.
 * CUDA_TWIN_CUDNN_LOG: a file that gets a line a convolution. CUDA_TWIN_CUDNN_REFUSE=1: executions say "not supported", and the line that they were
 * refused. */
#include "cuda_runtime.h"

#include "base/vmath.h"
#include "ops/conv/dnn.h"

#include <stdio.h>

#include <vector>

#define STATUS(fail) ((fail) ? 2000 : 0) /* CUDNN_STATUS_BAD_PARAM */
enum { MISALIGNED = 2003 };              /* CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER */
enum { GOOD = 1, UNSTEADY = 0, HUGE_SPACE = 2, ROUNDING = 5, BYTES = 4096, SPACE_MARK = 0x5C };

struct cudnnContext {
  bool has_stream;
};
struct cudnnTensorStruct {
  int type;
  std::vector<int> extents, strides;
};
struct cudnnFilterStruct {
  int type;
  std::vector<int> extents;
};
struct cudnnConvolutionStruct {
  std::vector<int> pad, stride, dil;
  int compute = -1, groups = 1, math = -1;
};

/* ---- descriptors ---- */
template <class T> static int make(T **out) { return *out = new T(), 0; }
template <class T> static int drop(T *t) { return delete t, 0; }

/* x, w and y belong to one convolution. */
static bool belong(aci_dnn_tensor x, aci_dnn_filter w, aci_dnn_conv c, aci_dnn_tensor y) {
  const size_t n = x->extents.size();
  if (n < 4 || n > 5 || w->extents.size() != n || y->extents.size() != n || c->pad.size() != n - 2)
    return false;
  if (x->type != w->type || x->type != y->type ||
      c->compute != (x->type == ACI_DNN_DOUBLE ? ACI_DNN_DOUBLE : ACI_DNN_FLOAT))
    return false;
  if (x->extents[0] != y->extents[0] || y->extents[1] != w->extents[0] || w->extents[0] % c->groups != 0)
    return false;
  if (x->extents[1] != w->extents[1] * c->groups) return false;
  for (const aci_dnn_tensor t : {x, y}) {
    int run = 1;
    for (size_t d = n; d-- > 0; run *= t->extents[d])
      if (t->strides[d] != run) return false;
  }
  for (size_t d = 2; d < n; d++) {
    const int room = x->extents[d] + 2 * c->pad[d - 2] - c->dil[d - 2] * (w->extents[d] - 1) - 1;
    if (room < 0 || y->extents[d] != room / c->stride[d - 2] + 1) return false;
  }
  return true;
}

/* ---- one convolution: every product of x, w and y at an image, group, channels, place and tap ---- */
static double get(int type, const void *p, int64_t i) {
  switch (type) {
    case ACI_DNN_DOUBLE: return ((const double *)p)[i];
    case ACI_DNN_HALF: return aci_f16_to_f32(((const uint16_t *)p)[i]);
    case ACI_DNN_BFLOAT16: return aci_bf16_to_f32(((const uint16_t *)p)[i]);
    default: return ((const float *)p)[i];
  }
}
static void put(int type, void *p, int64_t i, double v) {
  switch (type) {
    case ACI_DNN_DOUBLE: ((double *)p)[i] = v; break;
    case ACI_DNN_HALF: ((uint16_t *)p)[i] = aci_f32_to_f16((float)v); break;
    case ACI_DNN_BFLOAT16: ((uint16_t *)p)[i] = aci_f32_to_bf16((float)v); break;
    default: ((float *)p)[i] = (float)v;
  }
}

template <class F>
static void products(aci_dnn_tensor x, aci_dnn_filter w, aci_dnn_conv c, aci_dnn_tensor y, F each) {
  const int n = (int)x->extents.size(), skip = 5 - n;
  int in[3] = {1, 1, 1}, k[3] = {1, 1, 1}, out[3] = {1, 1, 1}, pad[3] = {0, 0, 0}, stride[3] = {1, 1, 1},
      dil[3] = {1, 1, 1};
  for (int d = skip; d < 3; d++) {
    in[d] = x->extents[2 + d - skip], k[d] = w->extents[2 + d - skip], out[d] = y->extents[2 + d - skip];
    pad[d] = c->pad[d - skip], stride[d] = c->stride[d - skip], dil[d] = c->dil[d - skip];
  }
  const int64_t ci = w->extents[1], co = w->extents[0] / c->groups, plane = (int64_t)in[0] * in[1] * in[2];
  const int64_t places = (int64_t)out[0] * out[1] * out[2], taps = (int64_t)k[0] * k[1] * k[2];
  for (int64_t image = 0; image < x->extents[0]; image++)
    for (int64_t o = 0; o < co * c->groups; o++)
      for (int64_t q = 0; q < places; q++)
        for (int64_t i = 0; i < ci; i++)
          for (int64_t t = 0; t < taps; t++) {
            const int64_t qs[3] = {q / out[2] / out[1], q / out[2] % out[1], q % out[2]};
            const int64_t ts[3] = {t / k[2] / k[1], t / k[2] % k[1], t % k[2]};
            int64_t at = 0;
            bool inside = true;
            for (int d = 0; d < 3; d++) {
              const int64_t p = qs[d] * stride[d] - pad[d] + ts[d] * dil[d];
              inside = inside && p >= 0 && p < in[d];
              at = at * in[d] + p;
            }
            if (inside)
              each((image * ci * c->groups + o / co * ci + i) * plane + at, (o * ci + i) * taps + t,
                   (image * co * c->groups + o) * places + q);
          }
}

static double factor(int type, const void *p) {
  return type == ACI_DNN_DOUBLE ? *(const double *)p : *(const float *)p;
}

/* to := alpha * sums + beta * to */
static void finish(int type, const void *alpha, const void *beta, const std::vector<double> &sums, void *to) {
  const double a = factor(type, alpha), b = factor(type, beta);
  for (size_t i = 0; i < sums.size(); i++)
    put(type, to, (int64_t)i, a * sums[i] + (b != 0 ? b * get(type, to, (int64_t)i) : 0));
}
template <class T> static size_t count(const T *t) {
  size_t n = 1;
  for (int e : t->extents) n *= (size_t)e;
  return n;
}

/* The checks of an execution, and its line in the log. 0, or the status to give. */
static int begin(const char *what, aci_dnn_handle h, aci_dnn_tensor x, aci_dnn_filter w, aci_dnn_conv c,
                 aci_dnn_tensor y, int algo, void *workspace, size_t bytes, const void *p, const void *q,
                 const void *r) {
  const char *log = getenv("CUDA_TWIN_CUDNN_LOG");
  if (((uintptr_t)p | (uintptr_t)q | (uintptr_t)r | (uintptr_t)workspace) % 16 != 0) return MISALIGNED;
  if (!h->has_stream || !belong(x, w, c, y) || algo != GOOD || bytes != BYTES || workspace == NULL)
    return 2000;
  const bool refuse = getenv("CUDA_TWIN_CUDNN_REFUSE") != NULL;
  FILE *f = log != NULL ? fopen(log, "a") : NULL;
  if (f != NULL) {
    if (refuse) fprintf(f, "refused %s\n", what);
    else
      fprintf(f, "%s dims=%d type=%d groups=%d math=%d\n", what, (int)x->extents.size(), x->type, c->groups,
              c->math);
    fclose(f);
  }
  if (refuse) return ACI_DNN_NOT_SUPPORTED + 2;
  memset(workspace, SPACE_MARK, bytes); /* it is memory, and nobody else's */
  return 0;
}

static int name_algorithms(aci_dnn_tensor x, aci_dnn_filter w, aci_dnn_conv c, aci_dnn_tensor y, int want,
                           int *got, aci_dnn_algo *a) {
  const aci_dnn_algo list[] = {{9, ACI_DNN_NOT_SUPPORTED, 0, 0, ACI_DNN_DETERMINISTIC, c->math, {}},
                               {UNSTEADY, 0, 1, 0, 0, c->math, {}},
                               {HUGE_SPACE, 0, 2, (size_t)1 << 40, ACI_DNN_DETERMINISTIC, c->math, {}},
                               {ROUNDING, 0, 3, 0, ACI_DNN_DETERMINISTIC, ACI_DNN_TENSOR_MATH, {}},
                               {GOOD, 0, 4, BYTES, ACI_DNN_DETERMINISTIC, c->math, {}}};
  if (!belong(x, w, c, y)) return 2000;
  *got = 0;
  for (const aci_dnn_algo &k : list) {
    /* what may round is not a trap but the better choice, which this stand-in does not have */
    if (k.algo == ROUNDING && c->math != ACI_DNN_FMA_MATH) continue;
    if (*got < want) a[(*got)++] = k;
  }
  return 0;
}

extern "C" {
#define DNN __attribute__((visibility("default"))) int
DNN cudnnCreate(aci_dnn_handle *h) { return make(h); }
DNN cudnnSetStream(aci_dnn_handle h, cudaStream_t s) { return h->has_stream = s != NULL, STATUS(s == NULL); }
DNN cudnnCreateTensorDescriptor(aci_dnn_tensor *t) { return make(t); }
DNN cudnnSetTensorNdDescriptor(aci_dnn_tensor t, int type, int n, const int *extents, const int *strides) {
  *t = {type, {extents, extents + n}, {strides, strides + n}};
  return 0;
}
DNN cudnnDestroyTensorDescriptor(aci_dnn_tensor t) { return drop(t); }
DNN cudnnCreateFilterDescriptor(aci_dnn_filter *w) { return make(w); }
DNN cudnnSetFilterNdDescriptor(aci_dnn_filter w, int type, int format, int n, const int *extents) {
  *w = {type, {extents, extents + n}};
  return STATUS(format != ACI_DNN_NCHW);
}
DNN cudnnDestroyFilterDescriptor(aci_dnn_filter w) { return drop(w); }
DNN cudnnCreateConvolutionDescriptor(aci_dnn_conv *c) { return make(c); }
DNN cudnnSetConvolutionNdDescriptor(aci_dnn_conv c, int n, const int *pad, const int *stride, const int *dil,
                                    int mode, int compute) {
  c->pad = {pad, pad + n}, c->stride = {stride, stride + n}, c->dil = {dil, dil + n};
  c->compute = compute;
  return STATUS(mode != ACI_DNN_CROSS_CORRELATION);
}
DNN cudnnSetConvolutionGroupCount(aci_dnn_conv c, int groups) {
  return c->groups = groups, STATUS(groups < 1);
}
DNN cudnnSetConvolutionMathType(aci_dnn_conv c, int math) { return c->math = math, 0; }
DNN cudnnDestroyConvolutionDescriptor(aci_dnn_conv c) { return drop(c); }

/* w as the descriptor of x or of dw: all of them have the same head */
DNN cudnnGetConvolutionForwardAlgorithm_v7(aci_dnn_handle, aci_dnn_tensor x, aci_dnn_filter w, aci_dnn_conv c,
                                           aci_dnn_tensor y, int want, int *got, aci_dnn_algo *a) {
  return name_algorithms(x, w, c, y, want, got, a);
}
DNN cudnnGetConvolutionBackwardDataAlgorithm_v7(aci_dnn_handle, aci_dnn_filter w, aci_dnn_tensor dy,
                                                aci_dnn_conv c, aci_dnn_tensor dx, int want, int *got,
                                                aci_dnn_algo *a) {
  return name_algorithms(dx, w, c, dy, want, got, a);
}
DNN cudnnGetConvolutionBackwardFilterAlgorithm_v7(aci_dnn_handle, aci_dnn_tensor x, aci_dnn_tensor dy,
                                                  aci_dnn_conv c, aci_dnn_filter dw, int want, int *got,
                                                  aci_dnn_algo *a) {
  return name_algorithms(x, dw, c, dy, want, got, a);
}
DNN cudnnGetConvolutionForwardWorkspaceSize(aci_dnn_handle, aci_dnn_tensor, aci_dnn_filter, aci_dnn_conv,
                                            aci_dnn_tensor, int algo, size_t *n) {
  return *n = BYTES, STATUS(algo != GOOD);
}
DNN cudnnGetConvolutionBackwardDataWorkspaceSize(aci_dnn_handle, aci_dnn_filter, aci_dnn_tensor, aci_dnn_conv,
                                                 aci_dnn_tensor, int algo, size_t *n) {
  return *n = BYTES, STATUS(algo != GOOD);
}
DNN cudnnGetConvolutionBackwardFilterWorkspaceSize(aci_dnn_handle, aci_dnn_tensor, aci_dnn_tensor,
                                                   aci_dnn_conv, aci_dnn_filter, int algo, size_t *n) {
  return *n = BYTES, STATUS(algo != GOOD);
}

DNN cudnnConvolutionForward(aci_dnn_handle h, const void *alpha, aci_dnn_tensor xd, const void *x,
                            aci_dnn_filter wd, const void *w, aci_dnn_conv c, int algo, void *space, size_t n,
                            const void *beta, aci_dnn_tensor yd, void *y) {
  const int st = begin("forward", h, xd, wd, c, yd, algo, space, n, x, w, y), t = xd->type;
  if (st != 0) return st;
  std::vector<double> sum(count(yd));
  products(xd, wd, c, yd,
           [&](int64_t i, int64_t j, int64_t k) { sum[(size_t)k] += get(t, x, i) * get(t, w, j); });
  return finish(t, alpha, beta, sum, y), 0;
}
DNN cudnnConvolutionBackwardData(aci_dnn_handle h, const void *alpha, aci_dnn_filter wd, const void *w,
                                 aci_dnn_tensor yd, const void *dy, aci_dnn_conv c, int algo, void *space,
                                 size_t n, const void *beta, aci_dnn_tensor xd, void *dx) {
  const int st = begin("data", h, xd, wd, c, yd, algo, space, n, w, dy, dx), t = xd->type;
  if (st != 0) return st;
  std::vector<double> sum(count(xd));
  products(xd, wd, c, yd,
           [&](int64_t i, int64_t j, int64_t k) { sum[(size_t)i] += get(t, dy, k) * get(t, w, j); });
  return finish(t, alpha, beta, sum, dx), 0;
}
DNN cudnnConvolutionBackwardFilter(aci_dnn_handle h, const void *alpha, aci_dnn_tensor xd, const void *x,
                                   aci_dnn_tensor yd, const void *dy, aci_dnn_conv c, int algo, void *space,
                                   size_t n, const void *beta, aci_dnn_filter wd, void *dw) {
  const int st = begin("filter", h, xd, wd, c, yd, algo, space, n, x, dy, dw), t = xd->type;
  if (st != 0) return st;
  std::vector<double> sum(count(wd));
  products(xd, wd, c, yd,
           [&](int64_t i, int64_t j, int64_t k) { sum[(size_t)j] += get(t, x, i) * get(t, dy, k); });
  return finish(t, alpha, beta, sum, dw), 0;
}
}
