/* The checks of a waiting rank: the abort reason, whether the missing ranks still live, the time.
 * Called by wait.c and by backends whose waits are of their own kind. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/wait.h"

enum {
  MS = 1000000,
  SECOND = 1000 * MS,
  PROBE_EVERY = 100 * MS,
  CAUSE_GRACE = 30 * MS,
  DATA_GRACE = 50 * MS
};

ac_status aci_stop(ac_world *w, ac_status code, int rank, ac_err *e, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  if (vsnprintf(text, sizeof text, fmt, ap) < 0) text[0] = 0;
  va_end(ap);
  aci_abort(w, code, rank, text);
  return aci_aborted(w, e);
}

/* "rank 3 (host:41)" */
static const char *name_of(const ac_world *w, int local_rank, const aci_page *p, char *buf,
                           size_t n) {
  snprintf(buf, n, "rank %d (%s:%d)", aci_global_of(w, local_rank),
           p->host[0] != 0 ? p->host : "pid", (int)p->pid);
  return buf;
}

/* A peer that ended: it will not come any more. */
static ac_status ended(aci_waiting *k, int i, uint32_t state, ac_err *e) {
  ac_world *w = k->g->world;
  aci_page page;
  aci_page_read(aci_page_of(w->segment.head, i), &page);
  char what[160], who[80], how[352];
  aci_desc_text(k->mine, what, sizeof what);
  name_of(w, i, &page, who, sizeof who);
  const int rank = aci_global_of(w, i);
  const char *at = page.at[0] != 0 ? page.at : "a line not known";
  if (state == ACI_LEFT)
    return aci_stop(
        w, AC_PEER, rank, e,
        "rank %d left at %s while rank %d waits for it in %s; all ranks must make the same calls "
        "before they end",
        rank, at, w->place.rank, what);
  if (state == ACI_FAILED)
    snprintf(how, sizeof how, "failed at %s%s%s", at, page.last[0] != 0 ? ": " : "", page.last);
  else if (page.signal != 0)
    snprintf(how, sizeof how, "was killed by signal %d (%s) at %s", page.signal,
             strsignal(page.signal), at);
  else if (page.exit_code != 0)
    snprintf(how, sizeof how, "ended with exit status %d at %s", page.exit_code, at);
  else snprintf(how, sizeof how, "died at %s", at);
  return aci_stop(w, AC_PEER, rank, e, "%s %s; rank %d waited for it in %s", who, how,
                  w->place.rank, what);
}

/* The state letter of a process. 0: there is none. */
static char process_state(int pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return 0;
  char path[32], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? 0 : '?';
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return n < 0 && errno == ESRCH ? 0 : '?';
  text[n] = 0;
  const char *p = strrchr(text, ')');
  return p != NULL && p[1] == ' ' ? p[2] : '?';
}

/* The launcher reports deaths at once. Without one the processes are polled. */
static void probe(aci_waiting *k, int i, bool *stopped) {
  aci_page *p = aci_page_of(k->g->world->segment.head, i);
  if (p->pid <= 0 || atomic_load(&p->state) != ACI_RUNNING) return;
  const char s = process_state(p->pid);
  uint32_t running = ACI_RUNNING;
  if (s == 0 || s == 'Z' || s == 'X') atomic_compare_exchange_strong(&p->state, &running, ACI_DEAD);
  *stopped = s == 'T' || s == 't';
}

