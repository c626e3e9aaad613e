/* The kernel of resample.h: for each row of the result the contributing rows of x are blended, then
 * the row is mapped along the last dim. Intermediate results are single rows. */
#include "ops/index/resample.h"

#include "device/cpu/isa.h"

aci_taps aci_taps_identity(int64_t n) { return (aci_taps){.n_in = n, .n_out = n}; }

ac_status aci_taps_new(ac_frame *f, int64_t n_in, int64_t n_out, int64_t max, aci_taps *out,
                       ac_err *e) {
  *out = aci_taps_identity(n_in);
  out->n_out = n_out;
  AC_TRY(ac_block_alloc(f->device, (size_t)(n_out + 1 + 2 * max) * 8, AC_MEM_ACTIVATION, f->stream,
                        &out->block, e));
  out->first = ac_block_ptr(out->block);
  out->col = out->first + n_out + 1;
  out->weight = (double *)(void *)(out->col + max);
  out->first[0] = 0;
  return AC_OK;
}

void aci_taps_free(aci_taps *t, int n) {
  for (int d = 0; d < n; d++) ac_block_free(t[d].block);
}

ac_status aci_taps_transpose(ac_frame *f, aci_taps *t, ac_err *e) {
  aci_taps r;
  if (t->first == NULL) return AC_OK;
  AC_TRY(aci_taps_new(f, t->n_out, t->n_in, t->n, &r, e));
  memset(r.first, 0, (size_t)(r.n_out + 1) * 8);
  for (int64_t k = 0; k < t->n; k++) r.first[t->col[k] + 1]++;
  for (int64_t o = 0; o < r.n_out; o++) r.first[o + 1] += r.first[o];
  for (int64_t o = 0; o < t->n_out; o++)
    for (int64_t k = t->first[o]; k < t->first[o + 1]; k++) {
      int64_t at = r.first[t->col[k]]++;
      r.col[at] = o;
      r.weight[at] = t->weight[k];
    }
  for (int64_t o = r.n_out; o > 0; o--)
    r.first[o] = r.first[o - 1]; /* filling moved every start to its end */
  r.first[0] = 0;
  r.n = t->n;
  ac_block_free(t->block);
  *t = r;
  return AC_OK;
}

/* ---- rows ---- */
enum { COLUMNS = 1024, MAX_TASKS = 128, WORK = 32768 };

typedef struct resample_job {
  ac_dtype dt;
  aci_ctype ct;
  bool native;
  int64_t es, cs;
  char *y;
  const char *x;
  int n_outer;
  aci_taps outer[AC_MAX_DIMS], row;
  int64_t stride[AC_MAX_DIMS]; /* bytes of x per position of an outer dim */
  int per_row;                 /* taps of every position of a row if equal for all, otherwise 0 */
  int64_t segments, grain;
  char *scratch; /* per task: a row of x and a row of y in the compute type */
  int64_t scratch_bytes;
} resample_job;

AC_ISA_FN(scale_f32, (float *restrict y, const float *restrict x, float w, int64_t n),
          (y, x, w, n)) {
  for (int64_t i = 0; i < n; i++) y[i] = w * x[i];
}
AC_ISA_FN(scale_f64, (double *restrict y, const double *restrict x, double w, int64_t n),
          (y, x, w, n)) {
  for (int64_t i = 0; i < n; i++) y[i] = w * x[i];
}
AC_ISA_FN(blend_f32, (float *restrict y, const float *restrict x, float w, int64_t n),
          (y, x, w, n)) {
  for (int64_t i = 0; i < n; i++) y[i] += w * x[i];
}
AC_ISA_FN(blend_f64, (double *restrict y, const double *restrict x, double w, int64_t n),
          (y, x, w, n)) {
  for (int64_t i = 0; i < n; i++) y[i] += w * x[i];
}

