/* accel-run: opens a host, runs a script in it, turns the outcome into an exit code. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"

#ifndef ACCEL_VERSION
#define ACCEL_VERSION "unknown"
#endif

static int finish(ac_host *h, int code) {
  if (h != NULL) app_signals_stop();
  bool check = h != NULL && ac_params_int(ac_ctx_params(ac_host_ctx(h)), "LEAK_CHECK") != 0;
  ac_host_close(h);
  if (check && ac_tensor_live() != 0) {
    fprintf(stderr, "accel-run: %lld tensors are alive after the script and its state are gone\n", (long long)ac_tensor_live());
    if (code == APP_OK) code = APP_SCRIPT;
  }
  if ((fflush(stdout) != 0 || ferror(stdout)) && code == APP_OK) { /* print flushes, and says nothing */
    fputs("accel-run: writing to stdout failed\n", stderr);
    code = APP_SCRIPT;
  }
  return code;
}

/* os.exit in scripts ends this program, as in any other interpreter. */
static ac_status script_exit(void *user, ac_ctx *c, int n_args, const ac_host_value *args, int max_results,
                             ac_host_value *results, int *n_results, ac_err *e) {
  int code = 0;
  (void)user, (void)c, (void)max_results, (void)results, (void)n_results;
  if (n_args > 0 && args[0].type == AC_HOST_BOOL) code = args[0].b ? 0 : 1;
  else if (n_args > 0 && args[0].type == AC_HOST_INT) code = (int)args[0].i;
  else if (n_args > 0 && args[0].type != AC_HOST_NIL)
    return AC_FAIL(e, INVALID, "os.exit takes a boolean or an integer");
  exit(code);
}

static ac_status run(ac_host *h, const app_options *o, ac_err *e) {
  if (o->command == APP_ENV)
    return ac_host_run_string(h,
                              "require('accel.core').host_chunk('env')(package.searchpath('accel', package.path))",
                              "env", 0, NULL, e);
  if (o->code != NULL)
    return ac_host_run_string(h, o->code, "-e", o->n_args, (const char *const *)o->args, e);
  return ac_host_run_file(h, o->script, o->n_args, (const char *const *)o->args, e);
}

int main(int argc, char **argv) {
  app_options o;
  if (!app_options_parse(argc, argv, &o)) return APP_USAGE;
  if (o.command == APP_HELP) {
    app_help();
    return finish(NULL, APP_OK);
  }
  if (o.command == APP_VERSION) {
    puts("accel-run " ACCEL_VERSION);
    return finish(NULL, APP_OK);
  }
  if (o.script != NULL && strcmp(o.script, "-") != 0 && access(o.script, R_OK) != 0) {
    fprintf(stderr, "accel-run: cannot read '%s': %s\n", o.script, strerror(errno));
    return APP_USAGE;
  }
  ac_host *h;
  ac_err e;
  app_log_start();
  if (ac_host_open(&o.host, &h, &e) != AC_OK ||
      ac_host_register(h, "os.exit", script_exit, NULL, &e) != AC_OK) {
    fprintf(stderr, "accel-run: %s\n", e.msg);
    return e.code == AC_INVALID ? APP_USAGE : APP_SCRIPT;
  }
  app_signals_start(h);
  ac_status st = run(h, &o, &e);
  if (st == AC_OK) return finish(h, APP_OK);
  int signal_number = app_signals_seen();
  if (st == AC_INTERRUPTED && signal_number != 0) {
    fflush(stdout);
    fprintf(stderr, "accel-run: %s\n", e.msg);
    app_signals_stop();
    ac_host_close(h);
    app_signals_die(signal_number);
  }
  fflush(stdout);
  fprintf(stderr, "accel-run: %s\n", ac_host_error_text(h));
  return finish(h, APP_SCRIPT);
}
