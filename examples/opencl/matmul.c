/* Products of matrices: any strides, batches that broadcast, a bias, and beta C. */
#include <string.h>

#include "kernels.h"
#include "layout.h"

/* A group of side x side work-items computes TILE x TILE results (matmul.cl). On a CPU it is one work-item: vectors go along a row of the tile,
 * and no barrier cuts its loops. */
enum { TILE = 32 };

typedef struct product { /* struct product of matmul.cl */
  int64_t m, n, k, a_row, a_col, b_row, b_col, bias_step, batch_dims;
  int64_t batch[OCL_DIMS], a_batch[OCL_DIMS], b_batch[OCL_DIMS];
} product;

/* C, contiguous, := alpha A B + beta C + bias. dtypes of a, b, bias may differ from c's. */
static ac_status run(ac_frame *f, const product *p, const ac_tensor *a, const ac_tensor *b, const ac_tensor *bias, const ac_tensor *y,
                     double alpha, double beta, ac_err *e) {
  const char *type, *unused;
  int64_t count = 1;
  ocl_call c;
  const ac_dtype dt = ac_tensor_dtype(y);
  const size_t side = ocl_of(f->device)->cpu ? 1 : 8;
  if (ac_tensor_numel(y) == 0) return AC_OK;
  AC_TRY(ocl_type(f, dt, &type, e));
  AC_TRY(ocl_type(f, ac_tensor_dtype(a), &unused, e));
  AC_TRY(ocl_type(f, ac_tensor_dtype(b), &unused, e));
  for (int d = 0; d < p->batch_dims; d++) count *= p->batch[d];
  ocl_begin(&c, f, ocl_matmul_cl, "matmul");
  ocl_define(&c, "#define T %s\n#define A %s\n#define B %s\n#define C %s\n#define TILE %d\n#define SIDE %zu\n", type,
             ac_dtype_name(ac_tensor_dtype(a)), ac_dtype_name(ac_tensor_dtype(b)), ac_dtype_name(dt), TILE, side);
  if (bias != NULL) ocl_define(&c, "#define BIAS %s\n", ac_dtype_name(ac_tensor_dtype(bias)));
  if (beta != 0) ocl_define(&c, "#define ADDS\n");
  ocl_value(&c, p, sizeof *p);
  if (type[0] == 'l') {
    ocl_long(&c, (int64_t)alpha);
    ocl_long(&c, (int64_t)beta);
  } else {
    ocl_real(&c, type, alpha);
    ocl_real(&c, type, beta);
  }
  ocl_memory(&c, ac_tensor_data(a));
  ocl_memory(&c, ac_tensor_data(b));
  ocl_memory(&c, bias != NULL ? ac_tensor_data(bias) : NULL);
  ocl_memory(&c, ac_tensor_data(y));
  const size_t rows = (size_t)((p->m + TILE - 1) / TILE) * side, columns = (size_t)((p->n + TILE - 1) / TILE) * side;
  return ocl_run3(&c, (const size_t[3]){columns, rows, (size_t)count}, (const size_t[3]){side, side, 1}, e);
}

/* The leading dims of x and y broadcast; the last `own` of each are the matrix's. */
static ac_status batches(product *p, const ac_tensor *x, int x_own, const ac_tensor *y, int y_own, ac_err *e) {
  const int nx = ac_tensor_ndim(x) - x_own, ny = ac_tensor_ndim(y) - y_own, n = nx > ny ? nx : ny;
  int w = -1;
  for (int d = 0; d < n; d++) {
    const int i = d - (n - nx), j = d - (n - ny);
    const int64_t ex = i < 0 ? 1 : ac_tensor_shape(x)[i], ey = j < 0 ? 1 : ac_tensor_shape(y)[j], all = ex == 1 ? ey : ex;
    const int64_t sx = ex == 1 ? 0 : ac_tensor_stride(x)[i], sy = ey == 1 ? 0 : ac_tensor_stride(y)[j];
    if (all == 1) continue;
    if (w >= 0 && p->a_batch[w] == sx * all && p->b_batch[w] == sy * all) {
      p->batch[w] *= all;
    } else {
      if (w + 1 == OCL_DIMS) return AC_FAIL(e, UNSUPPORTED, "OpenCL devices multiply batches of at most %d dims", OCL_DIMS);
      p->batch[++w] = all;
    }
    p->a_batch[w] = sx;
    p->b_batch[w] = sy;
  }
  p->batch_dims = w + 1;
  return AC_OK;
}

