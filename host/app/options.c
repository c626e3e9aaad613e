/* The command line: accel-run [options] script [args], or a command in place of the script. One table holds every option; dashes
 * and underscores in names are the same. What follows the script is the script's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"

enum {
  OPT_HELP,
  OPT_VERSION,
  OPT_CONFIG,
  OPT_CODE,
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

static const app_option options[] = {
    {"execute", 'e', "CODE", OPT_CODE, "run CODE instead of a script; accel is a global there"},
    {"device", 0, "NAME", OPT_DEVICE,
     "where new tensors go: cpu, cuda, cuda:1, ... [auto: a GPU where there is one, each rank its own]"},
    {"cpu", 0, NULL, OPT_CPU, "the same as --device cpu"},
    {"num_threads", 0, "N", OPT_THREADS, "threads of the kernels [every core, or ACCEL_NUM_THREADS]"},
    {"memory_limit", 0, "SIZE", OPT_MEMORY,
     "most memory for tensors, e.g. 8G [90% of the machine, divided by its ranks]"},
    {"seed", 0, "N", OPT_SEED, "seed of the default random numbers [0, or ACCEL_SEED]"},
    {"resume", 0, "auto|DIR", OPT_RESUME,
     "go on from the newest checkpoint in the project_dir of the script's Accelerator, or from DIR"},
    {"profile", 0, "FILE", OPT_PROFILE,
     "trace the script, all ranks in one FILE for ui.perfetto.dev, and sum up its ops"},
    {"dry_run", 0, NULL, OPT_DRY_RUN,
     "tell memory per rank, traffic, flops and time of a step without running it; --help behind it tells more"},
    {"config_file", 0, "FILE", OPT_CONFIG,
     "launch as this configuration says (YAML, JSON or Lua); flags of launch may follow"},
    {"pdb", 0, NULL, OPT_PDB, "stop where an error would end the script, with a prompt that sees its locals"},
    {"no_strict", 0, NULL, OPT_NO_STRICT, "let scripts read globals that were never assigned"},
    {"help", 'h', NULL, OPT_HELP, "show this text"},
    {"version", 0, NULL, OPT_VERSION, "show the version"},
};
enum { N_OWN = sizeof options / sizeof options[0], N_OPTIONS = N_OWN + APP_LAUNCH_OPTIONS };

static const app_option *option_at(int i) { return i < N_OWN ? &options[i] : &app_launch_options[i - N_OWN]; }

static const struct {
  const char *name, *shown;
  app_command command;
  const char *help; /* NULL: not shown */
  const char *tool; /* APP_TOOL: the module below accel.cli */
} commands[] = {
    {"repl", "repl", APP_REPL, "a prompt for Lua, on one process or on every rank; :help tells more there", NULL},
    {"help", "help [TOPIC]", APP_TOPICS, "the reference and the guides: an op, a module, a class, an option, a word", NULL},
    {"ps", "ps", APP_TOOL, "your jobs on this machine", "ps"},
    {"top", "top [JOB]", APP_TOOL, "a live table of a job's ranks: step, time, loss, memory, what each waits for", "top"},
    {"stacks", "stacks [JOB]", APP_TOOL, "the script lines at which a job's ranks are, also those that hang", "stacks"},
    {"attach", "attach [JOB]", APP_TOOL, "a prompt in a job that runs; breakpoints, watches, locals", "attach"},
    {"dap", "dap", APP_TOOL, "a debug adapter for editors, over standard input and output", "dap"},
    {"ckpt", "ckpt ACTION ...", APP_TOOL, "checkpoints: ls, show, verify, diff, prune", "ckpt"},
    {"runs", "runs ACTION ...", APP_TOOL, "what runs logged: ls, show, diff, plot, tail, rm, export", "runs"},
    {"ui", "ui [DIR]", APP_TOOL, "the same as a page on this machine, with live curves", "ui"},
    {"merge-weights", "merge-weights DIR OUT", APP_TOOL, "a sharded checkpoint's weights as whole safetensors files",
     "merge_weights"},
    {"estimate-memory", "estimate-memory DIR", APP_TOOL, "what a model takes to load and to train, from its config.json",
     "estimate_memory"},
    {"plan", "plan DIR", APP_TOOL, "how to share a model out over N ranks of so much memory, with a configuration", "plan"},
    {"preprocess", "preprocess --input FILE ...", APP_TOOL, "texts as token ids in the indexed format of Megatron-LM", "preprocess"},
    {"generate", "generate DIR [PROMPT]", APP_TOOL, "text from a model's folder: streaming, sampling, beams, chats", "generate"},
    {"gguf", "gguf ACTION ...", APP_TOOL, "files of llama.cpp: show, export, import", "gguf"},
    {"quantize", "quantize DIR OUT", APP_TOOL, "a model folder with its linear layers in 4 or 8 bits, for accel and bitsandbytes",
     "quantize"},
    {"bench", "bench [NAME...]", APP_BENCH, "speed beside PyTorch and others, measured here; see bench --help", NULL},
    {"config", "config [ACTION]", APP_TOOL, "configurations: ask, default, update, show, validate", "config"},
    {"launch", "launch [FLAGS] SCRIPT", APP_TOOL, "a launch in Accelerate's words, by flags and configurations", "launch"},
    {"to-fsdp2", "to-fsdp2", APP_TOOL, NULL, "to_fsdp2"},
    {"tpu-config", "tpu-config", APP_TOOL, NULL, "tpu_config"},
    {"test", "test", APP_TOOL, "a sanity check on several ranks: collectives, loaders, precision, training", "test"},
    {"doctor", "doctor", APP_TOOL, "what of this machine may stand in the way: limits, memory, clocks, driver", "doctor"},
    {"completion", "completion SHELL", APP_TOOL, NULL, "completion"},
    {"env", "env", APP_ENV, "versions, devices, optional parts, and every ACCEL_* parameter", NULL},
    {APP_FRONT_WORD, APP_FRONT_WORD, APP_FRONT, NULL, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

const char *app_command_near(const char *word) {
  const char *names[N_COMMANDS];
  int n = 0;
  for (int i = 0; i < N_COMMANDS; i++)
    if (commands[i].help != NULL) names[n++] = commands[i].name;
  return ac_nearest(word, names, n);
}

/* A name as it is shown: with dashes. */
static const char *spell(const char *name, char *buf, size_t n) {
  snprintf(buf, n, "%s", name);
  for (char *p = buf; *p != 0; p++)
    if (*p == '_') *p = '-';
  return buf;
}

enum { HELP_COLUMN = 27, HELP_WIDTH = 79 };

/* One row of two columns, in lines that a terminal of 80 columns shows whole. */
static void help_row(const char *left, const char *text) {
  int at = printf("  %s", left);
  if (at >= HELP_COLUMN) puts("");
  if (at >= HELP_COLUMN) at = 0;
  at += printf("%*s", HELP_COLUMN - at, "");
  while (*text != 0) {
    const int n = (int)strcspn(text, " ");
    if (at > HELP_COLUMN && at + 1 + n > HELP_WIDTH) at = printf("\n%*s", HELP_COLUMN, "") - 1;
    else if (at > HELP_COLUMN) at += printf(" ");
    at += printf("%.*s", n, text);
    text += n;
    text += strspn(text, " ");
  }
  puts("");
}

static void help_rows(int first, int end) {
  for (int i = first; i < end; i++) {
    char left[64], name[40], letter[8] = "    ";
    const app_option *o = option_at(i);
    if (o->letter != 0) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left, sizeof left, "%s--%s%s%s", letter, spell(o->name, name, sizeof name), o->value ? " " : "",
             o->value ? o->value : "");
    help_row(left, o->help);
  }
}

void app_help(void) {
  puts("usage: accel-run [options] SCRIPT [ARGS...]\n"
       "       accel-run [options] repl\n"
       "       accel-run help [TOPIC]\n"
       "       accel-run COMMAND [ARGS...]\n"
       "\n"
       "Runs a Lua script with accel: tensors, gradients and training in one program.\n"
       "\n"
       "SCRIPT is a file, or - for standard input. ARGS are its own (the global arg).\n"
       "\n"
       "commands:");
  for (int i = 0; i < N_COMMANDS; i++)
    if (commands[i].help != NULL) help_row(commands[i].shown, commands[i].help);
  puts("\noptions:");
  help_rows(0, N_OWN);
  puts("\nthe same script on several ranks:");
  help_rows(N_OWN, N_OPTIONS);
  puts("\n"
       "Under torchrun, mpirun or srun ranks are found in the environment, without any\n"
       "option.\n"
       "\n"
       "environment: ACCEL_* variables, listed by accel-run env. LUA_PATH and LUA_CPATH\n"
       "find modules. Ranks have torchrun's: RANK, LOCAL_RANK, WORLD_SIZE, ...\n"
       "\n"
       "examples:\n"
       "  accel-run examples/train_gpt.lua --steps 500 book.txt\n"
       "  accel-run --num-processes 4 train.lua\n"
       "  accel-run --num-processes 4 repl\n"
       "  accel-run -e 'print(accel.randn(2, 3))'\n"
       "\n"
       "exit codes: 0 the script ended, 1 it raised an error, 2 wrong usage, 128+N ended\n"
       "by signal N; of several ranks the code of the first that failed; 75 stopped by\n"
       "SIGTERM or SIGUSR1 with its state saved, to be started again with --resume auto.\n"
       "Ctrl-C stops at the next training step; a second one, or one before the first\n"
       "step, at once. SIGTERM and SIGHUP do the same. Where no step comes, the script\n"
       "is stopped after a second.");
}

bool app_usage(const char *fmt, const char *a, const char *b) {
  fputs("accel-run: ", stderr);
  fprintf(stderr, fmt, a, b);
  fputs("\nTry 'accel-run --help'.\n", stderr);
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

static bool parse_size(const char *text, uint64_t *out) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || errno != 0) return false;
  int shift = 0;
  switch (*end) {
    case 'K':
    case 'k': shift = 10; break;
    case 'M':
    case 'm': shift = 20; break;
    case 'G':
    case 'g': shift = 30; break;
    case 'T':
    case 't': shift = 40; break;
    default: break;
  }
  if (shift != 0) end++;
  if (*end != 0 || v > (UINT64_MAX >> 1) >> shift) return false;
  *out = (uint64_t)v << shift;
  return true;
}

