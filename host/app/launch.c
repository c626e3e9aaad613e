/* accel-run as the launcher of ranks, and a rank's knowledge of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel/device.h"
#include "app/app.h"

bool app_is_rank(void) {
  const char *world = getenv("ACCEL_WORLD");
  return world != NULL && world[0] != 0 && strcmp(world, "none") != 0 &&
         strncmp(world, "joined=", 7) != 0;
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

/* Refuses a kind of device that this machine lacks, before every rank reports the same. Devices are
 * counted, not opened: the GPU's memory is for the ranks. Names that are wrong in another way are
 * left to the ranks. */
static ac_status check_device(const char *name, ac_err *e) {
  const size_t n = name != NULL ? strcspn(name, ":") : 0;
  char why[200] = "";
  ac_params *params = NULL;
  if (n == 0) return AC_OK;
  const int providers = ac_device_n_providers(); /* which declares their parameters */
  AC_TRY(ac_params_new(&params, e));
  ac_status st = AC_OK;
  for (int i = 0; i < providers && st == AC_OK; i++) {
    const ac_device_provider *p = ac_device_provider_at(i);
    if (strlen(p->name) != n || memcmp(p->name, name, n) != 0 || p->probe == NULL) continue;
    if (p->probe(params, why, sizeof why) == 0)
      st = AC_FAIL(e, DEVICE, "no device '%s' here: %s; --device cpu runs on the CPU", name, why);
  }
  ac_params_free(params);
  return st;
}

int app_launch(app_options *o) {
  ac_launch_result result;
  ac_err e;
  ac_status st = check_device(o->host.device, &e);
  if (st == AC_OK) st = ac_launch(&o->launch, &result, &e);
  if (st == AC_OK) {
    if (result.signal != 0) app_signals_die(result.signal);
    return result.exit_status;
  }
  fprintf(stderr, "accel-run: %s\n", e.msg);
  if (st == AC_PEER) return result.exit_status;
  return st == AC_INVALID ? APP_USAGE : APP_SCRIPT;
}
