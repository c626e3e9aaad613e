/* Plays a script against a program in a terminal of its own, for the tests of the REPL:
 *   pty SCRIPT COMMAND [ARGS...]
 * Lines of the script (blank lines and those that begin with # mean nothing; \r \n \t \e \\ \xHH in TEXT are characters):
 *   expect TEXT    until the output after the last match has it; escape sequences of the terminal are taken out before
 *   send TEXT      as typed
 *   line TEXT      the same with the return key
 *   absent TEXT    fails if the output since the last match has it by now
 *   quiet SECONDS  lets that much time pass
 *   resize ROWS COLUMNS
 *   widest N       fails if a line of the output since the last match is longer
 *   hangup         the terminal is gone
 *   timeout S      seconds that an expect may take [60]
 *   end STATUS     the program ends with this status (128 + N: by signal N)
 * The terminal has 24 rows and PTY_COLUMNS columns [80]. What it leaves running is killed by its process group. Exit: 0, 1 with a
 * transcript, 77 where no terminal can be had. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 20 };

static int terminal = -1;
static pid_t program;
static char out[MOST + 1]; /* plain */
static size_t n_out, matched;
static int state; /* of the escape sequence that is being skipped */
static bool at_end;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(int number, const char *line, const char *why) {
  printf("line %d: %s: %s\n---- output (matched up to byte %zu)\n%s\n----\n", number, line, why, matched, out);
  exit(1);
}

/* ESC [ ... letter, ESC ] ... BEL, ESC ( x, ESC x */
static void put(unsigned char c) {
  enum { TEXT, ESC, CSI, OSC, ONE };
  switch (state) {
    case ESC: state = c == '[' ? CSI : c == ']' ? OSC : c == '(' || c == ')' ? ONE : TEXT; return;
    case CSI:
      if (c >= '@' && c <= '~') state = TEXT;
      return;
    case OSC:
      if (c == 7) state = TEXT;
      return;
    case ONE: state = TEXT; return;
    default: break;
  }
  if (c == 27) {
    state = ESC;
    return;
  }
  if (c == 0 || c == '\r' || c == 7 || n_out >= MOST) return;
  out[n_out++] = (char)c;
  out[n_out] = 0;
}

/* Reads for up to `seconds`. */
static void take(double seconds) {
  struct pollfd p = {.fd = terminal, .events = POLLIN};
  if (at_end) {
    poll(NULL, 0, (int)(seconds * 1e3));
    return;
  }
  if (poll(&p, 1, (int)(seconds * 1e3) + 1) <= 0) return;
  unsigned char buf[4096];
  const ssize_t n = read(terminal, buf, sizeof buf);
  if (n <= 0 && errno != EINTR) at_end = true;
  for (ssize_t i = 0; i < n; i++) put(buf[i]);
}

/* TEXT with its escapes resolved, in place. */
static void resolve(char *s) {
  char *to = s;
  for (; *s != 0; s++) {
    if (*s != '\\' || s[1] == 0) {
      *to++ = *s;
      continue;
    }
    s++;
    if (*s == 'x' && s[1] != 0 && s[2] != 0) {
      const char hex[3] = {s[1], s[2], 0};
      *to++ = (char)strtol(hex, NULL, 16);
      s += 2;
    } else {
      *to++ = *s == 'n' ? '\n' : *s == 'r' ? '\r' : *s == 't' ? '\t' : *s == 'e' ? 27 : *s;
    }
  }
  *to = 0;
}

/* A program that echoes waits for us to read, while we wait for it to take more. */
static void type(const char *s) {
  for (size_t left = strlen(s); left > 0 && !at_end;) {
    struct pollfd p = {.fd = terminal, .events = POLLIN | POLLOUT};
    if (poll(&p, 1, 1000) < 0 && errno != EINTR) return;
    if (p.revents & ~POLLOUT) take(0);
    if (!(p.revents & POLLOUT)) continue;
    const ssize_t n = write(terminal, s, left < 256 ? left : 256);
    if (n <= 0 && errno != EINTR) return;
    if (n > 0) s += n, left -= (size_t)n;
  }
}

static void stop(void) {
  if (program > 0) kill(-program, SIGKILL);
}

