/* median: the middle element of x in ascending order, the lower one of two. With dim, the median of each line
   along
   it, and its index (the first, from 0). NaN when there is one.
   x (any shape) -> values () | values, indices (without dim, or 1 with keepdim)
   gradient: with dim, dx = dvalues at indices, 0 elsewhere. Without dim, dvalues shared equally by the elements
   that equal the median.
   example: accel.tensor { 4, 1, 3, 2 }:median() --> 2
   example: accel.tensor { { 1, 5, 3 }, { 6, 2, 4 } }:median(2) --> { 3, 4 }, { 2, 2 } */
#include "ops/index/index.h"
#include "ops/index/sort_keys.h"
#include "ops/reduce/minmax.h"

typedef struct median_job {
  aci_reduce_plan p;
  aci_sort_keys k;
  const char *line; /* the only line, contiguous. NULL: the plan's */
  int64_t n;
  char *values;
  int64_t *indices; /* or NULL */
  aci_slots slots;
} median_job;

/* Moves the key of the first NaN, if there is one, to position n - 1. Returns whether there is
 * one. */
static bool find_nan(const median_job *j, void *keys) {
  int64_t first = -1;
  for (int64_t i = 0; i < j->n; i++)
    if (aci_sort_keys_is_nan(&j->k, keys, i) &&
        (first < 0 ||
         aci_sort_keys_index(&j->k, keys, i) < aci_sort_keys_index(&j->k, keys, first)))
      first = i;
  if (first >= 0)
    memcpy(aci_sort_keys_at(&j->k, keys, j->n - 1), aci_sort_keys_at(&j->k, keys, first),
           j->k.bytes);
  return first >= 0;
}

static void range(void *arg, int64_t begin, int64_t end) {
  median_job *j = arg;
  const int64_t es = (int64_t)aci_dsize(j->p.dt), stride = j->line != NULL ? 1 : j->p.red_stride[0];
  int slot = aci_slots_take(&j->slots);
  char *keys = aci_slots_at(&j->slots, slot);
  for (int64_t o = begin; o < end; o++) {
    const char *x = j->line != NULL ? j->line : j->p.ptr + aci_reduce_base(&j->p, o) * es;
    int64_t at = (j->n - 1) / 2;
    aci_sort_keys_load(&j->k, x, stride, 0, j->n, keys);
    if (ac_dtype_is_float(j->k.dt) && find_nan(j, keys)) at = j->n - 1;
    else aci_sort_keys_select(&j->k, keys, j->n, at + 1);
    aci_sort_keys_store(&j->k, aci_sort_keys_at(&j->k, keys, at), 1, x, stride, j->values + o * es,
                        1, j->indices != NULL ? j->indices + o : NULL, 1);
  }
  aci_slots_give(&j->slots, slot);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  median_job j = {.values = aci_data(f->out[0]),
                  .indices = f->n_out > 1 ? aci_data(f->out[1]) : NULL};
  ac_block *block = NULL;
  const void *line = NULL;
  if (f->out[0]->numel == 0) return AC_OK;
  aci_reduce_plan_make(&j.p, x, aci_reduce_mask(&f->args[1], x->ndim),
                       aci_ctype_of((ac_dtype)x->dtype));
  j.n = j.p.n_reduced;
  AC_TRY(aci_sort_keys_of((ac_dtype)x->dtype, j.n, false, &j.k, e));
  if (j.p.n_red > 1) AC_TRY(aci_contiguous_data(f, x, &line, &block, e)); /* all dims: one line */
  j.line = line;
  int64_t grain = 1 + 16384 / j.n;
  ac_status st =
      aci_slots_open(&j.slots, f, (j.p.n_out + grain - 1) / grain, (size_t)j.n * j.k.bytes, e);
  if (st == AC_OK) {
    ac_parallel_for(f->team, j.p.n_out, grain, range, &j);
    aci_slots_close(&j.slots);
  }
  ac_block_free(block);
  return st;
}

AC_OP(
    median,
    .sig =
        "median(x: tensor, dim: dim?, keepdim: bool = false) -> (values: tensor, indices: tensor?)",
    .shape = aci_minmax_pair_shape, .cpu = cpu, .grad = aci_minmax_pair_grad,
    .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0) | AC_SAVE_OUT(1));
