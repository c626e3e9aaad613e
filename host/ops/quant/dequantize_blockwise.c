/* dequantize_blockwise: q * scale, the inverse of quantize_blockwise for a tensor of this shape, within half a
   scale of the original.
   q (n, i8, or for 4 bits ceil(n / 2), u8), scale (ceil(n / block_size), floating point) -> y (shape, of n
   elements, dtype). No gradient.
   example: accel.dequantize_blockwise(accel.tensor({ -127, 64 }, { dtype = "i8" }), accel.tensor { 0.5 }, { 2 }) --> { -63.5, 32 }
   example: local q, s = accel.tensor { 1.0, 7 }:quantize_blockwise(4) return accel.dequantize_blockwise(q, s, { 1, 2 }, 4) --> { { 1, 7 } } */
#include "ops/quant/quant.h"

#include "device/cpu/isa.h"

enum { PIECE = 1024 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *q = ARG_T(f, 0), *scale = ARG_T(f, 1);
  const ac_value *s = &f->args[2];
  const int64_t bits = ARG_I(f, 3), block = ARG_I(f, 4);
  char a[128];
  int64_t n = 1;
  AC_TRY(aci_quant_check(bits, block, e));
  if (q->dtype != (bits == 8 ? AC_I8 : AC_U8))
    return AC_FAIL(e, DTYPE, "q is %s, %d bits lie in %s", ac_dtype_name((ac_dtype)q->dtype),
                   (int)bits, bits == 8 ? "i8" : "u8");
  if (!ac_dtype_is_float((ac_dtype)scale->dtype) || scale->dtype > AC_BOOL)
    return AC_FAIL(e, DTYPE, "scale is %s, expected a float",
                   ac_dtype_name((ac_dtype)scale->dtype));
  if (!ac_dtype_is_float(f->args[5].dtype) || f->args[5].dtype > AC_BOOL)
    return AC_FAIL(e, DTYPE, "dtype must be a float, got %s", ac_dtype_name(f->args[5].dtype));
  if (s->n > AC_MAX_DIMS)
    return AC_FAIL(e, SHAPE, "shape has %d dims, at most %d are possible", s->n, AC_MAX_DIMS);
  for (int i = 0; i < s->n; i++)
    if (s->ints[i] < 0 || __builtin_mul_overflow(n, s->ints[i], &n) ||
        n > INT64_MAX - ACI_QUANT_MAX_BLOCK)
      return AC_FAIL(e, SHAPE, "%s is not a shape", aci_shape_str(s->n, s->ints, a, sizeof a));
  if (q->numel != aci_quant_bytes(n, bits) || scale->numel != aci_quant_blocks(n, block))
    return AC_FAIL(
        e, SHAPE,
        "a tensor of shape %s takes %lld bytes and %lld scales with %d bits in blocks of %lld, got %lld "
        "and %lld",
        aci_shape_str(s->n, s->ints, a, sizeof a), (long long)aci_quant_bytes(n, bits),
        (long long)aci_quant_blocks(n, block), (int)bits, (long long)block, (long long)q->numel,
        (long long)scale->numel);
  return ac_frame_out(f, f->args[5].dtype, s->n, s->ints, e);
}

typedef struct dequantize_job {
  ac_tensor *y;
  float *direct; /* y itself if it is f32 */
  const int8_t *q;
  const ac_tensor *scale;
  int64_t block, bits;
} dequantize_job;

AC_ISA_FN(widen8, (const int8_t *restrict q, int64_t n, float s, float *restrict y), (q, n, s, y)) {
  for (int64_t i = 0; i < n; i++) y[i] = (float)q[i] * s;
}
AC_ISA_FN(widen4, (const uint8_t *restrict q, int64_t pairs, float s, float *restrict y),
          (q, pairs, s, y)) {
  for (int64_t i = 0; i < pairs; i++) {
    y[2 * i] = (float)((int8_t)(q[i] << 4) >> 4) * s;
    y[2 * i + 1] = (float)((int8_t)q[i] >> 4) * s;
  }
}

static void range(void *arg, int64_t begin, int64_t end) {
  const dequantize_job *j = arg;
  _Alignas(64) float row[PIECE];
  for (int64_t b = begin; b < end; b++) {
    const int64_t from = b * j->block,
                  to = j->y->numel - from < j->block ? j->y->numel : from + j->block;
    float s;
    aci_elems_load(j->scale, ACI_C_F32, b, 1, &s);
    for (int64_t at = from; at < to; at += PIECE) {
      const int64_t n = to - at < PIECE ? to - at : PIECE;
      float *y = j->direct != NULL ? j->direct + at : row;
      if (j->bits == 8) {
        widen8(j->q + at, n, s, y);
      } else {
        const uint8_t *q = (const uint8_t *)j->q + at / 2;
        widen4(q, n / 2, s, y);
        if (n % 2 != 0) y[n - 1] = (float)((int8_t)(q[n / 2] << 4) >> 4) * s;
      }
      if (j->direct == NULL) aci_elems_store(j->y, ACI_C_F32, at, n, row);
    }
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  ac_tensor *y = f->out[0];
  ac_block *block;
  const void *q;
  if (y->numel == 0) return AC_OK;
  AC_TRY(aci_contiguous_data(f, ARG_T(f, 0), &q, &block, e));
  dequantize_job j = {.y = y,
                      .direct = y->dtype == AC_F32 ? aci_data(y) : NULL,
                      .q = q,
                      .scale = ARG_T(f, 1),
                      .block = ARG_I(f, 4),
                      .bits = ARG_I(f, 3)};
  ac_parallel_for(f->team, aci_quant_blocks(y->numel, j.block), aci_quant_grain(j.block), range,
                  &j);
  ac_block_free(block);
  return AC_OK;
}

AC_OP(
    dequantize_blockwise,
    .sig =
        "dequantize_blockwise(q: tensor, scale: tensor, shape: shape, bits: int = 8, block_size: int = 256, "
        "dtype: dtype = f32) -> tensor",
    .shape = shape, .cpu = cpu, .nondiff = true);
