/* unique: the distinct elements of x in ascending order, which of them each element of x is, and how often
   each occurs. With dim the distinct slices along it, ordered by their first difference. Every NaN is distinct. They
   come last. If return_inverse or return_counts is given, the results are those of PyTorch: the values and what is asked for. The
   values are in order with sorted = false as well.
   x (any shape) -> values (m, dtype of x), inverse (shape of x, i64, from 0), counts (m, i64), m at most as
   many as x has elements. x (a, n, b), dim 2nd -> values (a, m, b), inverse (n), counts (m).          No gradient.
   example: accel.tensor { 2, 1, 2, 5 }:unique() --> { 1, 2, 5 }, { 1, 0, 1, 2 }, { 1, 2, 1 }
   example: accel.tensor({ { 2, 1 }, { 0, 3 }, { 2, 1 } }):unique(1) --> { { 0, 3 }, { 2, 1 } }, { 1, 0, 1 }, { 1, 2 } */
#include "ops/index/unique.h"

enum { CHUNK = 1 << 15 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  char a[128];
  int d = 0;
  AC_TRY(aci_order_check(x, e));
  if (!ARG_NONE(f, 1)) AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  if (ARG_NONE(f, 1) || x->ndim == 0) {
    AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, 1, &x->numel, e));
    AC_TRY(ac_frame_out(f, AC_I64, x->ndim, x->shape, e));
    return ac_frame_out(f, AC_I64, 1, &x->numel, e);
  }
  if (x->numel == 0 && x->shape[d] != 0)
    return AC_FAIL(e, SHAPE, "slices of shape %s along dim %lld have no elements to compare",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a), (long long)ac_frame_show(f, d));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e));
  AC_TRY(ac_frame_out(f, AC_I64, 1, &x->shape[d], e));
  return ac_frame_out(f, AC_I64, 1, &x->shape[d], e);
}

typedef struct unique_job {
  aci_sort_keys k;
  int64_t n;
  const char *x;
  void *keys;     /* sorted */
  int64_t *first; /* per chunk: how many values begin in it, then how many before it */
  char *values;
  int64_t *inverse, *counts;
} unique_job;

static bool begins(const unique_job *j, int64_t i) {
  if (i == 0 || aci_sort_keys_is_nan(&j->k, j->keys, i)) return true;
  if (j->k.wide)
    return ((const aci_wide_key *)j->keys)[i].key != ((const aci_wide_key *)j->keys)[i - 1].key;
  return ((const uint64_t *)j->keys)[i] >> 32 != ((const uint64_t *)j->keys)[i - 1] >> 32;
}

static void load_range(void *arg, int64_t begin, int64_t end) {
  const unique_job *j = arg;
  aci_sort_keys_load(&j->k, j->x, 1, begin, end - begin, aci_sort_keys_at(&j->k, j->keys, begin));
}

static void count_range(void *arg, int64_t begin, int64_t end) {
  const unique_job *j = arg;
  int64_t m = 0;
  for (int64_t i = begin; i < end; i++) m += begins(j, i);
  j->first[begin / CHUNK] = m;
}

/* counts holds the start of each value among the sorted ones until all are known. */
static void put_range(void *arg, int64_t begin, int64_t end) {
  const unique_job *j = arg;
  const int64_t es = (int64_t)aci_dsize(j->k.dt);
  int64_t m = j->first[begin / CHUNK] - 1;
  for (int64_t i = begin; i < end; i++) {
    if (begins(j, i)) {
      j->counts[++m] = i;
      aci_sort_keys_store(&j->k, aci_sort_keys_at(&j->k, j->keys, i), 1, j->x, 1,
                          j->values + m * es, 1, NULL, 0);
    }
    j->inverse[aci_sort_keys_index(&j->k, j->keys, i)] = m;
  }
}

