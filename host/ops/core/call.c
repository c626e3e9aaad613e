/* ac_call: the one way in. Completes and checks arguments, casts, runs the shape rule, allocates,
 * launches the kernel, records.
 *
 * Order matters: everything that can fail for a reason of the caller's comes before the first side
 * effect (a drawn RNG counter, a written byte), so that a failed call leaves every tensor as it
 * was. */
#include <stdio.h>
#include <string.h>

#include "device/meta/meta_flags.h"
#include "ops/core/ctx_impl.h"
#include "ops/core/fuse.h"
#include "ops/core/op.h"
#include "tensor/layout.h"

static ac_status name_op(const ac_op *op, ac_status st, ac_err *e) {
  if (e != NULL && e->op[0] == 0) snprintf(e->op, sizeof e->op, "%s", op->name);
  return st;
}

/* Findings of one pass over the arguments. */
typedef struct arg_flags {
  bool provided; /* a storage whose bytes a provider has to fetch */
  /* an argument that requires gradients, or is a view and may be stale: autograd has to check it */
  bool recording;
  bool laid_out; /* a storage with a layout: the tensor may be quantised */
  bool complex;  /* a complex tensor or dtype */
} arg_flags;

static ac_status null_argument(int i, ac_err *e) {
  return AC_FAIL(e, INVALID, "argument %d is NULL", i + 1);
}

static bool meta_host(const ac_device *d) {
  return d->kind == AC_DEV_META && d->index == ACI_META_HOST;
}

/* The meta device of two devices, on which a call takes place if meta absorbs the others. Of two
 * meta devices the later one, and the host's only next to the CPU. NULL: neither is meta. */
static ac_device *absorbing(ac_device *a, ac_device *b) {
  if (a->kind == b->kind && a->kind == AC_DEV_META)
    return meta_host(b) || (!meta_host(a) && a->index > b->index) ? a : b;
  return a->kind == AC_DEV_META ? a : b->kind == AC_DEV_META ? b : NULL;
}

/* In the dry run of an accelerator meta stands for the accelerator, and the CPU's tensors stay
 * apart from its own, as in a real run. */
static bool apart(const ac_ctx *c, const ac_device *a, const ac_device *b) {
  const int64_t *flags = c->flags[AC_DEV_META];
  if (flags == NULL || !flags[ACI_META_ACCELERATOR] || !flags[ACI_META_ZEROS]) return false;
  const bool host_a = a->kind == AC_DEV_CPU || meta_host(a),
             host_b = b->kind == AC_DEV_CPU || meta_host(b);
  const ac_device *other = host_a ? b : a;
  return host_a != host_b && other->kind == AC_DEV_META && other->index == 0;
}

/* copied: an argument that an op may take from another device. */
static inline ac_status see_tensor(const ac_ctx *c, const ac_tensor *t, int i, bool copied,
                                   ac_device **dev, arg_flags *s, ac_err *e) {
  if (t == NULL) return null_argument(i, e);
  s->provided |= t->storage->provider != NULL;
  s->laid_out |= t->storage->layout != NULL;
  s->complex |= aci_is_complex(t);
  s->recording |= t->grad_fn != NULL || (t->flags & (ACI_T_REQUIRES_GRAD | ACI_T_VIEW)) != 0;
  ac_device *d = *dev;
  if (d == NULL) *dev = t->device;
  else if (!aci_same_device(t->device, d)) {
    if (c->meta_absorbs && !copied && apart(c, d, t->device))
      return AC_FAIL(
          e, DEVICE,
          "tensors are on different devices: the CPU and the accelerator of this dry run; move one with :to(device)");
    if (c->meta_absorbs && (d = absorbing(d, t->device)) != NULL) {
      *dev = d;
      return AC_OK;
    }
    d = *dev;
    const bool meta = strcmp(d->name, "meta") == 0 || strcmp(t->device->name, "meta") == 0;
    return AC_FAIL(
        e, DEVICE, "tensors are on different devices: %s and %s; %s", d->name, t->device->name,
        meta ? "one on meta has no values yet, load them first" : "move one with :to(device)");
  }
  return AC_OK;
}

