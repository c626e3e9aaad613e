/* Checks of the arguments of ac_host_*, and the text of errors (host_check.h). */
#include "host_check.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/visible.h"

ac_status lac_host_invalid(ac_err *e, const char *function, const char *fmt, ...) {
  char text[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return AC_FAIL(e, INVALID, "%s: %s", function, text);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ac_host *all; /* process-wide: a pointer to a closed host belongs to no context */

void lac_host_opened(ac_host *h) {
  pthread_mutex_lock(&lock);
  h->next = all;
  all = h;
  pthread_mutex_unlock(&lock);
}

bool lac_host_forget(ac_host *h) {
  pthread_mutex_lock(&lock);
  ac_host **p = &all;
  while (*p != NULL && *p != h) p = &(*p)->next;
  const bool found = *p != NULL;
  if (found) *p = h->next;
  pthread_mutex_unlock(&lock);
  return found;
}

bool lac_host_is_open(const ac_host *h) {
  pthread_mutex_lock(&lock);
  const ac_host *p = all;
  while (p != NULL && p != h) p = p->next;
  pthread_mutex_unlock(&lock);
  return h != NULL && p != NULL;
}

ac_status lac_host_check_open(const ac_host *h, const char *function, ac_err *e) {
  if (h == NULL) return lac_host_invalid(e, function, "the host is NULL");
  return lac_host_is_open(h)
             ? AC_OK
             : lac_host_invalid(e, function, "the host was closed, or is not a host");
}

ac_status lac_host_check_values(const char *function, const char *what, int n,
                                const ac_host_value *v, ac_err *e) {
  for (int i = 0; i < n; i++) {
    if ((unsigned)v[i].type > AC_HOST_OBJECT)
      return lac_host_invalid(e, function, "%s %d has the unknown type %d", what, i + 1,
                              (int)v[i].type);
    if (v[i].type == AC_HOST_STRING && v[i].s == NULL && v[i].len > 0)
      return lac_host_invalid(e, function, "%s %d is a string of %zu bytes at NULL", what, i + 1,
                              v[i].len);
    if (v[i].type == AC_HOST_TENSOR && v[i].t == NULL)
      return lac_host_invalid(e, function, "%s %d is a tensor that is NULL", what, i + 1);
    if (v[i].type > AC_HOST_TENSOR && v[i].ref == NULL)
      return lac_host_invalid(e, function, "%s %d is a reference that is NULL", what, i + 1);
  }
  return AC_OK;
}

ac_status lac_host_check_name(const char *function, const char *name, ac_err *e) {
  if (name == NULL) return lac_host_invalid(e, function, "the name is NULL");
  for (const char *p = name;; p++) {
    if (*p == '.' || *p == '\0')
      return lac_host_invalid(e, function, "the name '%.100s' has an empty part", name);
    p = strchr(p, '.');
    if (p == NULL) return AC_OK;
  }
}

/* NULL: no error. Without memory for a copy the beginning of the text is kept. */
void lac_host_set_error(ac_host *h, const char *text) {
  if (h->error_text != h->short_text) free(h->error_text);
  size_t n = text != NULL ? strlen(text) : 0, shown = 0;
  /* it may go to a terminal, and names in it come from others */
  aci_visible(NULL, 0, text != NULL ? text : "", n, true, &shown);
  h->error_text = text != NULL ? malloc(shown + 1) : NULL;
  if (h->error_text != NULL) aci_visible(h->error_text, shown + 1, text, n, true, NULL);
  if (text == NULL || h->error_text != NULL) return;
  snprintf(h->short_text, sizeof h->short_text, "%s", text);
  h->error_text = h->short_text;
}
