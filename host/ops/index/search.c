/* See search.h. NaN is larger than every number, as sort puts it. */
#include "ops/index/search.h"

#include "ops/core/ctx_impl.h"

static const char *name_of(const ac_frame *f, int arg) {
  return aci_op_sig(f->op)->param[arg].name;
}

ac_status aci_search_shape(ac_frame *f, int sequence, int values, ac_err *e) {
  const ac_tensor *s = ARG_T(f, sequence);
  char a[128], b[128];
  if (s->dtype > AC_BOOL)
    return AC_FAIL(e, DTYPE, "%s is a storage dtype; cast it first",
                   ac_dtype_name((ac_dtype)s->dtype));
  if (f->args[values].kind == AC_T_SCALAR) {
    if (s->ndim != 1)
      return AC_FAIL(e, SHAPE, "for one number %s must have one dim, got shape %s",
                     name_of(f, sequence), aci_shape_str(s->ndim, s->shape, a, sizeof a));
    return ac_frame_out(f, AC_I64, 0, NULL, e);
  }
  const ac_tensor *v = ARG_T(f, values);
  if (v->dtype != s->dtype)
    return AC_FAIL(e, DTYPE, "%s holds %s and %s %s; cast one of them", name_of(f, sequence),
                   ac_dtype_name((ac_dtype)s->dtype), name_of(f, values),
                   ac_dtype_name((ac_dtype)v->dtype));
  bool fits = s->ndim == 1 || (s->ndim > 1 && s->ndim == v->ndim);
  for (int d = 0; fits && s->ndim > 1 && d < s->ndim - 1; d++) fits = s->shape[d] == v->shape[d];
  if (!fits)
    return AC_FAIL(
        e, SHAPE, "%s must have one dim, or the extents of %s but for the last; got %s and %s",
        name_of(f, sequence), name_of(f, values), aci_shape_str(s->ndim, s->shape, a, sizeof a),
        aci_shape_str(v->ndim, v->shape, b, sizeof b));
  return ac_frame_out(f, AC_I64, v->ndim, v->shape, e);
}

typedef struct search_job {
  aci_ctype ct;
  bool right, rows; /* rows: a sequence per row of values */
  const ac_tensor *v;
  const char *seq;
  int64_t n, width; /* of a sequence. Of a row of values */
  int64_t *out;
} search_job;

#define FLT_BELOW(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#define INT_BELOW(a, b) ((a) < (b))

/* The number of elements below v (right: not above it), by halving without branches. */
#define POSITIONS(T, sfx, BELOW)                                                        \
  static void positions_##sfx(const T *s, int64_t n, const T *v, int64_t m, bool right, \
                              int64_t *out) {                                           \
    for (int64_t i = 0; i < m; i++) {                                                   \
      const T *base = s, x = v[i];                                                      \
      int64_t left = n;                                                                 \
      while (left > 0) {                                                                \
        int64_t half = (left + 1) / 2;                                                  \
        T y = base[half - 1];                                                           \
        bool go = right ? !BELOW(x, y) : BELOW(y, x);                                   \
        base += go ? half : 0;                                                          \
        left = go ? left - half : half - 1;                                             \
      }                                                                                 \
      out[i] = base - s;                                                                \
    }                                                                                   \
  }
POSITIONS(float, f32, FLT_BELOW)
POSITIONS(double, f64, FLT_BELOW)
POSITIONS(int64_t, i64, INT_BELOW)

static void positions(const search_job *j, int64_t row, const void *v, int64_t m, int64_t *out) {
  const void *s = j->seq + (j->rows ? row * j->n * (int64_t)aci_ctype_bytes(j->ct) : 0);
  if (j->ct == ACI_C_F32) positions_f32(s, j->n, v, m, j->right, out);
  else if (j->ct == ACI_C_F64) positions_f64(s, j->n, v, m, j->right, out);
  else positions_i64(s, j->n, v, m, j->right, out);
}

static void range(void *arg, int64_t begin, int64_t end) {
  enum { BLOCK = 512 };
  const search_job *j = arg;
  _Alignas(64) char buf[BLOCK * 8];
  for (int64_t b = begin, m; b < end; b += m) { /* blocks end at the ends of rows */
    int64_t row = b / j->width, rest = (row + 1) * j->width - b;
    m = end - b < BLOCK ? end - b : BLOCK;
    m = m < rest ? m : rest;
    aci_elems_load(j->v, j->ct, b, m, buf);
    positions(j, row, buf, m, j->out + b);
  }
}

ac_status aci_search_run(ac_frame *f, int sequence, int values, bool right, ac_err *e) {
  static const ac_dtype native[] = {AC_F32, AC_F64, AC_I64};
  const ac_tensor *s = ARG_T(f, sequence);
  const ac_value *v = &f->args[values];
  search_job j = {
      .ct = aci_ctype_of((ac_dtype)s->dtype), .right = right, .rows = s->ndim > 1, .width = 1};
  ac_block *block = NULL;
  if (f->out[0]->numel == 0) return AC_OK;
  if (v->kind == AC_T_SCALAR && v->scalar.kind == AC_SCALAR_FLOAT && j.ct == ACI_C_I64)
    j.ct = ACI_C_F64;
  j.n = s->shape[s->ndim - 1];
  j.seq = aci_data(s);
  j.out = aci_data(f->out[0]);
  if (s->numel > 0 && ((ac_dtype)s->dtype != native[j.ct] || !aci_is_contiguous(s))) {
    AC_TRY(ac_block_alloc(f->device, (size_t)s->numel * aci_ctype_bytes(j.ct), AC_MEM_ACTIVATION,
                          f->stream, &block, e));
    j.seq = ac_block_ptr(block);
    aci_elems_load(s, j.ct, 0, s->numel, ac_block_ptr(block));
  }
  if (v->kind == AC_T_SCALAR) {
    float f32 = (float)aci_scalar_f(v->scalar);
    double f64 = aci_scalar_f(v->scalar);
    int64_t i64 = aci_scalar_i(v->scalar);
    const void *x = j.ct == ACI_C_F32   ? (const void *)&f32
                    : j.ct == ACI_C_F64 ? (const void *)&f64
                                        : &i64;
    positions(&j, 0, x, 1, j.out);
  } else {
    j.v = v->tensor;
    j.width = j.rows ? j.v->shape[j.v->ndim - 1] : j.v->numel;
    ac_parallel_for(f->team, j.v->numel, 4096, range, &j);
  }
  ac_block_free(block);
  return AC_OK;
}