/* A tensor with bytes, or of an earlier meta device, cannot be written on meta. In a dry run it
 * keeps its values. */
static ac_status check_written(const ac_frame *f, ac_err *e) {
  if (f->device->kind == AC_DEV_META && f->ctx->flags[AC_DEV_META] != NULL &&
      f->ctx->flags[AC_DEV_META][ACI_META_ZEROS])
    return AC_OK;
  for (int i = 0; i < f->n_args; i++)
    if ((f->op->mutates >> i & 1) && f->args[i].kind == AC_T_TENSOR &&
        !aci_same_device(f->args[i].tensor->device, f->device))
      return AC_FAIL(e, DEVICE, "a tensor on %s cannot be written from one on %s",
                     f->args[i].tensor->device->name, f->device->name);
  return AC_OK;
}

/* All tensor arguments must be on one device, which runs the op. Those of device_copies may be on
 * another one, but not on meta. */
static ac_status look(ac_frame *f, arg_flags *s, ac_err *e) {
  ac_device *dev = NULL;
  const uint32_t device_copies = f->desc->device_copies;
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    if (v->kind == AC_T_TENSOR) {
      ac_device *own = NULL;
      const bool copied = device_copies >> i & 1,
                 anywhere = copied && v->tensor != NULL && v->tensor->device->kind != AC_DEV_META;
      AC_TRY(see_tensor(f->ctx, v->tensor, i, copied, anywhere ? &own : &dev, s, e));
    } else if (v->kind == AC_T_TENSORS) {
      for (int j = 0; j < v->n; j++)
        AC_TRY(see_tensor(f->ctx, v->tensors[j], i, false, &dev, s, e));
    } else if (v->kind == AC_T_SCALAR) {
      if (v->scalar.kind == AC_SCALAR_NONE) return null_argument(i, e);
    } else if (v->kind == AC_T_DEVICE && dev == NULL) {
      dev = v->device;
    } else if (v->kind == AC_T_DTYPE) {
      s->complex |= v->dtype >= AC_C64;
    }
  }
  f->device = dev != NULL ? dev : ac_ctx_default_device(f->ctx);
  if (__builtin_expect(f->ctx->meta_absorbs, 0) && f->op->mutates != 0 &&
      f->device->kind == AC_DEV_META)
    return check_written(f, e);
  return AC_OK;
}

/* Quantised arguments: of ops that say so, which write them only from bytes of the same layout, and
 * of views. */
static ac_status check_quantized(const ac_frame *f, ac_err *e) {
  const uint32_t fine =
      f->op->kernel[AC_DEV_CPU] == NULL && f->op->mutates == 0 ? ~0u : f->desc->quantized;
  const ac_layout *first =
      f->n_args > 0 && f->args[0].kind == AC_T_TENSOR ? ac_tensor_layout(f->args[0].tensor) : NULL;
  char a[AC_MAX_DIMS * 22 + 8];
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    const int n = v->kind == AC_T_TENSOR ? 1 : v->kind == AC_T_TENSORS ? v->n : 0;
    ac_tensor *const *ts = v->kind == AC_T_TENSOR ? &v->tensor : v->tensors;
    for (int j = 0; j < n; j++) {
      const ac_layout *l = ac_tensor_layout(ts[j]);
      if (l != NULL && !(fine >> i & 1))
        return AC_FAIL(
            e, UNSUPPORTED,
            "%s is quantised (%s, values of shape %s): dequantize() gives its values, linear_quantized multiplies by it",
            aci_op_sig(f->op)->param[i].name, ac_quant_type_name(l->type),
            aci_shape_str(l->ndim, l->shape, a, sizeof a));
      if (!(f->op->mutates & 1) || first == NULL || i == 0) continue;
      if (l != NULL ? !aci_layout_same(first, l)
                    : ts[j]->dtype != AC_U8 || ts[j]->numel != f->args[0].tensor->numel)
        return AC_FAIL(
            e, INVALID,
            "%s is quantised and takes the bytes of a tensor of the same layout alone; quantise %s first",
            aci_op_sig(f->op)->param[0].name, aci_op_sig(f->op)->param[i].name);
    }
  }
  return AC_OK;
}

