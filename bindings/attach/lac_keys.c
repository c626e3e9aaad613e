/* Single keys of the terminal, the part of accel.console for questions with menus
 * (stdlib/accel/cli/menu.lua).
 *
 *   console.keys() -> k, nil if descriptor 0 is not a terminal that can report keys
 *     k:read() -> "up" "down" "left" "right" "home" "end" "delete" "enter" "tab" "escape"
 *     "backspace", "kill" (Ctrl-U), "break" (Ctrl-C),
 *                 "eof" (Ctrl-D, or the terminal is gone), "redraw" (after Ctrl-Z, or a signal),
 *                 "unknown" (a key that is not one of these, as F5), or the bytes of one character
 *     k:close()
 *
 * Until it is closed the terminal neither echoes nor gathers lines nor makes signals of keys, so
 * that no key ends the process with the terminal in this mode. Output keeps its meaning. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "console.h"

#define KEYS "accel.console.keys"
enum { ESCAPE_MS = 50, TEXT_BYTES = 64 }; /* the rest of a key's sequence comes at once */

typedef struct keys {
  bool open, ended;
  struct termios before;
  unsigned char text[TEXT_BYTES]; /* read, not yet given */
  int at, n;
} keys;

static void enter(const keys *k) {
  struct termios t = k->before;
  t.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
  t.c_iflag &= ~(tcflag_t)(IXON | INLCR);
  t.c_iflag |= ICRNL;
  t.c_cc[VMIN] = 1;
  t.c_cc[VTIME] = 0;
  tcsetattr(0, TCSADRAIN, &t); /* keep input typed ahead */
}

static int new_keys(lua_State *L) {
  const char *term = getenv("TERM");
  keys *k = lua_newuserdatauv(L, sizeof *k, 0);
  *k = (keys){.open = false};
  if (term == NULL || strcmp(term, "dumb") == 0 || !isatty(0) || tcgetattr(0, &k->before) != 0)
    return 0;
  luaL_setmetatable(L, KEYS);
  k->open = true;
  enter(k);
  return 1;
}

static int keys_close(lua_State *L) {
  keys *k = luaL_checkudata(L, 1, KEYS);
  if (k->open) tcsetattr(0, TCSADRAIN, &k->before);
  k->open = false;
  return 0;
}

/* The next byte. -1: none within ms (negative: no limit), the end of the input (k->ended), or a
 * signal. */
static int next_byte(keys *k, int ms) {
  if (k->at == k->n) {
    struct pollfd p = {0, POLLIN, 0};
    k->at = k->n = 0;
    if (poll(&p, 1, ms) <= 0) return -1;
    const ssize_t got = read(0, k->text, TEXT_BYTES);
    if (got <= 0) {
      k->ended = got == 0 || errno != EINTR;
      return -1;
    }
    k->n = (int)got;
  }
  return k->text[k->at++];
}

/* The key after an escape: ESC [ parameters letter, ESC O letter, or nothing. */
static const char *sequence(keys *k) {
  int c = next_byte(k, ESCAPE_MS), number = 0;
  if (c < 0 || c == 27) return "escape";
  if (c != '[' && c != 'O') return "unknown"; /* with Alt */
  while ((c = next_byte(k, ESCAPE_MS)) >= 0x20 && c < 0x40)
    number = c >= '0' && c <= '9' && number < 100 ? number * 10 + c - '0' : 100;
  switch (c) {
    case 'A': return "up";
    case 'B': return "down";
    case 'C': return "right";
    case 'D': return "left";
    case 'H': return "home";
    case 'F': return "end";
    case '~':
      return number == 3                  ? "delete"
             : number == 1 || number == 7 ? "home"
             : number == 4 || number == 8 ? "end"
                                          : "unknown";
    default: return "unknown";
  }
}

static int push_character(lua_State *L, keys *k, int lead) {
  char text[4] = {(char)lead, 0, 0, 0};
  const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
  int n = 1;
  for (int c; n <= more && (c = next_byte(k, ESCAPE_MS)) >= 0; n++) text[n] = (char)c;
  lua_pushlstring(L, text, (size_t)n);
  return 1;
}

static int keys_read(lua_State *L) {
  lac_state *S = lac_get(L);
  keys *k = luaL_checkudata(L, 1, KEYS);
  if (!k->open) return lac_error(L, S, AC_STATE, "the keys are closed");
  const int c = k->ended ? -1 : next_byte(k, -1);
  const char *name = NULL;
  switch (c) {
    case -1: name = k->ended ? "eof" : "redraw"; break;
    case 27: name = sequence(k); break;
    case '\r':
    case '\n': name = "enter"; break;
    case '\t': name = "tab"; break;
    case 8:
    case 127: name = "backspace"; break;
    case 1: name = "home"; break;
    case 3: name = "break"; break;
    case 4: name = "eof"; break;
    case 5: name = "end"; break;
    case 14: name = "down"; break;
    case 16: name = "up"; break;
    case 21: name = "kill"; break;
    case 26: /* stopped as by the terminal, which is as it was meanwhile */
      tcsetattr(0, TCSADRAIN, &k->before);
      kill(0, SIGTSTP); /* the whole job */
      enter(k);
      name = "redraw";
      break;
    default: break;
  }
  if (name == NULL) return push_character(L, k, c);
  lua_pushstring(L, name);
  return 1;
}

LAC_OPEN("accel.console", keys) {
  static const luaL_Reg funcs[] = {{"keys", new_keys}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"read", keys_read}, {"close", keys_close}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", keys_close}, {"__close", keys_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, KEYS, metas, methods);
}
