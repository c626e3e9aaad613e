/* The flight recorder: the last collectives of this rank in a ring, for scripts, timelines and the
 * dump after a failure. The thread that runs the collective writes rows. Readers may see the newest
 * row half done.
 *
 * Times are kept as counts of the processor's clock if that runs evenly, and turned into
 * nanoseconds when they are read: asking the system for the time twice would be a fifth of a small
 * collective. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/strbuf.h"
#include "comm/comm_impl.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

struct aci_record_ring {
  int n;
  bool counts;           /* times are counts of the processor's clock */
  int64_t count0, time0; /* both clocks when the ring was made */
  _Atomic uint64_t next;
  _Atomic bool dumped;
  ac_comm_record rows[];
};

static inline int64_t ticks(const aci_record_ring *r) {
#if defined(__x86_64__)
  if (r->counts) return (int64_t)__rdtsc();
#endif
  return aci_now_ns();
}

/* Turns the times of a row into nanoseconds. rate: ns per count. */
static void to_ns(const aci_record_ring *r, double rate, ac_comm_record *row) {
  int64_t *const at[] = {&row->queued, &row->began, &row->ended};
  for (int i = 0; i < 3; i++)
    if (*at[i] != 0) *at[i] = r->time0 + (int64_t)((double)(*at[i] - r->count0) * rate);
}

static double rate_of(const aci_record_ring *r) {
  if (!r->counts) return 1;
  const int64_t counts = ticks(r) - r->count0, ns = aci_now_ns() - r->time0;
  return counts > 0 ? (double)ns / (double)counts : 1;
}

aci_record_ring *aci_records_new(int n) {
  aci_record_ring *r = calloc(1, sizeof *r + (size_t)n * sizeof r->rows[0]);
  if (r == NULL) return NULL;
  r->n = n;
#if defined(__x86_64__)
  unsigned a, b, c, d; /* "invariant TSC": the same rate in every power state, on all cores */
  r->counts = __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
#endif
  r->count0 = ticks(r);
  r->time0 = aci_now_ns();
  return r;
}

void aci_records_free(aci_record_ring *r) { free(r); }

/* Bytes that leave this rank, as the user counts them: each passed byte once. */
static uint64_t bytes_of(const ac_group *g, const ac_coll *c) {
  int64_t n = c->count;
  switch (c->kind) {
    case AC_COLL_BARRIER:
    case AC_COLL_RECV: return 0;
    case AC_COLL_BROADCAST: n = g->rank == c->root ? c->count : 0; break;
    case AC_COLL_SCATTER: n = g->rank == c->root ? aci_total(g, c) : 0; break;
    case AC_COLL_ALL_GATHER:
    case AC_COLL_GATHER: n = aci_part(c, g->rank); break;
    case AC_COLL_REDUCE_SCATTER:
    case AC_COLL_ALL_TO_ALL: n = aci_total(g, c); break;
    default: break;
  }
  return (uint64_t)n * ac_dtype_bytes(c->dtype);
}

/* Bytes of the whole buffer, as nccl-tests count its size. */
static uint64_t payload_of(const ac_group *g, const ac_coll *c) {
  int64_t n = c->count;
  switch (c->kind) {
    case AC_COLL_BARRIER: return 0;
    case AC_COLL_ALL_GATHER:
    case AC_COLL_GATHER:
    case AC_COLL_SCATTER:
    case AC_COLL_REDUCE_SCATTER:
    case AC_COLL_ALL_TO_ALL: n = aci_total(g, c); break;
    default: break;
  }
  return (uint64_t)n * ac_dtype_bytes(c->dtype);
}

/* Ranks of a group are in rising order, so that the first and the last decide. */
static bool is_remote(const ac_world *w, const ac_group *g, const ac_coll *c) {
  const int local = w->place.local_size;
  if (local < 1 || local >= w->place.size) return false;
  const bool message = c->kind == AC_COLL_SEND || c->kind == AC_COLL_RECV;
  const int first = message ? w->place.rank : g->ranks[0],
            last = g->ranks[message ? c->root : g->size - 1];
  return aci_start_of(w, first) / local != aci_start_of(w, last) / local;
}

ac_comm_record *aci_record_begin(ac_world *w, const ac_group *g, const ac_coll *c, uint32_t seq,
                                 bool async) {
  aci_record_ring *r = w->records;
  const uint64_t bytes = w->backend->bytes != NULL ? w->backend->bytes(g, c) : bytes_of(g, c);
  atomic_store_explicit(&w->bytes_sent,
                        atomic_load_explicit(&w->bytes_sent, memory_order_relaxed) + bytes,
                        /* the owner's thread alone writes: no locked instruction */
                        memory_order_relaxed);
  if (r == NULL) return NULL;
  const uint64_t number = atomic_load_explicit(&r->next, memory_order_relaxed);
  atomic_store_explicit(&r->next, number + 1, memory_order_relaxed);
  ac_comm_record *row = &r->rows[number % (uint64_t)r->n];
  row->number = number + 1;
  row->group = g->id;
  row->seq = seq;
  row->kind = c->kind;
  row->dtype = c->kind == AC_COLL_BARRIER ? AC_U8 : c->dtype;
  row->op = c->op;
  row->root = c->root;
  row->count = c->count;
  row->bytes = bytes;
  row->payload = payload_of(g, c);
  row->ranks = g->size;
  row->remote = is_remote(w, g, c);
  row->queued = row->began = ticks(r);
  row->ended = 0;
  row->async = async;
  row->status = AC_OK;
  const size_t n = c->site == NULL ? 0 : strnlen(c->site, sizeof row->site - 1);
  if (n > 0) memcpy(row->site, c->site, n);
  row->site[n] = 0;
  return row;
}