/* A copy of a quantised tensor is one. */
static ac_status keep_layout(ac_frame *f, ac_err *e) {
  const ac_layout *l = f->desc->quantized & 1 ? ac_tensor_layout(f->args[0].tensor) : NULL;
  ac_tensor *o = f->n_out > 0 ? f->out[0] : NULL;
  if (l == NULL || o == NULL || o->storage != NULL || o->dtype != AC_U8 ||
      o->numel != f->args[0].tensor->numel)
    return AC_OK;
  return aci_layout_give(o, l, e);
}

static ac_status acquire(ac_tensor *t, ac_err *e) {
  ac_storage *s = t->storage;
  return s->provider == NULL ? AC_OK : s->provider->acquire(s, &s->ptr, e);
}

static void release(ac_tensor *t, bool written) {
  ac_storage *s = t->storage;
  if (s->provider != NULL) s->provider->release(s, written);
}

/* Whether a result may be written into x in place: the shapes must be equal, and the dtype no
 * narrower kind. */
static ac_status check_result(const ac_tensor *x, const ac_tensor *o, ac_err *e) {
  char a[128], b[128];
  if (o != x && !aci_same_shape(o, x))
    return AC_FAIL(e, SHAPE, "the result has shape %s but the tensor written in place has %s",
                   aci_shape_str(o->ndim, o->shape, a, sizeof a),
                   aci_shape_str(x->ndim, x->shape, b, sizeof b));
  bool lossy = (aci_is_complex(o) && !aci_is_complex(x)) ||
               (ac_dtype_is_float((ac_dtype)o->dtype) && !ac_dtype_is_float((ac_dtype)x->dtype)) ||
               (o->dtype != AC_BOOL && x->dtype == AC_BOOL);
  if (lossy)
    return AC_FAIL(e, DTYPE, "the result is %s and cannot be written in place into %s",
                   ac_dtype_name((ac_dtype)o->dtype), ac_dtype_name((ac_dtype)x->dtype));
  return AC_OK;
}

/* In place: the shape rule made an output of the promoted shape and dtype, which must equal the
 * first argument's. */
static ac_status take_inplace(ac_frame *f, ac_err *e) {
  ac_tensor *x = f->args[0].tensor, *o = f->out[0];
  AC_TRY(check_result(x, o, e));
  if (o != x) {
    ac_tensor_release(o);
    ac_tensor_retain(x);
    f->out[0] = x;
  }
  return AC_OK;
}

static bool same_geometry(const ac_tensor *a, const ac_tensor *b) {
  return a->offset == b->offset && a->ndim == b->ndim && a->dtype == b->dtype &&
         memcmp(a->shape, b->shape, (size_t)a->ndim * 16) == 0;
}

/* A written tensor may not overlap itself, and an input that shares its storage is copied first,
 * unless the op goes element by element and both lie alike. */
