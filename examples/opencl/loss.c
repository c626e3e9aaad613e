/* cross_entropy and its backward: a work-group per row of logits, classes or probabilities as targets. */
#include <stdlib.h>

#include "kernels.h"
#include "layout.h"

enum { NONE, MEAN, SUM }; /* the op's reduction */

typedef struct loss {
  ac_frame *f;
  const ac_value *a; /* input, target, weight, ignore_index, reduction, label_smoothing */
  const char *type;
  int64_t rows, n, inner; /* rows of n classes, inner apart */
  bool classes, weighs;
  double divisor;
  const void *x, *target, *weight;
  ac_block *block[3];
} loss;

static void loss_end(loss *l) {
  for (int i = 0; i < 3; i++) ac_block_free(l->block[i]);
}

/* Every class is looked at, on the host, before anything is queued; what mean divides by follows. */
static ac_status look_at_targets(loss *l, ac_err *e) {
  const ac_tensor *t = l->a[1].tensor, *w = l->a[2].kind == AC_T_TENSOR ? l->a[2].tensor : NULL;
  const int64_t size = ocl_size(t), ignore = l->a[3].i;
  double total = 0;
  l->divisor = l->a[4].i == MEAN ? (double)l->rows : 1;
  if (!l->classes || l->rows == 0) return AC_OK;
  char *id = malloc((size_t)(l->rows * size));
  double *each = w != NULL ? malloc((size_t)l->n * sizeof *each) : NULL;
  const bool room = id != NULL && (w == NULL || each != NULL);
  ac_status st = room ? AC_OK : AC_FAIL(e, OOM, "no memory for %lld targets", (long long)l->rows);
  if (st == AC_OK) st = ocl_fetch(l->f, id, l->target, (size_t)(l->rows * size), e);
  for (int64_t i = 0; st == AC_OK && w != NULL && i < l->n; i++) {
    ac_scalar s;
    st = ac_tensor_item(w, i, &s, e);
    each[i] = ocl_scalar(s);
  }
  for (int64_t i = 0; st == AC_OK && i < l->rows; i++) {
    const int64_t c = size == 8 ? ((const int64_t *)(const void *)id)[i] : ((const int32_t *)(const void *)id)[i];
    if (c == ignore) continue;
    if (c < 0 || c >= l->n)
      st = AC_FAIL(e, INDEX, "target %lld (element %lld) is not a class: there are %lld", (long long)c, (long long)ac_frame_show(l->f, i),
                   (long long)l->n);
    else total += w != NULL ? each[c] : 1;
  }
  if (l->a[4].i == MEAN) l->divisor = total;
  free(each);
  free(id);
  return st;
}

static ac_status loss_begin(loss *l, ac_frame *f, const ac_value *a, ac_err *e) {
  const ac_tensor *x = a[0].tensor;
  const char *unused;
  int64_t outer;
  *l = (loss){.f = f, .a = a, .classes = !ac_dtype_is_float(ac_tensor_dtype(a[1].tensor)), .weighs = a[2].kind == AC_T_TENSOR};
  ocl_around(ac_tensor_ndim(x), ac_tensor_shape(x), ac_tensor_ndim(x) > 1 ? 1 : 0, &outer, &l->n, &l->inner);
  l->rows = outer * l->inner;
  AC_TRY(ocl_type(f, ac_tensor_dtype(x), &l->type, e));
  AC_TRY(ocl_type(f, ac_tensor_dtype(a[1].tensor), &unused, e));
  AC_TRY(ocl_contiguous(f, x, &l->x, &l->block[0], e));
  AC_TRY(ocl_contiguous(f, a[1].tensor, &l->target, &l->block[1], e));
  if (l->weighs) AC_TRY(ocl_contiguous(f, a[2].tensor, &l->weight, &l->block[2], e));
  return look_at_targets(l, e);
}

static void loss_call(const loss *l, ocl_call *c, const char *kernel, const ac_tensor *dy) {
  ocl_begin(c, l->f, ocl_loss_cl, kernel);
  ocl_define(c, "#define T %s\n#define GROUP %d\n#define X %s\n#define Y %s\n%s", l->type, OCL_GROUP, ac_dtype_name(ac_tensor_dtype(l->a[0].tensor)),
             ac_dtype_name(ac_tensor_dtype(l->a[1].tensor)), l->classes ? "#define CLASSES\n" : "");
  if (l->weighs) ocl_define(c, "#define W %s\n", ac_dtype_name(ac_tensor_dtype(l->a[2].tensor)));
  ocl_define(c, "#define OUT %s\n", ac_dtype_name(ac_tensor_dtype(l->f->out[0])));
  if (dy != NULL) ocl_define(c, "#define DY %s\n%s", ac_dtype_name(ac_tensor_dtype(dy)), l->a[4].i == NONE ? "#define EACH_ROW\n" : "");
  ocl_long(c, l->n);
  ocl_long(c, l->inner);
  ocl_long(c, l->a[3].i);
  ocl_real(c, l->type, l->a[5].f);
  ocl_real(c, l->type, l->divisor);
  ocl_memory(c, l->x);
  ocl_memory(c, l->target);
  ocl_memory(c, l->weight);
}

static ac_status cross_entropy(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  ac_block *each = NULL;
  loss l;
  ocl_call c;
  ac_status st = loss_begin(&l, f, f->args, e);
  const bool none = l.a[4].i == NONE;
  if (st == AC_OK && !none) st = ocl_scratch(f, (size_t)(l.rows + 1) * ocl_type_bytes(ac_tensor_dtype(l.a[0].tensor)), &each, e);
  if (st == AC_OK) {
    loss_call(&l, &c, none ? "loss_rows" : "loss_parts", NULL);
    ocl_memory(&c, none ? ac_tensor_data(y) : ac_block_ptr(each));
    st = ocl_run(&c, l.rows * OCL_GROUP, OCL_GROUP, e);
  }
  if (st == AC_OK && !none) {
    loss_call(&l, &c, "loss_meet", NULL);
    ocl_long(&c, l.rows);
    ocl_memory(&c, ac_block_ptr(each));
    ocl_memory(&c, ac_tensor_data(y));
    st = ocl_run(&c, OCL_GROUP, OCL_GROUP, e);
  }
  ac_block_free(each);
  loss_end(&l);
  return st;
}

static ac_status cross_entropy_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor;
  ac_block *block = NULL;
  const void *data;
  loss l;
  ocl_call c;
  ac_status st = loss_begin(&l, f, f->args + 1, e);
  if (st == AC_OK) st = ocl_contiguous(f, dy, &data, &block, e);
  if (st == AC_OK) {
    loss_call(&l, &c, "loss_backward", dy);
    ocl_memory(&c, data);
    ocl_memory(&c, ac_tensor_data(f->out[0]));
    st = ocl_run(&c, l.rows * OCL_GROUP, OCL_GROUP, e);
  }
  ac_block_free(block);
  loss_end(&l);
  return st;
}

const ac_device_kernel ocl_loss_kernels[] = {
    {"cross_entropy", cross_entropy},
    {"cross_entropy_backward", cross_entropy_backward},
    {NULL, NULL},
};
