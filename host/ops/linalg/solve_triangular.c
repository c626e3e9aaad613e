/* solve_triangular: x with A x = B, or x A = B with left = false, for triangular A. Only elements of the triangle
   are read, and with unitriangular its diagonal counts as ones.
   A (..., n, n), B (..., n, k), or (..., k, n) with left = false. Leading dims broadcast -> x (shape of B).
   Dtypes: floats, computed in f64.
   gradient: dB = the solution for A^T and dx. dA = -dB x^T, or -x^T dB with left = false, within the triangle.
   example: accel.tensor({ { 2.0, 1.0 }, { 0.0, 4.0 } }):solve_triangular(accel.tensor { { 4.0 }, { 8.0 } }, true) --> { { 1 }, { 2 } } */
#include "device/cpu/isa.h"
#include "ops/index/index.h"

enum { A, B, UPPER, LEFT, UNIT };
enum { BLOCK = 64 }; /* right-hand sides of one task */

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *a = ARG_T(f, A), *b = ARG_T(f, B);
  char s[128], t[128];
  int64_t out[AC_MAX_DIMS];
  aci_shape_str(a->ndim, a->shape, s, sizeof s);
  aci_shape_str(b->ndim, b->shape, t, sizeof t);
  if (!ac_dtype_is_float((ac_dtype)a->dtype) || a->dtype != b->dtype)
    return AC_FAIL(e, DTYPE, "A and B must be floats of one dtype, got %s and %s",
                   ac_dtype_name((ac_dtype)a->dtype), ac_dtype_name((ac_dtype)b->dtype));
  if (a->ndim < 2 || b->ndim < 2 || a->shape[a->ndim - 1] != a->shape[a->ndim - 2])
    return AC_FAIL(e, SHAPE, "needs a square A and a matrix B, got shapes %s and %s", s, t);
  if (a->shape[a->ndim - 1] != b->shape[b->ndim - (ARG_B(f, LEFT) ? 2 : 1)])
    return AC_FAIL(e, SHAPE, "A of shape %s does not fit B of shape %s%s", s, t,
                   ARG_B(f, LEFT) ? "" : " (left = false: x A = B)");
  const int na = a->ndim - 2, nb = b->ndim - 2, n = na > nb ? na : nb;
  for (int d = 0; d < n; d++) {
    int64_t p = d < n - na ? 1 : a->shape[d - (n - na)],
            q = d < n - nb ? 1 : b->shape[d - (n - nb)];
    if (p != q && p != 1 && q != 1)
      return AC_FAIL(e, SHAPE, "leading dims of A %s and B %s do not broadcast", s, t);
    out[d] = p == 1 ? q : p;
  }
  memcpy(out + n, b->shape + nb, 2 * sizeof *out);
  return ac_frame_out(f, (ac_dtype)b->dtype, n + 2, out, e);
}

AC_ISA_FN(subtract, (double *restrict y, const double *restrict x, double by, int64_t n),
          (y, x, by, n)) {
  for (int64_t i = 0; i < n; i++) y[i] -= by * x[i];
}
AC_ISA_FN(divide, (double *y, double by, int64_t n), (y, by, n)) {
  for (int64_t i = 0; i < n; i++) y[i] /= by;
}

typedef struct solve_job {
  const ac_tensor *a, *b, *out;
  const double *m; /* matrices A in rows */
  double *rows;    /* per task (n, BLOCK) or (BLOCK, n) */
  int64_t n, k, n_blocks;
  bool upper, left, unit;
} solve_job;

/* Offset of batch i of the result in t, whose leading dims broadcast to out's. */
static int64_t batch_of(const ac_tensor *out, const ac_tensor *t, int64_t i) {
  int64_t off = 0;
  for (int d = out->ndim - 3; d >= 0; d--) {
    int64_t at = i % out->shape[d];
    int s = d - (out->ndim - t->ndim);
    i /= out->shape[d];
    if (s >= 0 && t->shape[s] > 1) off += at * t->stride[s];
  }
  return off;
}

/* x (n rows of w) := A^-1 x, row by row, the ones that are known first. */
static void solve_left(const solve_job *j, const double *m, double *x, int64_t w) {
  for (int64_t s = 0; s < j->n; s++) {
    const int64_t i = j->upper ? j->n - 1 - s : s, from = j->upper ? i + 1 : 0,
                  to = j->upper ? j->n : i;
    for (int64_t k = from; k < to; k++) subtract(x + i * w, x + k * w, m[i * j->n + k], w);
    if (!j->unit) divide(x + i * w, m[i * j->n + i], w);
  }
}

/* x (n values) := x A^-1: each value that is found is subtracted from those that are left at
 * once. */