static bool open_terminal(char **argv) {
  const char *columns = getenv("PTY_COLUMNS");
  struct winsize size = {.ws_row = 24, .ws_col = columns != NULL ? (unsigned short)atoi(columns) : 80};
  terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return false;
  const char *name = ptsname(terminal);
  if (name == NULL) return false;
  program = fork();
  if (program == 0) {
    setsid();
    const int fd = open(name, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) != 0) _exit(77);
    ioctl(fd, TIOCSWINSZ, &size);
    for (int i = 0; i < 3; i++) dup2(fd, i);
    if (fd > 2) close(fd);
    execvp(argv[0], argv);
    _exit(127);
  }
  return program > 0;
}

/* Characters of the longest line of the output since the last match; a line that had begun before is left out. */
static size_t widest(void) {
  size_t most = 0;
  const char *p = strchr(out + matched, '\n');
  while (p != NULL && *p != 0) {
    const size_t n = strcspn(p + 1, "\n");
    if (n > most) most = n;
    p = p[1 + n] != 0 ? p + 1 + n : NULL;
  }
  return most;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fputs("usage: pty SCRIPT COMMAND [ARGS...]\n", stderr);
    return 2;
  }
  FILE *script = fopen(argv[1], "re");
  if (script == NULL) {
    perror(argv[1]);
    return 2;
  }
  unsetenv("COLUMNS");
  setenv("TERM", "xterm", 1);
  if (!open_terminal(argv + 2)) {
    printf("no terminal: %s\n", strerror(errno));
    return 77;
  }
  atexit(stop);
  static char line[16384], text[16384];
  double timeout = 60;
  for (int number = 1; fgets(line, sizeof line, script) != NULL; number++) {
    line[strcspn(line, "\n")] = 0;
    char *arg = strchr(line, ' ');
    if (line[0] == 0 || line[0] == '#') continue;
    snprintf(text, sizeof text, "%s", arg != NULL ? arg + 1 : "");
    resolve(text);
    const size_t n = arg != NULL ? (size_t)(arg - line) : strlen(line);
    const double limit = now() + timeout;
    if (strncmp(line, "expect", n) == 0) {
      const char *found;
      while ((found = strstr(out + matched, text)) == NULL) {
        if (at_end) fail(number, line, "the program has ended");
        if (now() > limit) fail(number, line, "not seen in time");
        take(0.05);
      }
      matched = (size_t)(found - out) + strlen(text);
    } else if (strncmp(line, "send", n) == 0) {
      type(text);
    } else if (strncmp(line, "line", n) == 0) {
      type(text);
      type("\r");
    } else if (strncmp(line, "absent", n) == 0) {
      take(0.05);
      if (strstr(out + matched, text) != NULL) fail(number, line, "it is there");
    } else if (strncmp(line, "quiet", n) == 0) {
      for (const double until = now() + strtod(text, NULL); now() < until;) take(0.02);
    } else if (strncmp(line, "resize", n) == 0) {
      int rows = 0, columns = 0;
      if (sscanf(text, "%d %d", &rows, &columns) != 2) fail(number, line, "resize ROWS COLUMNS");
      const struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
      ioctl(terminal, TIOCSWINSZ, &size);
    } else if (strncmp(line, "widest", n) == 0) {
      if (widest() > strtoul(text, NULL, 10)) fail(number, line, "a line is longer");
    } else if (strncmp(line, "hangup", n) == 0) {
      close(terminal);
      terminal = -1;
      at_end = true;
    } else if (strncmp(line, "timeout", n) == 0) {
      timeout = strtod(text, NULL);
    } else if (strncmp(line, "end", n) == 0) {
      int status = 0;
      while (waitpid(program, &status, WNOHANG) == 0) {
        if (now() > limit) fail(number, line, "it has not ended");
        take(0.02);
      }
      while (!at_end && now() < limit) take(0.02);
      program = 0;
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code != atoi(text)) {
        char why[40];
        snprintf(why, sizeof why, "it ended with %d", code);
        fail(number, line, why);
      }
    } else {
      fail(number, line, "no such word");
    }
  }
  return 0;
}