/* The option of this name (n bytes), NULL: none. */
static const app_option *find(const char *name, size_t n) {
  for (int i = 0; i < N_OPTIONS; i++) {
    const app_option *o = option_at(i);
    size_t k = 0;
    while (k < n && o->name[k] != 0 && (o->name[k] == name[k] || (o->name[k] == '_' && name[k] == '-'))) k++;
    if (k == n && o->name[k] == 0) return o;
  }
  return NULL;
}

/* Names that other launchers have for ours. */
static const char *const foreign[][2] = {{"nproc_per_node", "num_processes"}, {"np", "num_processes"},
                                         {"ntasks", "num_processes"},         {"nnodes", "num_machines"},
                                         {"nodes", "num_machines"},           {"node_rank", "machine_rank"},
                                         {"master_addr", "main_process_ip"},  {"master_port", "main_process_port"}};

static bool unknown(const char *arg, size_t n) {
  const char *names[N_OPTIONS];
  char word[64], text[160], spelt[64];
  for (int i = 0; i < N_OPTIONS; i++) names[i] = option_at(i)->name;
  snprintf(word, sizeof word, "%.*s", (int)n, arg + 2);
  for (char *p = word; *p != 0; p++)
    if (*p == '-') *p = '_';
  const char *near = NULL;
  for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
    if (strcmp(word, foreign[i][0]) == 0) near = foreign[i][1];
  if (near == NULL) near = ac_nearest(word, names, N_OPTIONS);
  snprintf(text, sizeof text, "%.*s", (int)n + 2, arg);
  if (near == NULL) return app_usage("unknown option '%s'%s", text, "");
  return app_usage("unknown option '%s'; did you mean '--%s'?", text, spell(near, spelt, sizeof spelt));
}

