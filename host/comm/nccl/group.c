/* Communicators: made when a group first has a collective of a device, split off the world's for
 * groups that are made later (nccl.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "comm/nccl/nccl.h"
#include "device/device_impl.h"

/* A member's description of itself. */
typedef struct introduction {
  uint64_t host, node;
  int32_t version; /* of NCCL. 0: none */
  int32_t by_host; /* between nodes */
  char id[52];     /* of the GPU on its machine. "": it has none that NCCL takes */
} introduction;

/* A host collective of bytes, compared as one of its own kind. */
static ac_status on_host(ac_group *g, ac_coll_kind kind, const void *send, void *recv,
                         int64_t bytes, const char *site, ac_err *e) {
  const ac_coll c = {
      .kind = kind, .dtype = AC_U8, .count = bytes, .send = send, .recv = recv, .site = site};
  aci_desc d;
  aci_desc_fill(g, &c, ++g->seq, &d);
  d.kind = AC_COLL_COMM_INIT;
  d.count = g->size;
  return g->world->backend->run(g, &c, &d, e);
}

const aci_nccl_config aci_nccl_nonblocking = {.size = sizeof aci_nccl_nonblocking,
                                              .magic = ACI_NCCL_CONFIG_MAGIC,
                                              .version = ACI_NCCL_CONFIG_VERSION,
                                              .blocking = 0,
                                              .cga_cluster_size = ACI_NCCL_UNDEFINED,
                                              .min_ctas = ACI_NCCL_UNDEFINED,
                                              .max_ctas = ACI_NCCL_UNDEFINED,
                                              .net_name = NULL,
                                              .split_share = 1};

/* Whether all members have one version of NCCL and each a GPU of its own in the communicator. *why:
 * the obstacle, "" nothing to report. */
static bool suitable(const introduction *all, int n, char *why, size_t size) {
  for (int i = 0; i < n; i++) {
    if (all[i].by_host != all[0].by_host) {
      snprintf(why, size, "members 0 and %d differ in ACCEL_NCCL_INTER_NODE", i);
      return false;
    }
    if (all[i].version == 0 || all[i].version != all[0].version || all[i].id[0] == 0) {
      if (all[i].version != 0 && all[0].version != 0 && all[i].version != all[0].version)
        snprintf(why, size, "members 0 and %d have NCCL %d and %d", i, all[0].version,
                 all[i].version);
      else
        snprintf(why, size, "member %d has no %s", i,
                 all[i].version == 0 ? "NCCL" : "GPU that NCCL takes");
      return false;
    }
    for (int k = 0; k < i; k++)
      if ((all[i].by_host ? all[i].node == all[k].node : all[i].host == all[k].host) &&
          strcmp(all[i].id, all[k].id) == 0) {
        snprintf(why, size, "members %d and %d share a GPU", k, i);
        return false;
      }
  }
  return true;
}

/* Everyone gets the id of the member `first`. */
static ac_status spread(ac_group *g, int first, aci_nccl_id *id, const char *site, ac_err *e) {
  aci_nccl_id *all = malloc((size_t)g->size * sizeof *all);
  if (all == NULL) return AC_FAIL(e, OOM, "no memory for a communicator");
  const ac_status st = on_host(g, AC_COLL_ALL_GATHER, id, all, sizeof *id, site, e);
  *id = all[first];
  free(all);
  return st;
}

