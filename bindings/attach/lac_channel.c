/* Channels of accel.console: messages to and from another process over a socket or a pair of pipes,
 * and the one wait of a prompt: for them, for Ctrl-C and for input. Used by lua/repl, lua/attach
 * and lac_line.c.
 *
 * A message is four bytes of length, the lowest first, and as many bytes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "console.h"

#define CHANNEL "accel.console.channel"
enum { MESSAGE_MAX = 1 << 30, READ_AT_ONCE = 256 << 10 };

typedef struct channel {
  int fd, out; /* -1: closed. out: for sending, if it is another descriptor */
  bool ended;
  bool pipe;      /* no socket */
  bool listening; /* others connect to it: ready when somebody does */
  char *buf;
  size_t n, cap;
} channel;

static int new_channel(lua_State *L) {
  lac_state *S = lac_get(L);
  const int fd = (int)lac_check_int(L, S, 1, "fd");
  const int out = lua_isnoneornil(L, 2) ? fd : (int)lac_check_int(L, S, 2, "out");
  struct stat s;
  channel *c = lua_newuserdatauv(L, sizeof *c, 0);
  *c = (channel){.fd = fd, .out = out};
  c->pipe = fstat(fd, &s) == 0 && !S_ISSOCK(s.st_mode);
  luaL_setmetatable(L, CHANNEL);
  if (out == fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
  return 1;
}

static channel *push_channel(lua_State *L, int fd) {
  channel *c = lua_newuserdatauv(L, sizeof *c, 0);
  *c = (channel){.fd = fd, .out = fd};
  luaL_setmetatable(L, CHANNEL);
  return c;
}

/* console.pair() -> two descriptors that are connected, one of them for a child */
static int pair(lua_State *L) {
  lac_state *S = lac_get(L);
  int fd[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0)
    return lac_error(L, S, AC_IO, "cannot create a pair of sockets: %s", strerror(errno));
  lua_pushinteger(L, fd[0]);
  lua_pushinteger(L, fd[1]);
  return 2;
}

/* console.pipe() -> the reading end and the writing end, for a child's output */
static int new_pipe(lua_State *L) {
  lac_state *S = lac_get(L);
  int fd[2];
  if (pipe2(fd, O_CLOEXEC) != 0)
    return lac_error(L, S, AC_IO, "cannot create a pipe: %s", strerror(errno));
  lua_pushinteger(L, fd[0]);
  lua_pushinteger(L, fd[1]);
  return 2;
}

/* console.close(fd) */
static int close_fd(lua_State *L) {
  lac_state *S = lac_get(L);
  close((int)lac_check_int(L, S, 1, "fd"));
  return 0;
}

/* A folder, no link, that this user owns and nobody else may enter. */
static bool is_own_folder(const char *path) {
  struct stat s;
  return lstat(path, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid() &&
         (s.st_mode & 077) == 0;
}

/* console.private_folder(parent, name) -> path of a new folder that is this user's alone, in one
 * that is */
static int private_folder(lua_State *L) {
  lac_state *S = lac_get(L);
  char path[PATH_MAX];
  const char *parent = lac_check_path(L, S, 1, "parent", NULL),
             *name = lac_check_string(L, S, 2, "name", NULL);
  mkdir(parent, 0700);
  if (!is_own_folder(parent)) /* who else may write there could put another one in its place */
    return lac_error(L, S, AC_STATE, "%s is not a folder of this user's alone", parent);
  if (snprintf(path, sizeof path, "%s/%s.XXXXXX", parent, name) >= (int)sizeof path ||
      mkdtemp(path) == NULL)
    return lac_error(L, S, AC_IO, "cannot make a folder in %s: %s", parent, strerror(errno));
  lua_pushstring(L, path);
  return 1;
}

/* A socket that is bound or connected (`join`) to the name in a folder, by the folder's descriptor,
 * since an address has room for short paths only. Never waits. bound: only this user may use its
 * file. -1 with errno. */
static int socket_at(const char *folder, const char *name,
                     int (*join)(int, const struct sockaddr *, socklen_t), bool bound) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  const int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int fd = dir >= 0 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
  const int n = snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s", dir, name);
  bool done =
      fd >= 0 && n < (int)sizeof a.sun_path && join(fd, (struct sockaddr *)&a, sizeof a) == 0;
  if (done && bound) done = fchmodat(dir, name, 0600, 0) == 0 && listen(fd, 16) == 0;
  const int error = errno;
  if (dir >= 0) close(dir);
  if (!done && fd >= 0) close(fd);
  errno = error;
  return done ? fd : -1;
}

/* console.listen(folder, name) -> a channel that is ready when a client connects to the socket of
 * that name. c:accept() returns a channel to it, nil if it is gone again */
static int listen_(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *folder = lac_check_path(L, S, 1, "folder", NULL),
             *name = lac_check_string(L, S, 2, "name", NULL);
  const int fd = socket_at(folder, name, bind, true);
  if (fd < 0)
    return lac_error(L, S, AC_IO, "cannot listen at %s/%s: %s", folder, name, strerror(errno));
  push_channel(L, fd)->listening = true;
  return 1;
}

static int channel_accept(lua_State *L) {
  const channel *c = luaL_checkudata(L, 1, CHANNEL);
  lac_get(L);
  const int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return 0;
  push_channel(L, fd);
  return 1;
}

/* console.connect(folder, name) -> a channel to the socket of that name, or nil, message. Never
 * waits: a stopped process accepts nobody, and its queue may be full. */
static int connect_(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *folder = lac_check_path(L, S, 1, "folder", NULL),
             *name = lac_check_string(L, S, 2, "name", NULL);
  const int fd = socket_at(folder, name, connect, false);
  if (fd < 0) {
    lua_pushnil(L);
    lua_pushfstring(L, "%s/%s: %s", folder, name, strerror(errno));
    return 2;
  }
  fcntl(fd, F_SETFL, 0); /* sending waits */
  push_channel(L, fd);
  return 1;
}

/* console.is_private(path) -> whether it is a folder, no link, that this user owns and nobody else
 * may enter */
static int is_private(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_pushboolean(L, is_own_folder(lac_check_path(L, S, 1, "path", NULL)));
  return 1;
}

/* console.uid() -> the user by whose rights this process runs */
static int uid(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)geteuid());
  return 1;
}