static bool set(app_options *o, const app_option *opt, const char *value) {
  uint64_t v = 0;
  if (opt->id >= APP_LAUNCH_FIRST) return app_launch_set(o, opt, value);
  switch (opt->id) {
    case OPT_HELP: o->command = APP_HELP; return true;
    case OPT_VERSION: o->command = APP_VERSION; return true;
    case OPT_CONFIG:
    case OPT_DRY_RUN: return true; /* names come first */
    case OPT_CODE: o->code = value; return true;
    case OPT_PDB: return setenv("ACCEL_PDB", "1", 1) == 0; /* ranks are told by the environment */
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
        return app_usage("--num-threads: '%s' is no number in 0..1024%s", value, "");
      o->host.n_threads = o->launch.num_threads = (int)v;
      return true;
    case OPT_SEED:
      if (!app_parse_number(value, INT64_MAX, &v)) return app_usage("--seed: '%s' is no whole number%s", value, "");
      o->host.seed = v;
      return true;
    default:
      if (!parse_size(value, &v))
        return app_usage("--memory-limit: '%s' is no size such as 512M or 8G%s", value, "");
      o->host.memory_limit = (size_t)v;
      return true;
  }
}

/* One option, from argv[*i] on; *i is left at its last word. */
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
      return app_usage("option '--%s' takes no value%s", spell(opt->name, name, sizeof name), "");
  } else {
    for (int k = 0; k < N_OPTIONS; k++)
      if (option_at(k)->letter == a[1]) opt = option_at(k);
    if (opt == NULL && find(a + 1, strcspn(a + 1, "=")) != NULL)
      return app_usage("unknown option '%s'; did you mean '-%s'?", a, a);
    if (opt == NULL) return app_usage("unknown option '%s'%s", a, "");
    if (a[2] != 0 && opt->value == NULL) return app_usage("option '%s': give one letter at a time%s", a, "");
    if (a[2] != 0) value = a + 2;
  }
  if (opt->value != NULL && value == NULL) {
    if (++*i == argc)
      return app_usage("option '--%s' needs a value: %s", spell(opt->name, name, sizeof name), opt->value);
    value = argv[*i];
  }
  *found = opt;
  return set(o, opt, value);
}

