/* A launch that a configuration decides. `accel-run launch` (accel.cli.launch) turns flags,
 * variables and files into a command line and an environment. This program starts anew with them,
 * in the same process, so that a configuration costs no second start. Called by main.c.
 * accel.cli.launch sees it as the function accel_run.again(kind, text) of its Lua state. */
#include <stdlib.h>
#include <string.h>

#include "app/app.h"

typedef struct words {
  char **list;
  int n, room;
} words;

static words line, variables; /* of this process, as its command line and its environment are */

static bool add(words *w, const char *text) {
  if (w->n + 1 >= w->room) {
    const int room = w->room > 0 ? 2 * w->room : 32;
    char **more = realloc(w->list, (size_t)room * sizeof *more);
    if (more == NULL) return false;
    w->list = more;
    w->room = room;
  }
  char *copy = strdup(text);
  if (copy == NULL) return false;
  w->list[w->n++] = copy;
  w->list[w->n] = NULL;
  return true;
}

/* again("word", text) adds to the command line, again("variable", "NAME=VALUE") to the
 * environment. */
static ac_status again(void *user, ac_ctx *c, int n_args, const ac_host_value *args,
                       int max_results, ac_host_value *results, int *n_results, ac_err *e) {
  (void)user, (void)c, (void)max_results, (void)results, (void)n_results;
  if (n_args != 2 || args[0].type != AC_HOST_STRING || args[1].type != AC_HOST_STRING)
    return AC_FAIL(e, INVALID, "again takes a kind and a text");
  if (!add(strcmp(args[0].s, "word") == 0 ? &line : &variables, args[1].s))
    return AC_FAIL(e, OOM, "no memory for a command line");
  return AC_OK;
}

ac_status app_relaunch_offer(ac_host *h, ac_err *e) {
  return ac_host_register(h, "accel_run.again", again, NULL, e);
}

bool app_relaunch(int *argc, char ***argv) {
  if (line.n == 0) return false;
  for (int i = 0; i < variables.n; i++) putenv(variables.list[i]); /* which keeps the text */
  *argc = line.n;
  *argv = line.list;
  line = variables = (words){NULL, 0, 0}; /* their contents live as long as the process */
  return true;
}
