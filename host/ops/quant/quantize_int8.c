/* quantize_int8: a matrix in 8 bits a value, as bitsandbytes keeps the weights of Linear8bitLt: each row has its largest magnitude, absmax
   (SCB), and q = round(127 x / absmax).
   x (rows, columns, f32, f16, bf16) -> y, a quantised tensor with values of this shape and dtype. No gradient.
   example: accel.quantize_int8(accel.tensor { { 127.0, -64 }, { 0.5, 0 } }):dequantize() --> { { 127, -64 }, { 0.5, 0 } }
   example: accel.quantize_int8(accel.zeros(4, 3)).quant_state.quant_type --> "int8" */
#include "ops/core/on_host.h"
#include "ops/quant/codes.h"
#include "ops/quant/rows_int8.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  char a[128];
  AC_TRY(aci_quantizable(x, e));
  if (x->ndim != 2)
    return AC_FAIL(e, SHAPE, "needs a matrix (rows, columns), got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  const ac_layout l = {.type = AC_QUANT_INT8,
                       .dtype = (ac_dtype)x->dtype,
                       .ndim = 2,
                       .blocksize = x->shape[1],
                       .shape = {x->shape[0], x->shape[1]}};
  return aci_frame_out_quantized(f, &l, e);
}

typedef struct quantize_job {
  const ac_tensor *x;
  int8_t *q;
  float *absmax, *rows;
} quantize_job;

static void range(void *arg, int64_t begin, int64_t end) {
  const quantize_job *j = arg;
  const int64_t n = j->x->shape[1];
  for (int64_t r = begin; r < end; r++) {
    float *row = j->rows + r * n;
    if (j->x->dtype == AC_F32 && aci_is_contiguous(j->x)) row = (float *)aci_data(j->x) + r * n;
    else aci_elems_load(j->x, ACI_C_F32, r * n, n, row);
    aci_row_int8(row, n, 0, j->q + r * n, &j->absmax[r]);
  }
}

static ac_status run(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  const ac_layout *l = ac_tensor_layout(y);
  const aci_part values = aci_layout_part(l, AC_PART_VALUES),
                 absmax = aci_layout_part(l, AC_PART_ABSMAX);
  const int64_t rows = x->shape[0], n = x->shape[1], at_once = 1 + 262144 / (n + 1);
  ac_block *scratch = NULL;
  AC_TRY(ac_block_alloc(f->device, (size_t)(at_once * n) * sizeof(float) + 1, AC_MEM_ACTIVATION,
                        f->stream, &scratch, e));
  /* some rows at a time, so that scratch stays small */
  for (int64_t r = 0; r < rows; r += at_once) {
    const int64_t m = rows - r < at_once ? rows - r : at_once;
    ac_tensor *part =
        aci_tensor_alias(x, 2, (int64_t[]){m, n}, x->stride, x->offset + r * x->stride[0]);
    if (part == NULL) {
      ac_block_free(scratch);
      return AC_FAIL(e, OOM, "no memory for a tensor's head");
    }
    quantize_job j = {part, (int8_t *)aci_part_data(y, &values) + r * n,
                      (float *)aci_part_data(y, &absmax) + r, scratch->ptr};
    ac_parallel_for(f->team, m, 1 + 16384 / (n + 1), range, &j);
    ac_tensor_release(part);
  }
  ac_block_free(scratch);
  return AC_OK;
}
ACI_ON_HOST(run)

AC_OP(quantize_int8, .sig = "quantize_int8(x: tensor) -> tensor", .shape = shape, .cpu = cpu,
      .by_vtable = true, .nondiff = true);
