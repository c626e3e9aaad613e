/* A collective on a GPU, in NCCL's calls (nccl.h). */
#include <stdlib.h>

#include "comm/nccl/nccl.h"
#include "device/device_impl.h"

int aci_nccl_type(ac_dtype t, bool reduces, size_t *scale) {
  *scale = 1;
  switch (t) {
    case AC_F64: return ACI_NCCL_F64;
    case AC_F32: return ACI_NCCL_F32;
    case AC_F16: return ACI_NCCL_F16;
    case AC_BF16: return ACI_NCCL_BF16;
    case AC_I64: return ACI_NCCL_I64;
    case AC_I32: return ACI_NCCL_I32;
    case AC_I8: return ACI_NCCL_I8;
    case AC_U8:
    case AC_BOOL: return ACI_NCCL_U8;
    default: break;
  }
  if (reduces) return -1;
  *scale = ac_dtype_bytes(t);
  return ACI_NCCL_U8;
}

static bool is_reduction(ac_coll_kind k) {
  return k == AC_COLL_ALL_REDUCE || k == AC_COLL_REDUCE || k == AC_COLL_REDUCE_SCATTER;
}

bool aci_device_takes(const ac_coll *c) {
  size_t scale;
  if (c->kind == AC_COLL_BARRIER) return false;
  return aci_nccl_type(c->dtype, is_reduction(c->kind), &scale) >= 0;
}

/* Bools are 0 and 1: or is their maximum, and their minimum. */
static int op_of(const ac_coll *c) {
  const bool logical = c->dtype == AC_BOOL;
  switch (c->op) {
    case AC_REDUCE_MEAN: return ACI_NCCL_AVG;
    case AC_REDUCE_MIN: return ACI_NCCL_MIN;
    case AC_REDUCE_MAX: return ACI_NCCL_MAX;
    case AC_REDUCE_PROD: return logical ? ACI_NCCL_MIN : ACI_NCCL_PROD;
    default: return logical ? ACI_NCCL_MAX : ACI_NCCL_SUM;
  }
}

typedef struct call {
  const aci_nccl_library *lib;
  const ac_group *g;
  const ac_coll *c;
  aci_nccl_comm comm;
  void *stream;
  int type, op;
  size_t scale, bytes; /* per element of ours */
} call;

static const char *from(const call *k, int64_t at) {
  return (const char *)k->c->send + (size_t)at * k->bytes;
}
static char *to(const call *k, int64_t at) { return (char *)k->c->recv + (size_t)at * k->bytes; }
static size_t of(const call *k, int64_t n) { return (size_t)n * k->scale; }

/* Parts of different lengths: a broadcast or a reduction for each rank, in one group of calls. */
static int parts_of_each(const call *k) {
  int status = k->lib->ncclGroupStart();
  for (int r = 0; r < k->g->size && status == ACI_NCCL_SUCCESS; r++) {
    const int64_t n = aci_part(k->c, r), at = aci_part_at(k->c, r);
    if (n == 0) continue;
    if (k->c->kind == AC_COLL_REDUCE_SCATTER)
      status = k->lib->ncclReduce(from(k, at), to(k, 0), of(k, n), k->type, k->op, r, k->comm,
                                  k->stream);
    else
      status =
          k->lib->ncclBroadcast(k->c->send, to(k, at), of(k, n), k->type, r, k->comm, k->stream);
  }
  const int end = k->lib->ncclGroupEnd();
  return status != ACI_NCCL_SUCCESS ? status : end;
}

/* Sends and receives between the root and the others, or between all, in one group of calls. */
static int messages(const call *k) {
  const ac_coll *c = k->c;
  const int me = k->g->rank, n = k->g->size;
  int status = k->lib->ncclGroupStart();
  int64_t sent = 0, got = 0;
  for (int r = 0; r < n && status == ACI_NCCL_SUCCESS; r++) {
    if (c->kind == AC_COLL_ALL_TO_ALL) {
      const int64_t out = c->counts != NULL ? c->counts[r] : c->count,
                    in = c->recv_counts != NULL ? c->recv_counts[r] : c->count;
      if (out > 0)
        status = k->lib->ncclSend(from(k, sent), of(k, out), k->type, r, k->comm, k->stream);
      if (in > 0 && status == ACI_NCCL_SUCCESS)
        status = k->lib->ncclRecv(to(k, got), of(k, in), k->type, r, k->comm, k->stream);
      sent += out;
      got += in;
      continue;
    }
    const int64_t part = aci_part(c, r), at = aci_part_at(c, r);
    if (part == 0) continue;
    if (c->kind == AC_COLL_GATHER) {
      if (r == me)
        status = k->lib->ncclSend(c->send, of(k, part), k->type, c->root, k->comm, k->stream);
      if (me == c->root && status == ACI_NCCL_SUCCESS)
        status = k->lib->ncclRecv(to(k, at), of(k, part), k->type, r, k->comm, k->stream);
    } else { /* SCATTER */
      if (me == c->root)
        status = k->lib->ncclSend(from(k, at), of(k, part), k->type, r, k->comm, k->stream);
      if (r == me && status == ACI_NCCL_SUCCESS)
        status = k->lib->ncclRecv(c->recv, of(k, part), k->type, c->root, k->comm, k->stream);
    }
  }
  const int end = k->lib->ncclGroupEnd();
  return status != ACI_NCCL_SUCCESS ? status : end;
}

