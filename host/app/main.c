/* accel-run: opens a host, runs a script in it, turns the outcome into an exit code. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel/track.h"
#include "app/app.h"

#ifndef ACCEL_VERSION
#define ACCEL_VERSION "unknown"
#endif

static int finish(ac_host *h, int code) {
  if (h != NULL) app_signals_stop();
  ac_host_ends(h, code);
  bool check = h != NULL && ac_params_int(ac_ctx_params(ac_host_ctx(h)), "LEAK_CHECK") != 0;
  ac_host_close(h);
  if (check && ac_tensor_live() != 0) {
    fprintf(stderr, "accel-run: %lld tensors are alive after the script and its state are gone\n",
            (long long)ac_tensor_live());
    if (code == APP_OK) code = APP_SCRIPT;
  }
  /* print flushes, and reports no errors */
  if ((fflush(stdout) != 0 || ferror(stdout)) && code == APP_OK) {
    fputs("accel-run: writing to stdout failed\n", stderr);
    code = APP_SCRIPT;
  }
  return code;
}

/* os.exit in scripts ends this program, as in any other interpreter. */
static ac_status script_exit(void *user, ac_ctx *c, int n_args, const ac_host_value *args,
                             int max_results, ac_host_value *results, int *n_results, ac_err *e) {
  int code = 0;
  (void)c, (void)max_results, (void)results, (void)n_results;
  if (n_args > 0 && args[0].type == AC_HOST_BOOL) code = args[0].b ? 0 : 1;
  else if (n_args > 0 && args[0].type == AC_HOST_INT) code = (int)args[0].i;
  else if (n_args > 0 && args[0].type != AC_HOST_NIL)
    return AC_FAIL(e, INVALID, "os.exit takes a boolean or an integer");
  ac_host_leave(user, code & 0xff); /* the status that our parent will see */
  ac_track_leave(code & 0xff);
  exit(code);
}

/* True when the script failed because another rank did, or because the job is over: *why has the
 * reason. */
static bool by_others(ac_host *h, ac_status st, ac_err *why) {
  ac_world *w = ac_host_world(h);
  if (st != AC_MISMATCH && st != AC_PEER && st != AC_TIMEOUT && st != AC_INTERRUPTED) return false;
  return w != NULL && ac_world_aborted(w, why) && why->rank != ac_world_rank(w);
}

/* True when another rank failed first, with the same words at the same line, or was refused as this
 * one: it has printed the reason. */
static bool told_already(ac_host *h, const ac_err *e) {
  ac_world *w = ac_host_world(h);
  ac_err first;
  if (w == NULL || !ac_world_aborted(w, &first) || first.rank == ac_world_rank(w)) return false;
  if (ac_host_refused(h) && strstr(first.msg, ": " AC_REFUSED_TEXT) != NULL) return true;
  /* "rank 0 failed at PLACE: TEXT", which ac_world_fail may have cut */
  const char *at = strstr(first.msg, " failed"), *mine = e->msg;
  if (at == NULL) return false;
  at += strncmp(at, " failed at ", 11) == 0 ? 11 : strlen(" failed: ");
  if (*at == 0) return false;
  for (; *at != 0; at++, mine++)
    if (*at != *mine && !(*at == ' ' && *mine == '\n')) return false;
  return true;
}

/* Prints why the script failed, once for all ranks that failed alike. Returns the exit code. A rank
 * that another one stopped prints one line. Interrupted ranks leave it to the first. */
static int fail(ac_host *h, ac_status st, const char *text, const ac_err *e, bool reports) {
  ac_err why;
  const bool others = by_others(h, st, &why);
  const int signal_number = app_signals_job_over() ? 0 : app_signals_seen();
  fflush(stdout);
  /* stopped at the step that was agreed with a rank that got a signal: that rank's end counts */
  if (st == AC_INTERRUPTED && !others && app_signals_seen() == 0) return finish(h, APP_OK);
  if (signal_number != 0 && (others || st == AC_INTERRUPTED)) {
    if (reports) fprintf(stderr, "accel-run: %s\n", e->msg);
    app_signals_stop();
    ac_host_ends(h, 128 + signal_number);
    ac_host_close(h);
    app_signals_die(signal_number);
  }
  if (others || !told_already(h, e))
    fprintf(stderr, "accel-run: %s\n",
            !others                ? (text != NULL ? text : ac_host_error_text(h))
            : st == AC_INTERRUPTED ? why.msg
                                   : e->msg);
  return finish(h, APP_SCRIPT);
}

static const char repl[] = "if not require('accel').host_chunk('repl').run() then os.exit(1) end";