static ac_status join(ac_group *g, struct aci_nccl_group *x, const char *site, ac_err *e) {
  ac_world *w = g->world;
  aci_nccl *n = w->nccl;
  aci_nccl_id id;
  memset(&id, 0, sizeof id);
  ac_status st = AC_OK;
  const ac_group *members = x->nodes != NULL ? aci_nccl_inner(x->nodes) : g;
  if (members->rank == 0)
    st = aci_nccl_check(n, n->lib->ncclGetUniqueId(&id), "NCCL's unique id", e);
  AC_TRY(spread(g, g->rank - members->rank, &id, site, e));
  static const aci_nccl_id none; /* all zero: the first member failed */
  if (memcmp(&id, &none, sizeof id) == 0)
    return st != AC_OK ? st : AC_FAIL(e, DEVICE, "its first member got no unique id of NCCL");
  aci_desc d;
  const ac_coll c = {.kind = AC_COLL_BARRIER, .site = site};
  aci_nccl_config mine = aci_nccl_nonblocking;
  aci_desc_fill(g, &c, g->seq, &d);
  d.kind = AC_COLL_COMM_INIT;
  /* the watch reads it, and aborts it if the job ends. Does not block */
  pthread_mutex_lock(&n->lock);
  const int status =
      n->broken ? ACI_NCCL_IN_PROGRESS
                : n->lib->ncclCommInitRankConfig(&x->comm, members->size, id, members->rank, &mine);
  pthread_mutex_unlock(&n->lock);
  return aci_nccl_settle(n, g, x, &d, status, "joining NCCL's communicator", e);
}

/* Members agree whether it worked for all of them. */
static ac_status agree(ac_group *g, const char *site, bool mine, bool *all, ac_err *e) {
  uint8_t own = mine, *each = malloc((size_t)g->size);
  if (each == NULL) return AC_FAIL(e, OOM, "no memory for a communicator");
  const ac_status st = on_host(g, AC_COLL_ALL_GATHER, &own, each, 1, site, e);
  *all = true;
  for (int i = 0; i < g->size && st == AC_OK; i++) *all = *all && each[i] != 0;
  free(each);
  return st;
}

void aci_nccl_enlist(aci_nccl *n, struct aci_nccl_group *x) {
  pthread_mutex_lock(&n->lock);
  x->next = n->groups;
  n->groups = x;
  pthread_mutex_unlock(&n->lock);
}

/* NCCL inside nodes, if requested and there are several: x->nodes is made. False: tensors go
 * through the host, and *why holds the reason. "": nothing to report. The same on all members. */
static ac_status arrange(ac_group *g, struct aci_nccl_group *x, const uint64_t *node, bool *good,
                         char *why, size_t size, ac_err *e) {
  const char *what = "";
  const int n = aci_nccl_nodes_of(node, g->size, &what);
  if (n == 0) snprintf(why, size, "NCCL inside of nodes: %s", what);
  *good = n > 0 && n < g->size; /* a member a node: the backend's own way is as good */
  return *good && n > 1 ? aci_nccl_nodes_open(g, n, &x->nodes, e) : AC_OK;
}

