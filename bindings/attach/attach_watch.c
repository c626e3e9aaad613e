/* A rank's check whether it is late, and at which line. Called by the thread of its service
 * (host/attach), which lives while the script is in a loop or a read. */
#include <stdio.h>
#include <string.h>

#include "attach.h"

/* The script line of the innermost function of a stack's text: "  train.lua:28: in local 'clean'"
 * -> "train.lua:28". False: it has none. */
static bool line_of(const char *text, char *site, size_t n) {
  for (const char *p = text; p != NULL && *p != 0;
       p = strchr(p, '\n') != NULL ? strchr(p, '\n') + 1 : NULL) {
    const char *end = strstr(p, ": in ");
    if (strncmp(p, "  [C]", 5) == 0 || strncmp(p, "  (", 3) == 0 || end == NULL) continue;
    const size_t k = (size_t)(end - p) - 2;
    snprintf(site, n, "%.*s", (int)(k < n ? k : n - 1), p + 2);
    return true;
  }
  return false;
}

/* Publishes the line on the page, and logs each line once. */
static void tell(lac_attach *A, const char *site, int64_t late, int64_t usual) {
  aci_page_lock(A->page);
  snprintf(A->page->at, sizeof A->page->at, "%s", site);
  aci_page_unlock(A->page);
  if (strcmp(site, A->told) == 0) return;
  snprintf(A->told, sizeof A->told, "%s", site);
  ac_log_write(AC_LOG_WARN, "attach",
               "rank %d is late: for %.1f s at %s, step %llu; the median step takes %.3g s",
               A->page->rank, (double)late * 1e-9, site, (unsigned long long)A->page->step,
               (double)usual * 1e-9);
}

void lac_attach_look(void *user) {
  lac_state *S = user;
  lac_attach *A = S->attach;
  const int own = (int)(A->page - aci_page_of(A->pages.head, 0));
  int64_t usual = 0;
  const int64_t late = aci_late(A->pages.head, own, &A->late, aci_now_ns(), &usual);
  /* a stack is taken once a step: it interrupts system calls */
  if (late != 0 && A->late.stepped_at != A->told_at) {
    A->told_at = A->late.stepped_at;
    char text[4096], site[ACI_SITE];
    const size_t n = lac_stacks_take(S, false, text, sizeof text - 1);
    text[n] = 0;
    if (line_of(text, site, sizeof site)) tell(A, site, late, usual);
  }
  atomic_store(&A->page->usual_ns, usual);
  atomic_store(&A->page->late_ns, late);
}