/* y (compute type) = or += w * x, n elements of x's dtype. */
static void blend(const resample_job *j, bool first, char *y, const char *x, double w, int64_t n) {
  _Alignas(64) char buf[COLUMNS * 8];
  for (int64_t b = 0; b < n; b += COLUMNS) {
    int64_t m = n - b < COLUMNS ? n - b : COLUMNS;
    const void *s = x + b * j->es;
    void *d = y + b * j->cs;
    if (!j->native) {
      aci_load(j->ct, buf, j->dt, s, 1, m);
      s = buf;
    }
    if (j->ct == ACI_C_F32 && first) scale_f32(d, s, (float)w, m);
    else if (j->ct == ACI_C_F32) blend_f32(d, s, (float)w, m);
    else if (first) scale_f64(d, s, w, m);
    else blend_f64(d, s, w, m);
  }
}

#define T float
#define sfx f32
#include "ops/index/resample_along.h"

#define T double
#define sfx f64
#include "ops/index/resample_along.h"

/* Row r of the result before its last dim: the weighted sum of rows of x, columns [lo, lo + n) into
 * y. If a single row with weight 1 needs no conversion, *one (when given) points to it and y stays
 * unwritten. */
static void gather_rows(const resample_job *j, int64_t r, int64_t lo, int64_t n, char *y,
                        const char **one) {
  int64_t position[AC_MAX_DIMS], k[AC_MAX_DIMS];
  bool first = true, none = false;
  for (int d = j->n_outer - 1; d >= 0; d--) {
    position[d] = r % j->outer[d].n_out;
    r /= j->outer[d].n_out;
    k[d] = j->outer[d].first != NULL ? j->outer[d].first[position[d]] : 0;
    none |= j->outer[d].first != NULL && k[d] == j->outer[d].first[position[d] + 1];
  }
  if (none) {
    memset(y, 0, (size_t)(n * j->cs));
    return;
  }
  for (bool more = true; more; first = false) {
    const char *x = j->x + lo * j->es;
    double w = 1;
    more = false;
    for (int d = 0; d < j->n_outer; d++) {
      const aci_taps *t = &j->outer[d];
      x += (t->first != NULL ? t->col[k[d]] : position[d]) * j->stride[d];
      if (t->first != NULL) w *= t->weight[k[d]];
    }
    for (int d = j->n_outer - 1; d >= 0 && !more; d--) {
      const aci_taps *t = &j->outer[d];
      if (t->first == NULL) continue;
      more = ++k[d] < t->first[position[d] + 1];
      if (!more) k[d] = t->first[position[d]];
    }
    if (first && !more && w == 1 && j->native && one != NULL) {
      *one = x;
      return;
    }
    blend(j, first, y, x, w, n);
  }
}

static void range(void *arg, int64_t begin, int64_t end) {
  const resample_job *j = arg;
  const int64_t n_in = j->row.n_in, n_out = j->row.n_out;
  _Alignas(64) char buf[COLUMNS * 8];
  for (int64_t u = begin; u < end; u++) {
    if (j->row.first == NULL) { /* columns are their own: in segments */
      int64_t r = u / j->segments, lo = u % j->segments * COLUMNS,
              n = n_in - lo < COLUMNS ? n_in - lo : COLUMNS;
      char *y = j->y + (r * n_out + lo) * j->es;
      gather_rows(j, r, lo, n, j->native ? y : buf, NULL);
      if (!j->native) aci_store(j->ct, buf, j->dt, y, 1, n);
      continue;
    }
    char *in = j->scratch + begin / j->grain * j->scratch_bytes, *y = j->y + u * n_out * j->es;
    char *out = j->native ? y : in + n_in * j->cs;
    const char *x = in;
    gather_rows(j, u, 0, n_in, in, &x);
    if (j->ct == ACI_C_F32) along_f32((void *)out, (const void *)x, &j->row, j->per_row);
    else along_f64((void *)out, (const void *)x, &j->row, j->per_row);
    if (!j->native) aci_store(j->ct, out, j->dt, y, 1, n_out);
  }
}

