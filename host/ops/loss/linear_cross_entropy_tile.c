/* Tiles of linear_cross_entropy: the cut of the logits, making a tile, and its rows' contributions
 * or gradients. A tile is one product into scratch in f32 (f64), of a block of rows over a run of
 * classes, small enough for a last-level cache. Tiles follow from the shape alone and are taken in
 * ascending order, so that bits do not depend on threads. */
#include <math.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/index/index.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/matmul/product.h"
#include "ops/reduce/softmax.h"

ac_status aci_lce_take(aci_lce *j, size_t bytes, void *pointer, ac_err *e) {
  ac_block **b = &j->block[j->n_blocks++];
  AC_TRY(ac_block_alloc(j->f->device, bytes, AC_MEM_ACTIVATION, j->f->stream, b, e));
  void *p = ac_block_ptr(*b);
  memcpy(pointer, &p, sizeof p);
  return AC_OK;
}

void aci_lce_release(aci_lce *j) {
  aci_ce_targets_free(&j->y);
  for (int i = 0; i < j->n_blocks; i++) ac_block_free(j->block[i]);
}

void aci_lce_convert(const aci_lce *j, int64_t rows, int64_t cols, void *dst, ac_dtype to,
                     const void *src, ac_dtype from, int64_t rs, int64_t cs) {
  const int64_t shape[2] = {rows, cols};
  aci_range d = {.ptr = dst, .dtype = to, .stride = {cols, 1}};
  aci_range s = {.ptr = (void *)(uintptr_t)src, .dtype = from, .stride = {rs, cs}};
  aci_range_copy_cpu(j->f->team, 2, shape, &d, &s);
}

/* Fills j for a forward or backward frame, whose common arguments begin at `at`: x is (n, k),
 * linear (v, k). Tiles are (rows, cols) of logits with row stride ld, in the accumulator's type. x
 * is copied to the product's dtype as a whole, the weights tile by tile (w_copy), unless the
 * product rounds f32 weights itself. aci_lce_release frees j's memory, also after a failure. */
ac_status aci_lce_prepare(aci_lce *j, ac_frame *f, int at, ac_tensor *kept, ac_tensor *shifts,
                          ac_err *e) {
  const ac_tensor *x = ARG_T(f, at + ACI_LCE_INPUT), *w = ARG_T(f, at + ACI_LCE_LINEAR);
  *j = (aci_lce){.f = f,
                 .n = x->shape[0],
                 .v = w->shape[0],
                 .k = x->shape[1],
                 .linear = w,
                 .smooth = ARG_F(f, at + ACI_LCE_SMOOTHING),
                 .product = f->args[at + ACI_LCE_PRODUCT].dtype};
  j->acc = j->product == AC_F64 ? AC_F64 : AC_F32;
  aci_product_type(j->product, &j->in_type);
  aci_product_type(j->acc, &j->acc_type);
  AC_TRY(
      aci_ce_targets_read(f, ARG_T(f, at + ACI_LCE_TARGET), j->v, ARG_I(f, at + ACI_LCE_IGNORE),
                          ARG_NONE(f, at + ACI_LCE_WEIGHT) ? NULL : ARG_T(f, at + ACI_LCE_WEIGHT),
                          aci_ctype_of(j->acc), &j->y, e));
  if (j->n == 0 || j->v == 0) return AC_OK;
  aci_lce_plan(j->n, j->v, &j->rows, &j->cols, NULL);
  /* rows of a power of two would fall on the same cache sets */
  j->ld = (j->cols + 15) / 16 * 16 + 16;
  AC_TRY(aci_lce_take(j, (size_t)(j->rows * j->ld) * aci_dsize(j->acc), &j->tile, e));
  if (kept->numel > 0) {
    j->kept = aci_data(kept);
    j->shifts = aci_data(shifts);
  }
  j->x = aci_data(x);
  j->x_rs = x->stride[0];
  j->x_cs = x->stride[1];
  if ((ac_dtype)x->dtype != j->product) {
    char *copy;
    AC_TRY(aci_lce_take(j, (size_t)(j->n * j->k) * aci_dsize(j->product), &copy, e));
    aci_lce_convert(j, j->n, j->k, copy, j->product, j->x, (ac_dtype)x->dtype, j->x_rs, j->x_cs);
    j->x = copy;
    j->x_rs = j->k;
    j->x_cs = 1;
  }
  j->w_rs = w->stride[0];
  j->w_cs = w->stride[1];
  j->round_w = w->dtype == AC_F32 && j->product == AC_BF16 && aci_product_rounds(f->ctx, f->device);
  if ((ac_dtype)w->dtype != j->product && !j->round_w) {
    AC_TRY(aci_lce_take(j, (size_t)(j->cols * j->k) * aci_dsize(j->product), &j->w_copy, e));
    j->w_rs = j->k;
    j->w_cs = 1;
  }
  if (!ARG_NONE(f, at + ACI_LCE_BIAS)) {
    const ac_tensor *b = ARG_T(f, at + ACI_LCE_BIAS);
    AC_TRY(aci_contiguous_data(f, b, &j->bias, &j->block[j->n_blocks++], e));
    aci_product_type((ac_dtype)b->dtype, &j->bias_type);
  }
  return AC_OK;
}

