/* The words that may stand in place of a script, and which options of accel-run act on each of
 * them. Called by options.c (take), help.c (the list) and main.c (a misspelt one). */
#include <stdio.h>
#include <string.h>

#include "app/app.h"

const app_command_row app_commands[] = {
    {"repl", "repl", APP_REPL, APP_ON_TENSORS | APP_ON_SCRIPTS | APP_ON_RANKS, NULL,
     "open a prompt for Lua, on one process or on every rank; :help explains it"},
    {"help", "help [TOPIC]", APP_TOPICS, 0, NULL,
     "show the reference and the guides: an op, a module, a class, an option, any words"},
    {"ps", "ps", APP_TOOL, 0, "ps", "list your jobs on this machine"},
    {"top", "top [JOB]", APP_TOOL, 0, "top",
     "show a live table of a job's ranks: step, time, loss, memory, waits"},
    {"stacks", "stacks [JOB]", APP_TOOL, 0, "stacks",
     "show the current script line of each rank, even if it hangs"},
    {"attach", "attach [JOB]", APP_TOOL, 0, "attach",
     "open a prompt in a running job: breakpoints, watches, locals"},
    {"scale", "scale JOB N", APP_TOOL, 0, "scale",
     "change the number of ranks of an elastic job (--num-machines 1:1) to N"},
    {"leave", "leave JOB RANK", APP_TOOL, 0, "leave",
     "remove one rank from an elastic job (--num-machines 1:1)"},
    {"dap", "dap", APP_TOOL, 0, "dap",
     "run a debug adapter for editors, on standard input and output"},
    {"jupyter", "jupyter ACTION ...", APP_TOOL, 0, "jupyter",
     "run Lua in notebooks: install the kernel for Jupyter"},
    {"ckpt", "ckpt ACTION ...", APP_TOOL, APP_ON_TENSORS, "ckpt",
     "inspect checkpoints: ls, show, verify, diff, prune, convert"},
    {"runs", "runs ACTION ...", APP_TOOL, 0, "runs",
     "inspect logged runs: ls, show, diff, plot, tail, rm, export, sync"},
    {"ui", "ui [DIR]", APP_TOOL, 0, "ui",
     "serve a page of logged runs on this machine, with live curves"},
    {"sweep", "sweep FILE", APP_TOOL, 0, "sweep",
     "search a configuration: grid, random, successive halving, runs in parallel"},
    {"merge-weights", "merge-weights DIR OUT", APP_TOOL, APP_ON_TENSORS, "merge_weights",
     "convert a sharded checkpoint to whole safetensors files"},
    {"estimate-memory", "estimate-memory DIR", APP_TOOL, 0, "estimate_memory",
     "estimate the memory to load and to train a model, from its config.json"},
    {"plan", "plan DIR", APP_TOOL, 0, "plan",
     "find out how to divide a model over N ranks, and write a configuration"},
    {"preprocess", "preprocess --input FILE ...", APP_TOOL, APP_ON_TENSORS, "preprocess",
     "convert texts to token ids in Megatron-LM's indexed format"},
    {"data", "data ACTION ...", APP_TOOL, APP_ON_TENSORS, "data",
     "inspect, convert and tokenize files of records: ls, head, stats, convert, tokenize"},
    {"generate", "generate DIR [PROMPT]", APP_TOOL, APP_ON_TENSORS, "generate",
     "generate text with a model folder: streaming, sampling, beams, chats"},
    {"gguf", "gguf ACTION ...", APP_TOOL, APP_ON_TENSORS, "gguf",
     "inspect and convert files of llama.cpp: show, export, import"},
    {"quantize", "quantize DIR OUT", APP_TOOL, APP_ON_TENSORS, "quantize",
     "write a model folder with linear layers in 4 or 8 bits, for accel and bitsandbytes"},
    {"bench", "bench [NAME...]", APP_BENCH, APP_ON_TENSORS, NULL,
     "measure speed on this machine, compared with PyTorch and others; see bench --help"},
    {"config", "config [ACTION]", APP_TOOL, 0, "config",
     "manage configurations: ask, default, update, show, validate"},
    {"launch", "launch [FLAGS] SCRIPT", APP_TOOL, 0, "launch",
     "launch ranks with Accelerate's flags and configurations"},
    {"to-fsdp2", "to-fsdp2 --config-file FILE", APP_TOOL, 0, "to_fsdp2",
     "rewrite a configuration of FSDP version 1 for version 2"},
    {"tpu-config", "tpu-config", APP_TOOL, 0, "tpu_config", NULL}, /* refuses, and is not listed */
    {"test", "test", APP_TOOL, 0, "test",
     "run a sanity check on several ranks: collectives, loaders, precision, training"},
    {"doctor", "doctor", APP_TOOL, APP_ON_TENSORS, "doctor",
     "check this machine for problems: limits, memory, clocks, driver"},
    {"completion", "completion SHELL", APP_TOOL, 0, "completion",
     "print a script for bash, zsh or fish that completes commands, options and values"},
    {"env", "env", APP_ENV, APP_ON_TENSORS, NULL,
     "list versions, devices, optional libraries, every ACCEL_* parameter, and the file of "
     "--config-file"},
    {APP_FRONT_WORD, APP_FRONT_WORD, APP_FRONT, APP_ON_ALL, NULL, NULL},
};
const int app_n_commands = sizeof app_commands / sizeof app_commands[0];

