/* sort, argsort, topk and median on CUDA: lines in order (order.cuh), of which each op takes its
 * part. */
#include "ops/index/range.cuh"
#include "ops/index/order.cuh"

namespace {
struct line_args {
  aci_reduce_plan p;
  aci_order o;
  int64_t first, best, inner; /* `best` of each line, `inner` apart in the results */
  char *values;               /* or NULL */
  int64_t *indices;           /* or NULL */
};
} // namespace

template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    take_first(const __grid_constant__ line_args a) {
  for (int64_t i = aci_first(); i < a.o.lines * a.best; i += aci_step()) {
    const int64_t own = i / a.best, k = i % a.best, line = a.first + own,
                  at = a.o.at[own * a.o.n + k];
    const int64_t to = line / a.inner * a.best * a.inner + line % a.inner + k * a.inner;
    if (a.values != NULL) {
      const int64_t base = aci_element_offset(line, a.p.n_keep, a.p.keep_shape, a.p.keep_stride);
      ((S *)a.values)[to] = ((const S *)a.p.ptr)[base + at * a.p.red_stride[0]];
    }
    if (a.indices != NULL) a.indices[to] = at;
  }
}
/* The middle one, the lower of two. The first NaN when there is one. */
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    take_middle(const __grid_constant__ line_args a) {
  const uint64_t nan = aci_order_nan(a.p.dt);
  for (int64_t i = aci_first(); i < a.o.lines; i += aci_step()) {
    int64_t k = (a.o.n - 1) / 2;
    if (nan != 0 && aci_order_key_at(a.o, (i + 1) * a.o.n - 1) == nan) {
      int64_t lo = 0, hi = a.o.n - 1; /* the first key that is NaN's */
      while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;
        if (aci_order_key_at(a.o, i * a.o.n + mid) == nan) hi = mid;
        else lo = mid + 1;
      }
      k = lo;
    }
    const int64_t line = a.first + i, at = a.o.at[i * a.o.n + k];
    const int64_t base = aci_element_offset(line, a.p.n_keep, a.p.keep_shape, a.p.keep_stride);
    ((S *)a.values)[line] = ((const S *)a.p.ptr)[base + at * a.p.red_stride[0]];
    if (a.indices != NULL) a.indices[line] = at;
  }
}

/* Groups of lines, each sorted and taken from. */
static ac_status run(ac_frame *f, line_args a, bool descending, bool middle, ac_err *e) {
  const int64_t group = aci_order_group(a.p.n_reduced);
  for (a.first = 0; a.first < a.p.n_out; a.first += group) {
    const int64_t lines = a.p.n_out - a.first < group ? a.p.n_out - a.first : group;
    AC_TRY(aci_order_lines(f, &a.p, a.first, lines, middle ? a.p.n_reduced : a.best, descending,
                           &a.o, e));
    const unsigned blocks = aci_blocks(f->device, middle ? lines : lines * a.best);
    const char *name = "sort (values)";
    ac_status st;
    switch (aci_dsize(a.p.dt)) {
      case 1:
        st = aci_launch(f, name, middle ? take_middle<uint8_t> : take_first<uint8_t>, blocks, e, a);
        break;
      case 2:
        st = aci_launch(f, name, middle ? take_middle<uint16_t> : take_first<uint16_t>, blocks, e,
                        a);
        break;
      case 4:
        st = aci_launch(f, name, middle ? take_middle<uint32_t> : take_first<uint32_t>, blocks, e,
                        a);
        break;
      default:
        st = aci_launch(f, name, middle ? take_middle<uint64_t> : take_first<uint64_t>, blocks, e,
                        a);
        break;
    }
    aci_order_close(&a.o);
    AC_TRY(st);
  }
  return AC_OK;
}

static ac_status along(ac_frame *f, int64_t dim, bool descending, int64_t best,
                       const ac_tensor *values, const ac_tensor *indices, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  const int d = (int)(dim < 0 ? dim + (x->ndim > 0 ? x->ndim : 1) : dim);
  line_args a = {};
  if (indices->numel == 0) return AC_OK;
  aci_reduce_plan_make(&a.p, x, x->ndim > 0 ? 1u << d : 0, aci_ctype_of((ac_dtype)x->dtype));
  a.best = best < 0 ? a.p.n_reduced : best;
  a.inner = 1;
  for (int i = d + 1; i < x->ndim; i++) a.inner *= x->shape[i];
  a.values = values != NULL ? (char *)aci_data(values) : NULL;
  a.indices = (int64_t *)aci_data(indices);
  return run(f, a, descending, false, e);
}

static ac_status sort(ac_frame *f, ac_err *e) {
  return along(f, f->args[1].i, f->args[2].b, -1, f->out[0], f->out[1], e);
}
static ac_status argsort(ac_frame *f, ac_err *e) {
  return along(f, f->args[1].i, f->args[2].b, -1, NULL, f->out[0], e);
}
static ac_status topk(ac_frame *f, ac_err *e) {
  return along(f, f->args[2].i, f->args[3].b, f->args[1].i, f->out[0], f->out[1], e);
}
static ac_status median(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  line_args a = {};
  ac_block *run_of_all = NULL;
  const void *data = NULL;
  if (f->out[0]->numel == 0) return AC_OK;
  aci_reduce_plan_make(&a.p, x, aci_reduce_mask(&f->args[1], x->ndim),
                       aci_ctype_of((ac_dtype)x->dtype));
  if (a.p.n_red > 1) { /* all dims: one line */
    AC_TRY(aci_cuda_in_a_run(f, x, &data, &run_of_all, e));
    a.p.ptr = (const char *)data;
    a.p.n_red = 1;
    a.p.red_stride[0] = 1;
  }
  a.values = (char *)aci_data(f->out[0]);
  a.indices = f->n_out > 1 && f->out[1] != NULL ? (int64_t *)aci_data(f->out[1]) : NULL;
  const ac_status st = run(f, a, false, true, e);
  ac_block_free(run_of_all);
  return st;
}
AC_KERNEL(cuda, sort, sort)
AC_KERNEL(cuda, argsort, argsort)
AC_KERNEL(cuda, topk, topk)
AC_KERNEL(cuda, median, median)
