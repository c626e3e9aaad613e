/* Draws of accel's counter-based generator: element i of a call takes words of the block of its counter, as on every other device
 * (Philox4x32-10), so that masks and values are the CPU's.
 *
 *   key     = seed ^ stream * 0x9E3779B97F4A7C15
 *   counter = (block, step << 32 | ordinal); draws that belong to no row of the batch count on through the step */
#include <string.h>

#include "kernels.h"
#include "layout.h"

static void counter(ocl_call *c, const ac_generator *g, bool of_rows) {
  const uint64_t key = g->seed ^ (uint64_t)g->stream * 0x9E3779B97F4A7C15u;
  uint64_t call = (uint64_t)g->step << 32 | g->ordinal;
  if (!of_rows && g->drawn != 0) call += g->drawn | UINT32_C(1) << 31;
  ocl_value(c, &key, sizeof key);
  ocl_value(c, &call, sizeof call);
}

static void define(ocl_call *c, ac_dtype dt, const char *type, bool real) {
  ocl_define(c, "#define X %s\n#define X_%s\n#define T %s\n%s", ac_dtype_name(dt), ac_dtype_name(dt), type, real ? "#define REAL\n" : "");
}

/* x := draws, any strides; a, b: numbers of the kernel, as T where `real`, else as long. */
static ac_status draw(ac_frame *f, const char *kernel, bool real, double a, double b, int64_t whole_a, int64_t whole_b, ac_err *e) {
  const ac_tensor *x = f->out[0];
  const ac_dtype dt = ac_tensor_dtype(x);
  int64_t stride[OCL_OPERANDS][AC_MAX_DIMS] = {{0}};
  const char *type;
  ocl_layout l;
  ocl_call c;
  if (ac_tensor_numel(x) == 0) return AC_OK;
  AC_TRY(ocl_type(f, dt, &type, e));
  memcpy(stride[0], ac_tensor_stride(x), sizeof(int64_t) * (size_t)ac_tensor_ndim(x));
  AC_TRY(ocl_layout_make(&l, ac_tensor_ndim(x), ac_tensor_shape(x), 1, (const int64_t(*)[AC_MAX_DIMS])stride, e));
  ocl_begin(&c, f, ocl_random_cl, kernel);
  define(&c, dt, real ? type : "long", real);
  ocl_value(&c, &l, sizeof l);
  counter(&c, &f->rng_counter, false);
  if (!real) {
    ocl_long(&c, whole_a);
    ocl_long(&c, whole_b);
  } else {
    ocl_real(&c, type, a);
    ocl_real(&c, type, b);
  }
  ocl_memory(&c, ac_tensor_data(x));
  return ocl_run(&c, l.n, OCL_GROUP, e);
}
static ac_status uniform_(ac_frame *f, ac_err *e) { return draw(f, "uniform", true, f->args[1].f, f->args[2].f, 0, 0, e); }
static ac_status normal_(ac_frame *f, ac_err *e) { return draw(f, "normal", true, f->args[1].f, f->args[2].f, 0, 0, e); }
static ac_status bernoulli_(ac_frame *f, ac_err *e) { return draw(f, "bernoulli", false, 0, 0, (int64_t)(f->args[1].f * 0x1p32), 0, e); }
static ac_status randint_(ac_frame *f, ac_err *e) { return draw(f, "randint", false, 0, 0, f->args[1].i, f->args[2].i, e); }

typedef struct whole { /* struct whole of random.cl: where x lies in the tensor of all ranks */
  int64_t first, ndim, shape[OCL_DIMS], stride[OCL_DIMS];
} whole;

static ac_status find_place(const ac_frame *f, const ac_tensor *x, whole *w, ac_err *e) {
  const ac_generator *g = &f->rng_counter;
  const int nd = ac_tensor_ndim(x);
  int64_t first[AC_MAX_DIMS] = {0}, extent[AC_MAX_DIMS], stride = 1;
  memcpy(extent, ac_tensor_shape(x), sizeof *extent * (size_t)nd);
  if (nd > 0) first[0] = g->row0;
  for (int i = 0; i < AC_DRAW_RANGES && g->range[i].dim != 0; i++) {
    const ac_draw_range *r = &g->range[i];
    const int d = r->dim - 1;
    if (d >= nd) return AC_FAIL(e, SHAPE, "a random range of dim %d, but there are %d dims", r->dim, nd);
    if (r->at < 0 || extent[d] > r->of - r->at)
      return AC_FAIL(e, SHAPE, "positions %lld .. %lld of dim %d do not lie in the %lld of the whole", (long long)r->at,
                     (long long)(r->at + extent[d]), r->dim, (long long)r->of);
    first[d] += r->at;
    extent[d] = r->of;
  }
  if (nd > OCL_DIMS) return AC_FAIL(e, UNSUPPORTED, "OpenCL devices mask tensors of at most %d dims", OCL_DIMS);
  *w = (whole){.ndim = nd};
  for (int d = nd - 1; d >= 0; d--) {
    w->shape[d] = ac_tensor_shape(x)[d];
    w->stride[d] = stride;
    w->first += first[d] * stride;
    stride *= extent[d];
  }
  return AC_OK;
}

static ac_status random_mask(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  const double p = f->args[1].f, scale = p < 1 ? 1 / (1 - p) : 0;
  int64_t stride[OCL_OPERANDS][AC_MAX_DIMS] = {{0}};
  uint64_t drop = (uint64_t)(p * 0x1p32);
  const char *type;
  ocl_layout l;
  ocl_call c;
  whole w;
  if (ac_tensor_numel(x) == 0) return AC_OK;
  if (drop == 0) drop = 1;
  AC_TRY(ocl_type(f, ac_tensor_dtype(x), &type, e));
  AC_TRY(find_place(f, x, &w, e));
  memcpy(stride[0], ac_tensor_stride(x), sizeof(int64_t) * (size_t)ac_tensor_ndim(x));
  AC_TRY(ocl_layout_make(&l, ac_tensor_ndim(x), ac_tensor_shape(x), 1, (const int64_t(*)[AC_MAX_DIMS])stride, e));
  ocl_begin(&c, f, ocl_random_cl, "mask");
  define(&c, ac_tensor_dtype(x), type, true);
  ocl_value(&c, &l, sizeof l);
  ocl_value(&c, &w, sizeof w);
  counter(&c, &f->rng_counter, true);
  ocl_long(&c, (int64_t)drop);
  ocl_real(&c, type, scale);
  ocl_memory(&c, ac_tensor_data(x));
  ocl_memory(&c, ac_tensor_data(y));
  return ocl_run(&c, l.n, OCL_GROUP, e);
}

const ac_device_kernel ocl_random_kernels[] = {
    {"uniform_", uniform_}, {"normal_", normal_}, {"bernoulli_", bernoulli_}, {"randint_", randint_}, {"random_mask", random_mask}, {NULL, NULL},
};
