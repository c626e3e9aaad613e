/* dequantize: the values that a quantised tensor stands for.   q (quantised) -> y (shape and, without dtype, dtype of its values)
   No gradient: quantised tensors do not learn.
   example: accel.quantize_4bit(accel.tensor { { 1.0, -1 }, { 0, 1 } }, "nf4"):dequantize() --> { { 1, -1 }, { 0, 1 } }
   example: accel.quantize_int8(accel.ones(2, 3)):dequantize("f64").dtype --> "f64" */
#include "ops/core/on_host.h"
#include "ops/quant/codes.h"

enum { PIECE = 4096 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_layout *l = ac_tensor_layout(ARG_T(f, 0));
  if (l == NULL)
    return AC_FAIL(
        e, INVALID,
        "q is not quantised: quantize_4bit, quantize_int8 and quantize_dynamic make such tensors");
  const ac_dtype dt = ARG_NONE(f, 1) ? l->dtype : f->args[1].dtype;
  if (!ac_dtype_is_float(dt))
    return AC_FAIL(e, DTYPE, "dtype must be a float, got %s", ac_dtype_name(dt));
  return ac_frame_out(f, dt, l->ndim, l->shape, e);
}

typedef struct dequantize_job {
  const ac_tensor *q;
  const ac_layout *l;
  ac_tensor *y;
} dequantize_job;

static void range(void *arg, int64_t begin, int64_t end) {
  const dequantize_job *j = arg;
  _Alignas(64) float row[PIECE];
  for (int64_t p = begin; p < end; p++) {
    const int64_t at = p * PIECE, n = j->y->numel - at < PIECE ? j->y->numel - at : PIECE;
    const bool direct = j->y->dtype == AC_F32;
    if (j->y->dtype == AC_BF16 &&
        aci_dequantize_bf16(j->q, j->l, at, n, (uint16_t *)aci_data(j->y) + at))
      continue;
    float *to = direct ? (float *)aci_data(j->y) + at : row;
    aci_dequantize_load(j->q, j->l, at, n, to);
    if (!direct) aci_elems_store(j->y, ACI_C_F32, at, n, row);
  }
}

static ac_status run(ac_frame *f, ac_err *e) {
  dequantize_job j = {ARG_T(f, 0), ac_tensor_layout(ARG_T(f, 0)), f->out[0]};
  (void)e;
  ac_parallel_for(f->team, (j.y->numel + PIECE - 1) / PIECE, 4, range, &j);
  return AC_OK;
}
ACI_ON_HOST(run)

AC_OP(dequantize, .sig = "dequantize(q: tensor, dtype: dtype?) -> tensor", .shape = shape,
      .cpu = cpu, .by_vtable = true, .nondiff = true, .quantized = 1);
