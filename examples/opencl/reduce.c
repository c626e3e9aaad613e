/* Reductions over any dims: a state per output, joined element by element, then part by part. How lists are cut follows from the shape
 * alone, so that results do not depend on how many compute units a device has. What a state is stands in kernels/reduce.cl. */
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "layout.h"

typedef struct plan { /* struct reduce of reduce.cl */
  int64_t n_out, n_red, parts, len, keep_dims, red_dims;
  int64_t keep_shape[OCL_DIMS], keep_stride[OCL_DIMS], red_shape[OCL_DIMS], red_stride[OCL_DIMS];
} plan;

enum { STATE_BYTES = 32, MIN_PART = 512, MAX_TASKS = 4096 };

static ac_status plan_make(plan *p, const ac_tensor *x, uint32_t mask, ac_err *e) {
  const int64_t *shape = ac_tensor_shape(x), *stride = ac_tensor_stride(x);
  memset(p, 0, sizeof *p);
  p->n_out = p->n_red = 1;
  for (int d = 0; d < ac_tensor_ndim(x); d++) {
    const bool red = mask >> d & 1;
    int64_t *n = red ? &p->red_dims : &p->keep_dims, *s = red ? p->red_shape : p->keep_shape, *st = red ? p->red_stride : p->keep_stride;
    *(red ? &p->n_red : &p->n_out) *= shape[d];
    if (shape[d] == 1) continue;
    if (*n > 0 && st[*n - 1] == stride[d] * shape[d]) {
      s[*n - 1] *= shape[d];
      st[*n - 1] = stride[d];
      continue;
    }
    if (*n == OCL_DIMS) return AC_FAIL(e, UNSUPPORTED, "OpenCL devices reduce strided tensors of at most %d dims; call contiguous()", OCL_DIMS);
    s[*n] = shape[d];
    st[(*n)++] = stride[d];
  }
  p->parts = (p->n_red + MIN_PART - 1) / MIN_PART;
  const int64_t most = p->n_out > 0 ? MAX_TASKS / p->n_out : 1;
  if (p->parts > most) p->parts = most;
  if (p->parts < 1) p->parts = 1;
  p->len = (p->n_red + p->parts - 1) / p->parts;
  return AC_OK;
}

/* state: a name of reduce.cl. number: the op's own, else 0. out, second: contiguous or NULL. read_as: what elements are computed in. */
static ac_status reduce(ac_frame *f, const ac_tensor *x, uint32_t mask, const char *state, ac_dtype read_as, double number,
                        const ac_tensor *out, const ac_tensor *second, ac_err *e) {
  const ac_tensor *any = out != NULL ? out : second;
  ac_block *block = NULL;
  const char *type, *unused;
  plan p;
  AC_TRY(plan_make(&p, x, mask, e));
  if (p.n_out == 0) return AC_OK;
  AC_TRY(ocl_type(f, ac_tensor_dtype(x), &unused, e));
  AC_TRY(ocl_type(f, ac_tensor_dtype(any), &unused, e));
  AC_TRY(ocl_type(f, read_as, &type, e));
  if (p.parts > 1) AC_TRY(ocl_scratch(f, (size_t)(p.parts * p.n_out * STATE_BYTES), &block, e));
  ac_status st = AC_OK;
  for (int pass = 0; pass < (p.parts > 1 ? 2 : 1) && st == AC_OK; pass++) {
    ocl_call c;
    ocl_begin(&c, f, ocl_reduce_cl, pass == 0 ? "reduce" : "meet");
    ocl_define(&c, "#define T %s\n#define IN %s\n#define OUT %s\n#define SECOND %s\n#define STATE_%s\n", type, ac_dtype_name(ac_tensor_dtype(x)),
               ac_dtype_name(ac_tensor_dtype(out != NULL ? out : any)), second != NULL ? ac_dtype_name(ac_tensor_dtype(second)) : "i64", state);
    ocl_define(&c, "%s%s%s%s", type[0] == 'l' ? "#define WHOLE\n" : "", out != NULL ? "#define FIRST_RESULT\n" : "",
               second != NULL ? "#define SECOND_RESULT\n" : "", p.parts > 1 ? "#define PARTS\n" : "");
    ocl_value(&c, &p, sizeof p);
    ocl_wide(&c, number);
    ocl_memory(&c, pass == 0 ? ac_tensor_data(x) : NULL);
    ocl_memory(&c, block != NULL ? ac_block_ptr(block) : NULL);
    ocl_memory(&c, out != NULL ? ac_tensor_data(out) : NULL);
    ocl_memory(&c, second != NULL ? ac_tensor_data(second) : NULL);
    st = ocl_run(&c, pass == 0 ? p.n_out * p.parts : p.n_out, OCL_GROUP, e);
  }
  ac_block_free(block);
  return st;
}

