/* The twin's stand-in for cuBLASLt (CUDA_TWIN_CUBLASLT names its file): the calls of ops/matmul/lt.h by plain loops over the twin's
 * memory, columns first as the real library has them. What that would refuse is refused here: leading dims below the rows, attributes of
 * another size, a workspace or an alignment that was not agreed on, combinations of types it has no kernels for. A descriptor that was
 * given back is poisoned. CUDA_TWIN_CUBLASLT_LOG: a file that gets a line a product. CUDA_TWIN_CUBLASLT_REFUSE=1: the heuristic knows
 * none; =late: it knows one that turns out not to do. */
#include "cuda_runtime.h"

#include "base/float8.h"
#include "ops/matmul/lt.h"

#include <math.h>
#include <stdio.h>

#include <vector>

enum { BAD = 7 }; /* CUBLAS_STATUS_INVALID_VALUE */
enum { LIVE = 0x11AE, BYTES = 960, SPACE_MARK = 0x5C, ALGO = 0xA160 };

struct cublasLtContext {
  int live;
};
struct aci_lt_layout_opaque {
  int live, type;
  int64_t rows, cols, ld, stride;
  int32_t batch;
};
struct aci_lt_desc_opaque {
  int live, compute, scale;
  int32_t transa, transb;
  uint32_t epilogue;
  const void *bias;
  void *aux;
  int64_t aux_ld;
  const float *a_scale, *b_scale;
};
struct aci_lt_preference_opaque {
  int live;
  uint64_t workspace;
  uint32_t alignment[4], reductions;
};

template <class T> static int make(T **out, const T &value) { return *out = new T(value), 0; }
template <class T> static int drop(T *t) {
  if (t->live != LIVE) return BAD;
  t->live = 0;
  return delete t, 0;
}
template <class T> static int take(T *to, const void *value, size_t bytes) {
  if (bytes != sizeof *to) return BAD;
  memcpy(to, value, bytes);
  return 0;
}

static bool f8(int type) { return type == ACI_LT_E4M3 || type == ACI_LT_E5M2; }
static size_t size_of(int type) { return type == ACI_LT_F64 ? 8 : type == ACI_LT_F32 ? 4 : f8(type) ? 1 : 2; }
static double get(int type, const void *p, int64_t i) {
  switch (type) {
    case ACI_LT_F64: return ((const double *)p)[i];
    case ACI_LT_F16: return aci_f16_to_f32(((const uint16_t *)p)[i]);
    case ACI_LT_BF16: return aci_bf16_to_f32(((const uint16_t *)p)[i]);
    case ACI_LT_E4M3: return aci_e4m3_value(((const uint8_t *)p)[i]);
    case ACI_LT_E5M2: return aci_e5m2_value(((const uint8_t *)p)[i]);
    default: return ((const float *)p)[i];
  }
}
static void put(int type, void *p, int64_t i, double v) {
  switch (type) {
    case ACI_LT_F64: ((double *)p)[i] = v; break;
    case ACI_LT_F16: ((uint16_t *)p)[i] = aci_f32_to_f16((float)v); break;
    case ACI_LT_BF16: ((uint16_t *)p)[i] = aci_f32_to_bf16((float)v); break;
    default: ((float *)p)[i] = (float)v;
  }
}

/* Whether the layouts belong together; the extents of D and of the sum. */
static bool belong(aci_lt_desc op, aci_lt_layout a, aci_lt_layout b, aci_lt_layout d, int64_t *k) {
  const aci_lt_layout all[3] = {a, b, d};
  if (op->live != LIVE) return false;
  for (const aci_lt_layout l : all)
    if (l->live != LIVE || l->ld < l->rows || l->batch < 1 || l->batch != d->batch) return false;
  const int64_t m = op->transa ? a->cols : a->rows, n = op->transb ? b->rows : b->cols;
  *k = op->transa ? a->rows : a->cols;
  return m == d->rows && n == d->cols && *k == (op->transb ? b->cols : b->rows);
}