static ac_status peers(aci_waiting *k, ac_err *e) {
  ac_world *w = k->g->world;
  aci_watchdog *d = &w->watch;
  const bool ask = k->now - k->began >= PROBE_EVERY && k->now - d->probed >= PROBE_EVERY;
  if (ask) d->probed = k->now;
  /* only the missing ones: the end of a rank that this wait does not need is no reason to fail */
  for (int i = 0; i < w->place.local_size; i++) {
    if (!aci_bit(k->missing, i)) continue;
    aci_page *p = aci_page_of(w->segment.head, i);
    bool stopped = false;
    if (ask) probe(k, i, &stopped);
    const uint32_t state = atomic_load_explicit(&p->state, memory_order_acquire);
    if (state == ACI_LEFT || state == ACI_FAILED || state == ACI_DEAD) {
      if (k->came != NULL && k->came(k, i)) continue; /* it came before it ended */
      /* the launcher raises the round, or ends the job */
      if (w->generation != 0 && (state == ACI_DEAD || atomic_load(&p->joins) != ACI_JOIN_NONE))
        continue;
      if (d->gone[i] == 0) d->gone[i] = k->now;
      /* a rank that knows the cause may be about to report it. Arrived data may be unread yet */
      const int64_t since = d->gone[i] > k->began ? d->gone[i] : k->began;
      if (k->now - since < (k->came == NULL ? DATA_GRACE : state == ACI_LEFT ? 0 : CAUSE_GRACE))
        continue;
      AC_TRY(aci_aborted(w, e));
      return ended(k, i, state, e);
    }
    if (stopped || atomic_load_explicit(&p->stopped, memory_order_relaxed) != 0) {
      if (aci_bit(d->told, i)) continue;
      aci_bit_set(d->told, i);
      char what[160], who[80];
      aci_page page;
      aci_page_read(p, &page);
      ac_log_write(AC_LOG_WARN, "comm",
                   "%s is stopped (SIGSTOP), not dead; rank %d continues to wait for it in %s",
                   name_of(w, i, &page, who, sizeof who), w->place.rank,
                   aci_desc_text(k->mine, what, sizeof what));
    } else if (ask) {
      aci_bit_clear(d->told, i);
    }
  }
  return AC_OK;
}

/* ": rank 1 was last at train.lua:30. Rank 2 is stopped" */
static void last_seen(const aci_waiting *k, char *buf, size_t n) {
  const ac_world *w = k->g->world;
  int shown = 0;
  size_t at = 0;
  buf[0] = 0;
  for (int i = 0; i < w->place.local_size && shown < 3 && at < n; i++) {
    if (!aci_bit(k->missing, i)) continue;
    aci_page p;
    aci_page_read(aci_page_of(w->segment.head, i), &p);
    /* a rank that neither waited nor made a step has no place on its page, but its last call of the
     * world has one */
    const aci_slot *slot = aci_slot_of(w->segment.head, 0, i);
    aci_desc last = slot->desc[slot->desc[1].seq > slot->desc[0].seq];
    last.site[sizeof last.site - 1] = 0;
    const bool waits = atomic_load(&p.waiting) != 0, absent = atomic_load(&p.state) == ACI_ABSENT;
    at += (size_t)snprintf(
        buf + at, n - at, "%s rank %d %s%s", shown++ > 0 ? "," : ":", aci_global_of(w, i),
        absent                    ? "has not joined"
        : atomic_load(&p.stopped) ? (p.at[0] != 0 ? "is stopped, at " : "is stopped")
        : waits                   ? "waits at "
        : p.at[0] != 0            ? "was last at "
        : last.site[0] != 0       ? "made its last call at "
                                  : "has made no call so far",
        absent                         ? ""
        : waits && p.want.site[0] != 0 ? p.want.site
        : p.at[0] != 0                 ? p.at
                                       : last.site);
  }
}

/* "1, 2 and 5 more", the ranks that have not come. */
static int missing_ranks(const aci_waiting *k, char *list, size_t n) {
  size_t at = 0;
  int total = 0, shown = 0;
  list[0] = 0;
  for (int r = 0; r < k->g->size; r++) {
    const int i = aci_local_of(k->g, r);
    if (i >= 0 ? !aci_bit(k->missing, i) : r != k->first) continue;
    if (total++ < 8 && at < n - 16)
      at += (size_t)snprintf(list + at, n - at, "%s%d", shown++ > 0 ? ", " : "", k->g->ranks[r]);
  }
  if (total > shown) snprintf(list + at, n - at, " and %d more", total - shown);
  return total;
}

/* Is this rank the one that reports the missing ones? The first of this machine that waits for
 * them, unless all of them wait for others. */
static bool is_reporter(const aci_waiting *k) {
  const ac_world *w = k->g->world;
  bool at_work = false;
  for (int r = 0; r < k->g->size; r++) {
    const int i = aci_local_of(k->g, r);
    if (i < 0) {
      at_work |= r == k->first;
    } else if (aci_bit(k->missing, i)) {
      /* stopped: it was reported */
      at_work |=
          atomic_load(&aci_page_of(w->segment.head, i)->waiting) == 0 && !aci_bit(w->watch.told, i);
    } else if (i < w->place.local_rank) {
      return false;
    }
  }
  return at_work;
}

/* A rank in an endless loop neither ends nor stops. It is named long before the timeout, and again
 * after four times as long. */