static int enqueue(const call *k) {
  const ac_coll *c = k->c;
  const aci_nccl_library *l = k->lib;
  switch (c->kind) {
    case AC_COLL_ALL_REDUCE:
      return l->ncclAllReduce(c->send, c->recv, of(k, c->count), k->type, k->op, k->comm,
                              k->stream);
    case AC_COLL_REDUCE:
      return l->ncclReduce(c->send, c->recv, of(k, c->count), k->type, k->op, c->root, k->comm,
                           k->stream);
    case AC_COLL_BROADCAST:
      return l->ncclBroadcast(c->recv, c->recv, of(k, c->count), k->type, c->root, k->comm,
                              k->stream);
    case AC_COLL_ALL_GATHER:
      if (c->counts != NULL) return parts_of_each(k);
      return l->ncclAllGather(c->send, c->recv, of(k, c->count), k->type, k->comm, k->stream);
    case AC_COLL_REDUCE_SCATTER:
      if (c->counts != NULL) return parts_of_each(k);
      return l->ncclReduceScatter(c->send, c->recv, of(k, c->count), k->type, k->op, k->comm,
                                  k->stream);
    default: return messages(k);
  }
}

ac_status aci_nccl_call(aci_nccl *n, ac_group *g, const ac_group *members, struct aci_nccl_group *x,
                        const ac_coll *c, const aci_desc *d, ac_err *e) {
  call k = {.lib = n->lib,
            .g = members,
            .c = c,
            .stream = n->handle,
            .op = op_of(c),
            .bytes = ac_dtype_bytes(c->dtype)};
  k.type = aci_nccl_type(c->dtype, is_reduction(c->kind), &k.scale);
  aci_nccl_register(n, x, c->send);
  if (c->recv != c->send) aci_nccl_register(n, x, c->recv);
  pthread_mutex_lock(&n->lock); /* the watch may abort the communicator until then */
  k.comm = x->comm;
  const bool broken = n->broken || k.comm == NULL;
  const int64_t elements = aci_total(members, c);
  const int status = broken || elements == 0 ? ACI_NCCL_SUCCESS : enqueue(&k);
  pthread_mutex_unlock(&n->lock);
  if (!broken) return aci_nccl_settle(n, g, x, d, status, ac_coll_name(c->kind), e);
  AC_TRY(aci_aborted(g->world, e));
  return AC_FAIL(e, DEVICE, "the communicator was aborted");
}

ac_status aci_device_run(ac_group *g, const ac_coll *c, aci_desc *d, ac_event *ready,
                         aci_device_op **out, ac_err *e) {
  ac_world *w = g->world;
  aci_nccl *n = w->nccl;
  *out = NULL;
  /* over the host first: calls that differ are named, and none of their kernels waits for ever */
  const ac_coll meet = {.kind = AC_COLL_BARRIER, .site = c->site};
  AC_TRY(w->backend->run(g, &meet, d, e));
  if (n == NULL || g->device == NULL)
    return AC_FAIL(e, STATE, "no communicator for %s", ac_coll_name(c->kind));
  aci_device_op *op = NULL;
  ac_device *dev = n->device;
  ac_status st = aci_nccl_op_new(n, d, &op, e);
  if (st == AC_OK && ready != NULL) st = dev->vt->stream_wait(dev, n->stream, ready, e);
  if (st == AC_OK)
    st = g->device->nodes != NULL ? aci_nccl_run_nodes(n, g, c, d, e)
                                  : aci_nccl_call(n, g, g, g->device, c, d, e);
  if (st == AC_OK) st = dev->vt->event_record(dev, op->done, n->stream, e);
  if (st != AC_OK) {
    aci_nccl_op_drop(op);
    if (aci_aborted(w, NULL) == AC_OK)
      aci_abort(w, st, w->place.rank, e != NULL ? e->msg : "a collective failed on a device");
    return st;
  }
  *out = op;
  aci_nccl_watch(n, op);
  return AC_OK;
}