/* A factor as the tensor cores take it: 10 bits behind the point. Only where a test wants to see it (CUDA_TWIN_CUBLASLT_ROUND=1). */
static double factor(double v, bool tf32) {
  if (!tf32) return v;
  float f = (float)v;
  uint32_t u;
  memcpy(&u, &f, 4);
  u = (u + 0xfff + (u >> 13 & 1)) & ~0x1fffu;
  memcpy(&f, &u, 4);
  return f;
}

static bool refuses(const char *how) {
  const char *said = getenv("CUDA_TWIN_CUBLASLT_REFUSE");
  return said != NULL && strcmp(said, how) == 0;
}

/* Of 8 bits there are, as on Hopper: A transposed and B as it lies, dims of 16 elements, not e5m2 on both sides, results of 16 or 32
 * bits, a bias of 16, scales for both; but e4m3 is what chips before Ada lack (CUDA_TWIN_CUBLASLT_REFUSE=f8). */
static bool exists_f8(aci_lt_desc op, aci_lt_layout a, aci_lt_layout b, aci_lt_layout d) {
  if (refuses("f8") || !f8(b->type) || (a->type == ACI_LT_E5M2 && b->type == ACI_LT_E5M2)) return false;
  if (op->transa == 0 || op->transb != 0 || a->rows % 16 != 0 || a->cols % 16 != 0 || a->ld % 16 != 0 || b->ld % 16 != 0) return false;
  if (d->type != ACI_LT_F32 && d->type != ACI_LT_F16 && d->type != ACI_LT_BF16) return false;
  if (op->compute != ACI_LT_COMPUTE_F32 || op->scale != ACI_LT_F32 || op->a_scale == NULL || op->b_scale == NULL) return false;
  return op->epilogue == ACI_LT_EPILOGUE_NONE || (op->epilogue == ACI_LT_EPILOGUE_BIAS && op->bias != NULL && d->type != ACI_LT_F32);
}

/* What there are kernels for: types, and epilogues on them. */
static bool exists(aci_lt_desc op, aci_lt_layout a, aci_lt_layout b, aci_lt_layout d) {
  if (f8(a->type)) return exists_f8(op, a, b, d);
  if (a->type != b->type) return false;
  const bool wide = a->type == ACI_LT_F64, shorts = a->type == ACI_LT_BF16 || a->type == ACI_LT_F16;
  if (d->type != a->type && !(shorts && d->type == ACI_LT_F32)) return false;
  if (op->compute != (wide ? ACI_LT_COMPUTE_F64 : ACI_LT_COMPUTE_F32) &&
      !(a->type == ACI_LT_F32 && op->compute == ACI_LT_COMPUTE_TF32))
    return false;
  if (op->scale != (wide ? ACI_LT_F64 : ACI_LT_F32)) return false;
  const uint32_t e = op->epilogue;
  if (e == ACI_LT_EPILOGUE_NONE) return true;
  if (wide) return false;
  const bool gradient = (e & 64) != 0, aux = (e & 128) != 0;
  const bool known = gradient
                         ? (e & ~(uint32_t)ACI_LT_EPILOGUE_BIAS_GRADIENT) == ACI_LT_EPILOGUE_GELU_GRADIENT
                         : (e & ~(uint32_t)(ACI_LT_EPILOGUE_BIAS | ACI_LT_EPILOGUE_RELU |
                                            ACI_LT_EPILOGUE_GELU | ACI_LT_EPILOGUE_AUX)) == 0 &&
                               (!aux || (e & ACI_LT_EPILOGUE_GELU) != 0);
  if (!known) return false;
  if ((e & (ACI_LT_EPILOGUE_BIAS | ACI_LT_EPILOGUE_BIAS_GRADIENT)) != 0 && op->bias == NULL) return false;
  return !aux || (op->aux != NULL && (uintptr_t)op->aux % 16 == 0 && op->aux_ld % 8 == 0 &&
                  op->aux_ld >= d->rows && d->batch == 1);
}

