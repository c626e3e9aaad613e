/* The text of accel-run --help, from the tables of options and commands. lua/help/topics.lua reads
 * it back: commands, options and their texts are rows of two columns. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "app/app.h"

/* A name as it is shown: with dashes. */
const char *app_spell(const char *name, char *buf, size_t n) {
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
    const app_option *o = app_option_at(i);
    if (o->letter != 0) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left, sizeof left, "%s--%s%s%s", letter, app_spell(o->name, name, sizeof name),
             o->value ? " " : "", o->value ? o->value : "");
    help_row(left, o->help);
  }
}

void app_help(const app_command_row *c) {
  if (c != NULL) {
    printf("Usage: accel-run %s\n%c%s.\n", c->shown, toupper((unsigned char)c->help[0]),
           c->help + 1);
    return;
  }
  puts("Usage: accel-run [options] SCRIPT [ARGS...]\n"
       "       accel-run [options] repl\n"
       "       accel-run help [TOPIC]\n"
       "       accel-run COMMAND [ARGS...]\n"
       "\n"
       "Runs a Lua script with accel: tensors, gradients and training in one program.\n"
       "\n"
       "SCRIPT is a file, or - for standard input. The script reads ARGS from arg.\n"
       "\n"
       "commands:");
  for (int i = 0; i < app_n_commands; i++)
    if (app_commands[i].help != NULL) help_row(app_commands[i].shown, app_commands[i].help);
  puts("\noptions:");
  help_rows(0, APP_OWN_OPTIONS);
  puts("\noptions for several ranks:");
  help_rows(APP_OWN_OPTIONS, APP_OPTIONS);
  puts("\n"
       "Under torchrun, mpirun or srun you need no option: accel-run reads the ranks\n"
       "from the environment.\n"
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
       "exit status: 0 the script finished, 1 it raised an error, 2 wrong usage, 128+N\n"
       "terminated by signal N, 75 stopped by SIGTERM or SIGUSR1 after saving its state\n"
       "(start it again with --resume auto). With several ranks, it is the first failed\n"
       "rank's status.\n"
       "Ctrl-C stops the script at the next training step, or after a second without\n"
       "one. A second Ctrl-C stops it immediately. SIGTERM and SIGHUP act like Ctrl-C.");
}