/* The code of commands: files of lua/. */
static const char *command_code(const app_options *o) {
  switch (o->command) {
    case APP_ENV:
      return "require('accel.core').host_chunk('env')(package.searchpath('accel', package.path))\n"
             "if ... and not require('accel.cli.config')('show', '--diff', ...) then os.exit(1) end";
    case APP_TOPICS:
      return "if not require('accel').host_chunk('help').run(...) then os.exit(1) end";
    case APP_BENCH:
      return "if not require('accel').host_chunk('bench').run(...) then os.exit(1) end";
    case APP_FRONT:
      return "if not require('accel').host_chunk('repl/front').run(...) then os.exit(1) end";
    case APP_REPL: return repl;
    default: return NULL;
  }
}

/* -e and -l in the order in which they were given, as by the interpreter lua. */
static ac_status run_words(ac_host *h, const app_options *o, ac_err *e) {
  static const char library[] = "local name, module = (...):match '^([^=]+)=(.+)$'\n"
                                "rawset(_G, name or ..., require(module or ...))";
  const char *const *args = (const char *const *)o->args;
  /* one line of code should not have to begin with the module */
  if (o->code != NULL) AC_TRY(ac_host_run_string(h, "accel = require 'accel'", "-e", 0, NULL, e));
  for (int i = 0; i < o->n_given; i++) {
    const app_given *g = &o->given[i];
    if (g->option->letter == 'l') AC_TRY(ac_host_run_string(h, library, "-l", 1, &g->value, e));
    if (g->option->letter == 'e') AC_TRY(ac_host_run_string(h, g->value, "-e", o->n_args, args, e));
  }
  return AC_OK;
}

static ac_status run_script(ac_host *h, const app_options *o, ac_err *e) {
  AC_TRY(run_words(h, o, e));
  if (o->script != NULL)
    AC_TRY(ac_host_run_file(h, o->script, o->n_args, (const char *const *)o->args, e));
  return o->interactive ? ac_host_run_string(h, repl, "accel-run", 0, NULL, e) : AC_OK;
}

/* Events recorded before a failure of the script are written as well. The script's own failure
 * counts. */
static ac_status run_profiled(ac_host *h, const app_options *o, char **text, ac_err *e) {
  static const char begin[] = "require('accel.profiler.whole').begin()",
                    end[] = "if not require('accel.profiler.whole').finish() then os.exit(1) end";
  ac_err ignored;
  AC_TRY(ac_host_run_string(h, begin, "accel-run", 0, NULL, e));
  const ac_status st = run_script(h, o, e);
  if (st == AC_OK) return ac_host_run_string(h, end, "accel-run", 0, NULL, e);
  *text = strdup(ac_host_error_text(h));
  (void)ac_host_run_string(h, end, "accel-run", 0, NULL, &ignored);
  return st;
}

/* --resume of a script that never asked for a checkpoint. */
static ac_status warn_unused(ac_host *h, const app_options *o, bool reports, ac_err *e) {
  static const char code[] =
      "local r = package.loaded['accel.accelerator.resume']\n"
      "local why = not r and 'the script made no accel.Accelerator' or r and r.unused()\n"
      "if why then io.stderr:write('accel-run: warning: --resume had no effect: ', why, '\\n') end";
  if (o->command != APP_RUN || o->resume == NULL || !reports) return AC_OK;
  return ac_host_run_string(h, code, "accel-run", 0, NULL, e);
}

/* *text: the text of a failure that the host no longer keeps. malloc'ed. */
static ac_status run(ac_host *h, const app_options *o, char **text, ac_err *e) {
  const char *code = command_code(o);
  char tool[96];
  if (o->command == APP_TOOL) {
    snprintf(tool, sizeof tool, "if not require('accel.cli.%s')(...) then os.exit(1) end", o->tool);
    code = tool;
  }
  if (o->command == APP_REPL) AC_TRY(run_words(h, o, e));
  if (code != NULL)
    return ac_host_run_string(h, code, "accel-run", o->n_args, (const char *const *)o->args, e);
  return ac_params_str(ac_ctx_params(ac_host_ctx(h)), "PROFILE")[0] != 0
             ? run_profiled(h, o, text, e)
             : run_script(h, o, e);
}

/* The script does not exist. For the name of an Accelerate command it suggests a replacement. The
 * table of these is Lua's. */
static int no_script(const app_options *o, int error) {
  static const char code[] =
      "if require('accel').host_chunk('help').instead_of_command(...) then os.exit(3) end";
  char buf[200];
  const char *near = app_command_near(o->script, buf, sizeof buf);
  ac_host *h = NULL;
  ac_err e;
  int told = 0;
  if (near == NULL && strpbrk(o->script, "./") == NULL && ac_host_open(&o->host, &h, &e) == AC_OK) {
    if (ac_host_run_string(h, code, "accel-run", 1, &o->script, &e) == AC_OK)
      ac_host_exit_code(h, &told);
    ac_host_close(h);
  }
  if (told == 0) {
    (void)AC_FAIL(&e, IO, "cannot read '%s': %s%s%s%s", o->script, strerror(error),
                  near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                  near != NULL ? "?" : "");
    app_say(&e);
  }
  return APP_USAGE;
}

/* A trace that could not be written at the end is refused before the script runs; ranks leave this
 * to their launcher. */
