/* linear_cross_entropy on CUDA: logits in tiles of the vocabulary, one product each into scratch
 * (f32 of 16-bit operands, f64 of f64). In forward every row takes its values from a tile, in
 * backward a tile becomes gradients, which enter further products. Tiles follow from the shape
 * alone and are taken in ascending order. The values kept between the two, kept and shifts, are as
 * on the CPU, but in this file's tiles. */
#include "accel/ops.h"
#include "ops/index/range.cuh"
#include "ops/loss/linear_cross_entropy.cuh"
#include "ops/loss/linear_cross_entropy_args.h"
#include "ops/matmul/product.cuh"

/* ---- a call ---- */
#ifdef ACI_CUDA_EMULATED
enum { LEAST = 1 << 12, MOST = 1 << 13, ROWS = 64 };
#else
enum { LEAST = 1 << 22, MOST = 1 << 24, ROWS = 8192 };
#endif
namespace {
struct call {
  ac_frame *f;
  lce_args a;
  int64_t k, rows, cols;
  const ac_tensor *linear;
  const char *x, *w; /* as multiplied: the tile's rows of input and of linear_weight */
  int64_t x_rs, x_cs, w_rs, w_cs;
  char *x_all, *w_copy;
  ac_block *block[10];
  int n_blocks;
  call() : a(), x(NULL), w(NULL), w_copy(NULL), n_blocks(0) {}
  ~call() {
    for (int i = 0; i < n_blocks; i++) ac_block_free(block[i]);
  }
  template <class T> ac_status take(int64_t n, T **p, ac_err *e) {
    AC_TRY(ac_block_alloc(f->device, (size_t)n * sizeof(T), AC_MEM_ACTIVATION, f->stream,
                          &block[n_blocks], e));
    *p = (T *)block[n_blocks++]->ptr;
    return AC_OK;
  }
};
} // namespace

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static ac_status convert(const call &j, int64_t rows, int64_t cols, void *to, ac_dtype to_dt,
                         const void *from, ac_dtype from_dt, int64_t rs, int64_t cs, ac_err *e) {
  const int64_t shape[2] = {rows, cols};
  aci_range d = {}, s = {};
  d.ptr = to;
  d.dtype = to_dt;
  d.stride[0] = cols;
  d.stride[1] = 1;
  s.ptr = (void *)from;
  s.dtype = from_dt;
  s.stride[0] = rs;
  s.stride[1] = cs;
  return aci_cuda_copy_range(j.f, 2, shape, &d, &s, e);
}

/* Fills j from a call: sizes of tiles, operands (copied if they do not have the product's dtype),
 * labels, weights and totals. at: position of the first argument that forward and backward have in
 * common. x is (n, k), w (v, k), a tile (rows, cols) of logits. Blocks belong to j, which frees
 * them. */
static ac_status prepare(call &j, ac_frame *f, int at, const ac_tensor *kept,
                         const ac_tensor *shifts, ac_err *e) {
  const ac_value *args = f->args + at;
  const ac_tensor *x = args[ACI_LCE_INPUT].tensor, *w = args[ACI_LCE_LINEAR].tensor;
  const int64_t reduction = args[ACI_LCE_REDUCTION].i;
  lce_args &a = j.a;
  j.f = f;
  a.n = x->shape[0];
  a.v = w->shape[0];
  j.k = x->shape[1];
  j.linear = w;
  a.product = args[ACI_LCE_PRODUCT].dtype;
  a.acc = a.product == AC_F64 ? AC_F64 : AC_F32;
  a.y = aci_ce_labels(f, args[ACI_LCE_TARGET].tensor, a.v, args[ACI_LCE_IGNORE].i,
                      &args[ACI_LCE_WEIGHT]);
  a.smooth = args[ACI_LCE_SMOOTHING].f;
  a.each = reduction == AC_LINEAR_CROSS_ENTROPY_REDUCTION_NONE;
  a.mean = reduction == AC_LINEAR_CROSS_ENTROPY_REDUCTION_MEAN;
  if (args[ACI_LCE_BIAS].kind == AC_T_TENSOR) {
    const ac_tensor *b = args[ACI_LCE_BIAS].tensor;
    a.bias = aci_data(b);
    a.bias_dt = (ac_dtype)b->dtype;
    a.bias_stride = b->stride[0];
  }
  if (a.n == 0 || a.v == 0) return AC_OK;
  /* a sixteenth of all logits, within bounds: below, products lose speed, above, memory is lost */
  const int64_t share = a.n * a.v / 16, elements = share < LEAST  ? LEAST
                                                   : share > MOST ? MOST
                                                                  : share;
  j.rows = least(a.n, ROWS);
  j.cols = (elements / j.rows + 127) / 128 * 128;
  if (kept->numel > 0) { /* no more tiles than the shape rule made room for */
    const int64_t tiles = shifts->shape[0], wide = (a.v + tiles - 1) / tiles;
    if (j.cols < wide) j.cols = wide;
    a.kept = aci_data(kept);
  }
  j.cols = least(a.v, j.cols);
  char *tile;
  AC_TRY(j.take(j.rows * j.cols * (int64_t)aci_dsize(a.acc), &tile, e));
  a.tile = tile;
  j.x_all = (char *)aci_data(x);
  j.x_rs = x->stride[0];
  j.x_cs = x->stride[1];
  if ((ac_dtype)x->dtype != a.product) {
    AC_TRY(j.take(a.n * j.k * (int64_t)aci_dsize(a.product), &j.x_all, e));
    AC_TRY(convert(j, a.n, j.k, j.x_all, a.product, aci_data(x), (ac_dtype)x->dtype, x->stride[0],
                   x->stride[1], e));
    j.x_rs = j.k;
    j.x_cs = 1;
  }
  j.w_rs = w->stride[0];
  j.w_cs = w->stride[1];
  if ((ac_dtype)w->dtype != a.product) {
    AC_TRY(j.take(j.cols * j.k * (int64_t)aci_dsize(a.product), &j.w_copy, e));
    j.w_rs = j.k;
    j.w_cs = 1;
  }
  if (a.mean || a.y.w != NULL) {
    double *totals;
    AC_TRY(j.take(2, &totals, e));
    AC_TRY(aci_ce_totals(f, a.y, a.n, totals, e));
    a.totals = totals;
  }
  return AC_OK;
}