static ac_status guard_overlap(ac_frame *f, ac_value *args, ac_expr *x, ac_err *e) {
  uint32_t m = f->op->mutates;
  for (int i = 0; i < f->n_args; i++) {
    if (!(m >> i & 1) || args[i].kind != AC_T_TENSOR) continue;
    ac_tensor *w = args[i].tensor;
    char a[128];
    if (w->numel > 1 && aci_overlaps_self(w))
      return AC_FAIL(
          e, SHAPE,
          "the tensor written in place, %s, has elements that share memory (expanded?); clone it first",
          aci_tensor_str(w, a, sizeof a));
    for (int j = 0; j < f->n_args; j++) {
      if (j == i || args[j].kind != AC_T_TENSOR || args[j].tensor->storage != w->storage) continue;
      if ((m >> j & 1) || (f->desc->elementwise && same_geometry(args[j].tensor, w))) continue;
      ac_tensor *copy = ac_expr_call(x, ac_op_find(f->ctx, "clone"), &args[j], NULL, 0);
      if (copy == NULL) return x->st;
      args[j].tensor = copy;
    }
  }
  return AC_OK;
}

/* Whether the kernel itself can copy t's bytes into x: same dtype and shape, both contiguous, and
 * no gradient for t. */
static bool kernel_copies(const ac_ctx *c, const ac_tensor *x, const ac_tensor *t) {
  return x->device->kind != AC_DEV_META && !aci_accelerators_differ(x->device, t->device) &&
         t->dtype == x->dtype && aci_same_shape(t, x) && aci_is_contiguous(t) &&
         aci_is_contiguous(x) && !(c->grad_enabled && aci_requires_grad(t));
}

/* Arguments that may be on another device are replaced by copies on the device of argument 0. The
 * copy is an op of its own (`to`), so that its gradient is copied back. */
static ac_status copy_to_device(ac_frame *f, ac_value *args, ac_expr *x) {
  ac_device *to = args[0].tensor != NULL ? args[0].tensor->device : NULL;
  for (int i = 1; i < f->n_args && to != NULL; i++) {
    const ac_value v[3] = {args[i], {.kind = AC_T_NONE}, {.kind = AC_T_DEVICE, .device = to}};
    if (!(f->desc->device_copies >> i & 1) || v[0].kind != AC_T_TENSOR || v[0].tensor == NULL ||
        v[0].tensor->device == to)
      continue;
    if (v[0].tensor->device->kind == AC_DEV_META) continue; /* it has no bytes: look reports that */
    if (kernel_copies(f->ctx, args[0].tensor, v[0].tensor)) continue;
    ac_tensor *t = ac_expr_call(x, ac_op_find(f->ctx, "to"), v, NULL, 0);
    if (t == NULL) return x->st;
    args[i].tensor = t;
  }
  return AC_OK;
}

/* Arguments of an op of a program that are not contiguous are replaced by copies, whose gradient
 * leads back. Its kernel then reads them as rows of elements. */
static ac_status make_plain(ac_frame *f, ac_value *args, ac_expr *x) {
  for (int i = 0; i < f->n_args; i++) {
    if (args[i].kind != AC_T_TENSOR || f->op->mutates >> i & 1) continue;
    if (args[i].tensor == NULL || aci_is_contiguous(args[i].tensor)) continue;
    ac_tensor *t = ac_expr_call(x, ac_op_find(f->ctx, "contiguous"), &args[i], NULL, 0);
    if (t == NULL) return x->st;
    args[i].tensor = t;
  }
  return AC_OK;
}

static ac_status missing_kernel(const ac_frame *f, ac_err *e) {
  char list[128] = "";
  for (int i = 0; i < f->ctx->n_devices; i++) {
    const ac_device *d = f->ctx->device[i];
    if (d->kind != AC_DEV_META && f->op->kernel[d->kind] != NULL) {
      size_t n = strlen(list);
      snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", d->name);
    }
  }
  return AC_FAIL(e, UNSUPPORTED, "unsupported on device %s (kernels exist for: %s)",
                 f->device->name, list[0] ? list : "none");
}

static void each_storage(ac_frame *f, void (*fn)(ac_tensor *, bool), int n_args) {
  for (int i = 0; i < n_args; i++) {
    const ac_value *v = &f->args[i];
    bool w = f->op->mutates >> i & 1;
    if (v->kind == AC_T_TENSOR) fn(v->tensor, w);
    else if (v->kind == AC_T_TENSORS)
      for (int j = 0; j < v->n; j++) fn(v->tensors[j], w);
  }
}

