/* Loading of scripts, for those that run at once (host_run.c) and those that are driven in steps
 * (host_drive.c). */
#ifndef LAC_HOST_SCRIPT_H
#define LAC_HOST_SCRIPT_H
#include "host_impl.h"

typedef struct lac_script {
  ac_host *h;
  const char *path, *code, *name; /* path, or code and name */
  int argc;
  const char *const *argv;
  ac_status load; /* error of loading it */
} lac_script;

/* Sets the global arg and pushes the script as a function. Raises if it does not load. */
void lac_script_load(lua_State *L, lac_script *s);
/* Checks the arguments and runs body(s) protected. Ranks learn of a failure. `who` begins messages
 * about misuse. */
ac_status lac_script_run(ac_host *h, lac_script *s, lua_CFunction body, const char *who, ac_err *e);

/* Tells the other ranks of a script that failed, if this host has joined them. */
void lac_script_tell(ac_host *h, ac_status st, const ac_err *e);

#endif