/* Whether the text of a command lists the word as one of its actions: "inspect x: ls, show". */
static bool has_action(const app_command_row *c, const char *word) {
  const char *list =
      c->help != NULL && strstr(c->shown, "ACTION") != NULL ? strchr(c->help, ':') : NULL;
  const size_t n = strlen(word);
  for (const char *at = list; at != NULL && n > 0; at = strchr(at + 1, ','))
    if (strncmp(at + 2, word, n) == 0 && (at[2 + n] == ',' || at[2 + n] == 0)) return true;
  return false;
}

const char *app_command_near(const char *word, char *buf, size_t size) {
  const char *names[sizeof app_commands / sizeof app_commands[0]];
  int n = 0;
  for (int i = 0; i < app_n_commands; i++)
    if (app_commands[i].help != NULL) names[n++] = app_commands[i].name;
  const char *near = ac_nearest(word, names, n);
  size_t used = 0;
  if (near != NULL) used = (size_t)snprintf(buf, size, "accel-run %s", near);
  for (int i = 0; near == NULL && i < app_n_commands && used < size; i++)
    if (has_action(&app_commands[i], word))
      used += (size_t)snprintf(buf + used, size - used, "%saccel-run %s %s", used > 0 ? " or " : "",
                               app_commands[i].name, word);
  return used > 0 ? buf : NULL;
}

/* An option that does nothing for this command ends the program. */
static bool act_on(const app_command_row *c, app_options *o) {
  char name[40];
  if (o->launches && !(c->takes & APP_ON_RANKS))
    return app_usage("%s runs on no ranks%s", c->name, "");
  for (int i = 0; i < o->n_given; i++)
    if (!(o->given[i].option->acts_on & c->takes))
      return app_usage("--%s has no effect on %s; leave it out",
                       app_spell(o->given[i].option->name, name, sizeof name), c->name);
  if (o->launch.max_restarts > 0)
    return app_usage("--max-restarts: %s has no restarts%s", c->name, "");
  if (o->launch.num_machines > 1)
    return app_usage("--num-machines: %s is for the ranks of one machine%s", c->name, "");
  return app_launch_check(o);
}

bool app_command_take(int argc, char **argv, int i, app_options *o) {
  const app_command_row *c = NULL;
  for (int k = 0; k < app_n_commands && c == NULL; k++)
    if (strcmp(argv[i], app_commands[k].name) == 0) c = &app_commands[k];
  if (c == NULL) return true;
  o->command = c->command;
  o->tool = c->tool;
  o->n_args = argc - i - 1;
  o->args = argv + i + 1;
  /* tools and bench have options of their own, a topic of help may be several words */
  const bool any = o->command == APP_BENCH || o->command == APP_TOPICS || o->command == APP_TOOL;
  /* a file of options for a launch, after the word as Accelerate takes it */
  const bool config = o->command == APP_ENV && o->n_args > 0 &&
                      (strncmp(o->args[0], "--config-file", 13) == 0 ||
                       strncmp(o->args[0], "--config_file", 13) == 0);
  const int most = any ? argc : config ? 1 + (o->args[0][13] == 0) : o->command == APP_FRONT;
  if ((most == 0 || o->command == APP_TOPICS) && o->n_args == 1 &&
      (strcmp(argv[i + 1], "--help") == 0 || strcmp(argv[i + 1], "-h") == 0)) {
    o->command = APP_HELP; /* of commands without options of their own */
    o->asked = c;
    return true;
  }
  if (o->n_args > most)
    return app_usage(most > 0                ? "%s takes one argument, found '%s' after it"
                     : argv[i + 1][0] == '-' ? "options go before %s; found '%s' after it"
                                             : "%s takes no arguments, found '%s'",
                     c->name, argv[i + 1 + most]);
  return act_on(c, o);
}
