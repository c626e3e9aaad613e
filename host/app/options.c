/* The command line: accel-run [options] script [args], or a command in place of the script. One
 * table holds every option. Dashes and underscores in names are the same. Words after the script
 * belong to the script. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "app/app.h"

enum {
  OPT_HELP,
  OPT_VERSION,
  OPT_CONFIG,
  OPT_CODE,
  OPT_LIBRARY,
  OPT_INTERACTIVE,
  OPT_THREADS,
  OPT_SEED,
  OPT_MEMORY,
  OPT_DEVICE,
  OPT_CPU,
  OPT_RESUME,
  OPT_PROFILE,
  OPT_PDB,
  OPT_DRY_RUN,
  OPT_NO_STRICT
};

static const app_option own[APP_OWN_OPTIONS] = {
    {"execute", 'e', "CODE", OPT_CODE, APP_ON_ALL,
     "run CODE instead of a script; accel is a global there; may be given several times"},
    {"library", 'l', "[NAME=]MODULE", OPT_LIBRARY, APP_ON_SCRIPTS,
     "require MODULE before the script and keep it in the global NAME [MODULE]"},
    {"interactive", 'i', NULL, OPT_INTERACTIVE, APP_ON_RUN,
     "open a prompt once the script or CODE has ended"},
    {"device", 0, "NAME", OPT_DEVICE, APP_ON_TENSORS,
     "place new tensors on cpu, cuda, cuda:1, ... [auto: a GPU if there is one, one per rank]"},
    {"cpu", 0, NULL, OPT_CPU, APP_ON_TENSORS, "same as --device cpu"},
    {"num_threads", 0, "N", OPT_THREADS, APP_ON_TENSORS,
     "number of threads [every core, or ACCEL_NUM_THREADS]"},
    {"memory_limit", 0, "SIZE", OPT_MEMORY, APP_ON_TENSORS,
     "limit the memory of tensors, for example 8G [90% of the machine, divided by its ranks]"},
    {"seed", 0, "N", OPT_SEED, APP_ON_SCRIPTS,
     "seed the default random numbers [0, or ACCEL_SEED]"},
    {"resume", 0, "auto|DIR", OPT_RESUME, APP_ON_SCRIPTS,
     "continue from the newest checkpoint in the project_dir of the script's Accelerator, or from DIR"},
    {"profile", 0, "FILE", OPT_PROFILE, APP_ON_RUN,
     "trace the script, with all ranks in one FILE for ui.perfetto.dev, and print the most expensive ops"},
    {"dry_run", 0, NULL, OPT_DRY_RUN, APP_ON_ALL,
     "estimate memory per rank, traffic, flops and time of a step without computing it; see --dry-run --help"},
    {"config_file", 0, "FILE", OPT_CONFIG, APP_ON_ALL,
     "launch with this configuration (YAML, JSON or Lua); flags of launch may follow"},
    {"pdb", 0, NULL, OPT_PDB, APP_ON_RUN,
     "open a prompt when an error would end the script, with the locals of the failed function"},
    {"no_strict", 0, NULL, OPT_NO_STRICT, APP_ON_SCRIPTS,
     "allow scripts to read globals that were never assigned"},
    {"help", 'h', NULL, OPT_HELP, APP_ON_ALL, "show this text"},
    {"version", 'v', NULL, OPT_VERSION, APP_ON_ALL, "show the version"},
};

const app_option *app_option_at(int i) {
  return i < APP_OWN_OPTIONS ? &own[i] : &app_launch_options[i - APP_OWN_OPTIONS];
}

void app_say(ac_err *e) {
  for (char *p = e->msg; *p != 0; p++)
    if (*p == '\n') *p = ' ';
  fprintf(stderr, "accel-run: %s\n", e->msg);
}

bool app_usage(const char *fmt, const char *a, const char *b) {
  ac_err e;
  /* which makes control characters visible */
  ac_err_set(&e, AC_INVALID, __FILE__, __LINE__, fmt, a, b);
  app_say(&e);
  fputs("Try 'accel-run --help'.\n", stderr);
  return false;
}

