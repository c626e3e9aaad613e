/* accel-run: declarations shared by its files. The program uses the embedding API only
 * (accel/host.h and the public headers). */
#ifndef APP_APP_H
#define APP_APP_H
#include <sys/types.h>

#include "accel/host.h"
#include "accel/launch.h"

/* Exit codes that callers and schedulers rely on. A signal N ends with 128 + N. */
enum { APP_OK = 0, APP_SCRIPT = 1, APP_USAGE = AC_EXIT_USAGE };

typedef enum app_command {
  APP_RUN,
  APP_ENV,
  APP_REPL,   /* alone, on every rank, or as the launcher of those */
  APP_FRONT,  /* the prompt of a REPL on several ranks. Started by ranks and launcher */
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
  const char *script;                  /* path or "-". NULL with code */
  const char *code;                    /* of the last -e. All are in `given` */
  const char *tool;                    /* of APP_TOOL: its module below accel.cli */
  const struct app_command_row *asked; /* of APP_HELP: the command. NULL: the program */
  int n_args;
  char **args; /* the script's */
  ac_host_options host;
  bool interactive; /* a prompt after the script */
  bool launches;    /* this process starts ranks and runs no script itself */
  ac_launch_options launch;
  const char *backend, *timeout, *resume, *profile; /* NULL: from the environment */
  struct app_given *given; /* the options of the command line in order, each once but -e and -l */
  int n_given;
  /* the command line of a rank: ours without the options of the launcher */
  char **rank_argv;
  char **front_argv; /* for APP_REPL on several ranks: argv of the prompt */
} app_options;

/* Fills *o. On misuse writes the reason to stderr and returns false: the program ends with
 * APP_USAGE. */
bool app_options_parse(int argc, char **argv, app_options *o);
/* help.c. c: of this command alone. NULL: of the program */
void app_help(const struct app_command_row *c);
/* The command line nearest to a misspelt command or to an action without its command, in buf. NULL:
 * none is similar. */
const char *app_command_near(const char *word, char *buf, size_t size);

/* ---- options.c, options_launch.c, commands.c: tables of options and commands ---- */
/* Targets of options: tensors of this process, a script and its globals, the run of a script as a
 * whole, ranks. */
enum { APP_ON_TENSORS = 1, APP_ON_SCRIPTS = 2, APP_ON_RUN = 4, APP_ON_RANKS = 8, APP_ON_ALL = 15 };
typedef struct app_option {
  const char *name; /* with underscores, as Accelerate spells its own */
  char letter;
  const char *value; /* NULL: takes none */
  int id;
  int acts_on; /* APP_ON_... */
  const char *help;
} app_option;
typedef struct app_given {
  const app_option *option;
  const char *value; /* NULL: takes none */
} app_given;
enum {
  APP_OWN_OPTIONS = 16,
  APP_LAUNCH_OPTIONS = 19,
  APP_OPTIONS = APP_OWN_OPTIONS + APP_LAUNCH_OPTIONS
};
enum { APP_LAUNCH_FIRST = 100 }; /* ids of the launcher's begin there */
extern const app_option app_launch_options[APP_LAUNCH_OPTIONS];
const app_option *app_option_at(int i); /* of all, the launcher's last */
/* A name as it is shown: with dashes. */
const char *app_spell(const char *name, char *buf, size_t n);

typedef struct app_command_row {
  const char *name, *shown;
  app_command command;
  /* APP_ON_...: the targets of options that it accepts. Other options end the program */
  int takes;
  const char *tool; /* APP_TOOL: the module below accel.cli */
  const char *help; /* NULL: not shown */
} app_command_row;
extern const app_command_row app_commands[];
extern const int app_n_commands;
/* Whether the word in place of the script is a command. i: its place. Reports misuse of a
 * command. */
bool app_command_take(int argc, char **argv, int i, app_options *o);
bool app_launch_set(app_options *o, const app_option *opt, const char *value);
/* Checks the options of the launcher in combination. */
bool app_launch_check(app_options *o);
/* Writes the reason (two strings for fmt). Returns false. */
/* Prints a message of one line: errors hold no control characters but newlines, and names from the
 * command line may have these. */
void app_say(ac_err *e);
bool app_usage(const char *fmt, const char *a, const char *b);
/* Whole text as a number in 0 .. max. */
bool app_parse_number(const char *text, uint64_t max, uint64_t *out);

/* ---- launch.c ---- */
/* Starts ranks and waits for them. Returns the exit code. */
int app_launch(app_options *o);
/* True when accel-run's launcher started this process as one of its ranks. It marks the environment
 * so that programs that scripts start are not taken for ranks. */
bool app_is_rank(void);
void app_rank_joined(void);
/* False for ranks other than the first, which prints common messages for all. */
bool app_is_main_process(void);

/* Serves SIGINT, SIGTERM and SIGHUP for this host, until the host is about to be closed. launcher:
 * the process that passes them on, 0 none. reports: prints a message on a signal. */
void app_signals_start(ac_host *h, pid_t launcher, bool reports);
void app_signals_stop(void);
/* The first signal that asked to stop. 0: none. */
int app_signals_seen(void);
/* The launcher ended this rank, since the job is over. */
bool app_signals_job_over(void);
/* The script begins to wait for a command, whose end the first Ctrl-C waits for, or has it waited
 * for. */
void app_signals_command(bool begins);
/* Ends the process by the default action of this signal, so that the shell sees it. */
void app_signals_die(int signal_number) __attribute__((noreturn));

/* ---- relaunch.c ---- */
/* Lets the script in h request a new start of this program. */
ac_status app_relaunch_offer(ac_host *h, ac_err *e);
/* True once after such a request: with the new command line. The environment is changed. */
bool app_relaunch(int *argc, char ***argv);

/* ---- shell.c ---- */
/* os.execute, for ac_host_register. */
ac_status app_execute(void *user, ac_ctx *c, int n_args, const ac_host_value *args, int max_results,
                      ac_host_value *results, int *n_results, ac_err *e);

/* Messages of the library on stderr. */
void app_log_start(void);

#endif
