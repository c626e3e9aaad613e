/* Rows picked and added by index: the kernels of embedding, index_select and their gradients. See
 * index.h. */
#include <stdio.h>

#include "device/cpu/isa.h"
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"

ac_status aci_index_dtype(const ac_frame *f, int arg, ac_err *e) {
  const ac_tensor *t = ARG_T(f, arg);
  if (t->dtype != AC_I64 && t->dtype != AC_I32)
    return AC_FAIL(e, DTYPE, "%s must hold i64 or i32, got %s", aci_op_sig(f->op)->param[arg].name,
                   ac_dtype_name((ac_dtype)t->dtype));
  return AC_OK;
}

ac_status aci_rows_source_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *index = ARG_T(f, 2), *src = ARG_T(f, 3);
  int d;
  char a[128], b[128];
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_index_dtype(f, 2, e));
  if (src->dtype != x->dtype)
    return AC_FAIL(e, DTYPE, "source is %s and x is %s", ac_dtype_name((ac_dtype)src->dtype),
                   ac_dtype_name((ac_dtype)x->dtype));
  bool ok = index->ndim <= 1 && src->ndim == x->ndim && (x->ndim > 0 || index->numel == 1);
  for (int i = 0; ok && i < x->ndim; i++)
    ok = src->shape[i] == (i == d ? index->numel : x->shape[i]);
  if (!ok)
    return AC_FAIL(e, SHAPE,
                   "a source of shape %s does not fit %s with %lld positions along dim %lld",
                   aci_shape_str(src->ndim, src->shape, a, sizeof a),
                   aci_shape_str(x->ndim, x->shape, b, sizeof b), (long long)index->numel,
                   (long long)ac_frame_show(f, d));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

ac_status aci_index_values(ac_frame *f, int arg, int64_t bound, const char *what,
                           const int64_t **values, ac_block **block, ac_err *e) {
  const ac_tensor *t = ARG_T(f, arg);
  *block = NULL;
  *values = NULL;
  if (t->numel == 0) return AC_OK;
  int64_t *v = aci_data(t);
  if (t->dtype != AC_I64 || !aci_is_contiguous(t)) {
    AC_TRY(ac_block_alloc(f->device, (size_t)t->numel * 8, AC_MEM_ACTIVATION, f->stream, block, e));
    v = ac_block_ptr(*block);
    aci_elems_load(t, ACI_C_I64, 0, t->numel, v);
  }
  uint64_t bad = 0;
  for (int64_t i = 0; i < t->numel; i++) bad |= (uint64_t)v[i] >= (uint64_t)bound;
  *values = v;
  if (!bad) return AC_OK;
  int64_t at = 0;
  while ((uint64_t)v[at] < (uint64_t)bound) at++;
  int64_t value = v[at];
  ac_block_free(*block);
  *block = NULL;
  char pos[128];
  int64_t idx[AC_MAX_DIMS], r = at;
  for (int d = t->ndim - 1; d >= 0; d--) {
    idx[d] = ac_frame_show(f, r % t->shape[d]);
    r /= t->shape[d];
  }
  char along[40] = "";
  for (int k = 0; k < f->n_args; k++)
    if (strcmp(aci_op_sig(f->op)->param[k].name, "dim") == 0)
      snprintf(along, sizeof along, " along dim %lld", (long long)ac_frame_show(f, ARG_I(f, k)));
  return AC_FAIL(e, INDEX,
                 "%s holds %lld at %s, but there are only %lld %s%s (values count from 0)",
                 aci_op_sig(f->op)->param[arg].name, (long long)value,
                 aci_shape_str(t->ndim, idx, pos, sizeof pos), (long long)bound, what, along);
}

/* ---- take ---- */
typedef struct take_job {
  char *out;
  const char *x;
  const int64_t *ids;
  int64_t n, n_src, row_bytes;
} take_job;

static void take_range(void *arg, int64_t begin, int64_t end) {
  const take_job *j = arg;
  for (int64_t r = begin; r < end; r++) {
    int64_t o = r / j->n, i = r % j->n;
    memcpy(j->out + r * j->row_bytes, j->x + (o * j->n_src + j->ids[i]) * j->row_bytes,
           (size_t)j->row_bytes);
  }
}

void aci_rows_take(ac_team *team, void *out, const void *x, const int64_t *ids, int64_t outer,
                   int64_t n, int64_t n_src, int64_t row_bytes) {
  take_job j = {out, x, ids, n, n_src, row_bytes};
  int64_t rows = outer * n, grain = 1 + 65536 / (row_bytes + 16);
  if (rows == 0 || row_bytes == 0) return;
  if (rows <= grain) take_range(&j, 0, rows);
  else ac_parallel_for(team, rows, grain, take_range, &j);
}

/* ---- add ---- */
enum { COLS = 256, TASK_ELEMS = 16384 };

typedef struct add_job {
  ac_dtype dt;
  aci_ctype ct;
  char *out;
  const char *base, *src;
  const int32_t *first; /* n_dst + 1: positions of row r stand in order[first[r] .. first[r+1]) */
  const int32_t *order;
  int64_t n, n_dst, row;
  double scale;
  int64_t rows_per_task, row_tasks, col_tasks;
} add_job;

AC_ISA_FN(accumulate_f32, (float *restrict a, const float *restrict b, int64_t n), (a, b, n)) {
  for (int64_t i = 0; i < n; i++) a[i] += b[i];
}
AC_ISA_FN(accumulate_f64, (double *restrict a, const double *restrict b, int64_t n), (a, b, n)) {
  for (int64_t i = 0; i < n; i++) a[i] += b[i];
}
static void accumulate_i64(int64_t *restrict a, const int64_t *restrict b, int64_t n) {
  for (int64_t i = 0; i < n; i++) a[i] = (int64_t)((uint64_t)a[i] + (uint64_t)b[i]);
}

