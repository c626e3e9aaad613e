/* The flight recorder: the last collectives of this rank in a ring, for scripts, timelines and the dump after a failure.
 * Rows are written by the thread that runs the collective; readers may see the newest row half done.
 *
 * Times are kept as counts of the processor's clock where that runs evenly, and turned into nanoseconds when they are read: asking the
 * system for the time twice would be a fifth of a small collective. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Turns the times of a row into nanoseconds; rate: ns per count. */
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

/* Bytes that leave this rank, counted as the user sees them: what it hands over once. */
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

ac_comm_record *aci_record_begin(ac_world *w, const ac_group *g, const ac_coll *c, uint32_t seq, bool async) {
  aci_record_ring *r = w->records;
  const uint64_t bytes = w->backend->bytes != NULL ? w->backend->bytes(g, c) : bytes_of(g, c);
  atomic_store_explicit(&w->bytes_sent, atomic_load_explicit(&w->bytes_sent, memory_order_relaxed) + bytes,
                        memory_order_relaxed); /* the owner's thread alone writes: no locked instruction */
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

void aci_record_end(ac_world *w, ac_comm_record *row, ac_status st) {
  if (row != NULL) {
    row->status = st;
    row->ended = ticks(w->records);
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

/* A failing rank must not fail again over its own report: errors are logged. */
void aci_records_dump(ac_world *w) {
  aci_record_ring *r = w->records;
  const char *pattern = ac_params_str(ac_ctx_params(w->ctx), "RECORD_FILE");
  if (r == NULL || pattern[0] == 0 || atomic_exchange(&r->dumped, true)) return;
  char path[512];
  const char *at = strstr(pattern, "%r");
  if (at != NULL)
    snprintf(path, sizeof path, "%.*s%d%s", (int)(at - pattern), pattern, w->place.rank, at + 2);
  else snprintf(path, sizeof path, w->place.size > 1 ? "%s.%d" : "%s", pattern, w->place.rank);
  FILE *f = fopen(path, "we");
  if (f == NULL) {
    ac_log_write(AC_LOG_WARN, "comm", "the flight recorder could not be written to %s: %s", path, strerror(errno));
    return;
  }
  const uint64_t next = atomic_load_explicit(&r->next, memory_order_relaxed);
  const uint64_t have = next < (uint64_t)r->n ? next : (uint64_t)r->n;
  const double rate = rate_of(r);
  for (uint64_t i = next - have; i < next; i++) {
    ac_comm_record copy = r->rows[i % (uint64_t)r->n], *const row = &copy;
    to_ns(r, rate, row);
    char site[2 * sizeof row->site];
    size_t k = 0;
    for (const char *s = row->site; *s != 0 && k + 2 < sizeof site; s++) {
      if (*s == '"' || *s == '\\') site[k++] = '\\';
      site[k++] = (unsigned char)*s < 32 ? ' ' : *s;
    }
    site[k] = 0;
    fprintf(f,
            "{\"rank\":%d,\"number\":%" PRIu64 ",\"group\":%u,\"seq\":%u,\"op\":\"%s\",\"dtype\":\"%s\",\"reduce\":\"%s\","
            "\"root\":%d,\"count\":%lld,\"queued_ns\":%lld,\"began_ns\":%lld,\"ended_ns\":%lld,\"async\":%s,\"status\":\"%s\","
            "\"site\":\"%s\"}\n",
            w->place.rank, row->number, row->group, row->seq, ac_coll_name(row->kind), ac_dtype_name(row->dtype),
            ac_reduce_op_name(row->op), row->root, (long long)row->count, (long long)row->queued, (long long)row->began,
            (long long)row->ended, row->async ? "true" : "false", ac_status_name(row->status), site);
  }
  if (fclose(f) != 0) ac_log_write(AC_LOG_WARN, "comm", "%s: %s", path, strerror(errno));
}