static ac_status matmul(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->args[1].tensor;
  const int nx = ac_tensor_ndim(x), ny = ac_tensor_ndim(y);
  const int64_t *xs = ac_tensor_shape(x), *ys = ac_tensor_shape(y), *xt = ac_tensor_stride(x), *yt = ac_tensor_stride(y);
  const bool row = nx == 1, col = ny == 1;
  product p = {.m = row ? 1 : xs[nx - 2], .k = xs[nx - 1], .n = col ? 1 : ys[ny - 1]};
  p.a_row = row ? 0 : xt[nx - 2];
  p.a_col = xt[nx - 1];
  p.b_row = yt[col ? 0 : ny - 2];
  p.b_col = col ? 0 : yt[ny - 1];
  AC_TRY(batches(&p, x, row ? 1 : 2, y, col ? 1 : 2, e));
  return run(f, &p, x, y, NULL, f->out[0], 1, 0, e);
}

/* Rows of x (..., k) times a matrix: x's leading dims as batches of one row, joined to rows where they lie so. */
static ac_status rows_of(product *p, const ac_tensor *x, const ac_tensor *weight, ac_err *e) {
  const int nd = ac_tensor_ndim(x);
  p->k = ac_tensor_shape(x)[nd - 1];
  p->a_col = ac_tensor_stride(x)[nd - 1];
  p->m = 1;
  AC_TRY(batches(p, x, 1, weight, 2, e));
  if (p->batch_dims == 0) return AC_OK;
  const int last = (int)--p->batch_dims; /* the matrix is shared by all rows */
  p->m = p->batch[last];
  p->a_row = p->a_batch[last];
  return AC_OK;
}

ac_status ocl_rows_product(ac_frame *f, const ac_tensor *x, const ac_tensor *w, bool transposed, const ac_tensor *bias, ac_tensor *out,
                           ac_err *e) {
  const int in = transposed ? 0 : 1;
  product p = {.n = ac_tensor_shape(w)[1 - in], .b_row = ac_tensor_stride(w)[in], .b_col = ac_tensor_stride(w)[1 - in]};
  AC_TRY(rows_of(&p, x, w, e));
  if (bias != NULL) p.bias_step = ac_tensor_stride(bias)[0];
  return run(f, &p, x, w, bias, out, 1, 0, e);
}

static ac_status linear(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args;
  return ocl_rows_product(f, a[0].tensor, a[1].tensor, false, a[2].kind == AC_T_TENSOR ? a[2].tensor : NULL, f->out[0], e);
}

/* beta input + alpha x w: input is copied into the result first, as far as it counts. */
static ac_status added(ac_frame *f, product *p, ac_err *e) {
  const ac_tensor *in = f->args[0].tensor, *y = f->out[0];
  const double beta = ocl_scalar(f->args[3].scalar), alpha = ocl_scalar(f->args[4].scalar);
  int64_t stride[AC_MAX_DIMS];
  if (beta != 0) {
    ocl_broadcast(in, ac_tensor_ndim(y), ac_tensor_shape(y), stride);
    AC_TRY(ocl_copy(f, ac_tensor_ndim(y), ac_tensor_shape(y), ac_tensor_data(y), ac_tensor_dtype(y), ac_tensor_stride(y), ac_tensor_data(in),
                    ac_tensor_dtype(in), stride, e));
  }
  return run(f, p, f->args[1].tensor, f->args[2].tensor, NULL, y, alpha, beta, e);
}
static ac_status addmm(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[1].tensor, *w = f->args[2].tensor;
  product p = {.n = ac_tensor_shape(w)[1], .b_row = ac_tensor_stride(w)[0], .b_col = ac_tensor_stride(w)[1]};
  AC_TRY(rows_of(&p, x, w, e));
  return added(f, &p, e);
}
static ac_status baddbmm(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[1].tensor, *w = f->args[2].tensor;
  product p = {.m = ac_tensor_shape(x)[1], .k = ac_tensor_shape(x)[2], .n = ac_tensor_shape(w)[2]};
  p.a_row = ac_tensor_stride(x)[1];
  p.a_col = ac_tensor_stride(x)[2];
  p.b_row = ac_tensor_stride(w)[1];
  p.b_col = ac_tensor_stride(w)[2];
  AC_TRY(batches(&p, x, 2, w, 2, e));
  return added(f, &p, e);
}

const ac_device_kernel ocl_matmul_kernels[] = {
    {"matmul", matmul}, {"linear", linear}, {"addmm", addmm}, {"baddbmm", baddbmm}, {NULL, NULL},
};
