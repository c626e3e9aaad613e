/* Calls of accelerators by kernels of the CPU: see on_host.h. Bytes go through the device's vtable,
 * after the queued work of the call's stream. */
#include "ops/core/on_host.h"

#include <stdlib.h>

#include "ops/core/ctx_impl.h"
#include "tensor/geometry.h"
#include "tensor/layout.h"

/* A tensor with a copy of it on the host. Lists of these correspond to the arguments. */
typedef struct host_copy {
  ac_tensor *device, *host;
  bool written;
} host_copy;

typedef struct host_copies {
  ac_frame *f;
  ac_device *cpu;
  host_copy *list;
  int n, cap;
} host_copies;

static size_t bytes_of(const ac_tensor *t) {
  return (size_t)aci_span(t->ndim, t->shape, t->stride) * aci_dsize((ac_dtype)t->dtype);
}

/* The same shape and strides in host memory, which begins at the first element. Quantised if t
 * is. */
static ac_status make(const host_copies *c, const ac_tensor *t, ac_tensor **out, ac_err *e) {
  ac_storage *s = NULL;
  const ac_layout *l = ac_tensor_layout(t);
  AC_TRY(ac_storage_new(c->cpu, bytes_of(t), AC_MEM_ACTIVATION, &s, e));
  ac_status st = ac_tensor_view(s, (ac_dtype)t->dtype, t->ndim, t->shape, t->stride, 0, out, e);
  ac_storage_release(s);
  if (st == AC_OK && l != NULL) st = ac_tensor_quantize_as(*out, l, e);
  return st;
}

static ac_status take(host_copies *c, ac_tensor *t, bool fetch, bool written, ac_tensor **host,
                      ac_err *e) {
  ac_tensor *h = NULL;
  if (t->device->kind == AC_DEV_CPU) {
    *host = t;
    return AC_OK;
  }
  if (c->n == c->cap) {
    const int cap = c->cap * 2 + 16;
    host_copy *list = realloc(c->list, (size_t)cap * sizeof *list);
    if (list == NULL) return AC_FAIL(e, OOM, "no memory for a list of %d tensors", cap);
    c->list = list;
    c->cap = cap;
  }
  const ac_status st = make(c, t, &h, e);
  if (st != AC_OK) {
    ac_tensor_release(h);
    return st;
  }
  c->list[c->n++] = (host_copy){t, h, written};
  *host = h;
  const size_t bytes = bytes_of(t);
  return fetch && bytes > 0
             ? t->device->vt->copy(t->device, c->f->stream, aci_data(h), aci_data(t), bytes, e)
             : AC_OK;
}

static ac_status take_all(host_copies *c, ac_frame *g, ac_value *args, ac_tensor **lists,
                          ac_err *e) {
  ac_frame *f = c->f;
  for (int i = 0; i < f->n_args; i++) {
    const bool written = f->op->mutates >> i & 1;
    args[i] = f->args[i];
    if (args[i].kind == AC_T_TENSOR) {
      AC_TRY(take(c, f->args[i].tensor, true, written, &args[i].tensor, e));
    } else if (args[i].kind == AC_T_TENSORS) {
      for (int j = 0; j < args[i].n; j++)
        AC_TRY(take(c, f->args[i].tensors[j], true, written, &lists[j], e));
      args[i].tensors = lists;
      lists += args[i].n;
    }
  }
  for (int i = 0; i < f->n_out; i++) AC_TRY(take(c, f->out[i], false, true, &g->out[i], e));
  return ac_device_sync(f->device, e);
}

static ac_status put_all(const host_copies *c, ac_err *e) {
  for (int i = 0; i < c->n; i++) {
    const host_copy *h = &c->list[i];
    const size_t bytes = bytes_of(h->device);
    if (h->written && bytes > 0)
      AC_TRY(aci_device_upload(h->device->device, c->f->stream, aci_data(h->device),
                               aci_data(h->host), bytes, e));
  }
  return ac_device_sync(c->f->device, e); /* the copies on the host go now */
}

ac_status aci_run_on_host(ac_frame *f, ac_kernel kernel, ac_err *e) {
  host_copies c = {.f = f, .cpu = f->ctx->device[0]};
  ac_frame g = *f;
  ac_value args[AC_MAX_ARGS];
  size_t n = 0;
  for (int i = 0; i < f->n_args; i++)
    n += f->args[i].kind == AC_T_TENSORS ? (size_t)f->args[i].n : 0;
  ac_tensor **lists = malloc((n + 1) * sizeof *lists);
  if (lists == NULL) return AC_FAIL(e, OOM, "no memory for a list of %zu tensors", n);
  g.args = args;
  g.device = c.cpu;
  ac_status st = take_all(&c, &g, args, lists, e);
  if (st == AC_OK) st = kernel(&g, e);
  if (st == AC_OK) st = put_all(&c, e);
  for (int i = 0; i < c.n; i++) ac_tensor_release(c.list[i].host);
  free(c.list);
  free(lists);
  return st;
}
