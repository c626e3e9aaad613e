/* embedding_quantized: rows of a quantised weight by their numbers: only those rows are dequantised.
   ids (any shape, i64 or i32), weight (quantised, with values of shape (v, d)) -> y (ids' shape, d, by default the
   dtype of the weight's values) No
   gradient: quantised weights do not learn.
   Ids count from 0.
   example: local w = accel.quantize_int8(accel.eye(3)) return accel.embedding_quantized(accel.tensor { 2, 0 }, w) --> { { 0, 0, 1 }, { 1, 0, 0 } } */
#include "ops/core/on_host.h"
#include "ops/quant/codes.h"

enum { PIECE = 4096 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *ids = ARG_T(f, 0);
  const ac_layout *l = ac_tensor_layout(ARG_T(f, 1));
  int64_t s[AC_MAX_DIMS];
  char a[128];
  AC_TRY(aci_index_dtype(f, 0, e));
  if (l == NULL) return AC_FAIL(e, INVALID, "weight is not quantised: embedding takes it as it is");
  if (l->ndim != 2)
    return AC_FAIL(e, SHAPE, "weight must have 2 dims, got %s",
                   aci_shape_str(l->ndim, l->shape, a, sizeof a));
  if (ids->ndim == AC_MAX_DIMS)
    return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
  const ac_dtype dt = ARG_NONE(f, 2) ? l->dtype : f->args[2].dtype;
  if (!ac_dtype_is_float(dt))
    return AC_FAIL(e, DTYPE, "dtype must be a float, got %s", ac_dtype_name(dt));
  memcpy(s, ids->shape, (size_t)ids->ndim * 8);
  s[ids->ndim] = l->shape[1];
  return ac_frame_out(f, dt, ids->ndim + 1, s, e);
}

typedef struct rows_job {
  const ac_tensor *w;
  const ac_layout *l;
  const int64_t *ids;
  ac_tensor *y;
} rows_job;

static void rows(void *arg, int64_t begin, int64_t end) {
  const rows_job *j = arg;
  const int64_t d = j->l->shape[1];
  const bool direct = j->y->dtype == AC_F32;
  _Alignas(64) float piece[PIECE];
  for (int64_t i = begin; i < end; i++) {
    for (int64_t at = 0; at < d; at += PIECE) {
      const int64_t n = d - at < PIECE ? d - at : PIECE;
      float *to = direct ? (float *)aci_data(j->y) + i * d + at : piece;
      aci_dequantize_load(j->w, j->l, j->ids[i] * d + at, n, to);
      if (!direct) aci_elems_store(j->y, ACI_C_F32, i * d + at, n, piece);
    }
  }
}

static ac_status run(ac_frame *f, ac_err *e) {
  const ac_layout *l = ac_tensor_layout(ARG_T(f, 1));
  rows_job j = {.w = ARG_T(f, 1), .l = l, .y = f->out[0]};
  ac_block *copied;
  AC_TRY(aci_index_values(f, 0, l->shape[0], "rows in weight", &j.ids, &copied, e));
  if (j.y->numel > 0)
    ac_parallel_for(f->team, ARG_T(f, 0)->numel, 1 + PIECE / l->shape[1], rows, &j);
  ac_block_free(copied);
  return AC_OK;
}
ACI_ON_HOST(run)

AC_OP(embedding_quantized,
      .sig = "embedding_quantized(ids: tensor, weight: tensor, dtype: dtype?) -> tensor",
      .shape = shape, .cpu = cpu, .by_vtable = true, .nondiff = true, .quantized = 1 << 1);
