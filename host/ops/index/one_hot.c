/* one_hot: a vector of num_classes for each value of x: 1 at that index, 0 elsewhere. Without num_classes (or with
   -1) it is the largest value + 1, which the meta device cannot know.
   x (any shape, i64 or i32, values from 0) -> y (shape, num_classes, i64).          No gradient.
   example: accel.one_hot(accel.tensor { 0, 2 }, 3) --> { { 1, 0, 0 }, { 0, 0, 1 } }
   example: accel.one_hot(accel.tensor { 1, 0 }) --> { { 0, 1 }, { 1, 0 } } */
#include "device/meta/meta_flags.h"
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t n = ARG_I(f, 1), s[AC_MAX_DIMS + 1];
  AC_TRY(aci_index_dtype(f, 0, e));
  if (n < -1 || n == 0)
    return AC_FAIL(e, INVALID,
                   "num_classes is %lld: expected at least 1, or -1 for as many as there are",
                   (long long)n);
  if (n < 0 && f->device->kind == AC_DEV_META && ac_frame_flag(f, ACI_META_ZEROS)) n = 1;
  if (n < 0 && f->device->kind == AC_DEV_META)
    return AC_FAIL(e, INVALID,
                   "the number of classes is unknown on the meta device; give num_classes");
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[x->ndim] = n < 0 ? 0 : n;
  return ac_frame_out(f, AC_I64, x->ndim + 1, s, e);
}

typedef struct one_hot_job {
  const int64_t *ids;
  int64_t n;
  int64_t *out;
} one_hot_job;

static void range(void *arg, int64_t begin, int64_t end) {
  const one_hot_job *j = arg;
  memset(j->out + begin * j->n, 0, (size_t)((end - begin) * j->n) * sizeof *j->out);
  for (int64_t i = begin; i < end; i++) j->out[i * j->n + j->ids[i]] = 1;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  one_hot_job j = {.n = ARG_I(f, 1)};
  ac_block *block;
  int64_t s[AC_MAX_DIMS + 1];
  if (j.n < 0 && x->numel == 0)
    return AC_FAIL(e, INVALID,
                   "x has no elements, so the number of classes is unknown; give num_classes");
  AC_TRY(aci_index_values(f, 0, j.n < 0 ? INT64_MAX : j.n, "classes", &j.ids, &block, e));
  for (int64_t i = 0; ARG_I(f, 1) < 0 && i < x->numel; i++)
    if (j.ids[i] >= j.n) j.n = j.ids[i] + 1;
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[x->ndim] = j.n;
  ac_status st = aci_frame_size(f, 0, x->ndim + 1, s, e);
  if (st == AC_OK) {
    j.out = aci_data(f->out[0]);
    ac_parallel_for(f->team, x->numel, 1 + 32768 / j.n, range, &j);
  }
  ac_block_free(block);
  return st;
}

AC_OP(one_hot, .sig = "one_hot(x: tensor, num_classes: int = -1) -> dynamic", .shape = shape,
      .cpu = cpu, .nondiff = true);
