/* Attention of one query, as decoding asks for: keys and values are read once, as they lie, by all query heads that share them.
 * Called by flash.c, whose packed tiles pay from several queries on.
 *
 * Chunks of keys: scores, their largest, weights, their sum, weighted values; what came before is scaled when the largest grows.
 * Sums of products run over 16 interleaved lanes, on every ISA, so that bits do not depend on it nor on the number of threads. */
#include <math.h>
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/flash_impl.h"

enum { LANES = 16, CHUNK = 256, MAX_D = 256, MAX_SHARE = 16 };

typedef struct head {
  float q[MAX_D], acc[MAX_D], most, sum;
} head;

static inline AC_INLINE float load(const aci_gemm_type type, const void *p, int64_t i) {
  return type == ACI_GEMM_F32    ? ((const float *)p)[i]
         : type == ACI_GEMM_BF16 ? aci_bf16_to_f32(((const uint16_t *)p)[i])
                                 : aci_f16_to_f32(((const uint16_t *)p)[i]);
}

static inline AC_INLINE float dot(const aci_gemm_type type, const float *q, const void *k, int64_t d) {
  float part[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= d; i += LANES)
    for (int l = 0; l < LANES; l++) part[l] += q[i + l] * load(type, k, i + l);
  for (int l = 0; i < d; i++, l++) part[l] += q[i] * load(type, k, i);
  for (int w = LANES / 2; w > 0; w /= 2)
    for (int l = 0; l < w; l++) part[l] += part[l + w];
  return part[0];
}

static inline AC_INLINE void add_values(const aci_gemm_type type, float *acc, float w, const void *v, int64_t d) {
  for (int64_t i = 0; i < d; i++) acc[i] += w * load(type, v, i);
}

static float mask_at(const aci_flash *f, int64_t b, int64_t h, int64_t j) {
  const int64_t at = b * f->mask_s[0] + h * f->mask_s[1] + j * f->mask_s[3];
  if (f->mask_kind == ACI_FLASH_BOOL_MASK) return ((const unsigned char *)f->mask)[at] ? 0 : -INFINITY;
  if (f->mask_type == ACI_GEMM_F64) return (float)((const double *)f->mask)[at];
  return load(f->mask_type, f->mask, at);
}

/* Scores of keys c0 .. c0 + n for one head, then their part of the sums. */
static inline AC_INLINE void chunk(const aci_flash *f, const aci_gemm_type type, head *s, int64_t b, int64_t h, int64_t hk, int64_t c0,
                                   int64_t n) {
  float score[CHUNK], part[LANES] = {0}, most = s->most;
  bool nan = false;
  for (int64_t j = 0; j < n; j++)
    score[j] = dot(type, s->q, aci_flash_at(type, f->k, f->k_s, b, hk, c0 + j), f->d) * (float)f->scale;
  if (f->mask_kind != ACI_FLASH_NO_MASK)
    for (int64_t j = 0; j < n; j++) score[j] += mask_at(f, b, h, c0 + j);
  for (int64_t j = 0; j < n; j++) {
    most = score[j] > most ? score[j] : most;
    nan |= score[j] != score[j];
  }
  if (most == -INFINITY && !nan) return; /* all masked until here */
  if (most == -INFINITY) most = 0;
  for (int64_t j = n; j < CHUNK; j++) score[j] = -INFINITY;
  for (int64_t j = 0; j < CHUNK; j++) score[j] = aci_expf(score[j] - most);
  for (int64_t j = 0; j < CHUNK; j += LANES)
    for (int l = 0; l < LANES; l++) part[l] += score[j + l];
  for (int w = LANES / 2; w > 0; w /= 2)
    for (int l = 0; l < w; l++) part[l] += part[l + w];
  if (most != s->most) {
    const float before = s->most == -INFINITY ? 0 : aci_expf(s->most - most);
    s->sum *= before;
    for (int64_t i = 0; i < f->d; i++) s->acc[i] *= before;
    s->most = most;
  }
  s->sum += part[0];
  for (int64_t j = 0; j < n; j++)
    if (score[j] != 0) add_values(type, s->acc, score[j], aci_flash_at(type, f->v, f->v_s, b, hk, c0 + j), f->d);
}

static void finish(const aci_flash *f, const head *s, int64_t b, int64_t h) {
  void *out = (void *)(uintptr_t)aci_flash_at(f->type, f->out, f->out_s, b, h, 0);
  const float inverse = s->sum == 0 ? 0 : 1 / s->sum;
  for (int64_t i = 0; i < f->d; i++) {
    const float y = s->acc[i] * inverse;
    if (f->type == ACI_GEMM_F32) ((float *)out)[i] = y;
    else ((uint16_t *)out)[i] = f->type == ACI_GEMM_BF16 ? aci_f32_to_bf16(y) : aci_f32_to_f16(y);
  }
  if (f->lse != NULL) ((float *)f->lse)[b * f->hq + h] = s->sum == 0 ? -INFINITY : s->most + logf(s->sum);
}

/* One key head of one batch entry, with the query heads that read it. */
static inline AC_INLINE void group(const aci_flash *f, const aci_gemm_type type, int64_t b, int64_t hk) {
  head s[MAX_SHARE];
  const int64_t share = f->hq / f->hkv, n_keys = f->causal && f->tk > 1 ? 1 : f->tk;
  for (int64_t g = 0; g < share; g++) {
    const void *q = aci_flash_at(type, f->q, f->q_s, b, hk * share + g, 0);
    for (int64_t i = 0; i < f->d; i++) s[g].q[i] = load(type, q, i);
    memset(s[g].acc, 0, (size_t)f->d * sizeof(float));
    s[g].most = -INFINITY;
    s[g].sum = 0;
  }
  for (int64_t c0 = 0; c0 < n_keys; c0 += CHUNK)
    for (int64_t g = 0; g < share; g++) chunk(f, type, &s[g], b, hk * share + g, hk, c0, n_keys - c0 < CHUNK ? n_keys - c0 : CHUNK);
  for (int64_t g = 0; g < share; g++) finish(f, &s[g], b, hk * share + g);
}

AC_ISA_FN(any_type, (const aci_flash *f, int64_t b, int64_t hk), (f, b, hk)) {
  if (f->type == ACI_GEMM_F32) group(f, ACI_GEMM_F32, b, hk);
  else if (f->type == ACI_GEMM_BF16) group(f, ACI_GEMM_BF16, b, hk);
  else group(f, ACI_GEMM_F16, b, hk);
}

static void piece(void *arg, int64_t begin, int64_t end) {
  const aci_flash *f = arg;
  for (int64_t i = begin; i < end; i++) any_type(f, i / f->hkv, i % f->hkv);
}

bool aci_flash_decode(ac_team *team, const aci_flash *f) {
  if (!f->inference || f->tq != 1) return false;
  if (f->type == ACI_GEMM_F64 || f->drop_p > 0 || f->alibi != NULL || f->d > MAX_D || f->hq / f->hkv > MAX_SHARE) return false;
  ac_parallel_for(team, f->b * f->hkv, 1, piece, (void *)(uintptr_t)f);
  return true;
}
