/* Batches of matrices (matrix.h). */
#include "ops/linalg/matrix.h"

#include <stdatomic.h>

#include "device/cpu/gemm.h"
#include "ops/reduce/slots.h"

ac_status aci_matrix_check(const ac_tensor *x, bool square, ac_err *e) {
  char a[128];
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim < 2)
    return AC_FAIL(e, SHAPE, "needs a matrix or a batch of them, got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  if (square && x->shape[x->ndim - 1] != x->shape[x->ndim - 2])
    return AC_FAIL(e, SHAPE, "needs square matrices, got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  return AC_OK;
}

int64_t aci_matrix_offset(const ac_tensor *x, int n_batch_dims, const int64_t *batch, int64_t i) {
  int64_t off = 0;
  for (int d = n_batch_dims - 1; d >= 0; d--) {
    const int s = d - (n_batch_dims - (x->ndim - 2));
    const int64_t at = i % batch[d];
    i /= batch[d];
    if (s >= 0 && x->shape[s] > 1) off += at * x->stride[s];
  }
  return off;
}

int64_t aci_matrix_count(const ac_tensor *x) {
  int64_t n = 1;
  for (int d = 0; d < x->ndim - 2; d++) n *= x->shape[d];
  return n;
}

void aci_matrix_load(const ac_tensor *x, int64_t offset, bool transposed, double *a) {
  const ac_dtype dt = (ac_dtype)x->dtype;
  const int64_t es = (int64_t)aci_dsize(dt);
  const int nd = x->ndim, row = transposed ? nd - 1 : nd - 2, col = transposed ? nd - 2 : nd - 1;
  for (int64_t c = 0; c < x->shape[col]; c++)
    aci_load(ACI_C_F64, a + c * x->shape[row], dt,
             (const char *)aci_data(x) + (offset + c * x->stride[col]) * es, x->stride[row],
             x->shape[row]);
}

void aci_matrix_store(const ac_tensor *x, int64_t i, int64_t m, int64_t n, const double *a,
                      int64_t ld, bool transposed) {
  const ac_dtype dt = (ac_dtype)x->dtype;
  const int64_t es = (int64_t)aci_dsize(dt);
  char *to = (char *)aci_data(x) + i * m * n * es;
  for (int64_t c = 0; c < n; c++)
    aci_store(ACI_C_F64, a + c * ld, dt, to + (transposed ? c * m : c) * es, transposed ? 1 : n, m);
}

typedef struct batch {
  aci_slots slots;
  aci_matrix_fn one;
  const void *job;
  ac_team *team;
  _Atomic int failed; /* status of a task, which only memory can fail */
} batch;

static void run(void *arg, int64_t begin, int64_t end) {
  batch *b = arg;
  const int slot = aci_slots_take(&b->slots);
  for (int64_t i = begin; i < end; i++) {
    ac_err e;
    const ac_status st =
        b->one(b->job, i, (double *)(void *)aci_slots_at(&b->slots, slot), b->team, &e);
    if (st != AC_OK) b->failed = (int)st;
  }
  aci_slots_give(&b->slots, slot);
}

ac_status aci_matrices(ac_frame *f, int64_t n, int64_t doubles, double flops, aci_matrix_fn one,
                       const void *job, ac_err *e) {
  batch b = {.one = one, .job = job};
  if (n == 0) return AC_OK;
  AC_TRY(aci_slots_open(&b.slots, f, n, (size_t)doubles * sizeof(double), e));
  if (n == 1) {
    b.team = f->team;
    run(&b, 0, 1);
  } else {
    ac_parallel_for(f->team, n, 1 + (int64_t)(65536 / (flops + 1)), run, &b);
  }
  aci_slots_close(&b.slots);
  return b.failed ? AC_FAIL(e, OOM, "out of memory for the scratch of the factors") : AC_OK;
}

ac_status aci_matrix_subtract(ac_team *team, int64_t rows, int64_t cols, int64_t k, const double *a,
                              int64_t a_rs, const double *b, int64_t b_rs, int64_t b_cs, double *c,
                              int64_t ldc, ac_err *e) {
  const void *pa = a, *pb = b;
  void *pc = c;
  aci_gemm g = {.in_type = ACI_GEMM_F64,
                .out_type = ACI_GEMM_F64,
                .m = rows,
                .n = cols,
                .k = k,
                .a_rs = a_rs,
                .a_cs = 1,
                .b_rs = b_rs,
                .b_cs = b_cs,
                .c_rs = ldc,
                .n_batch = 1,
                .a = &pa,
                .b = &pb,
                .c = &pc,
                .alpha = -1,
                .beta = 1};
  if (rows == 0 || cols == 0 || k == 0) return AC_OK;
  return aci_cpu_gemm(team, &g, e);
}