bool app_parse_number(const char *text, uint64_t max, uint64_t *out) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || v > max) return false;
  *out = v;
  return true;
}

/* The option of this name (n bytes), NULL: none. */
static const app_option *find(const char *name, size_t n) {
  for (int i = 0; i < APP_OPTIONS; i++) {
    const app_option *o = app_option_at(i);
    size_t k = 0;
    while (k < n && o->name[k] != 0 &&
           (o->name[k] == name[k] || (o->name[k] == '_' && name[k] == '-')))
      k++;
    if (k == n && o->name[k] == 0) return o;
  }
  return NULL;
}

/* Names that other launchers have for ours. */
static const char *const foreign[][2] = {{"np", "num_processes"},
                                         {"ntasks", "num_processes"},
                                         {"nnodes", "num_machines"},
                                         {"nodes", "num_machines"},
                                         {"node_rank", "machine_rank"},
                                         {"master_addr", "main_process_ip"},
                                         {"master_port", "main_process_port"}};

static bool unknown(const char *arg, size_t n) {
  const char *names[APP_OPTIONS];
  char word[64], text[160], spelt[64];
  for (int i = 0; i < APP_OPTIONS; i++) names[i] = app_option_at(i)->name;
  snprintf(word, sizeof word, "%.*s", (int)n, arg + 2);
  for (char *p = word; *p != 0; p++)
    if (*p == '-') *p = '_';
  const char *near = NULL;
  for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
    if (strcmp(word, foreign[i][0]) == 0) near = foreign[i][1];
  if (near == NULL) near = ac_nearest(word, names, APP_OPTIONS);
  snprintf(text, sizeof text, "%.*s", (int)n + 2, arg);
  if (near == NULL) return app_usage("unknown option '%s'%s", text, "");
  return app_usage("unknown option '%s'; did you mean '--%s'?", text,
                   app_spell(near, spelt, sizeof spelt));
}

static bool set(app_options *o, const app_option *opt, const char *value) {
  uint64_t v = 0;
  int64_t size = 0;
  if (opt->id >= APP_LAUNCH_FIRST) return app_launch_set(o, opt, value);
  switch (opt->id) {
    case OPT_HELP: o->command = APP_HELP; return true;
    case OPT_VERSION: o->command = APP_VERSION; return true;
    case OPT_CONFIG:
    case OPT_DRY_RUN: return true; /* names come first */
    case OPT_CODE: o->code = value; return true;
    case OPT_LIBRARY:
      if (value[0] == 0 || value[0] == '=' || value[strlen(value) - 1] == '=')
        return app_usage("--library: '%s' names no module%s", value, "");
      return true;
    case OPT_INTERACTIVE: o->interactive = true; return true;
    case OPT_PDB: return setenv("ACCEL_PDB", "1", 1) == 0; /* ranks learn it from the environment */
    case OPT_NO_STRICT: o->host.strict = false; return true;
    case OPT_DEVICE: o->host.device = value; return true;
    case OPT_CPU: o->host.device = "cpu"; return true;
    case OPT_RESUME:
      if (value[0] == 0) return app_usage("--resume: the name of the folder is empty%s%s", "", "");
      o->resume = value;
      return true;
    case OPT_PROFILE:
      if (value[0] == 0) return app_usage("--profile: the name of the file is empty%s%s", "", "");
      o->profile = value;
      return true;
    case OPT_THREADS:
      if (!app_parse_number(value, 1024, &v))
        return app_usage("--num-threads: '%s' is not a number in 0..1024%s", value, "");
      o->host.n_threads = o->launch.num_threads = (int)v;
      return true;
    case OPT_SEED:
      if (!app_parse_number(value, INT64_MAX, &v))
        return app_usage("--seed: '%s' is not an integer%s", value, "");
      o->host.seed = v;
      return true;
    default:
      if (!ac_size_parse(value, &size))
        return app_usage("--memory-limit: '%s' is not a size such as 512M or 8G%s", value, "");
      o->host.memory_limit = (size_t)size;
      return true;
  }
}

