/* quantize_4bit: x in 4 bits a value, as bitsandbytes does it: blocks of blocksize values in row-major order share their largest
   magnitude, absmax, and each value is the nearest of 16 numbers times it. With compress_statistics absmax is quantised as well, less
   its mean, to 8 bits in blocks of 256.
   x (any shape, f32, f16, bf16) -> y, a quantised tensor with values of this shape and dtype: see dequantize,
   linear_quantized and t.quant_state. 4.5 bits a value in blocks of 64, 4.13 with compress_statistics. No
   gradient.
   example: accel.quantize_4bit(accel.tensor { -1.0, 0, 0.25, 1 }, "nf4"):dequantize() --> { -1, 0, 0.2461123, 1 }
   example: accel.quantize_4bit(accel.tensor { 12.0, -6, 3, 0 }):dequantize() --> { 12, -6, 3, 0 }
   example: accel.quantize_4bit(accel.zeros(128, 64), "nf4").quant_state.shape --> { 128, 64 } */
#include "device/cpu/isa.h"
#include "ops/core/on_host.h"
#include "ops/quant/codes.h"
#include "ops/quant/nonfinite.h"

enum { FP4, NF4, MAX_BLOCK = 4096 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_layout l = {.type = ARG_I(f, 1) == NF4 ? AC_QUANT_NF4 : AC_QUANT_FP4,
                 .dtype = (ac_dtype)x->dtype,
                 .nested = ARG_B(f, 3),
                 .ndim = x->ndim,
                 .blocksize = ARG_I(f, 2)};
  AC_TRY(aci_quantizable(x, e));
  memcpy(l.shape, x->shape, (size_t)x->ndim * sizeof l.shape[0]);
  return aci_frame_out_quantized(f, &l, e);
}

/* The 16 numbers in ascending order, as codes, and the 15 middles between them. */
typedef struct scheme {
  uint8_t code[16];
  float middle[15];
} scheme;

static scheme scheme_of(ac_quant_type type) {
  static const uint8_t fp4[16] = {11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3};
  scheme s;
  int n;
  const float *map = ac_quant_map(type, &n);
  for (int i = 0; i < 16; i++) s.code[i] = type == AC_QUANT_NF4 ? (uint8_t)i : fp4[i];
  for (int i = 0; i < 15; i++) s.middle[i] = (map[s.code[i]] + map[s.code[i + 1]]) / 2;
  return s;
}

/* How many middles lie below x / absmax. */
AC_ISA_FN(rank16,
          (const float *restrict x, int64_t n, float inverse, const float *restrict middle,
           int32_t *restrict at),
          (x, n, inverse, middle, at)) {
  for (int64_t i = 0; i < n; i++) {
    const float v = x[i] * inverse;
    int32_t k = 0;
    for (int m = 0; m < 15; m++) k += v > middle[m];
    at[i] = k;
  }
}

typedef struct quantize_job {
  const ac_tensor *x;
  uint8_t *q;
  float *absmax;
  int64_t blocksize;
  scheme s;
} quantize_job;

static void range(void *arg, int64_t begin, int64_t end) {
  const quantize_job *j = arg;
  _Alignas(64) float row[MAX_BLOCK + 1];
  _Alignas(64) int32_t at[MAX_BLOCK + 1];
  for (int64_t b = begin; b < end; b++) {
    const int64_t from = b * j->blocksize, left = j->x->numel - from,
                  n = left < j->blocksize ? left : j->blocksize;
    aci_elems_load(j->x, ACI_C_F32, from, n, row);
    const float most = aci_largest(row, n), divisor = most < 1e-38f ? 1e-38f : most;
    const bool finite = aci_is_finite(most), scaled = n < j->blocksize || !finite;
    /* bitsandbytes stores the bound of a short block */
    j->absmax[b] = n < j->blocksize ? divisor : most;
    if (scaled)
      for (int64_t i = 0; i < n; i++)
        row[i] = finite ? row[i] / divisor : aci_infinity_sign(row[i]);
    row[n] = 0; /* the unused half of the last byte */
    rank16(row, n + n % 2, scaled ? 1.0f : 1.0f / divisor, j->s.middle, at);
    for (int64_t i = 0; i < n; i += 2)
      j->q[(from + i) / 2] = (uint8_t)(j->s.code[at[i]] << 4 | j->s.code[at[i + 1]]);
  }
}

static ac_status run(ac_frame *f, ac_err *e) {
  ac_tensor *y = f->out[0];
  const ac_layout *l = ac_tensor_layout(y);
  const aci_part values = aci_layout_part(l, AC_PART_VALUES),
                 absmax = aci_layout_part(l, AC_PART_ABSMAX);
  ac_block *scratch = NULL;
  if (l->nested)
    AC_TRY(ac_block_alloc(f->device, (size_t)absmax.n * sizeof(float) + 1, AC_MEM_ACTIVATION,
                          f->stream, &scratch, e));
  quantize_job j = {.x = ARG_T(f, 0),
                    .q = aci_part_data(y, &values),
                    .absmax = l->nested ? scratch->ptr : aci_part_data(y, &absmax),
                    .blocksize = l->blocksize,
                    .s = scheme_of(l->type)};
  ac_parallel_for(f->team, absmax.n, 1 + 16384 / l->blocksize, range, &j);
  if (l->nested) aci_nest_absmax(y, l, j.absmax);
  ac_block_free(scratch);
  return AC_OK;
}
ACI_ON_HOST(run)

AC_OP(quantize_4bit,
      .sig = "quantize_4bit(x: tensor, quant_type: enum(fp4|nf4) = fp4, blocksize: int = 64, "
             "compress_statistics: bool = false) "
             "-> tensor",
      .shape = shape, .cpu = cpu, .by_vtable = true, .nondiff = true);
