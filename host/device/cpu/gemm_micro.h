/* A template of gemm_kernel.c, which defines NAME, TARGET, T, U, V, B, L, ZERO, LOADB, BCAST,
 * MADD, LOAD, STORE and ADD before each #include. The end of this file undefines them. T: packed
 * step (float, double, or a pair of bf16 as uint32_t). U: element of C. V: vector of L values of
 * C. B: vector as loaded from the panels. rs, ks: bytes from row to row and from step to step of
 * A. */
#include "base/cat.h"

TARGET static inline AC_INLINE void ACI_CAT(NAME, _body)(const int rows, const int nv, int64_t kc,
                                                         const char *a, const int64_t rs,
                                                         const int64_t ks, const T *b, U *c,
                                                         int64_t ldc, bool add) {
  V acc[ACI_GEMM_MR_MAX][2];
  _Pragma("GCC unroll 14") for (int i = 0; i < rows; i++) {
    _Pragma("GCC unroll 2") for (int j = 0; j < nv; j++) {
      acc[i][j] = ZERO();
      if (sizeof(V) == LINE && add) __builtin_prefetch(c + i * ldc + j * L, 1);
    }
  }
  for (int64_t k = 0; k < kc; k++, a += ks, b += nv * L) {
    B bv[2];
    _Pragma("GCC unroll 2") for (int j = 0; j < nv; j++) {
      bv[j] = LOADB(b + j * L);
      if (sizeof(V) == LINE) AHEAD(b + j * L, AHEAD_B);
    }
    if (sizeof(V) == LINE && rs < ks) AHEAD(a, AHEAD_A); /* packed */
    _Pragma("GCC unroll 14") for (int i = 0; i < rows; i++) {
      B av = BCAST((const T *)(const void *)(a + i * rs));
      _Pragma("GCC unroll 2") for (int j = 0; j < nv; j++) acc[i][j] = MADD(acc[i][j], av, bv[j]);
    }
  }
  _Pragma("GCC unroll 14") for (int i = 0; i < rows; i++) {
    _Pragma("GCC unroll 2") for (int j = 0; j < nv; j++) {
      U *p = c + i * ldc + j * L;
      V v = acc[i][j];
      if (add) v = ADD(LOAD(p), v);
      STORE(p, v);
    }
  }
}

#undef NAME
#undef TARGET
#undef T
#undef U
#undef V
#undef B
#undef L
#undef ZERO
#undef LOADB
#undef BCAST
#undef MADD
#undef LOAD
#undef STORE
#undef ADD
