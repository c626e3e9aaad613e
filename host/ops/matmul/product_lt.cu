/* Matrix products through cuBLASLt, which is loaded on first use: hundreds of megabytes that only
 * products need.
 *
 * cuBLASLt's matrices are columns first. Our C (m x n, rows first) is its D = C^T (n x m), so that
 * D = B^T A^T with both operands in place: rows first is "as it is", transposed is op T. The bias
 * runs along n, the rows of D. Its epilogues add and sum along them. The heuristic's choice is
 * cached by shape. f32 is exact by default. ACCEL_CUDA_TF32=1 lets the tensor cores round its
 * factors. */
#include "ops/matmul/product.cuh"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <vector>

#include "ops/cuda/launch.cuh"
#include "ops/index/range.cuh"
#include "ops/matmul/lt.h"

namespace {
struct library {
#define LT_FIELD(name, params) int(*name) params;
  ACI_LT_CALLS(LT_FIELD)
#undef LT_FIELD
  bool ready;
};
const size_t MOST_WORKSPACE = (size_t)32 << 20; /* required by Hopper's kernels */
/* some kernels number a batch's products in 16 bits */
enum { MOST_BATCH = 1 << 15 };

library load() {
  library l = {};
  void *h = NULL;
/* the twin's memory does not belong to a GPU: it has a stand-in of its own */
#ifdef ACI_CUDA_EMULATED
  const char *name = getenv("CUDA_TWIN_CUBLASLT");
  if (name != NULL) h = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#else
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
  for (size_t i = 0; i < 3 && h == NULL; i++)
    h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#endif
  if (h == NULL) return l;
  l.ready = true;
#define LT_FIND(name, params) \
  l.ready = (l.name = (int(*) params)dlsym(h, #name)) != NULL && l.ready;
  ACI_LT_CALLS(LT_FIND)
#undef LT_FIND
  return l;
}
const library &lt() {
  static const library l = load();
  return l;
}

struct matrix {
  bool transposed;
  int64_t ld;
};
/* A matrix of rows x cols with these strides, in place. False: with gaps between the elements of a
 * row. */
bool matrix_of(int64_t rows, int64_t cols, int64_t rs, int64_t cs, matrix *m) {
  if ((cs == 1 || cols == 1) && (rs >= cols || rows == 1)) {
    *m = {false, rows == 1 && rs < cols ? cols : rs};
    return true;
  }
  if ((rs == 1 || rows == 1) && (cs >= rows || cols == 1)) {
    *m = {true, cols == 1 && cs < rows ? rows : cs};
    return true;
  }
  return false;
}

struct descriptors {
  aci_lt_desc op = NULL;
  aci_lt_layout a = NULL, b = NULL, c = NULL;
  aci_lt_preference preference = NULL;
  ~descriptors() {
    if (preference != NULL) lt().cublasLtMatmulPreferenceDestroy(preference);
    if (c != NULL) lt().cublasLtMatrixLayoutDestroy(c);
    if (b != NULL) lt().cublasLtMatrixLayoutDestroy(b);
    if (a != NULL) lt().cublasLtMatrixLayoutDestroy(a);
    if (op != NULL) lt().cublasLtMatmulDescDestroy(op);
  }
};

struct choice {
  bool takes;
  aci_lt_algo algo;
  size_t workspace;
};
std::mutex lock;
/* Never destroyed: at the end of the process the driver may be unloaded before us. */
std::map<int, aci_lt_handle> &handles = *new std::map<int, aci_lt_handle>; /* by device */
std::map<std::vector<int64_t>, choice> &chosen = *new std::map<std::vector<int64_t>, choice>;

/* One product, or a batch whose products differ by a stride. */
struct product_lt_job {
  const aci_product *p;
  const char *a, *b;
  char *c;
  int64_t batch, as, bs;
  matrix ma, mb;
  bool tf32; /* factors of f32 may be rounded */
};

bool layout(aci_lt_layout *l, int type, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
            int64_t stride) {
  const int32_t n = (int32_t)batch;
  return lt().cublasLtMatrixLayoutCreate(l, type, (uint64_t)rows, (uint64_t)cols, ld) == 0 &&
         lt().cublasLtMatrixLayoutSetAttribute(*l, ACI_LT_LAYOUT_BATCH_COUNT, &n, sizeof n) == 0 &&
         lt().cublasLtMatrixLayoutSetAttribute(*l, ACI_LT_LAYOUT_BATCH_STRIDE, &stride,
                                               sizeof stride) == 0;
}
template <class T> bool set(descriptors &d, int what, T value) {
  return lt().cublasLtMatmulDescSetAttribute(d.op, what, &value, sizeof value) == 0;
}
uint32_t alignment(const void *p) { /* no kernel needs more than 16 */
  const uintptr_t a = (uintptr_t)p;
  return a % 16 == 0 ? 16 : (uint32_t)(a & -a);
}
template <class T> bool prefer(descriptors &d, int what, T value) {
  return lt().cublasLtMatmulPreferenceSetAttribute(d.preference, what, &value, sizeof value) == 0;
}

/* The epilogue, and which result of the last dim's extent goes with it: the bias that is added, or
 * the sums that come out. */
uint32_t epilogue_of(const aci_product *p, const void **along) {
  const uint32_t bias = p->bias != NULL ? ACI_LT_EPILOGUE_BIAS : 0,
                 aux = p->aux != NULL ? ACI_LT_EPILOGUE_AUX : 0;
  *along = p->bias != NULL ? p->bias : p->sums;
  switch (p->epilogue) {
    case ACI_EPILOGUE_RELU: return ACI_LT_EPILOGUE_RELU | bias;
    case ACI_EPILOGUE_GELU: return ACI_LT_EPILOGUE_GELU | bias | aux;
    case ACI_EPILOGUE_GELU_GRADIENT:
      return ACI_LT_EPILOGUE_GELU_GRADIENT | (p->sums != NULL ? ACI_LT_EPILOGUE_BIAS_GRADIENT : 0);
    default: return bias != 0 ? bias : (uint32_t)ACI_LT_EPILOGUE_NONE;
  }
}

int f8_type(ac_dtype d) { return d == AC_F8_E4M3 ? ACI_LT_E4M3 : ACI_LT_E5M2; }

/* D (n x m) = op(B) (n x k) op(A) (k x m) */
bool describe(descriptors &d, const product_lt_job &j) {
  const aci_product *p = j.p;
  const bool wide = p->dtype == AC_F64;
  const int type = wide                  ? ACI_LT_F64
                   : p->dtype == AC_F32  ? ACI_LT_F32
                   : p->dtype == AC_BF16 ? ACI_LT_BF16
                                         : ACI_LT_F16;
  const int compute = wide                           ? ACI_LT_COMPUTE_F64
                      : p->dtype == AC_F32 && j.tf32 ? ACI_LT_COMPUTE_TF32
                                                     : ACI_LT_COMPUTE_F32;
  const void *along;
  const uint32_t epilogue = epilogue_of(p, &along);
  if (lt().cublasLtMatmulDescCreate(&d.op, compute, wide ? ACI_LT_F64 : ACI_LT_F32) != 0)
    return false;
  if (!set(d, ACI_LT_DESC_TRANSA, (int32_t)(j.mb.transposed ? ACI_LT_OP_T : ACI_LT_OP_N)) ||
      !set(d, ACI_LT_DESC_TRANSB, (int32_t)(j.ma.transposed ? ACI_LT_OP_T : ACI_LT_OP_N)))
    return false;
  if (epilogue != ACI_LT_EPILOGUE_NONE && !set(d, ACI_LT_DESC_EPILOGUE, epilogue)) return false;
  if (along != NULL && !set(d, ACI_LT_DESC_BIAS_POINTER, along)) return false;
  if (p->aux != NULL &&
      (!set(d, ACI_LT_DESC_AUX_POINTER, (const void *)p->aux) || !set(d, ACI_LT_DESC_AUX_LD, p->n)))
    return false;
  /* ours are the other way round: its A is B */
  if (p->a_scale != NULL && (!set(d, ACI_LT_DESC_A_SCALE_POINTER, (const void *)p->b_scale) ||
                             !set(d, ACI_LT_DESC_B_SCALE_POINTER, (const void *)p->a_scale)))
    return false;
  const bool bt = j.mb.transposed, at = j.ma.transposed;
  return layout(&d.a, p->a_scale != NULL ? f8_type(p->b_f8) : type, bt ? p->k : p->n,
                bt ? p->n : p->k, j.mb.ld, j.batch, j.bs) &&
         layout(&d.b, p->a_scale != NULL ? f8_type(p->a_f8) : type, at ? p->m : p->k,
                at ? p->k : p->m, j.ma.ld, j.batch, j.as) &&
         layout(&d.c, p->wide ? ACI_LT_F32 : type, p->n, p->m, p->n, j.batch, p->m * p->n);
}

/* The heuristic's first choice for operands with this layout. */
choice ask(aci_lt_handle h, descriptors &d, const product_lt_job &j) {
  aci_lt_found found = {};
  int n = 0;
  choice c = {};
  const bool ok =
      lt().cublasLtMatmulPreferenceCreate(&d.preference) == 0 &&
      prefer(d, ACI_LT_PREFERENCE_WORKSPACE, (uint64_t)MOST_WORKSPACE) &&
      prefer(d, ACI_LT_PREFERENCE_ALIGNMENT_A, alignment(j.b)) &&
      prefer(d, ACI_LT_PREFERENCE_ALIGNMENT_B, alignment(j.a)) &&
      prefer(d, ACI_LT_PREFERENCE_ALIGNMENT_C, alignment(j.c)) &&
      prefer(d, ACI_LT_PREFERENCE_ALIGNMENT_D, alignment(j.c)) &&
      /* parts of a sum are added in the compute type, not rounded to bf16 or f16 before, and in one
       * order */
      prefer(d, ACI_LT_PREFERENCE_REDUCTIONS, (uint32_t)ACI_LT_REDUCE_COMPUTE_TYPE) &&
      lt().cublasLtMatmulAlgoGetHeuristic(h, d.op, d.a, d.b, d.c, d.c, d.preference, 1, &found,
                                          &n) == 0;
  c.takes = ok && n > 0 && found.state == 0 && found.workspace <= MOST_WORKSPACE;
  c.algo = found.algo;
  c.workspace = found.workspace;
  return c;
}
} // namespace

#ifdef ACI_CUDA_EMULATED
#define ON_DEVICE(status, call) (emulated_open(), status = call, emulated_close())
#else
#define ON_DEVICE(status, call) status = call
#endif

/* One call of cuBLASLt. Its algorithm is requested once per key (device, dtype, shape, layout,
 * alignment) and kept for the process. A key whose algorithm does not work is remembered as
 * UNSUPPORTED, which sends the product to our own tiles. */
static ac_status run(ac_frame *f, const product_lt_job &j, ac_err *e) {
  const aci_product *p = j.p;
  const int device = aci_cuda_of(f->device)->ordinal;
  const bool wide = p->dtype == AC_F64;
  descriptors d;
  if (!describe(d, j)) return AC_UNSUPPORTED;
  const void *along;
  const std::vector<int64_t> key = {device,
                                    p->dtype,
                                    p->m,
                                    p->n,
                                    p->k,
                                    j.ma.transposed,
                                    j.mb.transposed,
                                    j.ma.ld,
                                    j.mb.ld,
                                    j.batch,
                                    j.as,
                                    j.bs,
                                    epilogue_of(p, &along),
                                    p->beta != 0,
                                    p->wide,
                                    j.tf32,
                                    p->a_scale != NULL ? p->a_f8 : 0,
                                    p->a_scale != NULL ? p->b_f8 : 0,
                                    alignment(j.a),
                                    alignment(j.b),
                                    alignment(j.c)};
  aci_lt_handle handle;
  choice c;
  {
    std::lock_guard<std::mutex> hold(lock);
    aci_lt_handle &h = handles[device];
    if (h == NULL && lt().cublasLtCreate(&h) != 0)
      return AC_FAIL(e, DEVICE, "%s: cuBLASLt does not start", f->device->name);
    handle = h;
    const auto known = chosen.find(key);
    c = known != chosen.end() ? known->second : (chosen[key] = ask(h, d, j));
  }
  if (!c.takes) return AC_UNSUPPORTED;
  ac_block *block;
  void *workspace;
  AC_TRY(aci_workspace(f, c.workspace, &block, &workspace, e));
  const float alpha32 = (float)p->alpha, beta32 = (float)p->beta;
  const void *alpha = wide ? (const void *)&p->alpha : &alpha32,
             *beta = wide ? (const void *)&p->beta : &beta32;
  const cudaStream_t stream = aci_cuda_stream(f->device, f->stream);
  int st;
  ON_DEVICE(st, lt().cublasLtMatmul(handle, d.op, alpha, j.b, d.a, j.a, d.b, beta, j.c, d.c, j.c,
                                    d.c, &c.algo, workspace, c.workspace, stream));
  ac_block_free(block);
  if (st == ACI_LT_NOT_SUPPORTED) { /* the heuristic was wrong: this key is not tried again */
    std::lock_guard<std::mutex> hold(lock);
    chosen[key].takes = false;
    return AC_UNSUPPORTED;
  }
  if (st != 0)
    return AC_FAIL(e, DEVICE, "%s: cuBLASLt refuses a product of %lld x %lld x %lld (status %d)",
                   f->device->name, (long long)p->m, (long long)p->k, (long long)p->n, st);
  return aci_launched(f, stream, "product", e);
}

/* The last dim of the batch goes in one call, those before it one call each. */
static ac_status products(ac_frame *f, const aci_product *p, product_lt_job j, ac_err *e) {
  const int last = p->n_batch_dims - 1;
  const int64_t es = p->a_scale != NULL ? 1 : (int64_t)aci_dsize(p->dtype),
                size = p->m * p->n * (int64_t)aci_dsize(p->wide ? AC_F32 : p->dtype);
  const int64_t batch = last < 0 ? 1 : p->batch[last];
  int64_t outer = 1, idx[AC_MAX_DIMS] = {0};
  j.p = p;
  for (int d = 0; d < last; d++) outer *= p->batch[d];
  if (last >= 0) j.as = p->a_batch[last], j.bs = p->b_batch[last];
  for (int64_t i = 0; i < outer; i++) {
    int64_t ao = 0, bo = 0;
    for (int d = 0; d < last; d++) ao += idx[d] * p->a_batch[d], bo += idx[d] * p->b_batch[d];
    for (int64_t first = 0; first < batch; first += MOST_BATCH) {
      j.batch = batch - first < MOST_BATCH ? batch - first : (int64_t)MOST_BATCH;
      j.a = (const char *)p->a + (ao + first * j.as) * es;
      j.b = (const char *)p->b + (bo + first * j.bs) * es;
      j.c = (char *)p->c + (i * batch + first) * size;
      const ac_status st = run(f, j, e);
      /* the tiles would add beta C once more */
      if (st == AC_UNSUPPORTED && i + first > 0 && p->beta != 0)
        return AC_FAIL(e, DEVICE, "%s: cuBLASLt takes some products of the batch and not others",
                       f->device->name);
      if (st != AC_OK) return st;
    }
    for (int d = last - 1; d >= 0 && ++idx[d] == p->batch[d]; d--) idx[d] = 0;
  }
  return AC_OK;
}

ac_status aci_cuda_product_lt(ac_frame *f, const aci_product *p, ac_err *e) {
  const ac_dtype result = p->wide ? AC_F32 : p->dtype;
  product_lt_job j = {};
  j.tf32 = aci_flag(f, ACI_CUDA_TF32) != 0 && p->a_scale == NULL;
  if (!lt().ready || (p->bias != NULL && p->bias_dtype != result)) return AC_UNSUPPORTED;
  /* the library needs leading dims that are multiples of 8 for the epilogue's output, and no
   * preference tells it the alignment */
  if (p->epilogue != ACI_EPILOGUE_NONE &&
      (p->n_batch_dims > 0 || (p->aux != NULL && (p->n % 8 != 0 || alignment(p->aux) != 16)) ||
       alignment(p->sums) != 16))
    return AC_UNSUPPORTED;
  if (!matrix_of(p->m, p->k, p->a_rs, p->a_cs, &j.ma) ||
      !matrix_of(p->k, p->n, p->b_rs, p->b_cs, &j.mb))
    return AC_UNSUPPORTED;
  if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX) return AC_UNSUPPORTED;
  AC_TRY(aci_cuda_enter(f->device, e));
  aci_product q = *p;
  ac_block *bias;
  /* nor the alignment of a bias */
  AC_TRY(aci_cuda_aligned(f, &q.bias, p->n, p->bias_dtype, &bias, e));
  const ac_status st = products(f, &q, j, e);
  ac_block_free(bias);
  return st;
}
