/* accel-run as the launcher of ranks, and what a rank knows of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"

bool app_is_rank(void) {
  const char *world = getenv("ACCEL_WORLD");
  return world != NULL && world[0] != 0 && strcmp(world, "none") != 0 && strncmp(world, "joined=", 7) != 0;
}

bool app_is_main_process(void) {
  const char *rank = getenv("RANK");
  return !app_is_rank() || rank == NULL || strcmp(rank, "0") == 0;
}

void app_rank_joined(void) {
  char text[32];
  if (!app_is_rank()) return;
  snprintf(text, sizeof text, "joined=%d", (int)getpid());
  setenv("ACCEL_WORLD", text, 1);
}

int app_launch(app_options *o) {
  ac_launch_result result;
  ac_err e;
  ac_status st = ac_launch(&o->launch, &result, &e);
  if (st == AC_OK) {
    if (result.signal != 0) app_signals_die(result.signal);
    return result.exit_status;
  }
  fprintf(stderr, "accel-run: %s\n", e.msg);
  if (st == AC_PEER) return result.exit_status;
  return st == AC_INVALID ? APP_USAGE : APP_SCRIPT;
}
