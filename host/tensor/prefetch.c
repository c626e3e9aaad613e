/* Copies of tensors ahead of their use: see prefetch.h. */
#include "tensor/prefetch.h"

#include <stdlib.h>
#include <string.h>

#include "device/device_impl.h"
#include "tensor/tensor_impl.h"

/* Page-locked memory that a copy reads. */
typedef struct staged {
  struct staged *next;
  ac_block *block;
  ac_event *done; /* the copy is through */
} staged;

struct aci_prefetch {
  ac_device *device; /* retained */
  ac_stream *stream;
  ac_event *now, *copied; /* position of the compute stream, and of the copies */
  staged *flying;         /* oldest first */
  staged *spare;          /* without a block */
  ac_tensor **begun;      /* since the last join. Retained */
  size_t n_begun, cap_begun;
};

bool aci_prefetch_takes(const ac_device *d) {
  return aci_is_accelerator(d) && d->vt->stream_new != NULL;
}

ac_status aci_prefetch_new(ac_device *d, aci_prefetch **out, ac_err *e) {
  *out = NULL;
  if (!aci_prefetch_takes(d))
    return AC_FAIL(e, UNSUPPORTED, "%s has no streams on which copies could go ahead", d->name);
  aci_prefetch *p = calloc(1, sizeof *p);
  if (p == NULL) return AC_FAIL(e, OOM, "no memory for copies to %s", d->name);
  ac_device_retain(p->device = d);
  ac_status st = d->vt->stream_new(d, 0, &p->stream, e);
  if (st == AC_OK) st = d->vt->event_new(d, &p->now, e);
  if (st == AC_OK) st = d->vt->event_new(d, &p->copied, e);
  if (st == AC_OK) *out = p;
  else aci_prefetch_free(p);
  return st;
}

/* Frees the memory of copies that are done. all: waits for them. */
static void reap(aci_prefetch *p, bool all) {
  ac_device *d = p->device;
  if (all && p->flying != NULL) d->vt->sync(d, p->stream, NULL);
  while (p->flying != NULL) {
    staged *s = p->flying;
    bool done = all;
    /* in order: the later ones are not, either */
    if (!all && (d->vt->event_query(d, s->done, &done, NULL) != AC_OK || !done)) return;
    p->flying = s->next;
    ac_block_free(s->block);
    s->block = NULL;
    s->next = p->spare;
    p->spare = s;
  }
}

static ac_status stage(aci_prefetch *p, size_t bytes, staged **out, ac_err *e) {
  ac_device *d = p->device;
  reap(p, false);
  staged *s = p->spare;
  if (s != NULL) {
    p->spare = s->next;
  } else {
    if ((s = calloc(1, sizeof *s)) == NULL)
      return AC_FAIL(e, OOM, "no memory for a copy to %s", d->name);
    const ac_status st = d->vt->event_new(d, &s->done, e);
    if (st != AC_OK) {
      free(s);
      return st;
    }
  }
  s->next = NULL;
  /* of no stream: its events say when it may be used again, and streams come and go */
  const ac_status st = ac_block_alloc(d, bytes, AC_MEM_PINNED, NULL, &s->block, e);
  if (st != AC_OK) {
    s->next = p->spare;
    p->spare = s;
    return st;
  }
  *out = s;
  return AC_OK;
}

static ac_status hold(aci_prefetch *p, ac_tensor *t, ac_err *e) {
  if (p->n_begun == p->cap_begun) {
    const size_t cap = p->cap_begun * 2 + 8;
    ac_tensor **list = realloc(p->begun, cap * sizeof *list);
    if (list == NULL) return AC_FAIL(e, OOM, "no memory for a list of %zu tensors", cap);
    p->begun = list;
    p->cap_begun = cap;
  }
  ac_tensor_retain(p->begun[p->n_begun++] = t);
  return AC_OK;
}

static ac_status queue_copy(aci_prefetch *p, ac_tensor *to, const ac_tensor *t, size_t bytes,
                            ac_err *e) {
  ac_device *d = p->device;
  staged *s = NULL;
  AC_TRY(d->vt->event_record(d, p->now, NULL, e));
  AC_TRY(d->vt->stream_wait(d, p->stream, p->now, e));
  AC_TRY(stage(p, bytes, &s, e));
  memcpy(ac_block_ptr(s->block), ac_tensor_data(t), bytes);
  staged **last = &p->flying;
  while (*last != NULL) last = &(*last)->next;
  *last = s;
  AC_TRY(d->vt->copy(d, p->stream, ac_tensor_data(to), ac_block_ptr(s->block), bytes, e));
  return d->vt->event_record(d, s->done, p->stream, e);
}

ac_status aci_prefetch_begin(aci_prefetch *p, const ac_tensor *t, ac_tensor **out, ac_err *e) {
  *out = NULL;
  if (t->device->kind != AC_DEV_CPU || !ac_tensor_is_contiguous(t))
    return AC_FAIL(e, INVALID, "copies go ahead from tensors on the CPU, in one run");
  ac_tensor *to;
  AC_TRY(
      ac_tensor_new(p->device, ac_tensor_dtype(t), ac_tensor_ndim(t), ac_tensor_shape(t), &to, e));
  const size_t bytes = (size_t)ac_tensor_numel(t) * ac_dtype_bytes(ac_tensor_dtype(t));
  ac_status st = hold(p, to, e);
  if (st == AC_OK && bytes > 0) st = queue_copy(p, to, t, bytes, e);
  if (st != AC_OK) ac_tensor_release(to);
  else *out = to;
  return st;
}

ac_status aci_prefetch_join(aci_prefetch *p, ac_err *e) {
  ac_device *d = p->device;
  if (p->n_begun == 0) return AC_OK;
  AC_TRY(d->vt->event_record(d, p->copied, p->stream, e));
  AC_TRY(d->vt->stream_wait(d, NULL, p->copied, e));
  while (p->n_begun > 0) ac_tensor_release(p->begun[--p->n_begun]);
  return AC_OK;
}

void aci_prefetch_free(aci_prefetch *p) {
  if (p == NULL) return;
  ac_device *d = p->device;
  const bool joined = aci_prefetch_join(p, NULL) == AC_OK;
  reap(p, true);
  /* the device is lost */
  for (size_t i = 0; !joined && i < p->n_begun; i++) ac_tensor_release(p->begun[i]);
  free(p->begun);
  for (staged *s = p->spare, *next; s != NULL; s = next) {
    next = s->next;
    d->vt->event_free(d, s->done);
    free(s);
  }
  if (p->now != NULL) d->vt->event_free(d, p->now);
  if (p->copied != NULL) d->vt->event_free(d, p->copied);
  if (p->stream != NULL) d->vt->stream_free(d, p->stream);
  ac_device_release(d);
  free(p);
}
