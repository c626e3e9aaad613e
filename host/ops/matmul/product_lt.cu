/* Matrix products through cuBLASLt, which is loaded on first use: hundreds of megabytes that only products need.
 *
 * cuBLASLt's matrices are columns first. Our C (m x n, rows first) is its D = C^T (n x m), so that D = B^T A^T with both operands taken
 * as they lie: rows first is "as it is", transposed is op T. The bias runs along n, the rows of D, which is what its epilogue adds.
 * What the heuristic chose is kept by shape. f32 is exact by default; ACCEL_CUDA_TF32=1 lets the tensor cores round its factors. */
#include "ops/matmul/product.cuh"

#include "ops/cuda/launch.cuh"

static bool tf32; /* ACCEL_CUDA_TF32: of the process */
void aci_cuda_set_tf32(bool on) { tf32 = on; }
bool aci_cuda_tf32() { return tf32; }

#ifdef ACI_CUDA_EMULATED
ac_status aci_cuda_product_lt(ac_frame *, const aci_product *, ac_err *) { return AC_UNSUPPORTED; }
#else
#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <vector>

/* clang-format off */
#define LT_CALLS(X)                                                                                                  \
  X(cublasLtCreate) X(cublasLtMatmul) X(cublasLtMatmulAlgoGetHeuristic)                                              \
  X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)                         \
  X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)                   \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute)
/* clang-format on */

namespace {
struct library {
#define LT_FIELD(name) decltype(&::name) name;
  LT_CALLS(LT_FIELD)
  bool ready;
};
const size_t WORKSPACE = (size_t)32 << 20; /* what Hopper's kernels ask for */

library load() {
  library l = {};
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
  void *h = NULL;
  for (size_t i = 0; i < 3 && h == NULL; i++) h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (h == NULL) return l;
  l.ready = true;
#define LT_FIND(name) l.ready = (l.name = (decltype(l.name))dlsym(h, #name)) != NULL && l.ready;
  LT_CALLS(LT_FIND)
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
/* A matrix of rows x cols with these strides, as it lies; false: with gaps between the elements of a row. */
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
  cublasLtMatmulDesc_t op = NULL;
  cublasLtMatrixLayout_t a = NULL, b = NULL, c = NULL;
  cublasLtMatmulPreference_t preference = NULL;
  ~descriptors() {
    if (preference != NULL) lt().cublasLtMatmulPreferenceDestroy(preference);
    if (c != NULL) lt().cublasLtMatrixLayoutDestroy(c);
    if (b != NULL) lt().cublasLtMatrixLayoutDestroy(b);
    if (a != NULL) lt().cublasLtMatrixLayoutDestroy(a);
    if (op != NULL) lt().cublasLtMatmulDescDestroy(op);
  }
};

std::mutex lock;
std::map<int, cublasLtHandle_t> handles;                     /* by device */
std::map<std::vector<int64_t>, cublasLtMatmulAlgo_t> chosen; /* by device, types, shape, strides, alignment */

bool layout(cublasLtMatrixLayout_t *l, cudaDataType type, int64_t rows, int64_t cols, int64_t ld,
            int64_t batch, int64_t stride) {
  const int32_t n = (int32_t)batch;
  return lt().cublasLtMatrixLayoutCreate(l, type, (uint64_t)rows, (uint64_t)cols, ld) ==
             CUBLAS_STATUS_SUCCESS &&
         lt().cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n) ==
             CUBLAS_STATUS_SUCCESS &&
         lt().cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                               sizeof stride) == CUBLAS_STATUS_SUCCESS;
}
template <class T> bool set(descriptors &d, cublasLtMatmulDescAttributes_t what, T value) {
  return lt().cublasLtMatmulDescSetAttribute(d.op, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}
int64_t alignment(const void *p) {
  const uintptr_t a = (uintptr_t)p;
  return a % 16 == 0 ? 16 : (int64_t)(a & -a);
}
} // namespace

