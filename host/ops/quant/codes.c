/* Values into codes and back: see codes.h. */
#include "ops/quant/codes.h"

#include <math.h>
#include <pthread.h>

#include "device/cpu/isa.h"

enum { STEPS = 65536, PIECE = 512 };

ac_status aci_frame_out_quantized(ac_frame *f, const ac_layout *l, ac_err *e) {
  AC_TRY(ac_layout_check(l, e));
  const int64_t bytes = (int64_t)ac_layout_bytes(l);
  AC_TRY(ac_frame_out(f, AC_U8, 1, &bytes, e));
  return aci_layout_give(f->out[f->n_out - 1], l, e);
}

ac_status aci_quantizable(const ac_tensor *x, ac_err *e) {
  if (x->dtype == AC_F32 || x->dtype == AC_F16 || x->dtype == AC_BF16) return AC_OK;
  return AC_FAIL(e, DTYPE, "f32, f16 and bf16 can be quantised, not %s", ac_dtype_name((ac_dtype)x->dtype));
}

/* ---- 8 bits, dynamic ---- */
static uint8_t nearest[2][STEPS]; /* code of each step of [-1, 1]: signed, unsigned */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_nearest(void) {
  for (int k = 0; k < 2; k++) {
    int n, at = 0;
    const float *map = ac_quant_map(k == 0 ? AC_QUANT_DYNAMIC : AC_QUANT_UDYNAMIC, &n);
    for (int i = 0; i < STEPS; i++) {
      const float v = (float)i * (2.0f / (STEPS - 1)) - 1.0f;
      while (at < n - 1 && v > 0.5f * (map[at] + map[at + 1])) at++;
      nearest[k][i] = (uint8_t)at;
    }
  }
}

/* The largest magnitude. */
AC_ISA_FN(largest, (const float *restrict x, int64_t n, float *absmax), (x, n, absmax)) {
  float most = 0;
  for (int64_t i = 0; i < n; i++) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    most = a > most ? a : most;
  }
  *absmax = most;
}

AC_ISA_FN(encode, (const float *restrict x, int64_t n, float inverse, const uint8_t *restrict of, uint8_t *restrict q),
          (x, n, inverse, of, q)) {
  for (int64_t i = 0; i < n; i++) {
    float v = x[i] * inverse;
    v = v < -1 ? -1 : v > 1 ? 1 : v == v ? v : 0;
    q[i] = of[(int32_t)((v + 1.0f) * ((STEPS - 1) * 0.5f) + 0.5f)];
  }
}

void aci_encode_dynamic(ac_quant_type type, const float *x, int64_t n, uint8_t *q, float *absmax) {
  pthread_once(&once, make_nearest);
  largest(x, n, absmax);
  if (*absmax == 0 && n > 0) memset(q, 0, (size_t)n);
  else encode(x, n, 1.0f / *absmax, nearest[type == AC_QUANT_UDYNAMIC], q);
}

AC_ISA_FN(decode, (const uint8_t *restrict q, int64_t n, const float *restrict map, float absmax, float *restrict y),
          (q, n, map, absmax, y)) {
  for (int64_t i = 0; i < n; i++) y[i] = map[q[i]] * absmax;
}

void aci_decode_dynamic(ac_quant_type type, const uint8_t *q, int64_t n, float absmax, float *y) {
  int size;
  decode(q, n, ac_quant_map(type, &size), absmax, y);
}

/* ---- absmax ---- */
void aci_nest_absmax(ac_tensor *t, const ac_layout *l, const float *absmax) {
  const aci_part codes = aci_layout_part(l, AC_PART_ABSMAX), outer = aci_layout_part(l, AC_PART_NESTED_ABSMAX),
                 offset = aci_layout_part(l, AC_PART_OFFSET);
  float row[ACI_NESTED_BLOCK], *most = aci_part_data(t, &outer);
  uint8_t *q = aci_part_data(t, &codes);
  const float mean = aci_mean_of(absmax, codes.n);
  *(float *)aci_part_data(t, &offset) = mean;
  for (int64_t b = 0; b < outer.n; b++) {
    const int64_t at = b * ACI_NESTED_BLOCK, n = codes.n - at < ACI_NESTED_BLOCK ? codes.n - at : ACI_NESTED_BLOCK;
    for (int64_t i = 0; i < n; i++) row[i] = absmax[at + i] - mean;
    aci_encode_dynamic(AC_QUANT_DYNAMIC, row, n, q + at, &most[b]);
  }
}