void aci_lce_to_classes(aci_lce *j, int64_t j0) {
  const ac_tensor *w = j->linear;
  const ac_dtype dt = (ac_dtype)w->dtype;
  j->j0 = j0;
  j->n_cols = aci_lce_min(j->cols, j->v - j0);
  j->w = (const char *)aci_data(w) + j0 * w->stride[0] * (int64_t)aci_dsize(dt);
  if (j->w_copy == NULL) return;
  aci_lce_convert(j, j->n_cols, j->k, j->w_copy, j->product, j->w, dt, w->stride[0], w->stride[1]);
  j->w = j->w_copy;
}
void aci_lce_to_rows(aci_lce *j, int64_t i0) {
  j->i0 = i0;
  j->n_rows = aci_lce_min(j->rows, j->n - i0);
}

ac_status aci_lce_multiply(const aci_lce *j, aci_gemm *g, const void *a, const void *b, void *c,
                           ac_err *e) {
  g->in_type = j->in_type;
  g->round_b = j->round_w && b == j->w;
  g->n_batch = 1;
  g->alpha = 1;
  g->a = &a;
  g->b = &b;
  g->c = &c;
  return aci_cpu_gemm(j->f->team, g, e);
}

ac_status aci_lce_logits(const aci_lce *j, ac_err *e) {
  aci_gemm g = {.out_type = j->acc_type,
                .m = j->n_rows,
                .n = j->n_cols,
                .k = j->k,
                .a_rs = j->x_rs,
                .a_cs = j->x_cs,
                .b_rs = j->w_cs,
                .b_cs = j->w_rs,
                .c_rs = j->ld};
  if (j->bias != NULL) {
    g.bias = (const char *)j->bias + j->j0 * (j->bias_type == ACI_GEMM_F64   ? 8
                                              : j->bias_type == ACI_GEMM_F32 ? 4
                                                                             : 2);
    g.bias_type = j->bias_type;
  }
  return aci_lce_multiply(j, &g, aci_lce_x(j), j->w, j->tile, e);
}

/* ---- rows of a tile ---- */
enum { CHUNK = 1024 };

#define T float
#define sfx f32
#include "ops/loss/linear_cross_entropy_rows.h"

#define T double
#define sfx f64
#include "ops/loss/linear_cross_entropy_rows.h"

static void take_rows(void *arg, int64_t begin, int64_t end) {
  const aci_lce *j = arg;
  for (int64_t i = begin; i < end; i++) {
    const int64_t id = j->y.id[j->i0 + i];
    void *x = aci_lce_row(j, i);
    if (id == j->y.ignore) continue;
    char *kept = j->kept == NULL ? NULL : aci_lce_kept(j, i);
    double *shift = kept == NULL ? NULL : aci_lce_shift(j, i);
    if (j->acc == AC_F32) row_f32(j, x, id, &j->state[j->i0 + i], kept, shift);
    else row_f64(j, x, id, &j->state[j->i0 + i], kept, shift);
  }
}

static void turn_rows(void *arg, int64_t begin, int64_t end) {
  const aci_lce *j = arg;
  for (int64_t i = begin; i < end; i++) {
    const int64_t id = j->y.id[j->i0 + i];
    void *x = aci_lce_row(j, i);
    if (id == j->y.ignore) {
      memset(x, 0, (size_t)j->n_cols * aci_dsize(j->product));
      continue;
    }
    const aci_lce_back *r = &j->back[j->i0 + i];
    const char *kept = j->kept == NULL ? NULL : aci_lce_kept(j, i);
    const double scale = kept == NULL ? 0 : exp(*aci_lce_shift(j, i) - r->shift) * r->scale;
    if (j->acc == AC_F32) row_back_f32(j, x, id, r, kept, scale);
    else row_back_f64(j, x, id, r, kept, scale);
  }
}

static void each_row(aci_lce *j, void (*fn)(void *, int64_t, int64_t)) {
  ac_parallel_for(j->f->team, j->n_rows, aci_lce_max(1, (1 << 14) / j->n_cols), fn, j);
}
void aci_lce_take_rows(aci_lce *j) { each_row(j, take_rows); }
void aci_lce_turn_rows(aci_lce *j) { each_row(j, turn_rows); }
