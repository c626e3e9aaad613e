/* Messages of the library: one line each on stderr, from the level that ACCEL_LOG names. */
#include <stdio.h>
#include <string.h>

#include "app/app.h"

static void on_message(void *user, ac_log_level level, const char *subsystem, const char *msg) {
  static const char *const names[] = {"trace", "debug", "info", "warning", "error"};
  (void)user;
  if (strcmp(subsystem, "lua") == 0) fprintf(stderr, "accel-run: %s: %s\n", names[level], msg);
  else fprintf(stderr, "accel-run: %s: %s: %s\n", names[level], subsystem, msg);
}

/* Levels stand in the parameter's own list, in order. Once: a launch begins anew in this process
 * (relaunch.c). */
void app_log_start(void) {
  static bool done;
  if (done) return;
  done = true;
  static const char *const names[] = {"trace", "debug", "info", "warn", "error", "off"};
  ac_params *p;
  ac_err e;
  ac_log_level level = AC_LOG_WARN;
  if (ac_params_new(&p, &e) == AC_OK) { /* opening the host reports faults of the environment */
    for (int i = 0; i < 6; i++)
      if (strcmp(ac_params_str(p, "LOG"), names[i]) == 0) level = (ac_log_level)i;
    /* makes their parameters known. Later code reports files that are not modules */
    ac_device_modules_load(p, &e);
    ac_params_free(p);
  }
  ac_log_set(on_message, NULL, level);
  if (app_is_rank()) return; /* the launcher printed the rest */
  const char *unknown[8];
  const char *rows[64];
  int n = ac_params_unknown(unknown, 8), n_rows = ac_params_count();
  for (int i = 0; i < n_rows && i < 64; i++) rows[i] = ac_params_info(i)->name;
  for (int i = 0; i < n && i < 8; i++) {
    /* variables from our tests to their scripts */
    if (strncmp(unknown[i], "ACCEL_TEST_", 11) == 0) continue;
    const char *near = ac_nearest(unknown[i] + 6, rows, n_rows < 64 ? n_rows : 64);
    ac_log_write(AC_LOG_WARN, "env", "%s is set but means nothing%s%s%s", unknown[i],
                 near ? " (did you mean ACCEL_" : "", near ? near : "", near ? "?)" : "");
  }
}