static ac_status to_classes(call &j, int64_t j0, const ac_tensor *shifts, ac_err *e) {
  const ac_tensor *w = j.linear;
  j.a.j0 = j0;
  j.a.n_cols = least(j.cols, j.a.v - j0);
  j.w = (const char *)aci_data(w) + j0 * w->stride[0] * (int64_t)aci_dsize((ac_dtype)w->dtype);
  if (j.a.kept != NULL) j.a.shifts = (double *)aci_data(shifts) + j0 / j.cols * j.a.n;
  if (j.w_copy == NULL) return AC_OK;
  AC_TRY(convert(j, j.a.n_cols, j.k, j.w_copy, j.a.product, j.w, (ac_dtype)w->dtype, w->stride[0],
                 w->stride[1], e));
  j.w = j.w_copy;
  return AC_OK;
}
static void to_rows(call &j, int64_t i0) {
  j.a.i0 = i0;
  j.a.n_rows = least(j.rows, j.a.n - i0);
  j.x = j.x_all + i0 * j.x_rs * (int64_t)aci_dsize(j.a.product);
}

/* c (m, n) := a b, + c with add. */
static ac_status multiply(const call &j, int64_t m, int64_t n, int64_t k, const void *a,
                          int64_t a_rs, int64_t a_cs, const void *b, int64_t b_rs, int64_t b_cs,
                          void *c, ac_dtype c_dt, bool add, ac_err *e) {
  aci_product p = {};
  p.dtype = j.a.product;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = a;
  p.a_rs = a_rs;
  p.a_cs = a_cs;
  p.b = b;
  p.b_rs = b_rs;
  p.b_cs = b_cs;
  p.c = c;
  p.alpha = 1;
  p.beta = add;
  p.wide = c_dt != p.dtype;
  return m == 0 || n == 0 ? AC_OK : aci_cuda_product(j.f, &p, e);
}
static ac_status logits(const call &j, ac_err *e) {
  return multiply(j, j.a.n_rows, j.a.n_cols, j.k, j.x, j.x_rs, j.x_cs, j.w, j.w_cs, j.w_rs,
                  j.a.tile, j.a.acc, false, e);
}

static ac_status forward(ac_frame *f, ac_err *e) {
  call j;
  lce_args &a = j.a;
  const ac_tensor *out = f->out[0];
  AC_TRY(prepare(j, f, 0, f->out[2], f->out[3], e));
  a.lse = (double *)aci_data(f->out[1]);
  a.out = aci_data(out);
  a.out_dt = (ac_dtype)out->dtype;
  if (a.n > 0) {
    AC_TRY(j.take(a.n, &a.state, e));
    AC_TRY(j.take(2 * a.n, &a.loss, e));
    a.weight = a.loss + a.n;
    for (int64_t j0 = 0; j0 < a.v; j0 += j.cols) {
      AC_TRY(to_classes(j, j0, f->out[3], e));
      for (int64_t i0 = 0; i0 < a.n; i0 += j.rows) {
        to_rows(j, i0);
        AC_TRY(logits(j, e));
        AC_TRY(aci_lce_take_tile(f, a, e));
      }
    }
    AC_TRY(aci_lce_finish_rows(f, a, e));
  }
  return a.each ? AC_OK : aci_ce_finish(f, a.loss, a.weight, a.n, a.mean, out, e);
}

/* A gradient under summation: the accumulator of the products, which is a copy if the result has
 * another dtype. */