/* Those that may be given several times, and act in their order. */
static bool repeats(const app_option *opt) { return opt->id == OPT_CODE || opt->id == OPT_LIBRARY; }

/* Options that set the same thing have one id here. Only the last one given counts, and a message
 * names the ignored ones. */
static int slot_of(const app_option *opt) { return opt->id == OPT_CPU ? OPT_DEVICE : opt->id; }

static bool note(app_options *o, const app_option *opt, const char *value) {
  char name[64];
  const char *now = opt->id == OPT_CPU ? "cpu" : value;
  for (int i = 0; i < o->n_given && !repeats(opt); i++) {
    app_given *g = &o->given[i];
    if (slot_of(g->option) != slot_of(opt)) continue;
    /* ranks have the launcher's words, and it has printed the message */
    if (now != NULL && strcmp(now, g->value) != 0 && !app_is_rank())
      fprintf(
          stderr,
          "accel-run: warning: --%s is given twice, as '%s' and as '%s'; the last one counts, leave one out\n",
          app_spell(opt->id == OPT_CPU ? "device" : opt->name, name, sizeof name), g->value, now);
    *g = (app_given){opt, now};
    return true;
  }
  o->given[o->n_given++] = (app_given){opt, now};
  return true;
}

/* One option, from argv[*i] on. *i is left at its last word. */
static bool take(int argc, char **argv, int *i, app_options *o, const app_option **found) {
  const char *a = argv[*i], *value = NULL;
  const app_option *opt = NULL;
  char name[64];
  if (a[1] == '-') {
    size_t n = strcspn(a + 2, "=");
    opt = find(a + 2, n);
    if (opt == NULL) return unknown(a, n);
    if (a[2 + n] == '=') value = a + 3 + n;
    if (value != NULL && opt->value == NULL)
      return app_usage("option '--%s' takes no value%s", app_spell(opt->name, name, sizeof name),
                       "");
  } else {
    for (int k = 0; k < APP_OPTIONS; k++)
      if (app_option_at(k)->letter == a[1]) opt = app_option_at(k);
    if (opt == NULL && find(a + 1, strcspn(a + 1, "=")) != NULL)
      return app_usage("unknown option '%s'; did you mean '-%s'?", a, a);
    if (opt == NULL) return app_usage("unknown option '%s'%s", a, "");
    if (a[2] != 0 && opt->value == NULL)
      return app_usage("option '%s': give one letter at a time%s", a, "");
    if (a[2] != 0) value = a + 2;
  }
  if (opt->value != NULL && value == NULL) {
    if (++*i == argc)
      return app_usage("option '--%s' needs a value: %s", app_spell(opt->name, name, sizeof name),
                       opt->value);
    value = argv[*i];
  }
  *found = opt;
  return note(o, opt, value) && set(o, opt, value);
}

static bool is_part_of_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool has_word(const char *line, const char *word) {
  const size_t n = strlen(word);
  for (const char *p = line; (p = strstr(p, word)) != NULL; p += n)
    if ((p == line || !is_part_of_name(p[-1])) && !is_part_of_name(p[n])) return true;
  return false;
}

/* Whether a script reads its arguments: as `arg` or `...`, or by accel.util.cli. True if this is
 * unknown: a pipe is read once only. */
static bool reads_arguments(const char *script) {
  struct stat sb;
  FILE *f = stat(script, &sb) == 0 && S_ISREG(sb.st_mode) ? fopen(script, "rb") : NULL;
  char line[4096];
  bool reads = f == NULL;
  while (!reads && fgets(line, sizeof line, f) != NULL)
    reads = strstr(line, "...") != NULL || has_word(line, "arg") || has_word(line, "cli");
  if (f != NULL) fclose(f);
  return reads;
}

