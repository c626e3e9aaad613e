/* quantize_blockwise: x in so many bits an element. The elements are taken in row-major order, block_size at a
   time. A block stores a scale, its largest magnitude / (2^(bits-1) - 1), and for each element round(x / scale).
   x (floating point, n elements in any shape) -> q (n, i8), or for 4 bits (ceil(n / 2), u8) with element 2i in the
   low half of a byte and element 2i + 1 in the high one, both in two's complement. scale (ceil(n / block_size),
   f32). A block with an infinity or NaN has the scale NaN, so that all of it comes back as NaN. A block whose
   scale would be subnormal has the scale 0. No gradient. See dequantize_blockwise.
   example: accel.tensor { -1.0, 0.5, 0, 1 }:quantize_blockwise() --> { -127, 64, 0, 127 }, { 0.0078740 }
   example: accel.tensor { 7.0, -7, 1, 0 }:quantize_blockwise { bits = 4, block_size = 2 } --> { 151, 7 }, { 1, 0.142857 } */
#include "ops/quant/quant.h"

#include <float.h>

#include "device/cpu/isa.h"
#include "ops/quant/nonfinite.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int64_t bits = ARG_I(f, 1), block = ARG_I(f, 2);
  if (!ac_dtype_is_float((ac_dtype)x->dtype) || x->dtype > AC_BOOL)
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  AC_TRY(aci_quant_check(bits, block, e));
  const int64_t bytes = aci_quant_bytes(x->numel, bits), blocks = aci_quant_blocks(x->numel, block);
  AC_TRY(ac_frame_out(f, bits == 8 ? AC_I8 : AC_U8, 1, &bytes, e));
  return ac_frame_out(f, AC_F32, 1, &blocks, e);
}

typedef struct quantize_job {
  const ac_tensor *x;
  const float *direct; /* x itself if it is contiguous f32 */
  int8_t *q;
  float *scale;
  int64_t block;
  int top; /* 127 or 7 */
} quantize_job;

/* Rounding to nearest even by adding 1.5 x 2^23. */
AC_ISA_FN(round_all, (const float *restrict x, int64_t n, float inverse, int8_t *restrict q),
          (x, n, inverse, q)) {
  for (int64_t i = 0; i < n; i++) {
    float r = x[i] * inverse + 12582912.0f;
    int32_t v;
    memcpy(&v, &r, sizeof v);
    q[i] = (int8_t)(v - 0x4b400000);
  }
}

/* One block: its scale, and its values as bytes. */
static void quantize(const float *x, int64_t n, int top, int8_t *q, float *scale) {
  const float most = aci_largest(x, n), s = most / (float)top;
  if (!aci_is_finite(most) || s < FLT_MIN) {
    *scale = aci_is_finite(most) ? 0.0f : __builtin_nanf("");
    memset(q, 0, (size_t)n);
    return;
  }
  *scale = s;
  round_all(x, n, 1.0f / s, q);
}

AC_ISA_FN(pack4, (const int8_t *restrict v, int64_t pairs, uint8_t *restrict q), (v, pairs, q)) {
  for (int64_t i = 0; i < pairs; i++) q[i] = (uint8_t)((v[2 * i] & 15) | (v[2 * i + 1] & 15) << 4);
}

static void range(void *arg, int64_t begin, int64_t end) {
  const quantize_job *j = arg;
  _Alignas(64) float row[ACI_QUANT_MAX_BLOCK];
  _Alignas(64) int8_t v[ACI_QUANT_MAX_BLOCK + 1];
  for (int64_t b = begin; b < end; b++) {
    const int64_t at = b * j->block, n = j->x->numel - at < j->block ? j->x->numel - at : j->block;
    const float *x = row;
    if (j->direct != NULL) x = j->direct + at;
    else aci_elems_load(j->x, ACI_C_F32, at, n, row);
    if (j->top == 127) {
      quantize(x, n, 127, j->q + at, j->scale + b);
    } else {
      quantize(x, n, 7, v, j->scale + b);
      v[n] = 0; /* the unused half of the last byte */
      pack4(v, (n + 1) / 2, (uint8_t *)j->q + at / 2);
    }
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  quantize_job j = {.x = x,
                    .direct = x->dtype == AC_F32 && aci_is_contiguous(x) ? aci_data(x) : NULL,
                    .q = aci_data(f->out[0]),
                    .scale = aci_data(f->out[1]),
                    .block = ARG_I(f, 2),
                    .top = ARG_I(f, 1) == 8 ? 127 : 7};
  (void)e;
  ac_parallel_for(f->team, aci_quant_blocks(x->numel, j.block), aci_quant_grain(j.block), range,
                  &j);
  return AC_OK;
}

AC_OP(
    quantize_blockwise,
    .sig =
        "quantize_blockwise(x: tensor, bits: int = 8, block_size: int = 256) -> (q: tensor, scale: tensor)",
    .shape = shape, .cpu = cpu, .nondiff = true);
