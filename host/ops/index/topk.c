/* topk: the k largest (or smallest) elements of x along dim, the best first, and the index each had. Of equal
   elements the first come first. NaN counts as larger than every number. With sorted = false the order is
   unspecified. At present it is the same.
   x (a, n, b), dim 2nd -> values (a, k, b, dtype of x), indices (a, k, b, i64, from 0)
   gradient: dx = dvalues at indices, 0 elsewhere.
   example: accel.tensor { 3, 1, 4, 1, 5 }:topk(2) --> { 5, 4 }, { 4, 2 }
   example: accel.tensor { { 3, 1 }, { 2, 4 } }:topk(1, { dim = 1, largest = false }) --> { { 2, 1 } }, { { 1, 0 } } */
#include "ops/index/index.h"
#include "ops/index/sort_keys.h"
#include "ops/reduce/reduce.h"

enum { CHUNK = 1 << 16 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t k = ARG_I(f, 1), s[AC_MAX_DIMS];
  char a[128];
  int d;
  AC_TRY(ac_frame_dim(f, 2, x->ndim, &d, e));
  AC_TRY(aci_order_check(x, e));
  if (k < (x->ndim == 0) || k > (x->ndim > 0 ? x->shape[d] : 1))
    return AC_FAIL(
        e, INVALID, "k is %lld, but along dim %lld a tensor of shape %s has %lld elements",
        (long long)k, (long long)ac_frame_show(f, d), aci_shape_str(x->ndim, x->shape, a, sizeof a),
        (long long)(x->ndim > 0 ? x->shape[d] : 1));
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  if (x->ndim > 0) s[d] = k;
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e));
  return ac_frame_out(f, AC_I64, x->ndim, s, e);
}

typedef struct topk_job {
  aci_reduce_plan p;
  aci_sort_keys k;
  int64_t n, inner, best; /* best: the argument k */
  int64_t chunk, n_chunks, room;
  char *values;
  int64_t *indices;
  char *part; /* (lines, n_chunks * best) keys when lines are cut, else NULL */
  aci_slots slots;
} topk_job;

static const char *line_of(const topk_job *j, int64_t o) {
  return j->p.ptr + aci_reduce_base(&j->p, o) * (int64_t)aci_dsize(j->p.dt);
}

static void put(const topk_job *j, int64_t o, const void *keys) {
  int64_t y = aci_line_base(o, j->best, j->inner);
  aci_sort_keys_store(&j->k, keys, j->best, line_of(j, o), j->p.red_stride[0],
                      j->values + y * (int64_t)aci_dsize(j->p.dt), j->inner, j->indices + y,
                      j->inner);
}

static void range(void *arg, int64_t begin, int64_t end) {
  topk_job *j = arg;
  int slot = aci_slots_take(&j->slots);
  char *buf = aci_slots_at(&j->slots, slot);
  for (int64_t t = begin; t < end; t++) {
    int64_t o = t / j->n_chunks, b = t % j->n_chunks * j->chunk,
            n = j->n - b < j->chunk ? j->n - b : j->chunk;
    int64_t m = aci_sort_keys_topk(&j->k, line_of(j, o), j->p.red_stride[0], b, n, j->best, buf);
    if (j->part != NULL) { /* only the last piece of a line may have fewer than k */
      memcpy(aci_sort_keys_at(&j->k, j->part, t * j->best), buf, (size_t)m * j->k.bytes);
    } else {
      aci_sort_keys_sort_unordered(&j->k, buf, aci_sort_keys_at(&j->k, buf, j->room), m);
      put(j, o, buf);
    }
  }
  aci_slots_give(&j->slots, slot);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int d = aci_wrap_dim(ARG_I(f, 2), x->ndim);
  topk_job j = {.inner = 1,
                .best = ARG_I(f, 1),
                .values = aci_data(f->out[0]),
                .indices = aci_data(f->out[1])};
  ac_block *block = NULL;
  if (f->out[0]->numel == 0) return AC_OK;
  aci_reduce_plan_make(&j.p, x, x->ndim > 0 ? 1u << d : 0, aci_ctype_of((ac_dtype)x->dtype));
  j.n = j.p.n_reduced;
  for (int i = d + 1; i < x->ndim; i++) j.inner *= x->shape[i];
  AC_TRY(aci_sort_keys_of((ac_dtype)x->dtype, j.n, ARG_B(f, 3), &j.k, e));
  j.chunk = j.p.n_out >= 64 ? j.n : CHUNK < 4 * j.best ? 4 * j.best : CHUNK;
  j.n_chunks = (j.n + j.chunk - 1) / j.chunk;
  j.room = aci_sort_keys_topk_room(j.n < j.chunk ? j.n : j.chunk, j.best);
  /* and the last piece's */
  const int64_t tasks = j.p.n_out * j.n_chunks, per_line = (j.n_chunks - 1) * j.best,
                rest = j.n - (j.n_chunks - 1) * j.chunk, last = rest < j.best ? rest : j.best;
  int64_t grain = j.n_chunks > 1 ? 1 : 1 + 16384 / j.n;
  if (j.n_chunks > 1) { /* the last line's keys are followed by room for sorting */
    AC_TRY(ac_block_alloc(f->device, (size_t)((tasks + 1) * j.best) * j.k.bytes, AC_MEM_ACTIVATION,
                          f->stream, &block, e));
    j.part = ac_block_ptr(block);
  }
  ac_status st = aci_slots_open(&j.slots, f, (tasks + grain - 1) / grain,
                                (size_t)(j.room + j.best) * j.k.bytes, e);
  if (st == AC_OK) {
    ac_parallel_for(f->team, tasks, grain, range, &j);
    aci_slots_close(&j.slots);
    for (int64_t o = 0; j.part != NULL && o < j.p.n_out; o++) {
      void *keys = aci_sort_keys_at(&j.k, j.part, o * j.n_chunks * j.best);
      aci_sort_keys_select(&j.k, keys, per_line + last, j.best);
      aci_sort_keys_sort_unordered(&j.k, keys, aci_sort_keys_at(&j.k, j.part, tasks * j.best),
                                   j.best);
      put(&j, o, keys);
    }
  }
  ac_block_free(block);
  return st;
}

static void grad(ac_grad *g) { aci_sort_keys_grad(g, 2); }

AC_OP(topk,
      .sig = "topk(x: tensor, k: int, dim: dim = -1, largest: bool = true, sorted: bool = true) -> "
             "(values: tensor, indices: tensor)",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_OUT(1));
