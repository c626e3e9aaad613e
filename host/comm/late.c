/* Whether a rank is late: others of this machine wait for it, or are a step ahead, and it has been
 * at its step for longer than steps take. Each rank calls it about itself
 * (bindings/attach/attach_watch.c), on a watching thread. The result is on the rank's status page. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/comm_impl.h"

enum { SECOND = 1000000000, SLACK = SECOND, SUSPECT = SECOND / 2 };

static int by_size(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* The longest time in ns for which a ready thread of this process has waited for a CPU. 0:
 * unknown. */
static int64_t starved(void) {
  int64_t most = 0;
  DIR *d = opendir("/proc/self/task");
  for (struct dirent *x; d != NULL && (x = readdir(d)) != NULL;) {
    char path[300], text[96];
    unsigned long long ran, waited;
    if (x->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", x->d_name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    if (sscanf(text, "%llu %llu", &ran, &waited) == 2 && (int64_t)waited > most)
      most = (int64_t)waited;
  }
  if (d != NULL) closedir(d);
  return most;
}

int64_t aci_late(const aci_head *h, int own, aci_late_watch *w, int64_t now, int64_t *usual) {
  int64_t steps[ACI_MAX_LOCAL];
  uint64_t furthest = 0;
  int n = 0;
  bool waited_for = false;
  aci_page *p = aci_page_of(h, own);
  const int64_t stepped_at = atomic_load(&p->stepped_at);
  if (stepped_at != w->stepped_at) *w = (aci_late_watch){.stepped_at = stepped_at, .starved = -1};
  if (stepped_at == 0 || now - stepped_at < SUSPECT) return 0;
  if (w->starved < 0) w->starved = starved();
  if (now - stepped_at < SLACK || atomic_load(&p->waiting) != 0 || atomic_load(&p->prompt) != 0)
    return 0;
  for (int i = 0; i < (int)h->n_ranks; i++) {
    aci_page *other = aci_page_of(h, i);
    if (atomic_load(&other->state) != ACI_RUNNING) continue;
    const int64_t ns = atomic_load(&other->step_ns);
    if (ns > 0) steps[n++] = ns;
    if (i == own) continue;
    aci_page copy;
    aci_page_read(other, &copy);
    if (copy.step > furthest) furthest = copy.step;
    if (atomic_load(&copy.waiting) != 0 && now - copy.since > SLACK &&
        (copy.missing[own / 32] >> (own % 32) & 1) != 0)
      waited_for = true;
  }
  if (n == 0 || (!waited_for && furthest <= p->step)) return 0;
  qsort(steps, (size_t)n, sizeof steps[0], by_size);
  *usual = n % 2 == 1 ? steps[n / 2] : (steps[n / 2 - 1] + steps[n / 2]) / 2;
  const int64_t late = now - stepped_at;
  if (late <= 2 * *usual + SLACK) return 0;
  /* on a busy machine: time without a CPU is not the rank's fault */
  return late - (starved() - w->starved) > 2 * *usual + SLACK ? late : 0;
}
