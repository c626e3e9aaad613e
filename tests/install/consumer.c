/* A host in ten lines: what install.sh builds against the installed library, once per build system. */
#include <accel/accel.h>
#include <stdio.h>

int main(void) {
  ac_host *host = NULL;
  ac_err err;
  const char *script = "local a = require 'accel'; assert(a.ones(2, 3):sum():item() == 6)";
  ac_status st = ac_host_open(NULL, &host, &err);
  if (st == AC_OK) st = ac_host_run_string(host, script, "demo", 0, NULL, &err);
  if (st != AC_OK) fprintf(stderr, "%s: %s\n", ac_status_name(st), err.msg);
  ac_host_close(host);
  return st == AC_OK ? 0 : 1;
}
