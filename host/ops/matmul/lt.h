/* The part of cuBLASLt (versions 12 and 13) that product_lt.cu calls, declared from its
 * documentation. The library is loaded if present, and is not needed to build. The twin's stand-in
 * (tests/cuda/twin/cublaslt.cpp) defines the same functions. Enumerations are ints, and every call
 * returns a status, 0 for success. If the toolkit's header is available, lt_check.cu compares. */
#ifndef ACI_OPS_MATMUL_LT_H
#define ACI_OPS_MATMUL_LT_H
#include <stddef.h>
#include <stdint.h>

/* cudaDataType */
enum {
  ACI_LT_F32 = 0,
  ACI_LT_F64 = 1,
  ACI_LT_F16 = 2,
  ACI_LT_BF16 = 14,
  ACI_LT_E4M3 = 28,
  ACI_LT_E5M2 = 29
};
/* cublasComputeType_t */
enum { ACI_LT_COMPUTE_F32 = 68, ACI_LT_COMPUTE_F64 = 70, ACI_LT_COMPUTE_TF32 = 77 };
/* cublasStatus_t */
enum { ACI_LT_NOT_SUPPORTED = 15 };
/* cublasOperation_t */
enum { ACI_LT_OP_N = 0, ACI_LT_OP_T = 1 };
/* cublasLtMatrixLayoutAttribute_t */
enum { ACI_LT_LAYOUT_BATCH_COUNT = 5, ACI_LT_LAYOUT_BATCH_STRIDE = 6 };
/* cublasLtMatmulDescAttributes_t */
enum {
  ACI_LT_DESC_TRANSA = 3,
  ACI_LT_DESC_TRANSB = 4,
  ACI_LT_DESC_EPILOGUE = 7,
  ACI_LT_DESC_BIAS_POINTER = 8,
  ACI_LT_DESC_AUX_POINTER = 11,
  ACI_LT_DESC_AUX_LD = 12,
  ACI_LT_DESC_A_SCALE_POINTER = 17,
  ACI_LT_DESC_B_SCALE_POINTER = 18
};
enum { /* cublasLtEpilogue_t: bits */
       ACI_LT_EPILOGUE_NONE = 1,
       ACI_LT_EPILOGUE_RELU = 2,
       ACI_LT_EPILOGUE_BIAS = 4,
       ACI_LT_EPILOGUE_BIAS_GRADIENT = 16,
       ACI_LT_EPILOGUE_GELU = 32, /* the tanh form */
       ACI_LT_EPILOGUE_GELU_GRADIENT = 64 | 128,
       ACI_LT_EPILOGUE_AUX = 128 /* the argument of gelu, written forward and read backward */
};
enum { /* cublasLtMatmulPreferenceAttributes_t */
       ACI_LT_PREFERENCE_WORKSPACE = 1,
       ACI_LT_PREFERENCE_REDUCTIONS = 3,
       ACI_LT_PREFERENCE_ALIGNMENT_A = 5, /* followed by B, C, D */
       ACI_LT_PREFERENCE_ALIGNMENT_B = 6,
       ACI_LT_PREFERENCE_ALIGNMENT_C = 7,
       ACI_LT_PREFERENCE_ALIGNMENT_D = 8
};
/* cublasLtReductionScheme_t: bits for adding parts of a sum that were computed in parallel */
enum { ACI_LT_REDUCE_IN_PLACE = 1, ACI_LT_REDUCE_COMPUTE_TYPE = 2, ACI_LT_REDUCE_OUTPUT_TYPE = 4 };

typedef struct cublasLtContext *aci_lt_handle;
typedef struct aci_lt_layout_opaque *aci_lt_layout;
typedef struct aci_lt_desc_opaque *aci_lt_desc;
typedef struct aci_lt_preference_opaque *aci_lt_preference;

typedef struct aci_lt_algo { /* cublasLtMatmulAlgo_t */
  uint64_t data[8];
} aci_lt_algo;
typedef struct aci_lt_found { /* cublasLtMatmulHeuristicResult_t */
  aci_lt_algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} aci_lt_found;

/* X(name, parameters) */
/* clang-format off */
#define ACI_LT_CALLS(X)                                                                                                        \
  X(cublasLtCreate, (aci_lt_handle *))                                                                                         \
  X(cublasLtMatmulDescCreate, (aci_lt_desc *, int compute, int scale))                                                         \
  X(cublasLtMatmulDescDestroy, (aci_lt_desc))                                                                                  \
  X(cublasLtMatmulDescSetAttribute, (aci_lt_desc, int what, const void *value, size_t bytes))                                  \
  X(cublasLtMatrixLayoutCreate, (aci_lt_layout *, int type, uint64_t rows, uint64_t cols, int64_t ld))                         \
  X(cublasLtMatrixLayoutDestroy, (aci_lt_layout))                                                                              \
  X(cublasLtMatrixLayoutSetAttribute, (aci_lt_layout, int what, const void *value, size_t bytes))                              \
  X(cublasLtMatmulPreferenceCreate, (aci_lt_preference *))                                                                     \
  X(cublasLtMatmulPreferenceDestroy, (aci_lt_preference))                                                                      \
  X(cublasLtMatmulPreferenceSetAttribute, (aci_lt_preference, int what, const void *value, size_t bytes))                      \
  X(cublasLtMatmulAlgoGetHeuristic,                                                                                            \
    (aci_lt_handle, aci_lt_desc, aci_lt_layout a, aci_lt_layout b, aci_lt_layout c, aci_lt_layout d, aci_lt_preference,        \
     int want, aci_lt_found *, int *got))                                                                                      \
  X(cublasLtMatmul,                                                                                                            \
    (aci_lt_handle, aci_lt_desc, const void *alpha, const void *a, aci_lt_layout, const void *b, aci_lt_layout,                \
     const void *beta, const void *c, aci_lt_layout, void *d, aci_lt_layout, const aci_lt_algo *, void *workspace,             \
     size_t bytes, cudaStream_t))
/* clang-format on */

#endif
