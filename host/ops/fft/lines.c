/* Lines of a tensor, some at a time, through a transform. See plan.h. */
#include <stdatomic.h>
#include <stdlib.h>

#include "ops/core/ctx_impl.h"
#include "ops/fft/plan.h"

enum { MOST_LINES = 16, CACHE = 192 << 10 };

ac_status aci_fft_check(const ac_frame *f, const ac_tensor *x, int64_t dim, bool pairs, ac_err *e) {
  const int n = x->ndim - (pairs ? 1 : 0);
  (void)f;
  if (x->dtype != AC_F32 && x->dtype != AC_F64)
    return AC_FAIL(e, DTYPE, "transforms are of f32, f64, c64 and c128, not %s; cast the tensor",
                   ac_dtype_name((ac_dtype)x->dtype));
  if (pairs && (n < 0 || x->shape[n] != 2))
    return AC_FAIL(e, SHAPE, "the last dim of x must be pairs of real and imaginary part");
  if (dim < 0 || dim >= n)
    return AC_FAIL(e, INDEX, "dim %lld is out of range for %d dims, counted from 0", (long long)dim,
                   n);
  return AC_OK;
}

void aci_fft_axis_of(const ac_tensor *t, int dim, bool pairs, aci_fft_axis *a, int64_t *shape,
                     int64_t *n_lines) {
  const int n = t->ndim - (pairs ? 1 : 0);
  a->ptr = aci_data(t);
  a->step = t->stride[dim];
  a->ndim = 0;
  *n_lines = 1;
  for (int d = 0; d < n; d++) {
    if (d == dim) continue;
    a->stride[a->ndim] = t->stride[d];
    shape[a->ndim++] = t->shape[d];
    *n_lines *= t->shape[d];
  }
}

typedef struct run {
  aci_fft_job *j;
  int64_t lines; /* at a time */
  _Atomic bool failed;
} run;

static int64_t offset_of(const aci_fft_axis *a, const int64_t *shape, int64_t line) {
  int64_t off = 0;
  for (int d = a->ndim - 1; d >= 0; d--) {
    off += line % shape[d] * a->stride[d];
    line /= shape[d];
  }
  return off;
}

static void some(const aci_fft_job *j, int64_t first, int64_t lines, char *memory) {
  const int64_t size = j->plan->f64 ? 8 : 4, n = j->plan->n * lines * size;
  const char *in[MOST_LINES];
  char *out[MOST_LINES], *re = memory, *im = memory + n, *scratch = memory + 2 * n;
  for (int64_t l = 0; l < lines; l++) {
    in[l] = j->in.ptr + offset_of(&j->in, j->shape, first + l) * size;
    out[l] = j->out.ptr + offset_of(&j->out, j->shape, first + l) * size;
  }
  j->load(j, in, lines, re, im);
  char *a = j->inverse ? im : re, *b = j->inverse ? re : im;
  if (j->plan->f64)
    aci_fft_run_f64(j->plan, (double *)(void *)a, (double *)(void *)b, lines,
                    (double *)(void *)scratch);
  else
    aci_fft_run_f32(j->plan, (float *)(void *)a, (float *)(void *)b, lines,
                    (float *)(void *)scratch);
  j->store(j, out, lines, re, im);
}

static void range(void *arg, int64_t begin, int64_t end) {
  run *r = arg;
  const aci_fft_job *j = r->j;
  const int64_t floats = (2 * j->plan->n + aci_fft_scratch(j->plan)) * r->lines;
  char *memory = malloc((size_t)floats * (j->plan->f64 ? 8 : 4));
  if (memory == NULL) {
    atomic_store(&r->failed, true);
    return;
  }
  for (int64_t l = begin; l < end; l += r->lines)
    some(j, l, end - l < r->lines ? end - l : r->lines, memory);
  free(memory);
}

ac_status aci_fft_lines(ac_frame *f, aci_fft_job *j, ac_err *e) {
  const int64_t line = (2 * j->plan->n + aci_fft_scratch(j->plan)) * (j->plan->f64 ? 8 : 4);
  run r = {.j = j, .lines = CACHE / line};
  if (j->n_lines == 0) return AC_OK;
  if (r.lines > MOST_LINES) r.lines = MOST_LINES;
  if (r.lines > j->n_lines) r.lines = j->n_lines;
  if (r.lines < 1) r.lines = 1;
  /* about 16k numbers to a task */
  const int64_t groups = 16384 / (j->plan->n * r.lines);
  ac_parallel_for(f->team, j->n_lines, r.lines * (groups > 1 ? groups : 1), range, &r);
  return atomic_load(&r.failed)
             ? AC_FAIL(e, OOM, "no memory for a transform of %lld", (long long)j->n)
             : AC_OK;
}