static void report_long_wait(const aci_waiting *k, int64_t waited) {
  ac_world *w = k->g->world;
  aci_watchdog *d = &w->watch;
  char what[160], list[96], seen[224];
  if (d->late_began != k->began) {
    d->late_began = k->began;
    d->late_next = d->late_ns;
  }
  if (d->late_ns == 0 || waited < d->late_next) return;
  d->late_next *= 4;
  if (!is_reporter(k)) return;
  const int n = missing_ranks(k, list, sizeof list);
  last_seen(k, seen, sizeof seen);
  ac_log_write(
      AC_LOG_WARN, "comm",
      "rank %d has waited %.3g s for rank%s %s in %s%s; to see the script lines of all ranks: accel-run stacks",
      w->place.rank, (double)waited / 1e9, n > 1 ? "s" : "", list,
      aci_desc_text(k->mine, what, sizeof what), seen);
}

static ac_status timed_out(const aci_waiting *k, double seconds, ac_err *e) {
  const ac_world *w = k->g->world;
  char what[160], list[96], seen[224] = "";
  const int total = missing_ranks(k, list, sizeof list);
  if (w->segment.head != NULL) last_seen(k, seen, sizeof seen);
  return aci_stop(k->g->world, AC_TIMEOUT, total == 1 && k->first >= 0 ? k->g->ranks[k->first] : -1,
                  e,
                  "rank %d waited %.3g s for %s%s in %s%s; raise --timeout if they are only slow",
                  w->place.rank, seconds,
                  total == 0   ? "the others"
                  : total == 1 ? "rank "
                               : "ranks ",
                  list, aci_desc_text(k->mine, what, sizeof what), seen);
}

/* Ctrl-C, for waits of the owner's thread. Ranks that were interrupted come no more, so it is the
 * end for all. */
static ac_status interrupted(const aci_waiting *k, ac_err *e) {
  ac_world *w = k->g->world;
  const int64_t at = w->interrupt != NULL ? __atomic_load_n(w->interrupt, __ATOMIC_RELAXED) : 0;
  if (at == 0 || k->now < at) return AC_OK;
  if (!pthread_equal(pthread_self(), w->owner) && atomic_load(&w->awaited) == 0) return AC_OK;
  char what[160];
  return aci_stop(w, AC_INTERRUPTED, w->place.rank, e, "rank %d was interrupted in %s",
                  w->place.rank, aci_desc_text(k->mine, what, sizeof what));
}

/* Time does not count while a rank of this machine stands at a breakpoint or a prompt: ranks that
 * wait for it, directly or not, report this once and continue to wait. */
static void look_for_prompts(aci_waiting *k) {
  ac_world *w = k->g->world;
  aci_watchdog *d = &w->watch;
  int at = -1;
  for (int i = 0; i < w->place.local_size && at < 0; i++)
    if (atomic_load_explicit(&aci_page_of(w->segment.head, i)->prompt, memory_order_relaxed) != 0)
      at = i;
  if (at < 0) {
    d->told_prompt = false;
    return;
  }
  d->prompt_seen = k->now;
  if (d->told_prompt || k->now - k->began < SECOND) return;
  d->told_prompt = true;
  char what[160], who[80];
  aci_page page;
  aci_page_read(aci_page_of(w->segment.head, at), &page);
  ac_log_write(
      AC_LOG_WARN, "comm",
      "rank %d waits in %s for %s, which stands at a prompt at %s; the timeout is suspended",
      w->place.rank, aci_desc_text(k->mine, what, sizeof what),
      name_of(w, at, &page, who, sizeof who), page.at[0] != 0 ? page.at : "a line not known");
}

ac_status aci_watch(aci_waiting *k, ac_err *e) {
  ac_world *w = k->g->world;
  AC_TRY(aci_aborted(w, e));
  AC_TRY(interrupted(k, e));
  if (w->segment.head != NULL) {
    AC_TRY(peers(k, e));
    AC_TRY(aci_deadlock(k, e));
    look_for_prompts(k);
  }
  const int64_t limit = atomic_load_explicit(&w->timeout_ns, memory_order_relaxed);
  const int64_t since = k->began > w->watch.prompt_seen ? k->began : w->watch.prompt_seen;
  if (w->segment.head != NULL) report_long_wait(k, k->now - since);
  if (limit > 0 && k->now - since > limit) return timed_out(k, (double)(k->now - since) / 1e9, e);
  return AC_OK;
}
