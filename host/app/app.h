/* accel-run: what its files share. The program uses the embedding API only (accel/host.h and the public
 * headers). */
#ifndef APP_APP_H
#define APP_APP_H
#include <sys/types.h>

#include "accel/host.h"
#include "accel/launch.h"

/* Exit codes: what callers and schedulers rely on. A signal N ends with 128 + N. */
enum { APP_OK = 0, APP_SCRIPT = 1, APP_USAGE = 2 };

typedef enum app_command {
  APP_RUN,
  APP_ENV,
  APP_REPL,   /* alone, on every rank, or as the launcher of those */
  APP_FRONT,  /* the prompt of a REPL on several ranks; ranks and launcher start it */
  APP_TOPICS, /* help [topic] */
  APP_BENCH,  /* bench [name ...] */
  APP_TOOL,   /* a program of stdlib/accel/cli, by its name */
  APP_HELP,
  APP_VERSION
} app_command;
/* How APP_FRONT is written on a command line. */
#define APP_FRONT_WORD "repl:front"

typedef struct app_options {
  app_command command;
  const char *script; /* path or "-"; NULL with code */
  const char *code;   /* of -e */
  const char *tool;   /* of APP_TOOL: its module below accel.cli */
  int n_args;
  char **args; /* the script's */
  ac_host_options host;
  bool launches; /* this process starts ranks and runs no script itself */
  ac_launch_options launch;
  const char *backend, *timeout, *resume, *profile; /* NULL: as the environment says */
  const char *launch_option;     /* the first option that means nothing without ranks; NULL: none */
  char **rank_argv;              /* the command line of a rank: ours without the options of the launcher */
  char **front_argv;             /* that of the prompt, for APP_REPL on several ranks */
} app_options;

/* Fills *o. On misuse writes the reason to stderr and returns false: the program ends with APP_USAGE. */
bool app_options_parse(int argc, char **argv, app_options *o);
void app_help(void);
const char *app_command_near(const char *word); /* a misspelt command; NULL: none is like it */

/* ---- options.c, options_launch.c: tables of options ---- */
typedef struct app_option {
  const char *name; /* with underscores, as Accelerate spells its own */
  char letter;
  const char *value; /* NULL: takes none */
  int id;
  const char *help;
} app_option;
enum { APP_LAUNCH_OPTIONS = 12, APP_LAUNCH_FIRST = 100 }; /* how many; their ids begin there */
extern const app_option app_launch_options[APP_LAUNCH_OPTIONS];
bool app_launch_set(app_options *o, const app_option *opt, const char *value);
/* What the options of the launcher mean together. */
bool app_launch_check(app_options *o);
/* Writes the reason (two strings for fmt); returns false. */
bool app_usage(const char *fmt, const char *a, const char *b);
/* Whole text as a number in 0 .. max. */
bool app_parse_number(const char *text, uint64_t max, uint64_t *out);

/* ---- launch.c ---- */
/* Starts ranks and waits for them; returns the exit code. */
int app_launch(app_options *o);
/* True when accel-run's launcher started this process as one of its ranks; it is said to the environment of what scripts
 * start that they are none. */
bool app_is_rank(void);
void app_rank_joined(void);
/* False for ranks but the first: what all have to say is said by that one. */
bool app_is_main_process(void);

/* Serves SIGINT, SIGTERM and SIGHUP for this host, until the host is about to be closed. launcher: the process that passes
 * them on, 0 none; reports: says what happens. */
void app_signals_start(ac_host *h, pid_t launcher, bool reports);
void app_signals_stop(void);
/* The first signal that asked to stop; 0: none. */
int app_signals_seen(void);
/* The launcher ended this rank, since the job is over. */
bool app_signals_job_over(void);
/* The script begins to wait for a command, whose end the first Ctrl-C waits for, or has it waited for. */
void app_signals_command(bool begins);
/* Ends the process by the default action of this signal, so that the shell sees it. */
void app_signals_die(int signal_number) __attribute__((noreturn));

/* ---- relaunch.c ---- */
/* Lets what runs in h say how this program is to begin anew. */
ac_status app_relaunch_offer(ac_host *h, ac_err *e);
/* True where that was said, once: the new command line; the environment is changed. */
bool app_relaunch(int *argc, char ***argv);

/* ---- shell.c ---- */
/* os.execute, for ac_host_register. */
ac_status app_execute(void *user, ac_ctx *c, int n_args, const ac_host_value *args, int max_results,
                      ac_host_value *results, int *n_results, ac_err *e);

/* Messages of the library on stderr. */
void app_log_start(void);

#endif
