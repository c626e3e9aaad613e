/* Steps of Adam, AdamW and SGD, a kernel per parameter, and clip_grad_norm_. Learning rate, step count, scale and whether gradients were
 * finite are read on the device: the host waits for nothing. */
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "layout.h"

/* dtype of tensor t as NAME, or none. */
static void define_dtype(ocl_call *c, const char *name, const ac_tensor *t) {
  if (t != NULL) ocl_define(c, "#define %s %s\n", name, ac_dtype_name(ac_tensor_dtype(t)));
}
static ac_tensor *single(const ac_value *v) { return v->kind == AC_T_TENSOR ? v->tensor : NULL; }

/* A parameter's tensors laid out: lists[k] NULL or without tensors is missing. wide: computed in f64. */
typedef struct step {
  ac_tensor *t[OCL_OPERANDS];
  ocl_layout l;
  const char *type;
} step;

static ac_status step_make(ac_frame *f, step *s, const ac_value *const lists[OCL_OPERANDS], int i, ac_err *e) {
  int64_t stride[OCL_OPERANDS][AC_MAX_DIMS] = {{0}};
  ac_dtype dt = AC_F32;
  for (int k = 0; k < OCL_OPERANDS; k++) {
    const bool there = lists[k] != NULL && lists[k]->kind == AC_T_TENSORS && i < lists[k]->n;
    s->t[k] = there ? lists[k]->tensors[i] : NULL;
    if (!there) continue;
    if (ac_tensor_dtype(s->t[k]) == AC_F64) dt = AC_F64;
    memcpy(stride[k], ac_tensor_stride(s->t[k]), sizeof(int64_t) * (size_t)ac_tensor_ndim(s->t[k]));
  }
  const ac_tensor *p = s->t[0];
  AC_TRY(ocl_type(f, dt, &s->type, e));
  return ocl_layout_make(&s->l, ac_tensor_ndim(p), ac_tensor_shape(p), OCL_OPERANDS, (const int64_t(*)[AC_MAX_DIMS])stride, e);
}

static void step_call(ac_frame *f, const step *s, ocl_call *c, const char *kernel, const ac_value *numbers[4]) {
  static const char *const list_names[OCL_OPERANDS] = {"P", "G", "M", "V", "TOP"}, *const number_names[4] = {"LR", "STEP", "SCALE", "FOUND"};
  ocl_begin(c, f, ocl_optim_cl, kernel);
  ocl_define(c, "#define T %s\n#define %s\n", s->type, kernel[0] == 's' ? "SGD" : "ADAM");
  for (int k = 0; k < OCL_OPERANDS; k++) define_dtype(c, list_names[k], s->t[k]);
  for (int k = 0; k < 4; k++) define_dtype(c, number_names[k], numbers[k] != NULL ? single(numbers[k]) : NULL);
  ocl_value(c, &s->l, sizeof s->l);
}
static void step_memory(const step *s, ocl_call *c, const ac_value *numbers[4]) {
  for (int k = 0; k < 4; k++) ocl_memory(c, numbers[k] != NULL && single(numbers[k]) != NULL ? ac_tensor_data(single(numbers[k])) : NULL);
  for (int k = 0; k < OCL_OPERANDS; k++) ocl_memory(c, s->t[k] != NULL ? ac_tensor_data(s->t[k]) : NULL);
}

enum { PARAMS, GRADS, AVGS, SQS, LR, STEP, BETA1, BETA2, EPS, DECAY, MAXIMIZE, MAX_SQS, INV_SCALE, FOUND_INF };

/* step += 1, unless gradients were not finite. */
static ac_status count(ac_frame *f, const ac_value *step_count, const ac_value *found, ac_err *e) {
  ocl_call c;
  ocl_begin(&c, f, ocl_optim_cl, "advance");
  ocl_define(&c, "#define T float\n#define COUNT\n");
  define_dtype(&c, "STEP", single(step_count));
  define_dtype(&c, "FOUND", single(found));
  ocl_memory(&c, ac_tensor_data(single(step_count)));
  ocl_memory(&c, single(found) != NULL ? ac_tensor_data(single(found)) : NULL);
  return ocl_run(&c, 1, 1, e);
}

static ac_status adam(ac_frame *f, bool decoupled, ac_err *e) {
  const ac_value *a = f->args, *numbers[4] = {&a[LR], &a[STEP], &a[INV_SCALE], &a[FOUND_INF]};
  const ac_value *const lists[OCL_OPERANDS] = {&a[PARAMS], &a[GRADS], &a[AVGS], &a[SQS], &a[MAX_SQS]};
  const char *unused;
  for (int k = 0; k < 4; k++)
    if (single(numbers[k]) != NULL) AC_TRY(ocl_type(f, ac_tensor_dtype(single(numbers[k])), &unused, e));
  AC_TRY(count(f, &a[STEP], &a[FOUND_INF], e));
  for (int i = 0; i < a[PARAMS].n; i++) {
    step s;
    ocl_call c;
    AC_TRY(step_make(f, &s, lists, i, e));
    step_call(f, &s, &c, "adam", numbers);
    const double options[] = {a[BETA1].f, a[BETA2].f, a[EPS].f, a[DECAY].f, decoupled, a[MAXIMIZE].b ? -1 : 1};
    if (c.d->f64) ocl_value(&c, options, sizeof options);
    float singles[6];
    for (int k = 0; k < 6; k++) singles[k] = (float)options[k];
    if (!c.d->f64) ocl_value(&c, singles, sizeof singles);
    step_memory(&s, &c, numbers);
    AC_TRY(ocl_run(&c, s.l.n, OCL_GROUP, e));
  }
  return AC_OK;
}
static ac_status adam_step(ac_frame *f, ac_err *e) { return adam(f, false, e); }
static ac_status adamw_step(ac_frame *f, ac_err *e) { return adam(f, true, e); }