/* One dim of batch at most: its products differ by a stride. */
static ac_status run(ac_frame *f, const aci_product *p, const char *a, const char *b, char *c, int64_t batch,
                     int64_t as, int64_t bs, void *workspace, ac_err *e) {
  const bool wide = p->dtype == AC_F64;
  const cudaDataType type = wide                  ? CUDA_R_64F
                            : p->dtype == AC_F32  ? CUDA_R_32F
                            : p->dtype == AC_BF16 ? CUDA_R_16BF
                                                  : CUDA_R_16F;
  const cublasComputeType_t compute = wide                         ? CUBLAS_COMPUTE_64F
                                      : p->dtype == AC_F32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                   : CUBLAS_COMPUTE_32F;
  matrix ma, mb;
  if (!matrix_of(p->m, p->k, p->a_rs, p->a_cs, &ma) || !matrix_of(p->k, p->n, p->b_rs, p->b_cs, &mb))
    return AC_UNSUPPORTED;
  descriptors d;
  /* D (n x m) = op(B) (n x k) op(A) (k x m) */
  bool ok = lt().cublasLtMatmulDescCreate(&d.op, compute, wide ? CUDA_R_64F : CUDA_R_32F) ==
                CUBLAS_STATUS_SUCCESS &&
            set(d, CUBLASLT_MATMUL_DESC_TRANSA, mb.transposed ? CUBLAS_OP_T : CUBLAS_OP_N) &&
            set(d, CUBLASLT_MATMUL_DESC_TRANSB, ma.transposed ? CUBLAS_OP_T : CUBLAS_OP_N) &&
            layout(&d.a, type, mb.transposed ? p->k : p->n, mb.transposed ? p->n : p->k, mb.ld, batch, bs) &&
            layout(&d.b, type, ma.transposed ? p->m : p->k, ma.transposed ? p->k : p->m, ma.ld, batch, as) &&
            layout(&d.c, p->wide ? CUDA_R_32F : type, p->n, p->m, p->n, batch, p->m * p->n);
  if (p->bias != NULL)
    ok = ok && set(d, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS) &&
         set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias);
  if (!ok) return AC_UNSUPPORTED;

  const int device = aci_cuda_of(f->device)->ordinal;
  const std::vector<int64_t> key = {
      device,          p->dtype,     p->m,    p->n,         p->k,         ma.transposed,
      mb.transposed,   ma.ld,        mb.ld,   batch,        as,           bs,
      p->bias != NULL, p->beta != 0, p->wide, alignment(a), alignment(b), alignment(c)};
  cublasLtHandle_t handle;
  cublasLtMatmulAlgo_t algo;
  {
    std::lock_guard<std::mutex> hold(lock);
    cublasLtHandle_t &h = handles[device];
    if (h == NULL && lt().cublasLtCreate(&h) != CUBLAS_STATUS_SUCCESS)
      return AC_FAIL(e, DEVICE, "%s: cuBLASLt does not start", f->device->name);
    handle = h;
    const auto known = chosen.find(key);
    if (known != chosen.end()) {
      algo = known->second;
    } else {
      cublasLtMatmulHeuristicResult_t found;
      int n = 0;
      const size_t room = WORKSPACE;
      ok = lt().cublasLtMatmulPreferenceCreate(&d.preference) == CUBLAS_STATUS_SUCCESS &&
           lt().cublasLtMatmulPreferenceSetAttribute(d.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                     &room, sizeof room) == CUBLAS_STATUS_SUCCESS &&
           lt().cublasLtMatmulAlgoGetHeuristic(handle, d.op, d.a, d.b, d.c, d.c, d.preference, 1, &found,
                                               &n) == CUBLAS_STATUS_SUCCESS &&
           n > 0;
      if (!ok) return AC_UNSUPPORTED;
      algo = chosen[key] = found.algo;
    }
  }
  const float alpha32 = (float)p->alpha, beta32 = (float)p->beta;
  const void *alpha = wide ? (const void *)&p->alpha : &alpha32,
             *beta = wide ? (const void *)&p->beta : &beta32;
  const cudaStream_t stream = aci_cuda_stream(f->device, f->stream);
  const cublasStatus_t st = lt().cublasLtMatmul(handle, d.op, alpha, b, d.a, a, d.b, beta, c, d.c, c, d.c,
                                                &algo, workspace, WORKSPACE, stream);
  if (st != CUBLAS_STATUS_SUCCESS)
    return AC_FAIL(e, DEVICE, "%s: cuBLASLt refuses a product of %lld x %lld x %lld (status %d)",
                   f->device->name, (long long)p->m, (long long)p->k, (long long)p->n, (int)st);
  return aci_cuda_launched(f->device, stream, "product", e);
}

ac_status aci_cuda_product_lt(ac_frame *f, const aci_product *p, ac_err *e) {
  const ac_dtype result = p->wide ? AC_F32 : p->dtype;
  const bool bias_fits = p->bias == NULL || p->bias_dtype == result;
  matrix m;
  if (!lt().ready || !bias_fits) return AC_UNSUPPORTED;
  if (!matrix_of(p->m, p->k, p->a_rs, p->a_cs, &m) || !matrix_of(p->k, p->n, p->b_rs, p->b_cs, &m))
    return AC_UNSUPPORTED;
  if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX) return AC_UNSUPPORTED;
  AC_TRY(aci_cuda_enter(f->device, e));
  ac_block *workspace;
  AC_TRY(ac_block_alloc(f->device, WORKSPACE, AC_MEM_ACTIVATION, f->stream, &workspace, e));
  /* the last dim of the batch goes in one call, those before it one call each */
  const int last = p->n_batch_dims - 1;
  const int64_t es = (int64_t)aci_dsize(p->dtype), inner = last < 0 ? 1 : p->batch[last];
  int64_t outer = 1, idx[AC_MAX_DIMS] = {0};
  for (int d = 0; d < last; d++) outer *= p->batch[d];
  ac_status st = AC_OK;
  for (int64_t i = 0; i < outer && st == AC_OK; i++) {
    int64_t ao = 0, bo = 0;
    for (int d = 0; d < last; d++) ao += idx[d] * p->a_batch[d], bo += idx[d] * p->b_batch[d];
    st = run(f, p, (const char *)p->a + ao * es, (const char *)p->b + bo * es,
             (char *)p->c + i * inner * p->m * p->n * (int64_t)aci_dsize(result), inner,
             last < 0 ? 0 : p->a_batch[last], last < 0 ? 0 : p->b_batch[last], workspace->ptr, e);
    if (st == AC_UNSUPPORTED && i > 0) /* the tiles would add beta C once more */
      st =
          AC_FAIL(e, DEVICE, "%s: cuBLASLt takes some products of the batch and not others", f->device->name);
    for (int d = last - 1; d >= 0 && ++idx[d] == p->batch[d]; d--) idx[d] = 0;
  }
  ac_block_free(workspace);
  return st;
}
#endif
