/* accel-run: what its files share. The program uses the embedding API only (accel/host.h and the public
 * headers). */
#ifndef APP_APP_H
#define APP_APP_H
#include "accel/host.h"

/* Exit codes: what callers and schedulers rely on. A signal N ends with 128 + N. */
enum { APP_OK = 0, APP_SCRIPT = 1, APP_USAGE = 2 };

typedef enum app_command { APP_RUN, APP_ENV, APP_HELP, APP_VERSION } app_command;

typedef struct app_options {
  app_command command;
  const char *script; /* path or "-"; NULL with code */
  const char *code;   /* of -e */
  int n_args;
  char **args; /* the script's */
  ac_host_options host;
} app_options;

/* Fills *o. On misuse writes the reason to stderr and returns false: the program ends with APP_USAGE. */
bool app_options_parse(int argc, char **argv, app_options *o);
void app_help(void);

/* Serves SIGINT, SIGTERM and SIGHUP for this host, until the host is about to be closed. */
void app_signals_start(ac_host *h);
void app_signals_stop(void);
/* The first signal that asked to stop; 0: none. */
int app_signals_seen(void);
/* Ends the process by the default action of this signal, so that the shell sees it. */
void app_signals_die(int signal_number) __attribute__((noreturn));

/* Messages of the library on stderr. */
void app_log_start(void);

#endif