/* Options of accel-run after a script that reads no arguments would do nothing. */
static void warn_after_script(const app_options *o) {
  char name[64];
  for (int i = 0; i < o->n_args; i++) {
    const char *a = o->args[i];
    const app_option *opt = strncmp(a, "--", 2) == 0 ? find(a + 2, strcspn(a + 2, "=")) : NULL;
    if (opt == NULL || app_is_rank() || reads_arguments(o->script)) continue;
    fprintf(
        stderr,
        "accel-run: warning: --%s has no effect after the script, which reads no arguments; options of accel-run go before the script\n",
        app_spell(opt->name, name, sizeof name));
  }
}

/* The tool that reads all options itself, as it has more than ours: a launch by a configuration, or
 * a dry run. NULL: none is asked for. */
static const char *names_tool(int argc, char **argv) {
  const char *tool = NULL;
  for (int i = 1; i < argc && argv[i][0] == '-' && strcmp(argv[i], "--") != 0; i++) {
    size_t n = strcspn(argv[i], "=");
    const app_option *o = n > 2 && argv[i][1] == '-' ? find(argv[i] + 2, n - 2) : NULL;
    if (o != NULL && o->id == OPT_DRY_RUN) return "dry_run";
    if (o != NULL && o->id == OPT_CONFIG) tool = "launch";
    if (o != NULL && o->value != NULL && argv[i][n] == 0) i++;
  }
  return tool;
}

bool app_options_parse(int argc, char **argv, app_options *o) {
  static const ac_host_options standard = AC_HOST_OPTIONS_INIT;
  static const ac_launch_options launch = AC_LAUNCH_OPTIONS_INIT;
  *o = (app_options){.command = APP_RUN, .host = standard, .launch = launch};
  o->host.device = "auto";
  o->rank_argv = calloc((size_t)argc + 1, sizeof *o->rank_argv);
  o->given = calloc((size_t)argc + 1, sizeof *o->given);
  if (o->rank_argv == NULL || o->given == NULL) return app_usage("no memory%s%s", "", "");
  int i = 1, n = 0;
  if ((o->tool = names_tool(argc, argv)) != NULL) {
    o->command = APP_TOOL;
    o->n_args = argc - 1;
    o->args = argv + 1;
    return true;
  }
  o->rank_argv[n++] = argv[0];
  for (; i < argc; i++) {
    /* rank_argv keeps the words of options that ranks need as well. The launcher's options are
     * dropped */
    const int begin = i;
    const app_option *opt = NULL;
    if (argv[i][0] != '-' || argv[i][1] == 0) break;
    if (strcmp(argv[i], "--") == 0) {
      o->rank_argv[n++] = argv[i++];
      break;
    }
    if (!take(argc, argv, &i, o, &opt)) return false;
    if (o->command == APP_HELP || o->command == APP_VERSION) return true;
    for (int k = begin; k <= i && opt->id < APP_LAUNCH_FIRST; k++) o->rank_argv[n++] = argv[k];
  }
  for (int k = i; k < argc; k++) o->rank_argv[n++] = argv[k];
  o->launch.argv = o->rank_argv;
  if (o->code == NULL && i == argc && o->interactive) {
    o->command = APP_REPL;
    return app_launch_check(o);
  }
  if (o->code == NULL) {
    if (i == argc) return app_usage("no script given%s%s", "", "");
    if (!app_command_take(argc, argv, i, o)) return false;
    if (o->command == APP_REPL && o->launches) {
      static char front[] = APP_FRONT_WORD;
      o->front_argv = calloc((size_t)n + 1, sizeof *o->front_argv);
      if (o->front_argv == NULL) return app_usage("no memory%s%s", "", "");
      memcpy(o->front_argv, o->rank_argv, (size_t)n * sizeof *o->front_argv);
      o->front_argv[n - 1] = front;
      o->launch.front_argv = o->front_argv;
    }
    if (o->command != APP_RUN) return true;
    o->script = argv[i++];
  }
  o->n_args = argc - i;
  o->args = argv + i;
  if (o->script != NULL) warn_after_script(o);
  if (o->interactive && o->launches)
    return app_usage("--interactive is for one rank; a prompt of several is accel-run "
                     "--num-processes N repl, or accel.repl() in the script%s%s",
                     "", "");
  return app_launch_check(o);
}
