/* Sends and receives between GPUs, in NCCL's calls (nccl.h). Called by work.c again and again until
 * a transfer is queued on its stream.
 *
 * NCCL pairs the sends and receives of a communicator by their order alone, and knows no tags. So
 * two ranks meet over the host first, as the backend's messages do: the sender's descriptor and a
 * token travel on the channel of the message's tag, the receive that they match answers on a
 * channel of the token's own with the message's number. Both queue their calls in the order of
 * these numbers, whatever the order of the script is.
 *
 * Each direction between two ranks has a communicator of two members and a stream of its own. On
 * the device a rank's sends never wait for its receives, so schedules of pipelines and rings need
 * no common order of calls (a group of calls would need one). The first message makes them. Its
 * note carries the communicator's unique id. */
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/nccl.h"
#include "device/device_impl.h"

enum { ASKS, ANSWERS, JOINS, TAKES_TURN, ENDS };

typedef struct note {
  aci_nccl_id id;
  uint32_t number; /* the sender's: of its token. The receiver's: of the message in its direction */
} note;

typedef struct transfer {
  int at;
  ac_coll host; /* the note as the backend's message */
  aci_desc desc;
  void *state;
  note note;
  aci_nccl_direction *direction;
  aci_device_op *op; /* from JOINS on */
  int status;        /* NCCL's, of its call */
} transfer;

/* ---- directions ---- */

static ac_status direction_of(aci_nccl *n, int peer, bool sends, aci_nccl_direction **out,
                              ac_err *e) {
  for (aci_nccl_direction *l = n->directions; l != NULL; l = l->next_direction)
    if (l->peer == peer && l->sends == sends) return *out = l, AC_OK;
  ac_device *d = n->device;
  aci_nccl_direction *l = calloc(1, sizeof *l);
  if (l == NULL) return AC_FAIL(e, OOM, "no memory for messages to rank %d", peer);
  l->peer = peer;
  l->sends = sends;
  ac_status st = d->vt->stream_new(d, 1, &l->base.stream, e);
  if (st == AC_OK && sends)
    st = aci_nccl_check(n, n->lib->ncclGetUniqueId(&l->id), "NCCL's unique id", e);
  if (st != AC_OK) {
    if (l->base.stream != NULL) d->vt->stream_free(d, l->base.stream);
    free(l);
    return st;
  }
  l->handle = d->vt->stream_handle(d, l->base.stream);
  l->base.device = d;
  ac_device_retain(d);
  l->next_direction = n->directions;
  n->directions = l;
  aci_nccl_enlist(n, &l->base);
  return *out = l, AC_OK;
}

void aci_nccl_directions_close(aci_nccl *n) {
  for (aci_nccl_direction *l; (l = n->directions) != NULL;) {
    n->directions = l->next_direction;
    ac_stream *s = l->base.stream;
    aci_nccl_end(n, &l->base);
    n->device->vt->stream_free(n->device, s);
    free(l);
  }
}

/* ---- a transfer ---- */

/* The next note: the sender's on the message's tag, the answer on the token's. Scripts cannot use
 * these tags. */
static void begin_note(transfer *t, const ac_coll *c, bool goes, int tag) {
  t->host = (ac_coll){.kind = goes ? AC_COLL_SEND : AC_COLL_RECV,
                      .dtype = AC_U8,
                      .root = c->root,
                      .tag = tag,
                      .count = sizeof t->note,
                      .send = &t->note,
                      .recv = &t->note,
                      .site = c->site};
}

static ac_status work_note(transfer *t, ac_group *g, bool *over, ac_err *e) {
  *over = false;
  return g->world->backend->send_recv(g, &t->host, &t->desc, &t->state, over, e);
}

/* Joins the direction's communicator. *ready is set once it has. */
static ac_status join(aci_nccl *n, transfer *t, bool *ready, ac_err *e) {
  aci_nccl_direction *l = t->direction;
  int status = ACI_NCCL_SUCCESS;
  if (t->op == NULL) {
    AC_TRY(aci_nccl_op_new(n, &t->desc, &t->op, e));
    /* which also makes the device this thread's: NCCL takes the one that is */
    AC_TRY(n->device->vt->event_record(n->device, t->op->done, l->base.stream, e));
  }
  pthread_mutex_lock(&n->lock); /* the watch may abort it */
  const bool gone = n->broken || (l->begun && l->base.comm == NULL);
  if (gone) {
    status = ACI_NCCL_IN_PROGRESS;
  } else if (!l->begun) {
    aci_nccl_config mine = aci_nccl_nonblocking;
    status = n->lib->ncclCommInitRankConfig(&l->base.comm, 2, l->id, l->sends ? 0 : 1, &mine);
    l->begun = true;
  } else if (!l->joined &&
             n->lib->ncclCommGetAsyncError(l->base.comm, &status) != ACI_NCCL_SUCCESS) {
    status = ACI_NCCL_IN_PROGRESS;
  }
  pthread_mutex_unlock(&n->lock);
  if (gone) {
    AC_TRY(aci_aborted(n->world, e));
    return AC_FAIL(e, DEVICE, "%s: messages with rank %d: the communicator was aborted",
                   n->device->name, l->peer);
  }
  *ready = l->joined = l->joined || status == ACI_NCCL_SUCCESS;
  return aci_nccl_check(n, status, "joining the communicator of two ranks", e);
}