/* Splits dims into outer ones and the row. Adjacent whole dims count as one. */
static void plan(resample_job *j, int ndim, const aci_taps *taps) {
  int last = ndim - 1;
  int64_t row = 1;
  for (; last >= 0 && taps[last].first == NULL; last--) row *= taps[last].n_in;
  j->row = aci_taps_identity(row);
  if (row == 1 && last >= 0) j->row = taps[last--];
  int64_t stride = j->row.n_in * j->es;
  int w = AC_MAX_DIMS;
  for (int d = last; d >= 0; d--) {
    if (taps[d].first == NULL && w < AC_MAX_DIMS && j->outer[w].first == NULL) {
      j->outer[w].n_in *= taps[d].n_in;
      j->outer[w].n_out = j->outer[w].n_in;
    } else {
      j->outer[--w] = taps[d];
      j->stride[w] = stride;
    }
    stride *= taps[d].n_in;
  }
  j->n_outer = AC_MAX_DIMS - w;
  memmove(j->outer, j->outer + w, (size_t)j->n_outer * sizeof *j->outer);
  memmove(j->stride, j->stride + w, (size_t)j->n_outer * sizeof *j->stride);
  j->per_row = 0;
  if (j->row.first != NULL && j->row.n % j->row.n_out == 0) {
    j->per_row = (int)(j->row.n / j->row.n_out);
    for (int64_t o = 0; o < j->row.n_out; o++)
      if (j->row.first[o + 1] - j->row.first[o] != j->per_row) {
        j->per_row = 0;
        break;
      }
  }
}

ac_status aci_resample(ac_frame *f, ac_tensor *y, const ac_tensor *x, const aci_taps *taps,
                       ac_err *e) {
  resample_job j = {
      .dt = (ac_dtype)y->dtype, .ct = aci_ctype_of((ac_dtype)y->dtype), .y = aci_data(y)};
  ac_block *copy = NULL, *scratch = NULL;
  const void *data;
  if (y->numel == 0) return AC_OK;
  AC_TRY(aci_contiguous_data(f, x, &data, &copy, e));
  j.x = data;
  j.es = (int64_t)aci_dsize(j.dt);
  j.cs = (int64_t)aci_ctype_bytes(j.ct);
  j.native = j.dt == AC_F32 || j.dt == AC_F64;
  plan(&j, y->ndim, taps);
  int64_t rows = y->numel / j.row.n_out, units = rows, work = 1;
  ac_status st = AC_OK;
  for (int d = 0; d < j.n_outer; d++)
    if (j.outer[d].first != NULL) work *= 1 + j.outer[d].n / j.outer[d].n_out;
  if (j.row.first == NULL) {
    j.segments = (j.row.n_in + COLUMNS - 1) / COLUMNS;
    units *= j.segments;
    j.grain = 1 + WORK / (work * (j.row.n_in < COLUMNS ? j.row.n_in : COLUMNS));
  } else {
    j.grain = 1 + WORK / (work * j.row.n_in + j.row.n + 1);
    if (j.grain < (rows + MAX_TASKS - 1) / MAX_TASKS) j.grain = (rows + MAX_TASKS - 1) / MAX_TASKS;
    j.scratch_bytes = (j.row.n_in * j.cs + (j.native ? 0 : j.row.n_out * j.cs) + 63) & ~(int64_t)63;
    st = ac_block_alloc(f->device, (size_t)((rows + j.grain - 1) / j.grain * j.scratch_bytes),
                        AC_MEM_ACTIVATION, f->stream, &scratch, e);
    j.scratch = st == AC_OK ? ac_block_ptr(scratch) : NULL;
  }
  if (st == AC_OK) {
    if (units <= j.grain) range(&j, 0, units);
    else ac_parallel_for(f->team, units, j.grain, range, &j);
  }
  ac_block_free(scratch);
  ac_block_free(copy);
  return st;
}
