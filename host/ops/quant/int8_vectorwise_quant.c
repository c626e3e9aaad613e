/* int8_vectorwise_quant: each row of x as int8 with its largest magnitude, stats: q = round(127 x / stats). With threshold > 0 columns that
   hold a value of at least this magnitude are outliers: their values are 0 in q, other values of such magnitude do
   not count in stats, and outliers marks these columns, to be multiplied in 16 bits (Dettmers and others,
   "LLM.int8()").
   x (..., columns, floating point) -> q (..., columns, i8), stats (rows, f32), outliers (columns, bool). No
   gradient.
   example: accel.int8_vectorwise_quant(accel.tensor { { 1.0, -2 } }) --> { { 64, -127 } }, { 2 }, { false, false }
   example: accel.int8_vectorwise_quant(accel.tensor { { 1.0, 7 }, { 2, 1 } }, 6) --> { { 127, 0 }, { 127, 0 } }, { 1, 2 }, { false, true } */
#include "ops/core/on_host.h"
#include "ops/quant/codes.h"
#include "ops/quant/rows_int8.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim == 0) return AC_FAIL(e, SHAPE, "needs rows of at least one dim, got a number");
  if (!(ARG_F(f, 1) >= 0))
    return AC_FAIL(e, INVALID, "threshold must not be negative, got %g", ARG_F(f, 1));
  int64_t rows = 1;
  for (int d = 0; d < x->ndim - 1; d++) rows *= x->shape[d];
  AC_TRY(ac_frame_out(f, AC_I8, x->ndim, x->shape, e));
  AC_TRY(ac_frame_out(f, AC_F32, 1, &rows, e));
  return ac_frame_out(f, AC_BOOL, 1, &x->shape[x->ndim - 1], e);
}

static ac_status run(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int64_t n = x->shape[x->ndim - 1], rows = f->out[1]->numel;
  const float threshold = (float)ARG_F(f, 1);
  int8_t *q = aci_data(f->out[0]);
  float *stats = aci_data(f->out[1]);
  uint8_t *outlier = aci_data(f->out[2]);
  ac_block *scratch = NULL;
  AC_TRY(ac_block_alloc(f->device, (size_t)n * sizeof(float) + 1, AC_MEM_ACTIVATION, f->stream,
                        &scratch, e));
  float *row = scratch->ptr;
  if (n > 0) memset(outlier, 0, (size_t)n);
  for (int64_t r = 0; r < rows; r++) {
    aci_elems_load(x, ACI_C_F32, r * n, n, row);
    aci_row_int8(row, n, threshold, q + r * n, &stats[r]);
    if (threshold > 0) aci_row_outliers(row, n, threshold, outlier);
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t r = 0; outlier[i] && r < rows; r++) q[r * n + i] = 0;
  ac_block_free(scratch);
  return AC_OK;
}
ACI_ON_HOST(run)

AC_OP(
    int8_vectorwise_quant,
    .sig =
        "int8_vectorwise_quant(x: tensor, threshold: float = 0) -> (q: tensor, stats: tensor, outliers: tensor)",
    .shape = shape, .cpu = cpu, .by_vtable = true, .nondiff = true);
