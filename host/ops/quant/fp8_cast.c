/* fp8_cast: x in 8 bits a value under one scale: y = x scale rounded to nearest even and clamped to the format's
   range (448, 57344). The factor 1 / scale reverses it. The default scale follows from x: 448 (57344) / max(|x|,
   1e-12), with pow2 = true the power of two below (current scaling, as in torchao and MS-AMP). amax, one f32,
   becomes max(amax, |x|) if it is given: delayed
   scaling derives the next scale from it (fp8_update_scale_). NaN stays NaN and is not an amax.
   x (any shape, f32, f16, bf16), scale (one f32)?, amax (one f32)? -> y (f8_e4m3 or f8_e5m2), scale_inv (one f32,
   no dims). No gradient.
   example: local y, inv = accel.fp8_cast(accel.tensor { 1.0, -4 }) return y:to "f32", inv * 448 --> { 112, -448 }, 4
   example: local y = accel.fp8_cast(accel.tensor { 3.3, -1000 }, accel.ones(1)) return y:to "f32" --> { 3.25, -448 } */
#include "base/float8.h"
#include "device/cpu/isa.h"
#include "ops/index/index.h"
#include "ops/map/convert.h"
#include "ops/core/on_host.h"

enum { X, SCALE, AMAX, FORMAT, POW2 };
enum { CHUNK = 4096 };

static ac_status one_f32(const ac_frame *f, int arg, const char *name, ac_err *e) {
  char a[128];
  if (ARG_NONE(f, arg)) return AC_OK;
  const ac_tensor *t = ARG_T(f, arg);
  if (t->numel != 1 || t->dtype != AC_F32)
    return AC_FAIL(e, SHAPE, "%s must be one f32, got %s", name, aci_tensor_str(t, a, sizeof a));
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  if (x->dtype != AC_F32 && x->dtype != AC_F16 && x->dtype != AC_BF16)
    return AC_FAIL(e, DTYPE, "x must be f32, f16 or bf16, not %s",
                   ac_dtype_name((ac_dtype)x->dtype));
  AC_TRY(one_f32(f, SCALE, "scale", e));
  AC_TRY(one_f32(f, AMAX, "amax", e));
  AC_TRY(ac_frame_out(f, ARG_I(f, FORMAT) == 0 ? AC_F8_E4M3 : AC_F8_E5M2, x->ndim, x->shape, e));
  return ac_frame_out(f, AC_F32, 0, NULL, e);
}

typedef struct cast_job {
  const ac_tensor *x;
  uint8_t *y;
  float *most; /* of each chunk: the largest magnitude. NULL: not wanted */
  float scale;
  bool e5m2, write;
} cast_job;

AC_ISA_FN(encode_e4m3, (const float *restrict x, float scale, uint8_t *restrict y, int64_t n),
          (x, scale, y, n)) {
  for (int64_t i = 0; i < n; i++) y[i] = aci_e4m3_saturated(x[i] * scale);
}
AC_ISA_FN(encode_e5m2, (const float *restrict x, float scale, uint8_t *restrict y, int64_t n),
          (x, scale, y, n)) {
  for (int64_t i = 0; i < n; i++) y[i] = aci_e5m2_saturated(x[i] * scale);
}
/* The largest magnitude as bits: of numbers they are ordered as the numbers are, and NaN, above
 * infinity, counts as 0. */
AC_ISA_FN(largest, (const float *restrict x, int64_t n, uint32_t *restrict out), (x, n, out)) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; i++) {
    const uint32_t u = aci_bits32(x[i]) & 0x7fffffffu, v = u > 0x7f800000u ? 0 : u;
    most = v > most ? v : most;
  }
  *out = most;
}

static void chunks(void *arg, int64_t begin, int64_t end) {
  const cast_job *j = arg;
  _Alignas(64) float row[CHUNK];
  for (int64_t c = begin; c < end; c++) {
    const int64_t from = c * CHUNK, left = j->x->numel - from, n = left < CHUNK ? left : CHUNK;
    const float *x = row;
    if (j->x->dtype == AC_F32 && aci_is_contiguous(j->x)) x = (const float *)aci_data(j->x) + from;
    else aci_elems_load(j->x, ACI_C_F32, from, n, row);
    if (j->most != NULL) {
      uint32_t bits;
      largest(x, n, &bits);
      j->most[c] = aci_float32(bits);
    }
    if (!j->write) continue;
    if (j->e5m2) encode_e5m2(x, j->scale, j->y + from, n);
    else encode_e4m3(x, j->scale, j->y + from, n);
  }
}

static ac_status run(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X);
  const int64_t n = (x->numel + CHUNK - 1) / CHUNK;
  const bool current = ARG_NONE(f, SCALE), e5m2 = ARG_I(f, FORMAT) != 0;
  ac_block *block = NULL;
  cast_job j = {.x = x, .y = aci_data(f->out[0]), .e5m2 = e5m2, .write = !current};
  float amax = 0;
  if (current || !ARG_NONE(f, AMAX)) {
    AC_TRY(ac_block_alloc(f->device, (size_t)n * sizeof(float) + 1, AC_MEM_ACTIVATION, f->stream,
                          &block, e));
    j.most = block->ptr;
  }
  if (!current) j.scale = *(const float *)aci_data(ARG_T(f, SCALE));
  ac_parallel_for(f->team, n, 8, chunks, &j);
  for (int64_t i = 0; j.most != NULL && i < n; i++) amax = j.most[i] > amax ? j.most[i] : amax;
  if (current) {
    j.scale = aci_float8_scale(amax, e5m2 ? ACI_E5M2_MAX : ACI_E4M3_MAX, ARG_B(f, POW2));
    j.most = NULL;
    j.write = true;
    ac_parallel_for(f->team, n, 8, chunks, &j);
  }
  if (!ARG_NONE(f, AMAX)) {
    float *kept = aci_data(ARG_T(f, AMAX));
    if (amax > *kept) *kept = amax;
  }
  *(float *)aci_data(f->out[1]) = 1 / j.scale;
  ac_block_free(block);
  return AC_OK;
}
ACI_ON_HOST(run)

AC_OP(
    fp8_cast,
    .sig =
        "fp8_cast(x: tensor, scale: tensor?, amax!: tensor?, format: enum(e4m3|e5m2) = e4m3, pow2: bool = false) -> "
        "(y: tensor, scale_inv: tensor)",
    .shape = shape, .cpu = cpu, .by_vtable = true, .nondiff = true);