static void combine(const add_job *j, void *sum, const void *base, int64_t n) {
  if (j->ct == ACI_C_F32) {
    float *s = sum, k = (float)j->scale;
    const float *b = base;
    for (int64_t i = 0; i < n; i++) s[i] = b != NULL ? b[i] + k * s[i] : k * s[i];
  } else if (j->ct == ACI_C_F64) {
    double *s = sum;
    const double *b = base;
    for (int64_t i = 0; i < n; i++) s[i] = b != NULL ? b[i] + j->scale * s[i] : j->scale * s[i];
  } else {
    int64_t *s = sum, k = (int64_t)j->scale;
    const int64_t *b = base;
    for (int64_t i = 0; i < n; i++)
      s[i] = (int64_t)((b != NULL ? (uint64_t)b[i] : 0) + (uint64_t)k * (uint64_t)s[i]);
  }
}

/* One row of out, columns [c0, c0 + m). */
static void add_row(const add_job *j, int64_t o, int64_t r, int64_t c0, int64_t m) {
  _Alignas(64) char sum[COLS * 8], tmp[COLS * 8];
  const int64_t es = (int64_t)aci_dsize(j->dt), position = ((o * j->n_dst + r) * j->row + c0) * es;
  char *out = j->out + position;
  const int32_t lo = j->first[r], hi = j->first[r + 1];
  const bool native = j->dt == AC_F32 || j->dt == AC_F64 || j->dt == AC_I64;
  if (lo == hi) {
    if (j->base == NULL) memset(out, 0, (size_t)(m * es));
    else if (j->base != j->out) memcpy(out, j->base + position, (size_t)(m * es));
    return;
  }
  memset(sum, 0, (size_t)m * aci_ctype_bytes(j->ct));
  for (int32_t k = lo; k < hi; k++) {
    const void *s = j->src + ((o * j->n + j->order[k]) * j->row + c0) * es;
    if (!native) {
      aci_load(j->ct, tmp, j->dt, s, 1, m);
      s = tmp;
    }
    if (j->ct == ACI_C_F32) accumulate_f32((float *)(void *)sum, s, m);
    else if (j->ct == ACI_C_F64) accumulate_f64((double *)(void *)sum, s, m);
    else accumulate_i64((int64_t *)(void *)sum, s, m);
  }
  if (j->base != NULL) aci_load(j->ct, tmp, j->dt, j->base + position, 1, m);
  if (j->base != NULL || j->scale != 1) combine(j, sum, j->base != NULL ? tmp : NULL, m);
  aci_store(j->ct, sum, j->dt, out, 1, m);
}

static void add_range(void *arg, int64_t begin, int64_t end) {
  const add_job *j = arg;
  for (int64_t t = begin; t < end; t++) {
    int64_t ct = t % j->col_tasks, rt = t / j->col_tasks % j->row_tasks,
            o = t / j->col_tasks / j->row_tasks;
    int64_t c0 = ct * COLS, m = j->row - c0 < COLS ? j->row - c0 : COLS;
    int64_t r0 = rt * j->rows_per_task,
            r1 = r0 + j->rows_per_task < j->n_dst ? r0 + j->rows_per_task : j->n_dst;
    for (int64_t r = r0; r < r1; r++) add_row(j, o, r, c0, m);
  }
}

ac_status aci_rows_add(ac_frame *f, ac_dtype dt, void *out, const void *base, const void *src,
                       const int64_t *ids, int64_t outer, int64_t n, int64_t n_dst, int64_t row,
                       double scale, int64_t skip, ac_err *e) {
  ac_block *block;
  if (outer * n_dst * row == 0) return AC_OK;
  if (n >= INT32_MAX || n_dst >= INT32_MAX) return AC_FAIL(e, UNSUPPORTED, "more than 2^31 rows");
  AC_TRY(ac_block_alloc(f->device, (size_t)(n_dst + 1 + n) * 4, AC_MEM_ACTIVATION, f->stream,
                        &block, e));
  int32_t *first = ac_block_ptr(block), *order = first + n_dst + 1; /* a counting sort, stable */
  memset(first, 0, (size_t)(n_dst + 1) * 4);
  for (int64_t i = 0; i < n; i++)
    if (ids[i] != skip) first[ids[i] + 1]++;
  for (int64_t r = 0; r < n_dst; r++) first[r + 1] += first[r];
  for (int64_t i = 0; i < n; i++)
    if (ids[i] != skip) order[first[ids[i]]++] = (int32_t)i;
  /* filling moved every start to its end */
  for (int64_t r = n_dst; r > 0; r--) first[r] = first[r - 1];
  first[0] = 0;
  add_job j = {.dt = dt,
               .ct = aci_ctype_of(dt),
               .out = out,
               .base = base,
               .src = src,
               .first = first,
               .order = order,
               .n = n,
               .n_dst = n_dst,
               .row = row,
               .scale = scale};
  int64_t per_row = n / n_dst + 1, cols = row < COLS ? row : COLS;
  j.rows_per_task = 1 + TASK_ELEMS / (cols * per_row);
  if (j.rows_per_task > n_dst) j.rows_per_task = n_dst;
  j.row_tasks = (n_dst + j.rows_per_task - 1) / j.rows_per_task;
  j.col_tasks = (row + COLS - 1) / COLS;
  ac_parallel_for(f->team, outer * j.row_tasks * j.col_tasks, 1, add_range, &j);
  ac_block_free(block);
  return AC_OK;
}