/* Whether tensors on d go through NCCL in this group. Exchanged once. */
static ac_status introduce(ac_group *g, ac_device *d, const char *site, ac_err *e) {
  ac_world *w = g->world;
  introduction own = {.version = 0}, *all = calloc((size_t)g->size, sizeof *all);
  struct aci_nccl_group *x = calloc(1, sizeof *x);
  char host[64] = "", why[160] = "", absent[160] = "";
  if (all == NULL || x == NULL) {
    free(all);
    free(x);
    return AC_FAIL(e, OOM, "no memory for a communicator");
  }
  const aci_nccl_library *lib = aci_nccl_load(ac_ctx_params(w->ctx), absent, sizeof absent);
  const bool fits = d->vt->stream_handle != NULL && d->vt->identity != NULL &&
                    (w->nccl == NULL || aci_same_device(w->nccl->device, d));
  gethostname(host, sizeof host - 1);
  own.host = aci_hash_bytes(0, host, strlen(host));
  own.node = aci_nccl_node(host, strlen(host), w->place.machine);
  own.by_host = strcmp(ac_params_str(ac_ctx_params(w->ctx), "NCCL_INTER_NODE"), "host") == 0;
  own.version = lib != NULL ? lib->version : 0;
  if (fits) d->vt->identity(d, own.id, sizeof own.id);
  ac_status st = on_host(g, AC_COLL_ALL_GATHER, &own, all, sizeof own, site, e);
  bool good = st == AC_OK && suitable(all, g->size, why, sizeof why);
  uint64_t *node = good && own.by_host ? malloc((size_t)g->size * sizeof *node) : NULL;
  for (int i = 0; node != NULL && i < g->size; i++) node[i] = all[i].node;
  free(all);
  x->device = d;
  ac_device_retain(d);
  g->device = x;
  if (st == AC_OK && good && own.by_host)
    st = node != NULL ? arrange(g, x, node, &good, why, sizeof why, e)
                      : AC_FAIL(e, OOM, "no memory for nodes");
  if (st != AC_OK) return free(node), st;
  bool everywhere = false;
  if (good) {
    ac_err mine;
    ac_status joined = w->nccl != NULL ? AC_OK : aci_nccl_open(w, d, lib, &mine);
    if (joined == AC_OK) aci_nccl_enlist(w->nccl, x);
    if (joined == AC_OK && g == w->all) w->nccl->node = node, node = NULL;
    /* joining is a collective: all take part or none */
    st = agree(g, site, joined == AC_OK, &everywhere, e);
    if (st == AC_OK && everywhere) {
      joined = join(g, x, site, &mine);
      st = aci_aborted(w, e);
      if (st == AC_OK) st = agree(g, site, joined == AC_OK, &everywhere, e);
    }
    if (st != AC_OK) return free(node), st;
    if (joined != AC_OK) snprintf(why, sizeof why, "%.150s", mine.msg);
    if (!everywhere && w->nccl != NULL) {
      pthread_mutex_lock(&w->nccl->lock); /* the watch may abort it as well */
      if (x->comm != NULL) w->nccl->lib->ncclCommAbort(x->comm), x->comm = NULL;
      pthread_mutex_unlock(&w->nccl->lock);
    }
  }
  free(node);
  if (!everywhere && g->rank == 0 && (why[0] != 0 || !own.by_host) &&
      strcmp(ac_params_str(ac_ctx_params(w->ctx), "NCCL"), "off") != 0)
    ac_log_write(AC_LOG_WARN, "comm", "tensors on %s go through memory of the host: %s%s%s",
                 d->name, why[0] != 0 ? why : "NCCL did not join them", absent[0] != 0 ? "; " : "",
                 absent);
  return AC_OK;
}

ac_status ac_group_takes_device(ac_group *g, ac_device *d, const char *site, bool *direct,
                                ac_err *e) {
  *direct = false;
  if (!aci_is_accelerator(d) || g->size == 1 || g->world->place.size == 1) return AC_OK;
  /* its communicators cannot lose members so far: the tensors go through host memory */
  if (ac_world_elastic(g->world)) return AC_OK;
  if (g->device == NULL) {
    aci_queue_drain(g->world->queue); /* work that was started before comes first, on every rank */
    AC_TRY(aci_aborted(g->world, e));
    AC_TRY(introduce(g, d, site, e));
  }
  *direct = g->device->comm != NULL && aci_same_device(g->device->device, d);
  return AC_OK;
}

