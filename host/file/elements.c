/* Elements of files that no dtype of accel has, as values of a wider one, and integers of a few bits in
 * words. Called by safetensors_read.c, the reader of PyTorch's files and bindings/file/lac_elements.c.
 *
 * Formats: OCP Microscaling 1.0 (F8_E8M0, F4 = E2M1), Noune et al. 2022 (the FNUZ types). */
#include <math.h>
#include <string.h>

#include "base/base_impl.h"
#include "file/elements.h"

enum { U64, E8M0, E4M3FNUZ, E5M2FNUZ, E2M1, N_ELEMENTS };

static const aci_element elements[N_ELEMENTS] = {
    [U64] = {"U64", "uint64", 64, AC_I64},
    [E8M0] = {"F8_E8M0", "float8_e8m0fnu", 8, AC_F32},
    [E4M3FNUZ] = {"F8_E4M3FNUZ", "float8_e4m3fnuz", 8, AC_F32},
    [E5M2FNUZ] = {"F8_E5M2FNUZ", "float8_e5m2fnuz", 8, AC_F32},
    [E2M1] = {"F4", "float4_e2m1fn_x2", 4, AC_F32},
};

const aci_element *aci_element_of(const char *st_name, const char *torch_name) {
  for (int i = 0; i < N_ELEMENTS; i++) {
    if (st_name != NULL && strcmp(elements[i].st_name, st_name) == 0) return &elements[i];
    if (torch_name != NULL && strcmp(elements[i].torch_name, torch_name) == 0) return &elements[i];
  }
  return NULL;
}

/* A sign, an exponent with this bias and a fraction of `man` bits. Exponent 0: no hidden bit. */
static float small_float(int code, int bits, int man, int bias) {
  const int fraction = code & ((1 << man) - 1),
            exponent = code >> man & ((1 << (bits - 1 - man)) - 1);
  const float v = exponent == 0 ? ldexpf((float)fraction, 1 - bias - man)
                                : ldexpf((float)(fraction + (1 << man)), exponent - bias - man);
  return code >> (bits - 1) & 1 ? -v : v;
}

static float value_of(int kind, int code) {
  switch (kind) {
    case E8M0: return code == 255 ? NAN : ldexpf(1, code - 127);
    case E4M3FNUZ: return code == 0x80 ? NAN : small_float(code, 8, 3, 8); /* no infinity, no -0 */
    case E5M2FNUZ: return code == 0x80 ? NAN : small_float(code, 8, 2, 16);
    default: return small_float(code, 4, 1, 1);
  }
}

static ac_status widen_u64(const void *src, void *dst, int64_t n, ac_err *e) {
  memcpy(dst, src, (size_t)n * 8);
  const int64_t *v = dst;
  for (int64_t i = 0; i < n; i++)
    if (v[i] < 0)
      return AC_FAIL(e, DTYPE, "element %lld is %llu, which i64 cannot hold", (long long)i,
                     (unsigned long long)v[i]);
  return AC_OK;
}

ac_status aci_element_widen(const aci_element *k, const void *src, void *dst, int64_t n,
                            ac_err *e) {
  const int kind = (int)(k - elements);
  const uint8_t *p = src;
  float *y = dst, table[256];
  if (kind == U64) return widen_u64(src, dst, n, e);
  for (int i = 0; i < 1 << k->bits; i++) table[i] = value_of(kind, i);
  if (kind == E2M1) {
    for (int64_t i = 0; i < n; i++) y[i] = table[p[i / 2] >> (i % 2 * 4) & 15];
  } else {
    for (int64_t i = 0; i < n; i++) y[i] = table[p[i]];
  }
  return AC_OK;
}

typedef struct unpack_job {
  const uint32_t *src;
  uint8_t *dst;
  int64_t words, inner, n;
  int bits;
} unpack_job;

/* Rows of `inner` integers: row i of piece i / n. */
static void unpack_rows(void *arg, int64_t begin, int64_t end) {
  const unpack_job *j = arg;
  const uint32_t mask = (1u << j->bits) - 1;
  for (int64_t row = begin; row < end; row++) {
    const int64_t bit = row % j->n * j->bits;
    const int shift = (int)(bit % 32);
    const uint32_t *low = j->src + (row / j->n * j->words + bit / 32) * j->inner,
                   *high = low + j->inner;
    uint8_t *y = j->dst + row * j->inner;
    if (shift + j->bits <= 32) {
      for (int64_t i = 0; i < j->inner; i++) y[i] = (uint8_t)(low[i] >> shift & mask);
    } else {
      for (int64_t i = 0; i < j->inner; i++)
        y[i] = (uint8_t)((low[i] >> shift | high[i] << (32 - shift)) & mask);
    }
  }
}

void aci_unpack_bits(ac_team *team, const uint32_t *src, int64_t outer, int64_t words,
                     int64_t inner, int bits, int64_t n, uint8_t *dst) {
  unpack_job j = {src, dst, words, inner, n, bits};
  const int64_t grain = inner >= 65536 ? 1 : 65536 / (inner > 0 ? inner : 1);
  if (inner > 0 && n > 0) ac_parallel_for(team, outer * n, grain, unpack_rows, &j);
}
