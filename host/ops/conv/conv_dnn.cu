/* Convolutions through cuDNN's classic interface, which is loaded on first use if installed
 * (ACCEL_CUDA_CUDNN=0: never).
 *
 * Only algorithms that cuDNN calls deterministic are used: the first one of its heuristic with a
 * workspace of at most MOST_WORKSPACE. The choice and its descriptors are cached by shape. f32
 * multiplies exactly (FMA) unless ACCEL_CUDA_TF32 allows rounded factors. bf16 and f16 accumulate
 * in f32. A bias is written to y first and added to (beta = 1), so that there is one rounding. Our
 * own kernels run the calls that cuDNN does not take. */
#include "ops/conv/conv.cuh"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <vector>

#include "ops/conv/dnn.h"
#include "ops/cuda/launch.cuh"
#include "ops/index/range.cuh"
#include "ops/matmul/product.cuh"

#ifdef ACI_CUDA_EMULATED
#define ON_DEVICE(status, call) (emulated_open(), status = call, emulated_close())
#else
#define ON_DEVICE(status, call) status = call
#endif

namespace {
struct library {
#define DNN_FIELD(name, params) int(*name) params;
  ACI_DNN_CALLS(DNN_FIELD)
#undef DNN_FIELD
  bool ready;
};
const size_t MOST_WORKSPACE = (size_t)512 << 20;

library load() {
  library l = {};
  void *h = NULL;
/* the twin's memory does not belong to a GPU: it has a stand-in of its own */
#ifdef ACI_CUDA_EMULATED
  const char *name = getenv("CUDA_TWIN_CUDNN");
  if (name != NULL) h = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#else
  static const char *const names[] = {"libcudnn.so.9", "libcudnn.so.8"};
  for (int i = 0; i < 2 && h == NULL; i++)
    h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#endif
  if (h == NULL) return l;
  l.ready = true;
#define DNN_FIND(name, params) \
  l.ready = (l.name = (int(*) params)dlsym(h, #name)) != NULL && l.ready;
  ACI_DNN_CALLS(DNN_FIND)
#undef DNN_FIND
  return l;
}
const library &dnn() {
  static const library l = load();
  return l;
}

/* A convolution that ran before: its descriptors and algorithm. They live as long as the process,
 * like the handles. */
struct plan {
  bool takes;
  aci_dnn_tensor wide, slim; /* x and y */
  aci_dnn_filter w;
  aci_dnn_conv conv;
  int algo;
  size_t workspace;
};
std::mutex lock; /* a handle serves one call at a time */
/* Never destroyed: at the end of the process the driver may be unloaded before us. */
std::map<int, aci_dnn_handle> &handles = *new std::map<int, aci_dnn_handle>;
std::map<std::vector<int64_t>, plan> &plans = *new std::map<std::vector<int64_t>, plan>;
} // namespace

static int type_of(ac_dtype dt) {
  return dt == AC_F64    ? ACI_DNN_DOUBLE
         : dt == AC_BF16 ? ACI_DNN_BFLOAT16
         : dt == AC_F16  ? ACI_DNN_HALF
                         : ACI_DNN_FLOAT;
}

static bool tensor(aci_dnn_tensor *t, int type, int n, const int *extents) {
  int strides[5], s = 1;
  for (int d = n - 1; d >= 0; d--) {
    strides[d] = s;
    s *= extents[d];
  }
  return dnn().cudnnCreateTensorDescriptor(t) == 0 &&
         dnn().cudnnSetTensorNdDescriptor(*t, type, n, extents, strides) == 0;
}

/* Space of one or two dims goes as (height, width). */
static bool describe(plan *p, const aci_conv_call *k, int math) {
  const aci_conv &c = k->c;
  const int type = type_of(k->dt), compute = k->dt == AC_F64 ? ACI_DNN_DOUBLE : ACI_DNN_FLOAT;
  const int skip = c.k[0] == 1 && c.in[0] == 1 && c.out[0] == 1 && c.pad[0] == 0 ? 1 : 0,
            n = 5 - skip;
  int wide[5] = {(int)c.n, (int)(c.groups * c.ci)}, slim[5] = {(int)c.n, (int)(c.groups * c.co)};
  int w[5] = {(int)(c.groups * c.co), (int)c.ci}, pad[3], stride[3], dil[3];
  for (int d = skip; d < 3; d++) {
    const int i = d - skip;
    wide[2 + i] = (int)c.in[d];
    slim[2 + i] = (int)c.out[d];
    w[2 + i] = (int)c.k[d];
    pad[i] = (int)c.pad[d];
    stride[i] = (int)c.stride[d];
    dil[i] = (int)c.dil[d];
  }
  return tensor(&p->wide, type, n, wide) && tensor(&p->slim, type, n, slim) &&
         dnn().cudnnCreateFilterDescriptor(&p->w) == 0 &&
         dnn().cudnnSetFilterNdDescriptor(p->w, type, ACI_DNN_NCHW, n, w) == 0 &&
         dnn().cudnnCreateConvolutionDescriptor(&p->conv) == 0 &&
         dnn().cudnnSetConvolutionNdDescriptor(p->conv, n - 2, pad, stride, dil,
                                               ACI_DNN_CROSS_CORRELATION, compute) == 0 &&
         dnn().cudnnSetConvolutionGroupCount(p->conv, (int)c.groups) == 0 &&
         dnn().cudnnSetConvolutionMathType(p->conv, math) == 0;
}

static bool workspace_of(plan *p, aci_conv_kind kind, aci_dnn_handle h) {
  size_t *bytes = &p->workspace;
  switch (kind) {
    case ACI_CONV_FORWARD:
      return dnn().cudnnGetConvolutionForwardWorkspaceSize(h, p->wide, p->w, p->conv, p->slim,
                                                           p->algo, bytes) == 0;
    case ACI_CONV_INPUT:
      return dnn().cudnnGetConvolutionBackwardDataWorkspaceSize(h, p->w, p->slim, p->conv, p->wide,
                                                                p->algo, bytes) == 0;
    default:
      return dnn().cudnnGetConvolutionBackwardFilterWorkspaceSize(h, p->wide, p->slim, p->conv,
                                                                  p->w, p->algo, bytes) == 0;
  }
}

/* The algorithm: deterministic, with a workspace we grant, and exact if f32 must be. */
static bool choose(plan *p, aci_conv_kind kind, int math, aci_dnn_handle h) {
  enum { MOST = 16 };
  aci_dnn_algo found[MOST];
  int n = 0, st;
  switch (kind) {
    case ACI_CONV_FORWARD:
      st = dnn().cudnnGetConvolutionForwardAlgorithm_v7(h, p->wide, p->w, p->conv, p->slim, MOST,
                                                        &n, found);
      break;
    case ACI_CONV_INPUT:
      st = dnn().cudnnGetConvolutionBackwardDataAlgorithm_v7(h, p->w, p->slim, p->conv, p->wide,
                                                             MOST, &n, found);
      break;
    default:
      st = dnn().cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, p->wide, p->slim, p->conv, p->w,
                                                               MOST, &n, found);
      break;
  }
  for (int i = 0; st == 0 && i < n; i++) {
    const aci_dnn_algo &a = found[i];
    const bool rounds = a.math == ACI_DNN_TENSOR_MATH || a.math == ACI_DNN_CONVERTING_MATH;
    if (a.status != 0 || a.determinism != ACI_DNN_DETERMINISTIC || a.memory > MOST_WORKSPACE)
      continue;
    if (math == ACI_DNN_FMA_MATH && rounds) continue;
    p->algo = a.algo;
    if (dnn().cudnnSetConvolutionMathType(p->conv, math == ACI_DNN_FMA_MATH ? math : a.math) != 0)
      continue;
    if (workspace_of(p, kind, h) && p->workspace <= MOST_WORKSPACE) return true;
  }
  return false;
}

static void forget(plan *p) {
  if (p->conv != NULL) dnn().cudnnDestroyConvolutionDescriptor(p->conv);
  if (p->w != NULL) dnn().cudnnDestroyFilterDescriptor(p->w);
  if (p->slim != NULL) dnn().cudnnDestroyTensorDescriptor(p->slim);
  if (p->wide != NULL) dnn().cudnnDestroyTensorDescriptor(p->wide);
  *p = {};
}

/* Under the lock. NULL: cuDNN does not start on this device. */
static aci_dnn_handle handle_of(int device) {
  const auto known = handles.find(device);
  if (known != handles.end()) return known->second;
  aci_dnn_handle h = NULL;
  if (dnn().cudnnCreate(&h) != 0) h = NULL;
  return handles[device] = h;
}

static plan *plan_of(const aci_conv_call *k, int device, aci_dnn_handle h, int math) {
  const aci_conv &c = k->c;
  std::vector<int64_t> key = {device, k->kind, k->dt, math, c.n, c.groups, c.ci, c.co};
  for (int d = 0; d < 3; d++)
    key.insert(key.end(), {c.in[d], c.k[d], c.out[d], c.stride[d], c.pad[d], c.dil[d]});
  const auto known = plans.find(key);
  if (known != plans.end()) return &known->second;
  plan &p = plans[key];
  p = {};
  if (describe(&p, k, math) && choose(&p, k->kind, math, h)) p.takes = true;
  else forget(&p);
  return &p;
}

static int execute(const plan &p, const aci_conv_call *k, aci_dnn_handle h, void *space) {
  const float one32 = 1, beta32 = k->bias != NULL ? 1 : 0;
  const double one64 = 1, beta64 = beta32;
  const bool wide = k->dt == AC_F64;
  const void *alpha = wide ? (const void *)&one64 : &one32,
             *beta = wide ? (const void *)&beta64 : &beta32;
  const size_t n = p.workspace;
  int st = 0;
  if (k->kind == ACI_CONV_FORWARD)
    ON_DEVICE(st, dnn().cudnnConvolutionForward(h, alpha, p.wide, k->a, p.w, k->b, p.conv, p.algo,
                                                space, n, beta, p.slim, k->y));
  else if (k->kind == ACI_CONV_INPUT)
    ON_DEVICE(st, dnn().cudnnConvolutionBackwardData(h, alpha, p.w, k->b, p.slim, k->a, p.conv,
                                                     p.algo, space, n, beta, p.wide, k->y));
  else
    ON_DEVICE(st, dnn().cudnnConvolutionBackwardFilter(h, alpha, p.wide, k->b, p.slim, k->a, p.conv,
                                                       p.algo, space, n, beta, p.w, k->y));
  return st;
}

/* Everything that cuDNN's ints hold, and the extents of y that its formula gives. */
static bool fits(const aci_conv &c) {
  const int64_t most = INT32_MAX;
  int64_t wide = c.n * c.groups * c.ci, slim = c.n * c.groups * c.co, w = c.groups * c.co * c.ci;
  if (c.n < 1 || c.ci < 1 || c.co < 1 || c.groups > most) return false;
  for (int d = 0; d < 3; d++) {
    const int64_t room = c.in[d] + 2 * c.pad[d] - c.dil[d] * (c.k[d] - 1) - 1;
    if (c.out[d] != room / c.stride[d] + 1) return false;
    if (wide > most || slim > most || w > most) return false;
    wide *= c.in[d], slim *= c.out[d], w *= c.k[d];
  }
  return wide > 0 && slim > 0 && wide <= most && slim <= most && w <= most;
}

static ac_status run(ac_frame *f, aci_conv_call k, plan *p, aci_dnn_handle h, ac_err *e) {
  const aci_conv &c = k.c;
  const int64_t wide = c.n * c.groups * c.ci * aci_conv_volume(c.in),
                slim = c.n * c.groups * c.co * aci_conv_volume(c.out),
                w = c.groups * c.co * c.ci * aci_conv_volume(c.k);
  ac_block *space = NULL, *copy[2] = {NULL, NULL};
  void *workspace = NULL;
  /* cuDNN's kernels load 16 bytes at a time and do not check the operands' alignment */
  ac_status done =
      aci_cuda_aligned(f, &k.a, k.kind == ACI_CONV_FORWARD ? wide : slim, k.dt, &copy[0], e);
  if (done == AC_OK)
    done = aci_cuda_aligned(f, &k.b, k.kind == ACI_CONV_WEIGHT ? wide : w, k.dt, &copy[1], e);
  if (done == AC_OK) done = aci_workspace(f, p->workspace, &space, &workspace, e);
  if (done == AC_OK && k.bias != NULL) done = aci_cuda_conv_bias(f, &k, e);
  if (done == AC_OK) {
    const cudaStream_t stream = aci_cuda_stream(f->device, f->stream);
    int st = dnn().cudnnSetStream(h, stream);
    if (st == 0) st = execute(*p, &k, h, workspace);
    if (st == ACI_DNN_NOT_SUPPORTED_8 ||
        (st >= ACI_DNN_NOT_SUPPORTED && st < ACI_DNN_NOT_SUPPORTED_END)) {
      forget(p); /* the heuristic was wrong: never again */
      done = AC_UNSUPPORTED;
    } else if (st != 0) {
      done = AC_FAIL(
          e, DEVICE,
          "%s: cuDNN fails in a convolution (status %d); ACCEL_CUDA_CUDNN=0 does without it",
          f->device->name, st);
    } else {
      done = aci_launched(f, stream, "convolution (cuDNN)", e);
    }
  }
  ac_block_free(space);
  for (int i = 0; i < 2; i++) ac_block_free(copy[i]);
  return done;
}

ac_status aci_cuda_conv_dnn(ac_frame *f, const aci_conv_call *k, ac_err *e) {
  if (aci_flag(f, ACI_CUDA_CUDNN) == 0 || !dnn().ready || !fits(k->c) || (uintptr_t)k->y % 16 != 0)
    return AC_UNSUPPORTED;
  const int math = k->dt == AC_F64                   ? ACI_DNN_DEFAULT_MATH
                   : k->dt != AC_F32                 ? ACI_DNN_TENSOR_MATH
                   : aci_flag(f, ACI_CUDA_TF32) != 0 ? ACI_DNN_DEFAULT_MATH
                                                     : ACI_DNN_FMA_MATH;
  const int device = aci_cuda_of(f->device)->ordinal;
  AC_TRY(aci_cuda_enter(f->device, e));
  std::lock_guard<std::mutex> hold(lock);
  const aci_dnn_handle h = handle_of(device);
  plan *p = h == NULL ? NULL : plan_of(k, device, h, math);
  return p != NULL && p->takes ? run(f, *k, p, h, e) : AC_UNSUPPORTED;
}