/* What sums of results of dtype dt are of: integers as they are, else floats. */
static ac_dtype computed(ac_dtype dt) { return dt == AC_F64 ? AC_F64 : ac_dtype_is_float(dt) ? AC_F32 : AC_I64; }

ac_status ocl_sum(ac_frame *f, const ac_tensor *x, uint32_t mask, const ac_tensor *out, ac_err *e) {
  return reduce(f, x, mask, "sum", computed(ac_tensor_dtype(out)), 0, out, NULL, e);
}

static ac_status plain(ac_frame *f, const char *state, int dims, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return reduce(f, x, ocl_mask(&f->args[dims], ac_tensor_ndim(x)), state, computed(ac_tensor_dtype(f->out[0])), 0, f->out[0], NULL, e);
}
static ac_status sum(ac_frame *f, ac_err *e) { return plain(f, "sum", 1, e); }
static ac_status mean(ac_frame *f, ac_err *e) { return plain(f, "mean", 1, e); }
static ac_status prod(ac_frame *f, ac_err *e) { return plain(f, "prod", 1, e); }

/* The product of the elements that are not 0, and how many are: what prod's gradient is made of. */
static ac_status prod_parts(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return reduce(f, x, ocl_mask(&f->args[1], ac_tensor_ndim(x)), "prod_parts", computed(ac_tensor_dtype(x)), 0, f->out[0], f->out[1], e);
}

/* Read as they are: NaN counts as not 0. */
static ac_status count(ac_frame *f, const char *state, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return reduce(f, x, ocl_mask(&f->args[1], ac_tensor_ndim(x)), state, computed(ac_tensor_dtype(x)), 0, f->out[0], NULL, e);
}
static ac_status any(ac_frame *f, ac_err *e) { return count(f, "any", e); }
static ac_status all(ac_frame *f, ac_err *e) { return count(f, "all", e); }
static ac_status count_nonzero(ac_frame *f, ac_err *e) { return count(f, "count", e); }

static ac_status extremum(ac_frame *f, bool min, const ac_tensor *values, const ac_tensor *indices, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return reduce(f, x, ocl_mask(&f->args[1], ac_tensor_ndim(x)), min ? "min" : "max", computed(ac_tensor_dtype(x)), 0, values, indices, e);
}
static ac_status max(ac_frame *f, ac_err *e) { return extremum(f, false, f->out[0], f->n_out > 1 ? f->out[1] : NULL, e); }
static ac_status min(ac_frame *f, ac_err *e) { return extremum(f, true, f->out[0], f->n_out > 1 ? f->out[1] : NULL, e); }
static ac_status argmax(ac_frame *f, ac_err *e) { return extremum(f, false, NULL, f->out[0], e); }
static ac_status argmin(ac_frame *f, ac_err *e) { return extremum(f, true, NULL, f->out[0], e); }

static ac_status moments(ac_frame *f, const char *state, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return reduce(f, x, ocl_mask(&f->args[1], ac_tensor_ndim(x)), state, computed(ac_tensor_dtype(x)), ocl_scalar(f->args[3].scalar), f->out[0],
                NULL, e);
}
static ac_status var(ac_frame *f, ac_err *e) { return moments(f, "var", e); }
static ac_status std(ac_frame *f, ac_err *e) { return moments(f, "std", e); }

static ac_status logsumexp(ac_frame *f, ac_err *e) { return plain(f, "logsumexp", 1, e); }

static ac_status norm(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  const double p = ocl_scalar(f->args[1].scalar);
  const char *state = p == 0 ? "norm_zero" : p == 1 ? "norm_one" : p == 2 ? "norm_two" : isinf(p) ? (p > 0 ? "norm_max" : "norm_min") : "norm_p";
  return reduce(f, x, ocl_mask(&f->args[2], ac_tensor_ndim(x)), state, computed(ac_tensor_dtype(x)), p, f->out[0], NULL, e);
}

const ac_device_kernel ocl_reduce_kernels[] = {
    {"sum", sum},       {"mean", mean},     {"prod", prod}, {"prod_parts", prod_parts}, {"any", any},   {"all", all},
    {"max", max},       {"min", min},       {"amax", max},  {"amin", min},              {"var", var},   {"std", std},
    {"argmax", argmax}, {"argmin", argmin}, {"norm", norm}, {"logsumexp", logsumexp},   {"count_nonzero", count_nonzero},
    {NULL, NULL},
};