static size_t message_size(const channel *c) {
  const unsigned char *p = (const unsigned char *)c->buf;
  return (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
}

static bool whole(const channel *c) { return c->n >= 4 && c->n - 4 >= message_size(c); }

/* Takes arrived bytes, as recv. */
static ssize_t take(const channel *c, void *p, size_t n) {
  if (!c->pipe) return recv(c->fd, p, n, MSG_DONTWAIT);
  struct pollfd ready = {.fd = c->fd, .events = POLLIN};
  if (poll(&ready, 1, 0) > 0) return read(c->fd, p, n);
  errno = EAGAIN;
  return -1;
}

/* Reads available bytes. */
static void fill(channel *c) {
  while (!c->ended && c->fd >= 0) {
    if (c->cap - c->n < READ_AT_ONCE) {
      const size_t cap = c->cap * 2 > c->n + READ_AT_ONCE ? c->cap * 2 : c->n + READ_AT_ONCE;
      char *more = realloc(c->buf, cap);
      if (more == NULL) return;
      c->buf = more;
      c->cap = cap;
    }
    const ssize_t k = take(c, c->buf + c->n, c->cap - c->n);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (k <= 0) c->ended = true;
    else c->n += (size_t)k;
    if (c->n >= 4 && message_size(c) > MESSAGE_MAX) c->ended = true; /* no message of ours */
    if (whole(c)) return;
  }
}

/* c:receive() -> bytes of a message. nil: none so far. false: the other end is gone */
static int channel_receive(lua_State *L) {
  channel *c = luaL_checkudata(L, 1, CHANNEL);
  lac_get(L);
  if (!whole(c)) fill(c);
  if (!whole(c)) {
    if (c->ended || c->fd < 0) lua_pushboolean(L, false);
    else lua_pushnil(L);
    return 1;
  }
  const size_t n = message_size(c);
  lua_pushlstring(L, c->buf + 4, n);
  c->n -= n + 4;
  memmove(c->buf, c->buf + n + 4, c->n);
  return 1;
}

static bool send_all(channel *c, const char *p, size_t n) {
  while (n > 0) {
    const ssize_t k = c->ended                     ? -1
                      : c->pipe || c->out != c->fd ? write(c->out, p, n)
                                                   : send(c->fd, p, n, MSG_NOSIGNAL);
    if (k < 0 && errno == EINTR && !c->ended) continue;
    if (k <= 0) {
      c->ended = true; /* a message may be cut off: nothing can follow it */
      return false;
    }
    p += k;
    n -= (size_t)k;
  }
  return true;
}

/* c:send(bytes) -> whether the other end is there */
static int channel_send(lua_State *L) {
  lac_state *S = lac_get(L);
  channel *c = luaL_checkudata(L, 1, CHANNEL);
  size_t n;
  const char *p = lac_check_string(L, S, 2, "bytes", &n);
  const unsigned char head[4] = {(unsigned char)n, (unsigned char)(n >> 8),
                                 (unsigned char)(n >> 16), (unsigned char)(n >> 24)};
  if (n > MESSAGE_MAX) return lac_error(L, S, AC_INVALID, "a message of %zu bytes", n);
  lua_pushboolean(L, c->fd >= 0 && send_all(c, (const char *)head, 4) && send_all(c, p, n));
  return 1;
}

/* c:patience(seconds): another end that takes nothing for so long counts as gone */
static int channel_patience(lua_State *L) {
  lac_state *S = lac_get(L);
  const channel *c = luaL_checkudata(L, 1, CHANNEL);
  const double seconds = lac_check_number(L, S, 2, "seconds");
  const struct timeval t = {.tv_sec = (time_t)seconds,
                            .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
  setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
  return 0;
}

static int channel_close(lua_State *L) {
  channel *c = luaL_checkudata(L, 1, CHANNEL);
  if (c->fd >= 0) close(c->fd);
  free(c->buf);
  *c = (channel){.fd = -1, .out = -1, .ended = true};
  return 0;
}

/* c:fd() -> its descriptor, for a wait. nil: it is closed */
static int channel_fd(lua_State *L) {
  const channel *c = luaL_checkudata(L, 1, CHANNEL);
  if (c->fd < 0) return 0;
  lua_pushinteger(L, c->fd);
  return 1;
}

/* ---- waiting ---- */

lac_event lac_console_poll(lua_State *L, lac_state *S, int idx, bool input, bool deaf,
                           double seconds, int *which) {
  channel *c[LAC_POLL_CHANNELS];
  struct pollfd p[LAC_POLL_CHANNELS + 2];
  int n = 0;
  const int64_t end = seconds < 0 ? -1 : lac_console_now() + (int64_t)(seconds * 1e9);
  const int breaks = deaf ? -1 : lac_console_breaks(S);
  if (lua_istable(L, idx)) {
    for (; n < LAC_POLL_CHANNELS && lua_rawgeti(L, idx, n + 1) != LUA_TNIL; n++) {
      c[n] = luaL_testudata(L, -1, CHANNEL);
      lua_pop(L, 1); /* the list holds it */
    }
    lua_pop(L, 1);
  }
  for (;;) {
    for (int i = 0; i < n; i++) {
      p[i] = (struct pollfd){.fd = c[i] != NULL ? c[i]->fd : -1, .events = POLLIN};
      if (c[i] == NULL || c[i]->fd < 0) continue;
      if (whole(c[i]) || c[i]->ended) {
        *which = i + 1;
        return LAC_EVENT_READY;
      }
    }
    p[n] = (struct pollfd){.fd = breaks, .events = POLLIN};
    p[n + 1] = (struct pollfd){.fd = input ? 0 : -1, .events = POLLIN};
    const int64_t left = end < 0 ? -1 : end - lac_console_now();
    const int64_t rest = (left + 999999) / 1000000;
    const int ms = end < 0 ? -1 : left <= 0 ? 0 : rest > INT_MAX ? INT_MAX : (int)rest;
    const int got = poll(p, (nfds_t)n + 2, ms);
    if (p[n].revents != 0 && got > 0) {
      uint64_t count;
      if (read(breaks, &count, sizeof count) < 0 && errno == EAGAIN) continue;
      return LAC_EVENT_BREAK;
    }
    for (int i = 0; i < n && got > 0; i++) {
      if (p[i].revents == 0) continue;
      if (c[i]->listening) {
        *which = i + 1;
        return LAC_EVENT_READY;
      }
      fill(c[i]);
    }
    for (int i = 0; i < n && got > 0; i++)
      if (c[i] != NULL && c[i]->fd >= 0 && (whole(c[i]) || c[i]->ended)) {
        *which = i + 1;
        return LAC_EVENT_READY;
      }
    if (got > 0 && p[n + 1].revents != 0) return LAC_EVENT_INPUT;
    /* a signal of somebody else's: his hook runs when we are back in Lua */
    if (got < 0) return LAC_EVENT_TIME;
    if (end >= 0 && lac_console_now() >= end) return LAC_EVENT_TIME;
  }
}

int lac_console_push(lua_State *L, lac_event event, int which) {
  static const char *const names[] = {"time", "break", "ready", "input"};
  lua_pushstring(L, names[event]);
  if (event != LAC_EVENT_READY) return 1;
  lua_pushinteger(L, which);
  return 2;
}

static int poll_(lua_State *L) {
  lac_state *S = lac_get(L);
  int which = 0;
  const double seconds = lua_isnoneornil(L, 2) ? -1 : lac_check_number(L, S, 2, "seconds");
  const bool input = lua_toboolean(L, 3), deaf = lua_toboolean(L, 4);
  lua_settop(L, 1);
  const lac_event event = lac_console_poll(L, S, 1, input, deaf, seconds, &which);
  return lac_console_push(L, event, which);
}

/* console.read_input([fd]) -> available bytes of standard input, after a poll reported "input", or of
 * another descriptor. nil: its end. Bypasses the buffer of io.stdin. */
static int read_input(lua_State *L) {
  lac_state *S = lac_get(L);
  const int fd = lua_isnoneornil(L, 1) ? 0 : (int)lac_check_int(L, S, 1, "fd");
  char buf[16384];
  ssize_t n;
  do n = read(fd, buf, sizeof buf);
  while (n < 0 && errno == EINTR);
  if (n > 0) lua_pushlstring(L, buf, (size_t)n);
  else lua_pushnil(L);
  return 1;
}

LAC_OPEN("accel.console", channels) {
  static const luaL_Reg funcs[] = {{"channel", new_channel},
                                   {"connect", connect_},
                                   {"uid", uid},
                                   {"is_private", is_private},
                                   {"poll", poll_},
                                   {"read_input", read_input},
                                   {"pair", pair},
                                   {"pipe", new_pipe},
                                   {"close", close_fd},
                                   {"listen", listen_},
                                   {"private_folder", private_folder},
                                   {NULL, NULL}};
  static const luaL_Reg methods[] = {{"send", channel_send},
                                     {"receive", channel_receive},
                                     {"patience", channel_patience},
                                     {"accept", channel_accept},
                                     {"fd", channel_fd},
                                     {"close", channel_close},
                                     {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", channel_close}, {"__close", channel_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, CHANNEL, metas, methods);
}