struct target {
  const ac_tensor *out; /* NULL: not wanted */
  char *sum;
  ac_dtype dtype; /* of sum */
  bool copy;
};
/* direct: every element is written once, so that the dtype that is multiplied will do. */
static ac_status open_target(call &j, int result, int64_t rows, bool direct, target *t, ac_err *e) {
  t->out = NULL;
  t->dtype = j.a.acc;
  t->copy = false;
  if (!j.f->args[ACI_LCE_NEEDS + result].b) return AC_OK;
  t->out = j.f->out[result];
  const ac_dtype dt = (ac_dtype)t->out->dtype;
  if (dt == j.a.acc || (direct && dt == j.a.product)) {
    t->sum = (char *)aci_data(t->out);
    t->dtype = dt;
    return AC_OK;
  }
  t->copy = true;
  return j.take(rows * j.k * (int64_t)aci_dsize(j.a.acc), &t->sum, e);
}
static char *at_row(void *base, int64_t row, int64_t k, ac_dtype d) {
  return (char *)base + row * k * (int64_t)aci_dsize(d);
}

static ac_status zeros(ac_frame *f, ac_err *e) {
  AC_TRY(aci_cuda_enter(f->device, e));
  for (int i = 0; i < 3; i++)
    if (f->out[i]->numel > 0)
      AC_TRY(aci_cuda_check(
          f->device,
          cudaMemsetAsync(aci_data(f->out[i]), 0,
                          (size_t)f->out[i]->numel * aci_dsize((ac_dtype)f->out[i]->dtype),
                          aci_cuda_stream(f->device, f->stream)),
          "fill", e));
  return AC_OK;
}

/* For every tile (rows i0.., classes j0..): logits, or the values forward kept of them, become the
 * gradient of the logits dl (rows, cols). Then dx += dl w, dw += dl' x and db += sums of dl.
 * Classes are the outer loop: a tile of dw is complete, and converted, at its end. dx is complete
 * only at the end of all. Blocks belong to j. */
static ac_status backward(ac_frame *f, ac_err *e) {
  call j;
  lce_args &a = j.a;
  const ac_tensor *shifts = f->args[ACI_LCE_SHIFTS].tensor,
                  *db = f->args[ACI_LCE_NEEDS + 2].b ? f->out[2] : NULL;
  target dx, dw;
  double *part = NULL;
  AC_TRY(prepare(j, f, ACI_LCE_BACK, f->args[ACI_LCE_KEPT].tensor, shifts, e));
  if (a.n == 0 || a.v == 0 || j.k == 0)
    AC_TRY(zeros(f, e)); /* no product writes the existing results */
  if (a.n == 0 || a.v == 0) return AC_OK;
  aci_reduce_plan_make(&a.dy, f->args[ACI_LCE_DY].tensor, 0, ACI_C_F64);
  aci_reduce_plan_make(&a.saved, f->args[ACI_LCE_LSE].tensor, 0, ACI_C_F64);
  a.dl = a.tile;
  if (a.product != a.acc) {
    char *dl;
    AC_TRY(j.take(j.rows * j.cols * (int64_t)aci_dsize(a.product), &dl, e));
    a.dl = dl;
  }
  AC_TRY(open_target(j, 0, a.n, j.cols >= a.v, &dx, e));
  AC_TRY(open_target(j, 1, j.cols, j.rows >= a.n, &dw, e));
  if (db != NULL) {
    AC_TRY(j.take((ACI_LCE_PIECES + 1) * j.cols, &part, e));
    a.out = aci_data(db);
    a.out_dt = (ac_dtype)db->dtype;
  }
  for (int64_t j0 = 0; j0 < a.v; j0 += j.cols) {
    AC_TRY(to_classes(j, j0, shifts, e));
    for (int64_t i0 = 0; i0 < a.n; i0 += j.rows) {
      to_rows(j, i0);
      if (a.kept == NULL) AC_TRY(logits(j, e));
      AC_TRY(aci_lce_turn_tile(f, a, e));
      if (dx.out != NULL)
        AC_TRY(multiply(j, a.n_rows, j.k, a.n_cols, a.dl, a.n_cols, 1, j.w, j.w_rs, j.w_cs,
                        at_row(dx.sum, i0, j.k, dx.dtype), dx.dtype, j0 > 0, e));
      if (dw.out != NULL)
        AC_TRY(multiply(j, a.n_cols, j.k, a.n_rows, a.dl, 1, a.n_cols, j.x, j.x_rs, j.x_cs,
                        at_row(dw.sum, dw.copy ? 0 : j0, j.k, dw.dtype), dw.dtype, i0 > 0, e));
      if (db != NULL) AC_TRY(aci_lce_add_bias(f, a, part, e));
    }
    if (dw.copy)
      AC_TRY(convert(j, a.n_cols, j.k, at_row(aci_data(dw.out), j0, j.k, (ac_dtype)dw.out->dtype),
                     (ac_dtype)dw.out->dtype, dw.sum, dw.dtype, j.k, 1, e));
  }
  if (dx.copy)
    return convert(j, a.n, j.k, aci_data(dx.out), (ac_dtype)dx.out->dtype, dx.sum, dx.dtype, j.k, 1,
                   e);
  return AC_OK;
}
AC_KERNEL(cuda, linear_cross_entropy_tiles, forward)
AC_KERNEL(cuda, linear_cross_entropy_backward, backward)
