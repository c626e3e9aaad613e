/* The lines of a tensor sorted, for sort and argsort: many lines side by side, long ones each by
 * all threads. See sort_keys.h. */
#include "ops/index/index.h"
#include "ops/index/sort_keys.h"
#include "ops/reduce/reduce.h"

typedef struct sort_job {
  aci_reduce_plan p;
  aci_sort_keys k;
  int64_t n, inner;
  char *values;     /* or NULL */
  int64_t *indices; /* or NULL */
  aci_slots slots;
  /* one long line */
  const char *x;
  char *keys, *y;
  int64_t *at;
} sort_job;

static void lines_range(void *arg, int64_t begin, int64_t end) {
  sort_job *j = arg;
  const int64_t es = (int64_t)aci_dsize(j->p.dt), stride = j->p.red_stride[0];
  int slot = aci_slots_take(&j->slots);
  char *keys = aci_slots_at(&j->slots, slot), *tmp = aci_sort_keys_at(&j->k, keys, j->n);
  for (int64_t o = begin; o < end; o++) {
    const char *x = j->p.ptr + aci_reduce_base(&j->p, o) * es;
    int64_t y = aci_line_base(o, j->n, j->inner);
    aci_sort_keys_load(&j->k, x, stride, 0, j->n, keys);
    aci_sort_keys_sort(&j->k, keys, tmp, j->n);
    aci_sort_keys_store(&j->k, keys, j->n, x, stride, j->values != NULL ? j->values + y * es : NULL,
                        j->inner, j->indices != NULL ? j->indices + y : NULL, j->inner);
  }
  aci_slots_give(&j->slots, slot);
}

static void load_range(void *arg, int64_t begin, int64_t end) {
  const sort_job *j = arg;
  aci_sort_keys_load(&j->k, j->x, j->p.red_stride[0], begin, end - begin,
                     aci_sort_keys_at(&j->k, j->keys, begin));
}

static void store_range(void *arg, int64_t begin, int64_t end) {
  const sort_job *j = arg;
  const int64_t es = (int64_t)aci_dsize(j->p.dt);
  aci_sort_keys_store(&j->k, aci_sort_keys_at(&j->k, j->keys, begin), end - begin, j->x,
                      j->p.red_stride[0], j->y != NULL ? j->y + begin * j->inner * es : NULL,
                      j->inner, j->at != NULL ? j->at + begin * j->inner : NULL, j->inner);
}

static ac_status long_lines(ac_frame *f, sort_job *j, ac_err *e) {
  const int64_t es = (int64_t)aci_dsize(j->p.dt), grain = 1 << 15;
  ac_block *block;
  ac_status st = AC_OK;
  AC_TRY(ac_block_alloc(f->device, 2 * (size_t)j->n * j->k.bytes, AC_MEM_ACTIVATION, f->stream,
                        &block, e));
  j->keys = ac_block_ptr(block);
  for (int64_t o = 0; st == AC_OK && o < j->p.n_out; o++) {
    int64_t y = aci_line_base(o, j->n, j->inner);
    j->x = j->p.ptr + aci_reduce_base(&j->p, o) * es;
    j->y = j->values != NULL ? j->values + y * es : NULL;
    j->at = j->indices != NULL ? j->indices + y : NULL;
    ac_parallel_for(f->team, j->n, grain, load_range, j);
    st =
        aci_sort_keys_sort_long(f, &j->k, j->keys, aci_sort_keys_at(&j->k, j->keys, j->n), j->n, e);
    if (st == AC_OK) ac_parallel_for(f->team, j->n, grain, store_range, j);
  }
  ac_block_free(block);
  return st;
}

ac_status aci_sort_lines(ac_frame *f, const ac_tensor *x, int dim, bool descending,
                         ac_tensor *values, ac_tensor *indices, ac_err *e) {
  sort_job j = {.inner = 1};
  if (x->numel == 0) return AC_OK;
  aci_reduce_plan_make(&j.p, x, x->ndim > 0 ? 1u << dim : 0, aci_ctype_of((ac_dtype)x->dtype));
  j.n = j.p.n_reduced;
  for (int d = dim + 1; d < x->ndim; d++) j.inner *= x->shape[d];
  j.values = values != NULL ? aci_data(values) : NULL;
  j.indices = indices != NULL ? aci_data(indices) : NULL;
  AC_TRY(aci_sort_keys_of((ac_dtype)x->dtype, j.n, descending, &j.k, e));
  if (j.n >= ACI_SORT_KEYS_LONG) return long_lines(f, &j, e);
  int64_t grain = 1 + 8192 / j.n, pieces = (j.p.n_out + grain - 1) / grain;
  AC_TRY(aci_slots_open(&j.slots, f, pieces, 2 * (size_t)j.n * j.k.bytes, e));
  ac_parallel_for(f->team, j.p.n_out, grain, lines_range, &j);
  aci_slots_close(&j.slots);
  return AC_OK;
}

void aci_sort_keys_grad(ac_grad *g, int dim_arg) {
  const int n = ac_grad_ndim(g, 0, 0);
  ac_tensor *dx = g->dout[0];
  if (n > 0)
    dx = x_gather_backward(&g->x, dx, aci_wrap_dim(ARG_I(g, dim_arg), n), g->out[1],
                           ac_grad_shape(g, 0, 0), n);
  ac_grad_set(g, 0, dx);
}