/* The tool that reads all options itself, as it has more than ours: a launch by a configuration, or a dry run. NULL: none is asked for. */
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

/* The word in place of the script: a command? i: its place. Misuse of one is told. */
static bool take_command(int argc, char **argv, int i, app_options *o) {
  for (int k = 0; k < N_COMMANDS; k++) {
    if (strcmp(argv[i], commands[k].name) != 0) continue;
    o->command = commands[k].command;
    o->tool = commands[k].tool;
    o->n_args = argc - i - 1;
    o->args = argv + i + 1;
    /* tools and bench have options of their own, a topic of help may be several words */
    const bool any = o->command == APP_BENCH || o->command == APP_TOPICS || o->command == APP_TOOL;
    const int most = any ? argc : o->command == APP_FRONT;
    const char *const name = argv[i];
    if (most == 0 && o->n_args == 1 && (strcmp(argv[i + 1], "--help") == 0 || strcmp(argv[i + 1], "-h") == 0)) {
      o->command = APP_HELP; /* of commands without options of their own */
      return true;
    }
    if (o->n_args > most)
      return app_usage(most > 0                   ? "%s takes one argument, found '%s' behind it"
                       : argv[i + 1][0] == '-'    ? "options stand before %s, found '%s' behind it"
                                                  : "%s takes no arguments, found '%s'",
                       name, argv[i + 1 + most]);
    if (o->launches && o->command != APP_REPL) return app_usage("%s runs on no ranks%s", name, "");
    if (o->launch.max_restarts > 0) return app_usage("--max-restarts: %s has no restarts%s", name, "");
    if (o->launch.num_machines > 1) return app_usage("--num-machines: %s is for the ranks of one machine%s", name, "");
    return app_launch_check(o);
  }
  return true;
}

bool app_options_parse(int argc, char **argv, app_options *o) {
  static const ac_host_options standard = AC_HOST_OPTIONS_INIT;
  static const ac_launch_options launch = AC_LAUNCH_OPTIONS_INIT;
  *o = (app_options){.command = APP_RUN, .host = standard, .launch = launch};
  o->host.device = "auto";
  o->rank_argv = calloc((size_t)argc + 1, sizeof *o->rank_argv);
  if (o->rank_argv == NULL) return app_usage("no memory%s%s", "", "");
  int i = 1, n = 0;
  if ((o->tool = names_tool(argc, argv)) != NULL) {
    o->command = APP_TOOL;
    o->n_args = argc - 1;
    o->args = argv + 1;
    return true;
  }
  o->rank_argv[n++] = argv[0];
  for (; i < argc; i++) {
    /* rank_argv keeps the words of options that ranks need as well; those of the launcher are left out */
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
  if (o->code == NULL) {
    if (i == argc) return app_usage("no script given%s%s", "", "");
    if (!take_command(argc, argv, i, o)) return false;
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
  return app_launch_check(o);
}
