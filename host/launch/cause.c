/* The texts for the end of a rank: for its peers (the abort reason) and for the last line of the
 * job. Its activity is on its status page. The launcher adds how it ended. Called by supervise.c
 * and launch.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_impl.h"
#include "launch/launch_impl.h"

const char *aci_signal_name(int n, char *buf, size_t size) {
  static const struct {
    int n;
    const char *name;
  } names[] = {
      {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
      {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
      {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
      {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGXCPU, "SIGXCPU"},
      {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"},   {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
      {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (names[i].n == n) {
      snprintf(buf, size, "%s", names[i].name);
      return buf;
    }
  snprintf(buf, size, "signal %d", n);
  return buf;
}

/* " at train.lua:31", " in all_reduce f32 (1000) sum at train.lua:31" or "". */
static void place_of(const aci_job *j, int r, char *buf, size_t n) {
  aci_page page;
  char text[256];
  buf[0] = 0;
  aci_page_read(aci_page_of(j->segment.head, r), &page);
  page.at[sizeof page.at - 1] = 0;
  page.want.site[sizeof page.want.site - 1] = 0;
  if (atomic_load(&page.waiting) != 0 && page.want.kind < AC_COLL_KINDS)
    snprintf(buf, n, " in %s", aci_desc_text(&page.want, text, sizeof text));
  else if (page.at[0] != 0) snprintf(buf, n, " at %s", page.at);
  else if (j->segment.head != NULL) {
    /* it never waited nor made a step: its last call of the world is more informative than
     * nothing */
    const aci_slot *slot = aci_slot_of(j->segment.head, 0, r);
    aci_desc d = slot->desc[slot->desc[1].seq > slot->desc[0].seq];
    d.site[sizeof d.site - 1] = 0;
    if (d.site[0] != 0) snprintf(buf, n, " after %s", aci_desc_text(&d, text, sizeof text));
  }
}

void aci_cause_of(const aci_job *j, int r, char *buf, size_t n) {
  const aci_rank *p = &j->ranks[r];
  char place[400], name[24];
  place_of(j, r, place, sizeof place);
  if (p->sig != 0)
    snprintf(buf, n, "rank %d (pid %d) was %s %s%s", j->first + r, (int)p->pid,
             p->sig == j->signal ? "interrupted by" : "killed by",
             aci_signal_name(p->sig, name, sizeof name), place);
  else {
    const aci_page *page = aci_page_of(j->segment.head, r);
    /* and it does not write any more */
    const bool told = atomic_load(&page->state) == ACI_FAILED && page->last[0] != 0;
    snprintf(buf, n, "rank %d (pid %d) exited with status %d%s%s%.*s", j->first + r, (int)p->pid,
             p->code, place, told ? ": " : "", told ? (int)sizeof page->last - 1 : 0, page->last);
  }
}

static bool failed(const aci_rank *p) { return p->ended && (p->sig != 0 || p->code != 0); }

int aci_root_cause(const aci_job *j) {
  const aci_abort_reason *v = &j->segment.head->abort_reason;
  if (j->failed >= 0 && atomic_load(&v->set) != 0) {
    const int r = v->rank - j->first;
    if (v->rank >= 0 && r >= 0 && r < j->n && failed(&j->ranks[r]) && j->ranks[r].ended_by == 0)
      return r;
  }
  return j->failed;
}

void aci_root_cause_text(const aci_job *j, int root, char *buf, size_t n) {
  const aci_rank *p = &j->ranks[root];
  const aci_abort_reason *v = &j->segment.head->abort_reason;
  char place[400], name[24], log[400] = "";
  if (j->o->log_dir != NULL) { /* of a long path the end, which names the folder */
    enum { SHOWN = 340 };
    const size_t n_dir = strlen(j->o->log_dir);
    const char *end = n_dir > SHOWN ? strchr(j->o->log_dir + n_dir - SHOWN, '/') : NULL;
    snprintf(log, sizeof log, "; see %s%.*s/rank_%d.log", end != NULL ? "..." : "", SHOWN,
             end != NULL ? end : j->o->log_dir, j->first + root);
  }
  const bool elsewhere = atomic_load(&v->set) != 0 && v->rank >= 0 &&
                         (v->rank < j->first || v->rank >= j->first + j->n);
  if (elsewhere) { /* of another machine, whose launcher knows more */
    snprintf(buf, n, "%.400s", strncmp(v->text, "stopped: ", 9) == 0 ? v->text + 9 : v->text);
    return;
  }
  place_of(j, root, place, sizeof place);
  if (p->sig != 0)
    snprintf(buf, n, "rank %d (pid %d, %s) was killed by signal %d (%s)%s%s%s%s", j->first + root,
             (int)p->pid, j->host, p->sig, aci_signal_name(p->sig, name, sizeof name),
             p->core ? ", core dumped," : "", place,
             p->sig == SIGKILL && aci_oom_kills() > j->oom_kills
                 ? "; this machine ran out of memory"
                 : "",
             log);
  else {
    /* the rank to blame, if this rank was only the first to end with a failure */
    char blamed[360] = "";
    const int b = v->rank - j->first;
    /* a rank that reported nothing itself */
    if (atomic_load(&v->set) != 0 && b >= 0 && b < j->n && b != root && j->ranks[b].ended_by != 0)
      snprintf(blamed, sizeof blamed, ", waiting for rank %d (pid %d), which was ended", v->rank,
               (int)j->ranks[b].pid);
    else if (atomic_load(&v->set) != 0 && b != root &&
             (v->code == AC_MISMATCH || v->code == AC_PEER)) {
      /* "rank 0 left at ...", "ranks differ in ..." */
      const char *text = strncmp(v->text, "stopped: ", 9) == 0 ? v->text + 9 : v->text;
      snprintf(blamed, sizeof blamed, ": %.*s", (int)strcspn(text, ";"), text);
    }
    snprintf(buf, n, "rank %d (pid %d, %s) exited with status %d%s%s%s", j->first + root,
             (int)p->pid, j->host, p->code, place, blamed, log);
  }
}

bool aci_root_refused(const aci_job *j, int root) {
  const aci_abort_reason *v = &j->segment.head->abort_reason;
  /* or of a rank of another machine */
  return strcmp(aci_page_of(j->segment.head, root)->last, AC_REFUSED_TEXT) == 0 ||
         (atomic_load(&v->set) != 0 && strstr(v->text, ": " AC_REFUSED_TEXT) != NULL);
}

uint64_t aci_oom_kills(void) {
  FILE *f = fopen("/proc/vmstat", "re");
  if (f == NULL) return 0;
  char line[128];
  unsigned long long n = 0;
  while (fgets(line, sizeof line, f) != NULL)
    if (sscanf(line, "oom_kill %llu", &n) == 1) break;
  fclose(f);
  return n;
}