static ac_status fill(ac_frame *f, unique_job *j, ac_err *e) {
  const int64_t chunks = (j->n + CHUNK - 1) / CHUNK;
  int64_t m = 0;
  ac_parallel_for(f->team, j->n, CHUNK, load_range, j);
  void *tmp = aci_sort_keys_at(&j->k, j->keys, j->n);
  if (j->n >= ACI_SORT_KEYS_LONG) AC_TRY(aci_sort_keys_sort_long(f, &j->k, j->keys, tmp, j->n, e));
  else aci_sort_keys_sort(&j->k, j->keys, tmp, j->n);
  ac_parallel_for(f->team, j->n, CHUNK, count_range, j);
  for (int64_t c = 0; c < chunks; c++) {
    int64_t own = j->first[c];
    j->first[c] = m;
    m += own;
  }
  AC_TRY(aci_frame_size(f, 0, 1, &m, e));
  AC_TRY(aci_frame_size(f, 2, 1, &m, e));
  j->values = aci_data(f->out[0]);
  j->inverse = aci_data(f->out[1]);
  j->counts = aci_data(f->out[2]);
  ac_parallel_for(f->team, j->n, CHUNK, put_range, j);
  for (int64_t i = 0; i < m; i++)
    j->counts[i] = (i + 1 < m ? j->counts[i + 1] : j->n) - j->counts[i];
  return AC_OK;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  unique_job j = {.n = x->numel};
  ac_block *b1 = NULL, *b2 = NULL;
  const void *data;
  const int64_t none = 0, chunks = (j.n + CHUNK - 1) / CHUNK;
  ac_status st;
  if (!ARG_NONE(f, 1) && x->ndim > 0)
    return aci_unique_slices(f, x, aci_wrap_dim(ARG_I(f, 1), x->ndim), e);
  AC_TRY(aci_sort_keys_of((ac_dtype)x->dtype, j.n, false, &j.k, e));
  AC_TRY(aci_frame_size(f, 1, x->ndim, x->shape, e));
  if (j.n == 0) {
    AC_TRY(aci_frame_size(f, 0, 1, &none, e));
    return aci_frame_size(f, 2, 1, &none, e);
  }
  AC_GOTO(done, st, aci_contiguous_data(f, x, &data, &b1, e));
  AC_GOTO(done, st,
          ac_block_alloc(f->device, 2 * (size_t)j.n * j.k.bytes + (size_t)chunks * 8,
                         AC_MEM_ACTIVATION, f->stream, &b2, e));
  j.x = data;
  j.keys = ac_block_ptr(b2);
  j.first = aci_sort_keys_at(&j.k, j.keys, 2 * j.n);
  st = fill(f, &j, e);
done:
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

/* ---- the public op: the results that its options ask for ---- */
int aci_unique_results(ac_tensor *const all[3], const ac_value *inverse, const ac_value *counts,
                       ac_tensor **out) {
  const bool asked = inverse->kind != AC_T_NONE || counts->kind != AC_T_NONE;
  int n = 0;
  out[n++] = all[0];
  if (!asked || (inverse->kind != AC_T_NONE && inverse->b)) out[n++] = all[1];
  if (!asked || (counts->kind != AC_T_NONE && counts->b)) out[n++] = all[2];
  return n;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *all[3] = {NULL, NULL, NULL};
  const int64_t *dim = a[1].kind == AC_T_NONE ? NULL : &a[1].i;
  all[0] = x_unique_sorted(x, a[0].tensor, dim, &all[1], &all[2]);
  return aci_unique_results(all, &a[3], &a[4], out);
}

AC_OP(unique,
      .sig = "unique(x: tensor, dim: dim?, sorted: bool = true, return_inverse: bool?, "
             "return_counts: bool?) -> (values: tensor, inverse: tensor?, counts: tensor?) dynamic",
      .composed = composed, .nondiff = true);
AC_OP(unique_sorted,
      .sig = "unique_sorted(x: tensor, dim: dim?) -> (values: tensor, inverse: tensor, "
             "counts: tensor) dynamic",
      .shape = shape, .cpu = cpu, .nondiff = true, .hidden = true);