/* Passes the call to NCCL, after the work queued on the compute stream at the time of the call. */
static ac_status enqueue(aci_nccl *n, transfer *t, const ac_coll *c, ac_event *ready, ac_err *e) {
  aci_nccl_direction *l = t->direction;
  size_t scale;
  const int type = aci_nccl_type(c->dtype, false, &scale);
  t->op->began = aci_now_ns();
  if (ready != NULL) AC_TRY(n->device->vt->stream_wait(n->device, l->base.stream, ready, e));
  aci_nccl_register(n, &l->base, l->sends ? c->send : c->recv);
  pthread_mutex_lock(&n->lock);
  const bool broken = n->broken || l->base.comm == NULL;
  const size_t count = (size_t)c->count * scale;
  if (broken || count == 0) t->status = ACI_NCCL_SUCCESS;
  else if (l->sends) t->status = n->lib->ncclSend(c->send, count, type, 1, l->base.comm, l->handle);
  else t->status = n->lib->ncclRecv(c->recv, count, type, 0, l->base.comm, l->handle);
  pthread_mutex_unlock(&n->lock);
  if (!broken) return AC_OK;
  AC_TRY(aci_aborted(n->world, e));
  return AC_FAIL(e, DEVICE, "%s: messages with rank %d: the communicator was aborted",
                 n->device->name, l->peer);
}

/* Whether the call was taken: the communicator does not block. */
static ac_status taken(aci_nccl *n, transfer *t, const char *name, bool *over, ac_err *e) {
  pthread_mutex_lock(&n->lock);
  const bool gone = t->direction->base.comm == NULL;
  if (!gone && t->status == ACI_NCCL_IN_PROGRESS &&
      n->lib->ncclCommGetAsyncError(t->direction->base.comm, &t->status) != ACI_NCCL_SUCCESS)
    t->status = ACI_NCCL_IN_PROGRESS;
  pthread_mutex_unlock(&n->lock);
  if (gone) {
    AC_TRY(aci_aborted(n->world, e));
    return AC_FAIL(e, DEVICE, "%s: %s: the communicator was aborted", n->device->name, name);
  }
  AC_TRY(aci_nccl_check(n, t->status, name, e));
  *over = t->status != ACI_NCCL_IN_PROGRESS;
  return AC_OK;
}

static ac_status step(transfer *t, ac_group *g, const ac_coll *c, ac_event *ready, bool *over,
                      ac_err *e) {
  aci_nccl *n = g->world->nccl;
  const bool sends = c->kind == AC_COLL_SEND;
  bool done = false;
  if (t->at == ASKS) {
    AC_TRY(work_note(t, g, &done, e));
    if (!done) return AC_OK;
    const int tag = -1 - (int)(t->note.number & INT32_MAX);
    aci_nccl_direction *l = t->direction;
    if (!sends) {
      if (!l->begun) l->id = t->note.id; /* all that come before it was joined have the same */
      t->note.number = l->matched++;
    }
    begin_note(t, c, !sends, tag);
    t->at = ANSWERS;
  }
  if (t->at == ANSWERS) {
    AC_TRY(work_note(t, g, &done, e));
    if (!done) return AC_OK;
    t->at = JOINS;
  }
  if (t->at == JOINS) {
    AC_TRY(join(n, t, &done, e));
    if (!done) return AC_OK;
    t->at = TAKES_TURN;
  }
  if (t->at == TAKES_TURN) {
    if (t->direction->turn != t->note.number) return AC_OK;
    AC_TRY(enqueue(n, t, c, ready, e));
    t->at = ENDS;
  }
  AC_TRY(taken(n, t, ac_coll_name(c->kind), &done, e));
  if (!done) return AC_OK;
  t->direction->turn++; /* a communicator takes one call at a time */
  AC_TRY(n->device->vt->event_record(n->device, t->op->done, t->direction->base.stream, e));
  *over = true;
  return AC_OK;
}

/* Frees the transfer and the backend's state of it. */
static void end(transfer *t, ac_group *g) {
  bool over = true;
  if (t->state != NULL) g->world->backend->send_recv(g, &t->host, &t->desc, &t->state, &over, NULL);
  aci_nccl_op_drop(t->op);
  free(t);
}

static ac_status begin(ac_group *g, const ac_coll *c, const aci_desc *d, transfer **out,
                       ac_err *e) {
  aci_nccl *n = g->world->nccl;
  const bool sends = c->kind == AC_COLL_SEND;
  if (n == NULL) return AC_FAIL(e, STATE, "no communicator for %s", ac_coll_name(c->kind));
  transfer *t = calloc(1, sizeof *t);
  if (t == NULL) return AC_FAIL(e, OOM, "%s: no memory", ac_coll_name(c->kind));
  const ac_status st = direction_of(n, g->ranks[c->root], sends, &t->direction, e);
  if (st != AC_OK) return free(t), st;
  t->desc = *d;
  if (sends) {
    t->note.id = t->direction->id;
    t->note.number = t->direction->tokens++;
  }
  begin_note(t, c, sends, c->tag);
  return *out = t, AC_OK;
}

ac_status aci_device_send_recv(ac_group *g, const ac_coll *c, aci_desc *d, ac_event *ready,
                               void **state, bool *done, aci_device_op **out, ac_err *e) {
  transfer *t = *state;
  ac_world *w = g->world;
  ac_err own;
  bool over = false;
  if (*done) {
    if (t != NULL) end(t, g);
    *state = NULL;
    return AC_OK;
  }
  ac_status st = aci_aborted(w, &own);
  if (st == AC_OK && t == NULL) st = begin(g, c, d, &t, &own);
  if (st == AC_OK) st = step(t, g, c, ready, &over, &own);
  if (st != AC_OK) {
    if (aci_aborted(w, NULL) == AC_OK) aci_abort(w, st, w->place.rank, own.msg);
    if (e != NULL) *e = own;
  } else if (over) {
    *out = t->op;
    t->op = NULL;
    aci_nccl_watch(w->nccl, *out);
  }
  *state = t;
  *done = st != AC_OK || over;
  if (!*done) return AC_OK;
  if (t != NULL) end(t, g);
  *state = NULL;
  return st;
}