ac_status aci_nccl_split(ac_group *g, bool member, ac_err *e) {
  ac_world *w = g->world;
  aci_nccl *n = w->nccl;
  struct aci_nccl_group *all = w->all->device;
  if (n == NULL || all == NULL || all->comm == NULL) return AC_OK;
  struct aci_nccl_group *x = calloc(1, sizeof *x);
  if (x == NULL) return AC_FAIL(e, OOM, "no memory for a communicator");
  /* a communicator that failed reports it when a collective uses it */
  if (all->nodes != NULL && member) {
    char why[160];
    uint64_t *node = malloc((size_t)g->size * sizeof *node);
    for (int i = 0; node != NULL && i < g->size; i++) node[i] = n->node[g->ranks[i]];
    const ac_status st = node != NULL ? arrange(g, x, node, &member, why, sizeof why, e)
                                      : AC_FAIL(e, OOM, "no memory for nodes");
    free(node);
    if (st != AC_OK) return free(x), st;
  }
  aci_desc d;
  const ac_coll c = {.kind = AC_COLL_BARRIER};
  aci_nccl_config mine = aci_nccl_nonblocking;
  aci_desc_fill(w->all, &c, w->all->seq, &d);
  d.kind = AC_COLL_COMM_INIT;
  /* the watch may abort the world's communicator until then. settle sees that */
  pthread_mutex_lock(&n->lock);
  const int status = all->comm == NULL
                         ? ACI_NCCL_IN_PROGRESS
                         : n->lib->ncclCommSplit(all->comm, member ? 0 : ACI_NCCL_NO_COLOR,
                                                 g->rank < 0 ? 0 : g->rank, &x->comm, &mine);
  pthread_mutex_unlock(&n->lock);
  ac_status st = aci_nccl_settle(n, w->all, all, &d, status, "splitting NCCL's communicator", e);
  if (st == AC_OK && x->comm != NULL)
    st =
        aci_nccl_settle(n, w->all, x, &d, ACI_NCCL_IN_PROGRESS, "splitting NCCL's communicator", e);
  /* the world is over. x stays, since NCCL may still write its communicator there */
  if (st != AC_OK) return st;
  if (!member) {
    free(x);
    return AC_OK;
  }
  x->device = n->device;
  ac_device_retain(x->device);
  g->device = x;
  aci_nccl_enlist(n, x);
  return AC_OK;
}

void aci_nccl_end(aci_nccl *n, struct aci_nccl_group *x) {
  aci_nccl_comm comm = NULL;
  if (n != NULL) {
    /* queued work ends first, while the watch still knows the communicator: it aborts it if a peer
     * is gone */
    pthread_mutex_lock(&n->lock);
    const bool made = x->comm != NULL;
    pthread_mutex_unlock(&n->lock);
    if (made && aci_aborted(n->world, NULL) == AC_OK)
      n->device->vt->sync(n->device, x->stream != NULL ? x->stream : n->stream, NULL);
    aci_nccl_unregister(n, x);
    pthread_mutex_lock(&n->lock);
    for (struct aci_nccl_group **at = &n->groups; *at != NULL; at = &(*at)->next)
      if (*at == x) {
        *at = x->next;
        break;
      }
    comm = x->comm;
    pthread_mutex_unlock(&n->lock);
  }
  if (comm != NULL && aci_aborted(n->world, NULL) != AC_OK) {
    n->lib->ncclCommAbort(comm); /* its kernels may wait for ranks that are gone */
  } else if (comm != NULL) {
    n->lib->ncclCommDestroy(comm);
  }
  ac_device_release(x->device);
}

void aci_nccl_group_close(ac_group *g) {
  struct aci_nccl_group *x = g->device;
  if (x == NULL) return;
  ac_device *d = x->device;
  g->device = NULL;
  ac_device_retain(d);
  aci_nccl_end(g->world->nccl, x);
  aci_nccl_nodes_close(x->nodes, d);
  ac_device_release(d);
  free(x);
}

ac_status ac_world_bind_device(ac_world *w, ac_device *d, const char *site, ac_err *e) {
  bool direct = false;
  AC_TRY(ac_group_takes_device(w->all, d, site, &direct, e));
  w->pairs_on_device = direct;
  return AC_OK;
}

bool ac_world_sends_device(const ac_world *w, const ac_device *d, int peer) {
  aci_nccl *n = w->nccl;
  if (!w->pairs_on_device || n == NULL || !aci_same_device(n->device, d)) return false;
  if (n->node != NULL && peer >= 0 && n->node[peer] != n->node[w->place.rank]) return false;
  pthread_mutex_lock(&n->lock);
  const bool broken = n->broken;
  pthread_mutex_unlock(&n->lock);
  return !broken;
}