enum { S_BUFFERS = 2, S_LR, S_MOMENTUM, S_DAMPENING, S_DECAY, S_NESTEROV, S_MAXIMIZE, S_FIRST, S_INV_SCALE, S_FOUND_INF };

static ac_status sgd_step(ac_frame *f, ac_err *e) {
  const ac_value *a = f->args, *numbers[4] = {&a[S_LR], NULL, &a[S_INV_SCALE], &a[S_FOUND_INF]};
  const ac_value *const lists[OCL_OPERANDS] = {&a[PARAMS], &a[GRADS], a[S_MOMENTUM].f != 0 ? &a[S_BUFFERS] : NULL};
  for (int i = 0; i < a[PARAMS].n; i++) {
    step s;
    ocl_call c;
    AC_TRY(step_make(f, &s, lists, i, e));
    step_call(f, &s, &c, "sgd", numbers);
    ocl_real(&c, s.type, a[S_MOMENTUM].f);
    ocl_real(&c, s.type, 1 - a[S_DAMPENING].f);
    ocl_real(&c, s.type, a[S_DECAY].f);
    ocl_real(&c, s.type, a[S_MAXIMIZE].b ? -1 : 1);
    ocl_long(&c, a[S_NESTEROV].b);
    ocl_long(&c, a[S_FIRST].b);
    step_memory(&s, &c, numbers);
    AC_TRY(ocl_run(&c, s.l.n, OCL_GROUP, e));
  }
  return AC_OK;
}

/* ---- clip_grad_norm_ ---- */
enum { PART = 2048, KIND_COUNT = 0, KIND_SUM, KIND_SQUARES, KIND_MAX, KIND_POWER };

static ac_status clip_grad_norm(ac_frame *f, ac_err *e) {
  const ac_value *grads = &f->args[0];
  const double most = f->args[1].f, p = f->args[2].f;
  const int kind = p == 0 ? KIND_COUNT : p == 1 ? KIND_SUM : p == 2 ? KIND_SQUARES : isinf(p) ? KIND_MAX : KIND_POWER;
  const ac_tensor *out = f->out[0];
  const char *type;
  ac_block *parts;
  int64_t n_parts = 0, at = 0;
  ocl_call c;
  AC_TRY(ocl_type(f, ac_tensor_dtype(out), &type, e));
  for (int i = 0; i < grads->n; i++) n_parts += (ac_tensor_numel(grads->tensors[i]) + PART - 1) / PART;
  AC_TRY(ocl_scratch(f, (size_t)n_parts * 8 + 8, &parts, e));
  ac_status st = AC_OK;
  for (int shrink = 0; shrink < 2 && st == AC_OK; shrink++) {
    for (int i = 0; i < grads->n && st == AC_OK; i++) {
      const ac_tensor *g = grads->tensors[i];
      const char *own;
      int64_t stride[OCL_OPERANDS][AC_MAX_DIMS] = {{0}};
      ocl_layout l;
      memcpy(stride[0], ac_tensor_stride(g), sizeof(int64_t) * (size_t)ac_tensor_ndim(g));
      st = ocl_layout_make(&l, ac_tensor_ndim(g), ac_tensor_shape(g), 1, (const int64_t(*)[AC_MAX_DIMS])stride, e);
      if (st == AC_OK) st = ocl_type(f, ac_tensor_dtype(g), &own, e);
      if (st != AC_OK || l.n == 0) continue;
      ocl_begin(&c, f, ocl_optim_cl, shrink ? "shrink" : "measure");
      ocl_define(&c, "#define T %s\n#define CLIP\n#define G %s\n#define NORM %s\n#define KIND %d\n#define PART %d\n", own,
                 ac_dtype_name(ac_tensor_dtype(g)), ac_dtype_name(ac_tensor_dtype(out)), kind, PART);
      ocl_value(&c, &l, sizeof l);
      ocl_wide(&c, shrink ? most : p);
      ocl_long(&c, at);
      ocl_memory(&c, ac_tensor_data(g));
      ocl_memory(&c, shrink ? ac_tensor_data(out) : ac_block_ptr(parts));
      st = ocl_run(&c, shrink ? l.n : (l.n + PART - 1) / PART, OCL_GROUP, e);
      at += (l.n + PART - 1) / PART;
    }
    if (st != AC_OK || shrink) break;
    ocl_begin(&c, f, ocl_optim_cl, "total");
    ocl_define(&c, "#define T %s\n#define CLIP\n#define G f32\n#define NORM %s\n#define KIND %d\n#define PART %d\n#define GROUP %d\n", type,
               ac_dtype_name(ac_tensor_dtype(out)), kind, PART, OCL_GROUP);
    ocl_long(&c, n_parts);
    ocl_wide(&c, p);
    ocl_memory(&c, ac_block_ptr(parts));
    ocl_memory(&c, ac_tensor_data(out));
    st = ocl_run(&c, 1, 1, e);
    ac_scalar norm = {.kind = AC_SCALAR_FLOAT, .f = 0};
    if (st == AC_OK && f->args[3].b) st = ac_tensor_item(out, 0, &norm, e);
    if (st == AC_OK && !isfinite(norm.f))
      st = AC_FAIL(e, INVALID, "the total norm of the gradients is %g; nothing was changed", norm.f);
    if (isinf(most)) break;
  }
  ac_block_free(parts);
  return st;
}

const ac_device_kernel ocl_optim_kernels[] = {
    {"adam_step_", adam_step}, {"adamw_step_", adamw_step}, {"sgd_step_", sgd_step}, {"clip_grad_norm_", clip_grad_norm}, {NULL, NULL},
};
