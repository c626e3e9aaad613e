/* os.execute of scripts: a shell's command as system(3) runs it, except that Ctrl-C is not lost
 * meanwhile. system(3) ignores SIGINT in its caller. Here a terminal's Ctrl-C reaches the command,
 * as in a shell, and this process serves it when the command has ended (signals.c). Registered by
 * main.c, so that programs that embed us keep Lua's own. */
#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/app.h"

extern char **environ;

/* The command's status as from waitpid. -1 with errno: it could not be started or waited for. */
static int execute(const char *command) {
  char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)command, NULL};
  pid_t pid;
  int status = -1;
  app_signals_command(true);
  errno = posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ);
  if (errno == 0)
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  const int why = errno;
  app_signals_command(false);
  errno = why;
  return status;
}

ac_status app_execute(void *user, ac_ctx *c, int n_args, const ac_host_value *args, int max_results,
                      ac_host_value *results, int *n_results, ac_err *e) {
  (void)user, (void)c;
  if (max_results < 3) return AC_FAIL(e, INTERNAL, "os.execute has three results");
  if (n_args == 0 || args[0].type == AC_HOST_NIL) { /* is there a shell? */
    results[0] = (ac_host_value){.type = AC_HOST_BOOL, .b = access("/bin/sh", X_OK) == 0};
    *n_results = 1;
    return AC_OK;
  }
  if (args[0].type != AC_HOST_STRING)
    return AC_FAIL(e, INVALID, "os.execute takes a command, a string");
  const int status = execute(args[0].s);
  const char *how = "exit";
  int code = status;
  if (status == -1) {
    code = errno;
    how = strerror(code);
  } else if (WIFEXITED(status)) {
    code = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    code = WTERMSIG(status);
    how = "signal";
  }
  results[0] = status == 0 ? (ac_host_value){.type = AC_HOST_BOOL, .b = true}
                           : (ac_host_value){.type = AC_HOST_NIL};
  results[1] = (ac_host_value){.type = AC_HOST_STRING, .s = how, .len = strlen(how)};
  results[2] = (ac_host_value){.type = AC_HOST_INT, .i = code};
  *n_results = 3;
  return AC_OK;
}