void aci_record_run(ac_world *w, ac_comm_record *row) {
  if (row != NULL) row->began = ticks(w->records);
}

void aci_coll_watch_set(ac_world *w, const aci_coll_watch *watch) {
  atomic_store(&w->coll_watch, watch);
  while (atomic_load(&w->telling) != 0) sched_yield();
}

static void tell(ac_world *w, const ac_comm_record *row) {
  atomic_fetch_add(&w->telling, 1);
  const aci_coll_watch *watch = atomic_load(&w->coll_watch);
  if (watch != NULL) {
    ac_comm_record copy = *row;
    to_ns(w->records, rate_of(w->records), &copy);
    watch->fn(watch->user, &copy);
  }
  atomic_fetch_sub(&w->telling, 1);
}

void aci_record_end(ac_world *w, ac_comm_record *row, ac_status st) {
  if (row != NULL) {
    row->status = st;
    row->ended = ticks(w->records);
    if (__builtin_expect(atomic_load_explicit(&w->coll_watch, memory_order_relaxed) != NULL, 0))
      tell(w, row);
  }
  if (st == AC_MISMATCH || st == AC_PEER || st == AC_TIMEOUT) aci_records_dump(w);
}

int ac_world_records(ac_world *w, ac_comm_record *out, int max) {
  const aci_record_ring *r = w->records;
  if (r == NULL || max <= 0) return 0;
  const uint64_t next = atomic_load_explicit(&r->next, memory_order_relaxed);
  uint64_t have = next < (uint64_t)r->n ? next : (uint64_t)r->n;
  if (have > (uint64_t)max) have = (uint64_t)max;
  const double rate = rate_of(r);
  for (uint64_t i = 0; i < have; i++) {
    out[i] = r->rows[(next - have + i) % (uint64_t)r->n];
    to_ns(r, rate, &out[i]);
  }
  return (int)have;
}

static void put_int(aci_json_writer *w, const char *key, int64_t v) {
  aci_json_key(w, key, strlen(key));
  aci_json_int(w, v);
}

static void put_text(aci_json_writer *w, const char *key, const char *v) {
  aci_json_key(w, key, strlen(key));
  aci_json_string(w, v, strlen(v));
}

/* One JSON object. False: out of memory, or a script's name that is not UTF-8. */
static bool row_text(const ac_world *w, const ac_comm_record *row, aci_strbuf *out) {
  aci_json_writer j = {.out = out};
  aci_json_begin(&j, true);
  put_int(&j, "rank", aci_start_rank(w));
  put_int(&j, "number", (int64_t)row->number);
  put_int(&j, "group", row->group);
  put_int(&j, "seq", row->seq);
  put_text(&j, "kind", ac_coll_name(row->kind));
  put_text(&j, "dtype", ac_dtype_name(row->dtype));
  put_text(&j, "op", ac_reduce_op_name(row->op));
  put_int(&j, "root", row->root);
  put_int(&j, "count", row->count);
  put_int(&j, "queued_ns", row->queued);
  put_int(&j, "began_ns", row->began);
  put_int(&j, "ended_ns", row->ended);
  aci_json_key(&j, "async", 5);
  aci_json_bool(&j, row->async);
  put_text(&j, "status", ac_status_name(row->status));
  put_text(&j, "site", row->site);
  aci_json_end(&j);
  return aci_json_finish(&j, NULL) == AC_OK;
}

/* A failing rank must not fail again over its own report: errors are logged. */
void aci_records_dump(ac_world *w) {
  aci_record_ring *r = w->records;
  const char *pattern = ac_params_str(ac_ctx_params(w->ctx), "RECORD_FILE");
  if (r == NULL || pattern[0] == 0 || atomic_exchange(&r->dumped, true)) return;
  char path[512];
  const char *at = strstr(pattern, "%r");
  if (at != NULL)
    snprintf(path, sizeof path, "%.*s%d%s", (int)(at - pattern), pattern, aci_start_rank(w),
             at + 2);
  else
    snprintf(path, sizeof path, w->place.size > 1 || w->reseated ? "%s.%d" : "%s", pattern,
             aci_start_rank(w));
  FILE *f = fopen(path, "we");
  if (f == NULL) {
    ac_log_write(AC_LOG_WARN, "comm", "the flight recorder could not be written to %s: %s", path,
                 strerror(errno));
    return;
  }
  const uint64_t next = atomic_load_explicit(&r->next, memory_order_relaxed);
  const uint64_t have = next < (uint64_t)r->n ? next : (uint64_t)r->n;
  const double rate = rate_of(r);
  for (uint64_t i = next - have; i < next; i++) {
    ac_comm_record copy = r->rows[i % (uint64_t)r->n], *const row = &copy;
    to_ns(r, rate, row);
    aci_strbuf line = {0};
    if (row_text(w, row, &line)) fprintf(f, "%s\n", line.s);
    aci_strbuf_fini(&line);
  }
  if (fclose(f) != 0) ac_log_write(AC_LOG_WARN, "comm", "%s: %s", path, strerror(errno));
}