AC_ISA_FN(decode_add, (const uint8_t *restrict q, int64_t n, const float *restrict map, float most, float mean, float *restrict y),
          (q, n, map, most, mean, y)) {
  for (int64_t i = 0; i < n; i++) y[i] = map[q[i]] * most + mean;
}

void aci_absmax_load(const ac_tensor *t, const ac_layout *l, int64_t first, int64_t n, float *absmax) {
  const aci_part part = aci_layout_part(l, AC_PART_ABSMAX);
  if (!l->nested) {
    memcpy(absmax, (const float *)aci_part_data(t, &part) + first, (size_t)n * sizeof *absmax);
    return;
  }
  const aci_part outer = aci_layout_part(l, AC_PART_NESTED_ABSMAX), offset = aci_layout_part(l, AC_PART_OFFSET);
  const uint8_t *q = aci_part_data(t, &part);
  const float *most = aci_part_data(t, &outer), mean = *(const float *)aci_part_data(t, &offset);
  int size;
  const float *map = ac_quant_map(AC_QUANT_DYNAMIC, &size);
  for (int64_t at = first, end = first + n; at < end;) {
    const int64_t block = at / ACI_NESTED_BLOCK, stop = (block + 1) * ACI_NESTED_BLOCK < end ? (block + 1) * ACI_NESTED_BLOCK : end;
    decode_add(q + at, stop - at, map, most[block], mean, absmax + (at - first));
    at = stop;
  }
}

/* ---- values ---- */
AC_ISA_FN(decode4, (const uint8_t *restrict q, int64_t pairs, const float *restrict map, float absmax, float *restrict y),
          (q, pairs, map, absmax, y)) {
  for (int64_t i = 0; i < pairs; i++) {
    y[2 * i] = map[q[i] >> 4] * absmax;
    y[2 * i + 1] = map[q[i] & 15] * absmax;
  }
}

/* n values from an element of one block. */
static void load_4bit(const uint8_t *q, const float *map, int64_t begin, int64_t n, float absmax, float *y) {
  if (n > 0 && begin % 2 != 0) {
    *y++ = map[q[begin / 2] & 15] * absmax;
    begin++;
    n--;
  }
  decode4(q + begin / 2, n / 2, map, absmax, y);
  if (n % 2 != 0) y[n - 1] = map[q[(begin + n - 1) / 2] >> 4] * absmax;
}

AC_ISA_FN(scale8, (const int8_t *restrict q, int64_t n, float scale, float *restrict y), (q, n, scale, y)) {
  for (int64_t i = 0; i < n; i++) y[i] = (float)q[i] * scale;
}

void aci_dequantize_load(const ac_tensor *t, const ac_layout *l, int64_t begin, int64_t n, float *y) {
  const aci_part values = aci_layout_part(l, AC_PART_VALUES);
  const void *q = aci_part_data(t, &values);
  const int64_t end = begin + n;
  float absmax[PIECE];
  int size;
  const float *map = ac_quant_map(l->type, &size);
  for (int64_t at = begin; at < end;) {
    const int64_t block = at / l->blocksize, last = (end - 1) / l->blocksize;
    const int64_t blocks = last - block + 1 < PIECE ? last - block + 1 : PIECE;
    aci_absmax_load(t, l, block, blocks, absmax);
    for (int64_t b = block; b < block + blocks; b++) {
      const int64_t stop = (b + 1) * l->blocksize < end ? (b + 1) * l->blocksize : end, m = stop - at;
      const float most = absmax[b - block];
      if (aci_layout_is_4bit(l)) load_4bit(q, map, at, m, most, y);
      else if (l->type == AC_QUANT_INT8) scale8((const int8_t *)q + at, m, most * (1.0f / 127), y);
      else decode((const uint8_t *)q + at, m, map, most, y);
      y += m;
      at = stop;
    }
  }
}