static ac_status acquire_all(ac_frame *f, ac_err *e) {
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    int n = v->kind == AC_T_TENSOR ? 1 : v->kind == AC_T_TENSORS ? v->n : 0;
    ac_tensor *const *ts = v->kind == AC_T_TENSOR ? &v->tensor : v->tensors;
    for (int j = 0; j < n; j++) {
      ac_status st = acquire(ts[j], e);
      if (st != AC_OK) {
        for (int k = 0; k < j; k++) release(ts[k], false);
        each_storage(f, release, i);
        return st;
      }
    }
  }
  return AC_OK;
}

static void bump(ac_tensor *t, bool written) {
  if (written) atomic_fetch_add_explicit(&t->storage->version, 1, memory_order_relaxed);
}

/* Bytes for a result. A quantised one is a weight or a state, which stays. Inside backward, where
 * the caller cannot repeat the call, the context's owner may free memory first, and once more after
 * a failure. */
static ac_status allocate(ac_frame *f, ac_tensor *t, ac_err *e) {
  const ac_mem_class class = t->layout != NULL ? AC_MEM_PARAMETER : AC_MEM_ACTIVATION;
  ac_status st = aci_tensor_alloc(t, class, e);
  if (st == AC_OOM && f->ctx->in_backward > 0 && f->ctx->on_oom != NULL &&
      f->ctx->on_oom(f->ctx->oom_user))
    st = aci_tensor_alloc(t, class, e);
  return st;
}