static void solve_right(const solve_job *j, const double *m, double *x) {
  for (int64_t s = 0; s < j->n; s++) {
    const int64_t i = j->upper ? s : j->n - 1 - s, from = j->upper ? i + 1 : 0,
                  to = j->upper ? j->n : i;
    if (!j->unit) x[i] /= m[i * j->n + i];
    subtract(x + from, m + i * j->n + from, x[i], to - from);
  }
}

static void run(void *arg, int64_t begin, int64_t end) {
  const solve_job *j = arg;
  const ac_tensor *b = j->b;
  const ac_dtype dt = (ac_dtype)b->dtype;
  const int64_t es = (int64_t)aci_dsize(dt), rs = b->stride[b->ndim - 2],
                cs = b->stride[b->ndim - 1];
  for (int64_t task = begin; task < end; task++) {
    const int64_t i = task / j->n_blocks, at = task % j->n_blocks * BLOCK,
                  w = j->k - at < BLOCK ? j->k - at : BLOCK;
    const double *m = j->m + batch_of(j->out, j->a, i);
    const char *src = (const char *)aci_data(b) + batch_of(j->out, b, i) * es;
    char *dst = (char *)aci_data(j->out) + i * j->n * j->k * es;
    double *x = j->rows + task * j->n * BLOCK;
    if (j->left) {
      for (int64_t r = 0; r < j->n; r++)
        aci_load(ACI_C_F64, x + r * w, dt, src + (r * rs + at * cs) * es, cs, w);
      solve_left(j, m, x, w);
      for (int64_t r = 0; r < j->n; r++)
        aci_store(ACI_C_F64, x + r * w, dt, dst + (r * j->k + at) * es, 1, w);
    } else {
      for (int64_t r = 0; r < w; r++) {
        double *row = x + r * j->n;
        aci_load(ACI_C_F64, row, dt, src + (at + r) * rs * es, cs, j->n);
        solve_right(j, m, row);
        aci_store(ACI_C_F64, row, dt, dst + (at + r) * j->n * es, 1, j->n);
      }
    }
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *a = ARG_T(f, A), *b = ARG_T(f, B), *out = f->out[0];
  ac_block *block;
  if (out->numel == 0) return AC_OK;
  /* A as doubles, row by row, with a head that describes them */
  ac_tensor *wide = aci_tensor_shell(f->device, AC_F64, a->ndim, a->shape);
  if (wide == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  solve_job j = {.a = wide,
                 .b = b,
                 .out = out,
                 .n = a->shape[a->ndim - 1],
                 .upper = ARG_B(f, UPPER),
                 .left = ARG_B(f, LEFT),
                 .unit = ARG_B(f, UNIT)};
  j.k = b->shape[b->ndim - (j.left ? 1 : 2)];
  j.n_blocks = (j.k + BLOCK - 1) / BLOCK;
  const int64_t tasks = out->numel / (j.n * j.k) * j.n_blocks;
  ac_status st =
      ac_block_alloc(f->device, (size_t)(a->numel + tasks * j.n * BLOCK) * sizeof(double),
                     AC_MEM_ACTIVATION, f->stream, &block, e);
  if (st == AC_OK) {
    double *m = ac_block_ptr(block);
    aci_elems_load(a, ACI_C_F64, 0, a->numel, m);
    j.m = m;
    j.rows = m + a->numel;
    ac_parallel_for(f->team, tasks, 1 + 65536 / (j.n * j.n * BLOCK), run, &j);
    ac_block_free(block);
  }
  ac_tensor_release(wide);
  return st;
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  const bool upper = ARG_B(g, UPPER), left = ARG_B(g, LEFT), unit = ARG_B(g, UNIT);
  ac_tensor *y = g->out[0];
  ac_tensor *db =
      x_solve_triangular(x, x_transpose(x, ARG_T(g, A), -2, -1), g->dout[0], !upper, left, unit);
  ac_grad_set(g, B, ac_grad_reduce_to(g, B, db));
  if (!ac_grad_needs(g, A)) return;
  ac_tensor *da = left ? x_matmul(x, db, x_transpose(x, y, -2, -1))
                       : x_matmul(x, x_transpose(x, y, -2, -1), db);
  da = x_neg(x, upper ? x_triu(x, da, unit ? 1 : 0) : x_tril(x, da, unit ? -1 : 0));
  ac_grad_set(g, A, ac_grad_reduce_to(g, A, da));
}

AC_OP(
    solve_triangular,
    .sig =
        "solve_triangular(A: tensor, B: tensor, upper: bool, left: bool = true, unitriangular: bool = "
        "false) -> "
        "tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0),
    .save_out_for = {1 << 0});