/* gelu in the tanh form, by its definition, and its slope by that of the definition */
static double gelu(double x) {
  return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double slope(double x) {
  const double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

extern "C" {
#define LT __attribute__((visibility("default"))) int
LT cublasLtCreate(aci_lt_handle *h) { return make(h, {LIVE}); }
LT cublasLtMatmulDescCreate(aci_lt_desc *d, int compute, int scale) {
  return make(d, {LIVE, compute, scale, 0, 0, ACI_LT_EPILOGUE_NONE, NULL, NULL, 0, NULL, NULL});
}
LT cublasLtMatmulDescDestroy(aci_lt_desc d) { return drop(d); }
LT cublasLtMatmulDescSetAttribute(aci_lt_desc d, int what, const void *value, size_t bytes) {
  switch (what) {
    case ACI_LT_DESC_TRANSA: return take(&d->transa, value, bytes);
    case ACI_LT_DESC_TRANSB: return take(&d->transb, value, bytes);
    case ACI_LT_DESC_EPILOGUE: return take(&d->epilogue, value, bytes);
    case ACI_LT_DESC_BIAS_POINTER: return take(&d->bias, value, bytes);
    case ACI_LT_DESC_AUX_POINTER: return take(&d->aux, value, bytes);
    case ACI_LT_DESC_AUX_LD: return take(&d->aux_ld, value, bytes);
    case ACI_LT_DESC_A_SCALE_POINTER: return take(&d->a_scale, value, bytes);
    case ACI_LT_DESC_B_SCALE_POINTER: return take(&d->b_scale, value, bytes);
    default: return BAD;
  }
}
LT cublasLtMatrixLayoutCreate(aci_lt_layout *l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  return make(l, {LIVE, type, (int64_t)rows, (int64_t)cols, ld, 0, 1});
}
LT cublasLtMatrixLayoutDestroy(aci_lt_layout l) { return drop(l); }
LT cublasLtMatrixLayoutSetAttribute(aci_lt_layout l, int what, const void *value, size_t bytes) {
  switch (what) {
    case ACI_LT_LAYOUT_BATCH_COUNT: return take(&l->batch, value, bytes);
    case ACI_LT_LAYOUT_BATCH_STRIDE: return take(&l->stride, value, bytes);
    default: return BAD;
  }
}
LT cublasLtMatmulPreferenceCreate(aci_lt_preference *p) { return make(p, {LIVE, 0, {256, 256, 256, 256}, 7}); }
LT cublasLtMatmulPreferenceDestroy(aci_lt_preference p) { return drop(p); }
LT cublasLtMatmulPreferenceSetAttribute(aci_lt_preference p, int what, const void *value, size_t bytes) {
  if (what == ACI_LT_PREFERENCE_WORKSPACE) return take(&p->workspace, value, bytes);
  if (what == ACI_LT_PREFERENCE_REDUCTIONS) return take(&p->reductions, value, bytes);
  if (what < ACI_LT_PREFERENCE_ALIGNMENT_A || what > ACI_LT_PREFERENCE_ALIGNMENT_D) return BAD;
  return take(&p->alignment[what - ACI_LT_PREFERENCE_ALIGNMENT_A], value, bytes);
}

/* The algorithm remembers the alignments that were promised, and adds up two halves of a sum: as results, where it may. */
LT cublasLtMatmulAlgoGetHeuristic(aci_lt_handle h, aci_lt_desc op, aci_lt_layout a, aci_lt_layout b,
                                  aci_lt_layout c, aci_lt_layout d, aci_lt_preference p, int want,
                                  aci_lt_found *found, int *got) {
  int64_t k;
  *got = 0;
  if (h->live != LIVE || p->live != LIVE || want < 1 || c != d || !belong(op, a, b, d, &k)) return BAD;
  if (!exists(op, a, b, d) || p->workspace < BYTES || d->batch > 65535 || refuses("1")) return ACI_LT_NOT_SUPPORTED;
  *found = {};
  found->algo.data[0] = ALGO;
  for (int i = 0; i < 4; i++) found->algo.data[1 + i] = p->alignment[i];
  found->algo.data[5] = p->reductions & (ACI_LT_REDUCE_IN_PLACE | ACI_LT_REDUCE_OUTPUT_TYPE);
  found->workspace = BYTES;
  *got = 1;
  return 0;
}

LT cublasLtMatmul(aci_lt_handle h, aci_lt_desc op, const void *alpha, const void *a, aci_lt_layout la,
                  const void *b, aci_lt_layout lb, const void *beta, const void *c, aci_lt_layout lc, void *d,
                  aci_lt_layout ld, const aci_lt_algo *algo, void *workspace, size_t bytes,
                  cudaStream_t stream) {
  const void *const at[4] = {a, b, c, d};
  int64_t k;
  if (h->live != LIVE || stream == NULL || lc != ld || c != d || !belong(op, la, lb, ld, &k) ||
      !exists(op, la, lb, ld))
    return BAD;
  if (algo->data[0] != ALGO || workspace == NULL || (uintptr_t)workspace % 256 != 0 || bytes < BYTES) return BAD;
  if (refuses("late")) return ACI_LT_NOT_SUPPORTED;
  if ((uintptr_t)op->bias % 16 != 0) return BAD; /* the real one is not told, and faults */
  for (int i = 0; i < 4; i++)
    if ((uintptr_t)at[i] % algo->data[1 + i] != 0) return BAD; /* the real one would read past, or fault */
  memset(workspace, SPACE_MARK, BYTES);                        /* it is memory, and nobody else's */
  const bool wide = la->type == ACI_LT_F64;
  const double scales = f8(la->type) ? (double)(*op->a_scale * *op->b_scale) : 1;
  const double al = (wide ? *(const double *)alpha : *(const float *)alpha) * scales,
               be = wide ? *(const double *)beta : *(const float *)beta;
  const uint32_t e = op->epilogue;
  const bool gradient = (e & 64) != 0, round = op->compute == ACI_LT_COMPUTE_TF32 && getenv("CUDA_TWIN_CUBLASLT_ROUND") != NULL;
  for (int64_t batch = 0; batch < ld->batch; batch++) {
    const void *x = (const char *)a + batch * la->stride * (int64_t)size_of(la->type);
    const void *y = (const char *)b + batch * lb->stride * (int64_t)size_of(lb->type);
    void *z = (char *)d + batch * ld->stride * (int64_t)size_of(ld->type);
    std::vector<double> sums((size_t)ld->rows, 0.0);
    for (int64_t j = 0; j < ld->cols; j++)
      for (int64_t i = 0; i < ld->rows; i++) {
        double sum = 0;
        alignas(8) char half[8];
        for (int64_t s = 0; s < k; s++) {
          if (s == k / 2 && algo->data[5] != 0) put(ld->type, half, 0, sum), sum = get(ld->type, half, 0);
          sum += factor(get(la->type, x, op->transa ? s + i * la->ld : i + s * la->ld), round) *
                 factor(get(lb->type, y, op->transb ? j + s * lb->ld : s + j * lb->ld), round);
        }
        double v = al * sum + (be != 0 ? be * get(ld->type, z, i + j * ld->ld) : 0);
        if ((e & ACI_LT_EPILOGUE_BIAS) != 0) v += get(ld->type, op->bias, i);
        if (gradient) {
          v *= slope(get(ld->type, op->aux, i + j * op->aux_ld));
          sums[(size_t)i] += v;
        } else if (e != ACI_LT_EPILOGUE_NONE) {
          if ((e & ACI_LT_EPILOGUE_AUX) != 0) put(ld->type, op->aux, i + j * op->aux_ld, v);
          if ((e & ACI_LT_EPILOGUE_GELU) != 0) v = gelu(v);
          if ((e & ACI_LT_EPILOGUE_RELU) != 0) v = v < 0 ? 0 : v;
        }
        put(ld->type, z, i + j * ld->ld, v);
      }
    if ((e & ACI_LT_EPILOGUE_BIAS_GRADIENT) != 0)
      for (int64_t i = 0; i < ld->rows; i++) put(ld->type, (void *)(uintptr_t)op->bias, i, sums[(size_t)i]);
  }
  const char *log = getenv("CUDA_TWIN_CUBLASLT_LOG");
  FILE *f = log != NULL ? fopen(log, "a") : NULL;
  if (f != NULL) {
    fprintf(f, "%lld x %lld x %lld type=%d result=%d compute=%d batch=%d epilogue=%u\n", (long long)ld->cols, (long long)ld->rows,
            (long long)k, la->type, ld->type, op->compute, ld->batch, e);
    fclose(f);
  }
  return 0;
}
}