ac_status aci_frame_size(ac_frame *f, int result, int ndim, const int64_t *shape, ac_err *e) {
  AC_CHECK(f->op->dynamic && result < f->n_out && f->out[result]->storage == NULL, e);
  ac_tensor *t = aci_tensor_shell(f->device, (ac_dtype)f->out[result]->dtype, ndim, shape);
  if (t == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  ac_tensor_release(f->out[result]);
  f->out[result] = t;
  return allocate(f, t, e);
}

static ac_status run_kernel(ac_frame *f, ac_kernel k, bool provided, ac_err *e) {
  if (__builtin_expect(f->desc->complex_as == AC_COMPLEX_PAIRS, 0) && aci_is_complex(f->out[0]))
    return aci_complex_kernel(f, k, e);
  if (__builtin_expect(!provided, 1) || aci_fuse_takes(f)) return k(f, e);
  AC_TRY(acquire_all(f, e));
  ac_status st = k(f, e);
  each_storage(f, release, f->n_args);
  return st;
}

/* Allocates results without storage, then runs the kernel. On meta nothing runs, but memory that a
 * kernel would acquire is acquired, since providers take memory. A dynamic op's kernel allocates
 * its results itself (aci_frame_size). Views need no kernel. */
static ac_status launch(ac_frame *f, bool provided, ac_err *e) {
  bool alloc_only = f->device->kind == AC_DEV_META, later = f->op->dynamic && !alloc_only;
  ac_kernel k = alloc_only ? NULL : f->op->kernel[f->device->kind];
  bool needs_kernel = f->op->mutates != 0; /* else: all results are views, or there are none */
  for (int i = 0; i < f->n_out; i++) {
    if (f->out[i]->storage != NULL) continue;
    if (!later &&
        (__builtin_expect(f->ctx->n_observers == 0, 1) || !aci_fuse_promise(f, f->out[i])))
      AC_TRY(allocate(f, f->out[i], e));
    needs_kernel = true;
  }
  if (alloc_only) {
    if (!provided || !needs_kernel) return AC_OK;
    AC_TRY(acquire_all(f, e));
    each_storage(f, release, f->n_args);
    return AC_OK;
  }
  if (k == NULL) return needs_kernel ? missing_kernel(f, e) : AC_OK;
  AC_TRY(run_kernel(f, k, provided, e));
  for (int i = 0; later && i < f->n_out; i++)
    if (f->out[i]->storage == NULL)
      return AC_FAIL(e, INTERNAL, "the kernel left result %d without a size", i + 1);
  return AC_OK;
}

/* ACCEL_CHECK_NAN: the op that first makes a NaN is the one to look at. */
static ac_status check_nan(const ac_frame *f, ac_err *e) {
  for (int k = 0; k < f->n_out; k++) {
    const ac_tensor *t = f->out[k];
    ac_scalar v;
    if (!ac_dtype_is_float((ac_dtype)t->dtype) || t->device->kind == AC_DEV_META) continue;
    for (int64_t i = 0; i < t->numel; i++) {
      AC_TRY(ac_tensor_item(t, i, &v, e));
      if (v.f != v.f)
        return AC_FAIL(e, STATE, "result %d has NaN at element %lld (ACCEL_CHECK_NAN)", k + 1,
                       (long long)ac_frame_show(f, i));
    }
  }
  return AC_OK;
}

static ac_status run_composed(ac_ctx *c, const ac_op *op, const ac_value *args, ac_value *results,
                              int *n_results, ac_err *e) {
  ac_expr x;
  ac_tensor *out[AC_MAX_RESULTS] = {0};
  ac_expr_init(&x, c, e);
  int n = op->desc->composed(&x, args, out);
  for (int i = 0; i < n && x.st == AC_OK; i++)
    if (out[i] == NULL) x.st = AC_FAIL(e, INTERNAL, "composed op left result %d empty", i + 1);
  ac_status st = x.st;
  if (st == AC_OK) {
    for (int i = 0; i < n; i++) {
      ac_tensor_retain(out[i]);
      results[i] = (ac_value){.kind = AC_T_TENSOR, .tensor = out[i]};
    }
    *n_results = n;
  }
  ac_expr_end(&x);
  return st;
}

/* On a device without a kernel for an op, runs its composition, once its shape rule has checked the
 * arguments. */
static bool falls_back(const ac_frame *f) {
  const ac_op *op = f->op;
  return aci_is_accelerator(f->device) && op->kernel[f->device->kind] == NULL &&
         op->desc->composed != NULL && op->mutates == 0 && op->rng_arg < 0;
}

static ac_status run_fallback(ac_frame *f, ac_value *args, ac_value *results, int *n_results,
                              ac_err *e) {
  ac_dtype want[AC_MAX_RESULTS];
  AC_TRY(f->op->desc->shape(f, e));
  const int n = f->n_out;
  for (int i = 0; i < n; i++) {
    want[i] = (ac_dtype)f->out[i]->dtype;
    ac_tensor_release(f->out[i]);
  }
  f->n_out = 0;
  AC_TRY(run_composed(f->ctx, f->op, args, results, n_results, e));
  bool same = *n_results == n;
  for (int i = 0; same && i < n; i++) same = results[i].tensor->dtype == want[i];
  if (same) return AC_OK;
  /* compositions are written for second derivatives: this one gives other dtypes than the op
   * does */
  for (int i = 0; i < *n_results; i++) ac_tensor_release(results[i].tensor);
  *n_results = 0;
  return missing_kernel(f, e);
}

/* The in-place form of an op whose kernel cannot write its argument: the op, and a copy of its
 * result. If gradients are recorded the op gets a clone, since it may save its argument, which the
 * copy overwrites. */
static ac_status run_copied(ac_ctx *c, const ac_op *op, ac_value *args, ac_value *results,
                            int *n_results, ac_expr *x, ac_err *e) {
  ac_value into[3] = {args[0]};
  ac_tensor *t = args[0].tensor;
  if (t == NULL) return null_argument(0, e);
  const ac_op *copy = ac_op_find(c, "copy_");
  if (c->grad_enabled && t->grad_fn != NULL)
    args[0].tensor = ac_expr_call(x, ac_op_find(c, "clone"), into, NULL, 0);
  if (args[0].tensor == NULL) return x->st;
  into[1] =
      (ac_value){.kind = AC_T_TENSOR, .tensor = ac_expr_call(x, aci_op_base(c, op), args, NULL, 0)};
  if (into[1].tensor == NULL) return x->st;
  AC_TRY(check_result(t, into[1].tensor, e));
  if (ac_expr_call(x, copy, into, NULL, 0) == NULL) return x->st;
  ac_tensor_retain(t);
  results[0] = (ac_value){.kind = AC_T_TENSOR, .tensor = t};
  *n_results = 1;
  return AC_OK;
}

/* A call with a shape rule, its arguments complete and cast. Results move from f->out to `results`
 * only at the end, after recording. On failure ac_call releases the results in f->out. args is the
 * caller's copy and may be changed. x owns replaced arguments. */
static ac_status run(ac_frame *f, ac_value *args, ac_value *results, int *n_results, ac_expr *x,
                     ac_err *e) {
  ac_ctx *c = f->ctx;
  const ac_op *op = f->op;
  arg_flags seen = {false, false, false, false};
  if (__builtin_expect(op->desc->device_copies != 0, 0)) AC_TRY(copy_to_device(f, args, x));
  if (__builtin_expect(op->plain_args, 0)) AC_TRY(make_plain(f, args, x));
  AC_TRY(look(f, &seen, e));
  if (__builtin_expect(seen.laid_out, 0)) AC_TRY(check_quantized(f, e));
  if (__builtin_expect(seen.complex, 0)) {
    if (aci_complex_replaces(op)) return aci_complex_run(c, op, args, results, n_results, e);
    AC_TRY(aci_complex_cast_args(f, args, x, e));
  }
  /* not the device's: a tensor may come from another context, whose team may be freed already */
  f->team = c->team;
  if (__builtin_expect(op->kernel[f->device->kind] == NULL, 0)) { /* a view's as well */
    AC_TRY(aci_ctx_attach_device(c, f->device, e));
    if (falls_back(f)) return run_fallback(f, args, results, n_results, e);
  }
  if (__builtin_expect(op->mutates != 0, 0)) AC_TRY(guard_overlap(f, args, x, e));
  if (op->rng_arg >= 0) {
    ac_value *g = &args[op->rng_arg];
    f->rng_counter = g->kind == AC_T_GENERATOR && g->generator != NULL ? *g->generator : c->gen;
    f->rng_counter.fixed = 1;
  }
  AC_TRY(op->desc->shape(f, e));
  if (__builtin_expect(seen.laid_out, 0)) AC_TRY(keep_layout(f, e));
  if (f->inplace) AC_TRY(take_inplace(f, e));
  if (op->mutates != 0 && c->ag_check != NULL) AC_TRY(c->ag_check(c, f, e));
  if (c->n_observers > 0) AC_TRY(aci_fuse_before_call(f, e));
  for (int i = 0; i < c->n_observers; i++)
    if (c->observer[i].before != NULL) c->observer[i].before(c->observer[i].user, f);
  ac_status st = launch(f, seen.provided, e);
  if (__builtin_expect(c->check_nan, 0) && st == AC_OK) st = check_nan(f, e);
  for (int i = 0; i < c->n_observers; i++) c->observer[i].after(c->observer[i].user, f, st);
  AC_TRY(st);
  /* grad_enabled is off inside no_grad */
  if (seen.recording && c->grad_enabled && c->ag_record != NULL &&
      (!op->desc->nondiff || op->mutates != 0))
    st = c->ag_record(c, f, e);
  /* written, whatever became of the record */
  if (op->mutates != 0) each_storage(f, bump, f->n_args);
  AC_TRY(st);
  if (op->rng_arg >= 0) {
    ac_generator *g =
        args[op->rng_arg].kind == AC_T_GENERATOR && args[op->rng_arg].generator != NULL
            ? args[op->rng_arg].generator
            : &c->gen;
    ac_generator_draw(g);
  }
  for (int i = 0; i < f->n_out; i++) {
    results[i] = (ac_value){.kind = AC_T_TENSOR, .tensor = f->out[i]};
    f->out[i] = NULL;
  }
  *n_results = f->n_out;
  return AC_OK;
}

ac_status ac_call(ac_ctx *c, const ac_op *op, const ac_value *args, ac_value *results,
                  int *n_results, ac_err *e) {
  if (__builtin_expect(!op->parsed, 0)) AC_TRY(aci_op_parse(op, e));
  if (__builtin_expect(c->fault.expr != NULL ||
                           atomic_load_explicit(&aci_fault_pending, memory_order_relaxed) ||
                           __atomic_load_n(&c->stop, __ATOMIC_RELAXED),
                       0)) {
    AC_TRY(aci_ctx_usable(c, e));
    if (__atomic_load_n(&c->stop, __ATOMIC_RELAXED))
      return name_op(op, AC_FAIL(e, INTERRUPTED, "interrupted"), e);
  }
  const ac_op_desc *d = op->desc;
  if (e != NULL) e->op[0] = 0;
  ac_status st = AC_OK;
  ac_value copy[AC_MAX_ARGS];
  const int n = op->n_params;
  /* by members: the caller has just written them one by one, and a wide load of the struct would
   * miss store forwarding */
  for (int i = 0; i < n; i++) {
    const ac_type kind = args[i].kind;
    if (kind == AC_T_TENSOR) {
      copy[i].kind = kind;
      copy[i].tensor = args[i].tensor;
    } else if (kind != AC_T_NONE) {
      copy[i] = args[i];
    } else if (op->defaults >> i & 1) {
      copy[i] = op->sig->param[i].dflt;
    } else {
      copy[i].kind = kind;
    }
  }

  ac_expr x; /* holds temporaries of this call: casts, copies of overlapping inputs */
  ac_expr_init(&x, c, e);
  if (__builtin_expect(op->inplace && (d->copy_back || d->shape == NULL), 0)) {
    st = run_copied(c, op, copy, results, n_results, &x, e);
    if (st != AC_OK && e != NULL) e->op[0] = 0;
    goto done;
  }
  if (__builtin_expect(c->autocast_on, 0) && c->cast != NULL) {
    st = c->cast(c, op, copy, &x, e);
    if (st != AC_OK) goto done;
  }
  if (d->shape == NULL) { /* composed only: the inner calls check, allocate and record */
    st = __builtin_expect(aci_complex_among(copy, n), 0)
             ? aci_complex_run(c, op, copy, results, n_results, e)
             : run_composed(c, op, copy, results, n_results, e);
    /* errors name the op that was called, not one it is composed of */
    if (st != AC_OK && e != NULL) e->op[0] = 0;
    goto done;
  }
  ac_frame f;
  f.ctx = c;
  f.op = op;
  f.desc = d;
  f.args = copy;
  f.n_args = n;
  f.n_out = 0;
  f.device = NULL;
  f.stream = c->stream;
  f.autocast = c->autocast_on;
  f.inplace = op->inplace;
  f.before = NULL;
  st = run(&f, copy, results, n_results, &x, e);
  ac_tensor_release(f.before);
  if (__builtin_expect(st != AC_OK, 0)) {
    for (int i = 0; i < f.n_out; i++)
      if (f.out[i] != NULL) ac_tensor_release(f.out[i]);
    if (e != NULL && e->device[0] == 0 && f.device != NULL)
      snprintf(e->device, sizeof e->device, "%s", f.device->name);
  }
done:
  if (__builtin_expect(x.n_tmp > 0 || x.lists != NULL, 0)) ac_expr_end(&x);
  return st == AC_OK ? AC_OK : name_op(op, st, e);
}