static bool trace_is_writable(const app_options *o) {
  const char *path = o->profile != NULL ? o->profile : getenv("ACCEL_PROFILE");
  char folder[4096] = ".";
  struct stat sb;
  ac_err e;
  if (path == NULL || path[0] == 0 || o->command != APP_RUN || app_is_rank()) return true;
  errno = 0;
  if (stat(path, &sb) == 0) {
    if (S_ISDIR(sb.st_mode)) errno = EISDIR;
    else (void)access(path, W_OK);
  } else if (errno == ENOENT) {
    const char *slash = strrchr(path, '/');
    if (slash != NULL)
      snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    errno = 0;
    (void)access(folder, W_OK | X_OK);
  }
  if (errno == 0) return true;
  (void)AC_FAIL(&e, IO, "--profile: cannot write '%s': %s", path, strerror(errno));
  app_say(&e);
  return false;
}

/* Options for ranks, of a process that is alone: neither we nor another launcher started ranks. */
static void warn_alone(const app_options *o, ac_host *h) {
  ac_world *w = ac_host_world(h);
  if (w != NULL && ac_world_size(w) > 1) return;
  for (int i = 0; i < o->n_given; i++) {
    char name[40];
    if (o->given[i].option->acts_on == APP_ON_RANKS)
      fprintf(
          stderr,
          "accel-run: warning: --%s has no effect: this process is the only rank; add --num-processes\n",
          app_spell(o->given[i].option->name, name, sizeof name));
  }
}

static int run_line(int argc, char **argv) {
  static app_options o; /* its pointers live as long as the process */
  if (!app_options_parse(argc, argv, &o)) return APP_USAGE;
  if (o.command == APP_HELP) {
    app_help(o.asked);
    return finish(NULL, APP_OK);
  }
  if (o.command == APP_VERSION) {
    puts("accel-run " ACCEL_VERSION);
    return finish(NULL, APP_OK);
  }
  if (o.script != NULL && strcmp(o.script, "-") != 0 && access(o.script, R_OK) != 0)
    return no_script(&o, errno);
  if (!trace_is_writable(&o)) return APP_USAGE;
  ac_host *h;
  ac_err e;
  app_log_start();
  signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of the write, not a death */
  if (o.backend != NULL) setenv("ACCEL_BACKEND", o.backend, 1);
  if (o.timeout != NULL) setenv("ACCEL_TIMEOUT", o.timeout, 1);
  if (o.resume != NULL) setenv("ACCEL_RESUME", o.resume, 1);
  if (o.profile != NULL) setenv("ACCEL_PROFILE", o.profile, 1);
  if (o.launches) return finish(NULL, app_launch(&o));
  const bool reports = app_is_main_process();
  const pid_t launcher = app_is_rank() ? getppid() : 0;
  if (launcher != 0) setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* the launcher shows whole lines */
  o.host.join = o.command == APP_RUN || o.command == APP_REPL;
  o.host.script = o.script != NULL && strcmp(o.script, "-") != 0 ? o.script : NULL;
  if (ac_host_open(&o.host, &h, &e) != AC_OK ||
      ac_host_register(h, "os.exit", script_exit, h, &e) != AC_OK ||
      ac_host_register(h, "os.execute", app_execute, NULL, &e) != AC_OK ||
      (o.command == APP_TOOL && strcmp(o.tool, "launch") == 0 &&
       app_relaunch_offer(h, &e) != AC_OK)) {
    fprintf(stderr, "accel-run: %s\n", e.msg);
    return e.code == AC_INVALID ? APP_USAGE : APP_SCRIPT;
  }
  app_rank_joined();
  warn_alone(&o, h);
  app_signals_start(h, launcher, reports);
  if (o.command == APP_RUN && ac_params_int(ac_ctx_params(ac_host_ctx(h)), "ATTACH") != 0 &&
      ac_host_listen(h, o.script != NULL ? o.script : "-e", &e) != AC_OK)
    ac_log_write(AC_LOG_INFO, "attach", "%s", e.msg); /* it runs all the same */
  static const char wait[] = "require('accel.core').host_chunk('repl/attached').entry()";
  const bool waits =
      o.command == APP_RUN && ac_params_int(ac_ctx_params(ac_host_ctx(h)), "ATTACH_WAIT") != 0;
  char *text = NULL;
  ac_status st = waits ? ac_host_run_string(h, wait, "accel-run", 0, NULL, &e) : AC_OK;
  if (st == AC_OK) st = run(h, &o, &text, &e);
  if (st == AC_OK) st = warn_unused(h, &o, reports, &e);
  const int code = st == AC_OK ? finish(h, APP_OK) : fail(h, st, text, &e, reports);
  free(text);
  return code;
}

int main(int argc, char **argv) {
  int code;
  do {
    code = run_line(argc, argv);
  } while (code == APP_OK && app_relaunch(&argc, &argv));
  return code;
}
