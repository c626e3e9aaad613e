/* The tcp backend: ranks of several machines meet at an address of rank 0 and keep a socket to
 * every other rank. Collectives are in link/. Called through the table by world.c, group.c and
 * work.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/sim/sim.h"
#include "comm/tcp/mesh_impl.h"

/* Of a launcher that handed it over, else as every machine finds it for itself. */
static ac_status find_key(ac_world *w, aci_mesh *m, ac_err *e) {
  const aci_head *h = w->segment.head;
  const bool one_machine = w->place.local_size == w->place.size;
  const char *version;
  ac_err why;
  if (h == NULL || h->has_key == ACI_NO_KEY) {
    AC_TRY(aci_job_key_find(ac_ctx_params(w->ctx), m->run_id, one_machine, &m->key, e));
    if (w->place.local_rank == 0 && !one_machine) aci_job_key_warn(&m->key);
    return AC_OK;
  }
  aci_mesh_set_key(m, h->has_key == ACI_HAS_KEY ? h->job_key : NULL);
  snprintf(m->key.origin, sizeof m->key.origin, "%.119s", h->key_origin);
  if (m->key.insecure || !one_machine || aci_hmac_library(&version, &why) == AC_OK) return AC_OK;
  if (w->place.rank == 0)
    ac_log_write(AC_LOG_WARN, "comm", "ranks do not prove who they are: %s", why.msg);
  aci_mesh_set_key(m, NULL);
  return AC_OK;
}

static ac_status meet(ac_world *w, aci_mesh *m, ac_err *e) {
  if (w->place.size == 1) return AC_OK;
  AC_TRY(find_key(w, m, e));
  aci_peer_info *infos = calloc((size_t)w->place.size, sizeof *infos);
  if (infos == NULL) return AC_FAIL(e, OOM, "no memory for the infos of %d ranks", w->place.size);
  ac_status st = aci_rendezvous(m, infos, e);
  if (st == AC_OK) {
    w->impl = m; /* from here on an abort notifies the others */
    st = aci_mesh_connect(m, infos, e);
  }
  free(infos);
  return st;
}

static ac_status join(ac_world *w, ac_err *e) {
  aci_mesh *m;
  AC_TRY(aci_mesh_new(w, &m, e));
  const ac_status st = meet(w, m, e);
  w->impl = st == AC_OK ? m : NULL;
  if (st != AC_OK) aci_mesh_close(m, NULL);
  else if (w->page != NULL) atomic_store(&w->page->state, ACI_RUNNING);
  return st;
}

static void leave(ac_world *w, const char *site) {
  if (w->page != NULL) {
    uint32_t running = ACI_RUNNING;
    if (site != NULL) aci_page_set_at(w->page, site, w->page->step);
    atomic_compare_exchange_strong(&w->page->state, &running, ACI_LEFT);
  }
  aci_mesh_close(w->impl, site);
  w->impl = NULL;
}

static ac_status start(ac_world *w, aci_request *v, ac_err *e) {
  return aci_mesh_start(w->impl, v, e);
}
static ac_status progress(ac_world *w, aci_request *const *v, int n, int wait_ms, ac_err *e) {
  return aci_mesh_progress(w->impl, v, n, wait_ms, e);
}
static void cancel(ac_world *w, aci_request *v) { aci_mesh_cancel(w->impl, v); }
static ac_status exchange_descs(ac_group *g, const aci_desc *d, aci_desc *all, ac_err *e) {
  return aci_mesh_exchange_descs(g->world->impl, g, d, all, e);
}
static const aci_link table = {
    .start = start, .progress = progress, .cancel = cancel, .exchange_descs = exchange_descs};

static ac_status run(ac_group *g, const ac_coll *c, aci_desc *d, ac_err *e) {
  return aci_link_run(&table, g, c, d, e);
}
static ac_status send_recv(ac_group *g, const ac_coll *c, aci_desc *d, void **state, bool *done,
                           ac_err *e) {
  return aci_link_send_recv(&table, g, c, d, state, done, e);
}
static void tell_abort(ac_world *w, ac_status code, int rank, const char *text) {
  if (w->impl != NULL) aci_mesh_abort(w->impl, code, rank, text);
}

static ac_status reset(ac_world *w, ac_err *e) {
  return w->impl != NULL ? aci_mesh_reset(w->impl, e) : AC_OK;
}

static ac_status reform(ac_world *w, ac_err *e) {
  return w->impl != NULL ? aci_mesh_reform(w->impl, e) : AC_OK;
}

static void hosts(const ac_world *w, char *buf, size_t n) {
  if (w->impl != NULL) aci_mesh_hosts(w->impl, buf, n);
}

const aci_backend aci_tcp_backend = {.struct_size = sizeof(aci_backend),
                                     .name = "tcp",
                                     .join = join,
                                     .leave = leave,
                                     .run = run,
                                     .send_recv = send_recv,
                                     .abort = tell_abort,
                                     .reset = reset,
                                     .reform = reform,
                                     .hosts = hosts,
                                     .bytes = aci_sim_bytes};
