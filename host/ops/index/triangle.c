/* The kernel of tril and triu: rows copied up to or from the diagonal. */
#include "ops/index/triangle.h"

ac_status aci_triangle_shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  char a[128];
  if (x->ndim < 2)
    return AC_FAIL(e, SHAPE, "needs at least 2 dims, got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

typedef struct triangle_job {
  char *y;
  const char *x;
  int64_t m, n, diagonal;
  size_t es;
  bool upper;
} triangle_job;

static void range(void *arg, int64_t begin, int64_t end) {
  const triangle_job *j = arg;
  for (int64_t r = begin; r < end; r++) {
    /* first column of the part after the cut */
    int64_t cut = r % j->m + j->diagonal + (j->upper ? 0 : 1);
    cut = cut < 0 ? 0 : cut > j->n ? j->n : cut;
    char *y = j->y + (size_t)(r * j->n) * j->es;
    const char *x = j->x + (size_t)(r * j->n) * j->es;
    size_t left = (size_t)cut * j->es, right = (size_t)(j->n - cut) * j->es;
    if (j->upper) {
      memset(y, 0, left);
      memcpy(y + left, x + left, right);
    } else {
      memcpy(y, x, left);
      memset(y + left, 0, right);
    }
  }
}

ac_status aci_triangle(ac_frame *f, bool upper, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const void *data;
  ac_block *block;
  if (x->numel == 0) return AC_OK;
  AC_TRY(aci_contiguous_data(f, x, &data, &block, e));
  int64_t d = ARG_I(f, 1), m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  d = d > n ? n : d < -m ? -m : d; /* all the same beyond the corners */
  triangle_job j = {aci_data(f->out[0]), data, m, n, d, aci_dsize((ac_dtype)x->dtype), upper};
  ac_parallel_for(f->team, x->numel / n, 1 + 32768 / n, range, &j);
  ac_block_free(block);
  return AC_OK;
}
