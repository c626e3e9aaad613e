/* Lines from the terminal, the part of accel.console for prompts. Editing uses libedit, otherwise
 * readline (line_api.c). Without either, or without a terminal, lines are read unedited.
 *
 *   console.editor(complete [, kind]) -> ed    complete(line before the cursor, its last word) returns whole words;
 *                                              kind: "auto", "libedit", "readline", "plain"
 *     ed:kind() ed:wait(prompt, channels, seconds) -> "line", text | "eof" | "break" | "ready", i |
 *     "time"
 *     ed:hide()                                before other output. The next wait shows the line
 *     again
 *     ed:add(line)                             to the history ed:close()
 *
 * Their callback interface leaves the waiting to us, so that other ranks' answers come in while a
 * line is half written. Both keep one line per process: there is one editor at a time, or one
 * inside another that is not at its prompt. Their handlers of signals stay off, and the locale is
 * this thread's alone while they run. */
#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "console.h"
#include "line_api.h"

#define EDITOR "accel.console.editor"
enum {
  LINE_MAX_BYTES = 1 << 20,
  /* libedit has a buffer of 1,024 bytes. When that grows, its line pointer still refers to the
   * freed buffer, and some thousand bytes later it ends the process. This many may be typed, and
   * this many may come from its history. */
  EDIT_MAX_BYTES = 700,
  RECALL_MAX_BYTES = 300
};

typedef struct editor {
  const lac_line_api *a; /* NULL: plain */
  struct editor *outer;  /* whose line is evaluated just now */
  bool open, shown, hidden, delivered, ended;
  char *line; /* delivered. NULL at the end of input */
  char *buf;  /* plain: bytes read so far */
  size_t n, cap;
  size_t fed;   /* characters that the line being edited has taken */
  lua_State *L; /* inside a wait */
  int complete; /* reference of the function */
  char prompt[128];
} editor;

/* The process's: see above. */
static editor *current;
static char **candidates;
static int next_candidate;

/* ---- locale ---- */

/* This thread in the user's locale, around every call of theirs: characters of several bytes, and
 * which keys are letters, depend on it. */
typedef struct place_of_locale {
  locale_t own, was;
  char ctype[64];
} place_of_locale;

/* Without any, of 7 bits, lines are UTF-8 all the same, as Lua's text is. */
static locale_t user_locale(void) {
  locale_t own = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
  if (own != (locale_t)0 && strcmp(nl_langinfo_l(CODESET, own), "ANSI_X3.4-1968") != 0) return own;
  const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
  if (utf8 == (locale_t)0) return own;
  if (own != (locale_t)0) freelocale(own);
  return utf8;
}

static place_of_locale enter_locale(void) {
  place_of_locale p = {.own = user_locale()};
  const char *now = setlocale(LC_CTYPE, NULL);
  snprintf(p.ctype, sizeof p.ctype, "%s", now != NULL ? now : "C");
  p.was = p.own != (locale_t)0 ? uselocale(p.own) : (locale_t)0;
  return p;
}

static void leave_locale(const place_of_locale *p) {
  const char *now = setlocale(LC_CTYPE, NULL);
  /* readline sets the process's */
  if (now != NULL && strcmp(now, p->ctype) != 0) setlocale(LC_CTYPE, p->ctype);
  if (p->own == (locale_t)0) return;
  uselocale(p->was);
  freelocale(p->own);
}

static bool is_libedit(const editor *ed) { return strcmp(ed->a->name, lac_line_name(0)) == 0; }

/* ---- their callbacks ---- */

static void on_line(char *text) {
  current->line = text;
  current->delivered = true;
  current->shown = false;
  current->a->remove_handler(); /* puts the terminal's modes back */
}

static char *give(const char *text, int state) {
  (void)text;
  if (state == 0) next_candidate = 0;
  const char *word = candidates != NULL ? candidates[next_candidate] : NULL;
  if (word == NULL) return NULL;
  next_candidate++;
  return strdup(word);
}

/* Protected: (line, word, function) -> a userdata that holds the words, NULL last. */
static int collect(lua_State *L) {
  lua_call(L, 2, 1);
  if (!lua_istable(L, -1)) return 0;
  const lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
  char **words = calloc((size_t)n + 1, sizeof *words);
  if (words == NULL) return 0;
  candidates = words;
  for (lua_Integer i = 0; i < n; i++) {
    lua_rawgeti(L, -1, i + 1);
    const char *s = lua_tostring(L, -1);
    if ((words[i] = strdup(s != NULL ? s : "")) == NULL) break;
    lua_pop(L, 1);
  }
  return 0;
}

static void free_candidates(void) {
  for (int i = 0; candidates != NULL && candidates[i] != NULL; i++) free(candidates[i]);
  free(candidates);
  candidates = NULL;
}

static char **complete(const char *text, int start, int end) {
  editor *ed = current;
  lua_State *L = ed->L;
  *ed->a->attempted_over = 1; /* no names of files */
  *ed->a->append = 0;
  const char *line = *ed->a->line;
  const size_t have = line != NULL ? strlen(line) : 0;
  (void)start;
  if (L == NULL || !lua_checkstack(L, 8)) return NULL;
  const int top = lua_gettop(L);
  lua_pushcfunction(L, collect);
  lua_rawgeti(L, LUA_REGISTRYINDEX, ed->complete);
  lua_pushlstring(L, line != NULL ? line : "", (size_t)end < have ? (size_t)end : have);
  lua_pushstring(L, text);
  /* an error while completing is not an answer */
  if (lua_pcall(L, 3, 0, 0) != LUA_OK) free_candidates();
  lua_settop(L, top);
  char **found = candidates != NULL ? ed->a->matches(text, give) : NULL;
  free_candidates();
  return found;
}

/* ---- one editor ---- */

static void set_up(const lac_line_api *a) {
  const place_of_locale p = enter_locale();
  static const char breaks[] = " \t\n\"'`@$><=;|&{}()[]+-*/%^#~,!?";
  *a->catch_signals = 0;
  if (a->catch_winch != NULL) *a->catch_winch = 0;
  *a->attempted = complete;
  *a->breaks = *a->basic_breaks = breaks;
  a->stifle(2000); /* libedit makes its map of keys here */
  /* Ctrl-R searches the history, as readline's does by itself */
  if (a->bind != NULL && strcmp(a->name, lac_line_name(0)) == 0) {
    char search[] = "bind ^R em-inc-search-prev";
    a->bind(search);
  }
  leave_locale(&p);
}

static int new_editor(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_settop(L, 2);
  lac_check_function(L, S, 1, "complete");
  const char *kind = lua_isnil(L, 2) ? "auto" : lac_check_string(L, S, 2, "kind", NULL);
  const char *term = getenv("TERM");
  editor *ed = lua_newuserdatauv(L, sizeof *ed, 0);
  *ed = (editor){.complete = LUA_NOREF};
  luaL_setmetatable(L, EDITOR);
  const bool capable = isatty(0) && isatty(1) && term != NULL && strcmp(term, "dumb") != 0;
  const bool can = capable && (current == NULL || !current->shown);
  for (int i = 0; i < LAC_LINE_LIBRARIES && ed->a == NULL && can && strcmp(kind, "plain") != 0; i++)
    if (strcmp(kind, "auto") == 0 || strcmp(kind, lac_line_name(i)) == 0) ed->a = lac_line_load(i);
  if (ed->a != NULL) {
    ed->outer = current;
    current = ed;
  }
  lua_pushvalue(L, 1);
  ed->complete = luaL_ref(L, LUA_REGISTRYINDEX);
  ed->open = true;
  if (ed->a != NULL) set_up(ed->a);
  return 1;
}

static editor *check(lua_State *L, lac_state *S) {
  editor *ed = luaL_checkudata(L, 1, EDITOR);
  if (!ed->open) lac_error(L, S, AC_STATE, "the editor is closed");
  return ed;
}

static void show(editor *ed, const char *prompt) {
  if (ed->shown && !ed->hidden) return;
  const place_of_locale p = enter_locale();
  snprintf(ed->prompt, sizeof ed->prompt, "%s", prompt);
  fflush(stdout);
  if (!ed->shown) {
    ed->fed = 0;
    ed->a->install(ed->prompt, on_line);
  } else {
    ed->a->set_prompt(ed->prompt);
    ed->a->on_new_line();
    ed->a->update();
  }
  ed->shown = true;
  ed->hidden = false;
  fflush(stdout);
  leave_locale(&p);
}

static void drop(editor *ed) {
  if (ed->a == NULL || !ed->shown) return;
  const place_of_locale p = enter_locale();
  ed->a->remove_handler();
  leave_locale(&p);
  ed->shown = ed->hidden = false;
}

/* Reads one character. True: there is a line, or the end. */
static bool feed(editor *ed, lua_State *L) {
  const place_of_locale p = enter_locale();
  ed->delivered = false;
  ed->fed++;
  ed->L = L;
  ed->a->read_char();
  ed->L = NULL;
  leave_locale(&p);
  return ed->delivered;
}

/* Plain: a line from the bytes read, pushed. False: there is none so far. */
static bool cut_line(lua_State *L, editor *ed) {
  const char *newline = ed->n > 0 ? memchr(ed->buf, '\n', ed->n) : NULL;
  if (newline == NULL && !(ed->ended && ed->n > 0)) return false;
  const size_t n = newline != NULL ? (size_t)(newline - ed->buf) : ed->n,
               used = n + (newline != NULL);
  lua_pushliteral(L, "line");
  lua_pushlstring(L, ed->buf, n > 0 && ed->buf[n - 1] == '\r' ? n - 1 : n);
  ed->n -= used;
  memmove(ed->buf, ed->buf + used, ed->n);
  return true;
}

static void read_plain(editor *ed) {
  if (ed->cap - ed->n < 4096 && ed->cap < LINE_MAX_BYTES) {
    const size_t cap = ed->cap > 0 ? ed->cap * 2 : 8192;
    char *more = realloc(ed->buf, cap);
    if (more != NULL) {
      ed->buf = more;
      ed->cap = cap;
    }
  }
  const ssize_t k = ed->n < ed->cap ? read(0, ed->buf + ed->n, ed->cap - ed->n) : 0;
  if (k < 0 && errno == EINTR) return;
  if (k <= 0) ed->ended = true;
  else ed->n += (size_t)k;
}

static int wait_plain(lua_State *L, lac_state *S, editor *ed, const char *prompt, double seconds) {
  for (;;) {
    if (cut_line(L, ed)) {
      ed->shown = false;
      return 2;
    }
    if (ed->ended) {
      lua_pushliteral(L, "eof");
      return 1;
    }
    if ((!ed->shown || ed->hidden) && isatty(0)) {
      fputs(prompt, stdout);
      fflush(stdout);
    }
    ed->shown = true;
    ed->hidden = false;
    int which = 0;
    const lac_event event = lac_console_poll(L, S, 3, true, false, seconds, &which);
    if (event == LAC_EVENT_BREAK) {
      if (isatty(0)) {
        tcflush(0, TCIFLUSH);
        fputs("\n", stdout);
      }
      ed->n = 0;
      ed->shown = false;
    }
    if (event != LAC_EVENT_INPUT) return lac_console_push(L, event, which);
    read_plain(ed);
  }
}

/* The terminal has gone: nothing but an end of file comes any more. */
static bool hung_up(void) {
  struct pollfd p = {.fd = 0, .events = POLLIN};
  return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/* A line that is too long, usually pasted: drops all of it, including the input still to come. */
static void leave_out(editor *ed) {
  struct termios was, raw;
  struct pollfd p = {.fd = 0, .events = POLLIN};
  char rest[1024];
  drop(ed);
  if (tcgetattr(0, &was) == 0) {
    raw = was;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(0, TCSANOW, &raw);
    while (poll(&p, 1, 100) > 0 && read(0, rest, sizeof rest) > 0) {
    }
    tcsetattr(0, TCSANOW, &was);
  }
  snprintf(rest, sizeof rest,
           "\n(a line may have at most %d bytes, and this one was dropped; use a file or a pipe)\n",
           EDIT_MAX_BYTES);
  fputs(rest, stdout);
  fflush(stdout);
}

/* e:wait(prompt, channels [, seconds]) -> "line", text | "eof" | an event as from console.poll. The
 * editor library reads bytes as they come (feed) and delivers a line to its callback, which sets
 * ed->line, malloc'ed, and ed->delivered. A NULL line is the end of input. A partly typed line
 * stays when another event ends the wait. */
static int editor_wait(lua_State *L) {
  lac_state *S = lac_get(L);
  editor *ed = check(L, S);
  const char *prompt = lac_check_string(L, S, 2, "prompt", NULL);
  const double seconds = lua_isnoneornil(L, 4) ? -1 : lac_check_number(L, S, 4, "seconds");
  lua_settop(L, 3);
  if (ed->a == NULL) return wait_plain(L, S, ed, prompt, seconds);
  if (ed->ended) {
    lua_pushliteral(L, "eof");
    return 1;
  }
  for (;;) {
    if (lac_console_continued()) ed->hidden = ed->shown;
    show(ed, prompt);
    int which = 0;
    const lac_event event = lac_console_poll(L, S, 3, true, false, seconds, &which);
    if (event == LAC_EVENT_BREAK) {
      drop(ed);
      fputs("^C\n", stdout);
      fflush(stdout);
    }
    if (event != LAC_EVENT_INPUT) return lac_console_push(L, event, which);
    if (hung_up() || (feed(ed, L) && ed->line == NULL)) {
      drop(ed);
      ed->ended = hung_up();
      lua_pushliteral(L, "eof");
      return 1;
    }
    if (!ed->delivered && is_libedit(ed) && ed->fed > EDIT_MAX_BYTES) {
      leave_out(ed);
      return lac_console_push(L, LAC_EVENT_BREAK, 0);
    }
    if (!ed->delivered) continue;
    lua_pushliteral(L, "line");
    lua_pushstring(L, ed->line);
    free(ed->line);
    ed->line = NULL;
    ed->delivered = false;
    return 2;
  }
}

/* Rows that the prompt and the line take on a screen of this width. */
static int rows(const editor *ed) {
  lua_Integer columns = 80;
  const char *text = getenv("COLUMNS");
  if (text != NULL && atoi(text) > 0) columns = atoi(text);
  const char *line = *ed->a->line;
  size_t n = strlen(ed->prompt);
  /* characters */
  for (int i = 0; line != NULL && i < *ed->a->point && line[i] != 0; i++)
    n += (line[i] & 0xc0) != 0x80;
  return 1 + (int)(n / (size_t)columns);
}

static int editor_hide(lua_State *L) {
  lac_state *S = lac_get(L);
  editor *ed = check(L, S);
  if (!ed->shown || ed->hidden) return 0;
  ed->hidden = true;
  if (ed->a == NULL) {
    if (isatty(0)) fputs("\n", stdout);
  } else {
    fputs("\r", stdout);
    for (int i = rows(ed); i > 1; i--) fputs("\x1b[A", stdout);
    fputs("\x1b[J", stdout);
  }
  fflush(stdout);
  return 0;
}

static int editor_add(lua_State *L) {
  lac_state *S = lac_get(L);
  const editor *ed = check(L, S);
  const char *line = lac_check_string(L, S, 2, "line", NULL);
  if (ed->a == NULL || (is_libedit(ed) && strlen(line) > RECALL_MAX_BYTES)) return 0;
  const place_of_locale p = enter_locale();
  ed->a->add_history(line);
  leave_locale(&p);
  return 0;
}

static int editor_kind(lua_State *L) {
  const editor *ed = check(L, lac_get(L));
  lua_pushstring(L, ed->a != NULL ? ed->a->name : "plain");
  return 1;
}

static int editor_close(lua_State *L) {
  editor *ed = luaL_checkudata(L, 1, EDITOR);
  if (!ed->open) return 0;
  drop(ed);
  if (current == ed) current = ed->outer;
  luaL_unref(L, LUA_REGISTRYINDEX, ed->complete);
  free(ed->buf);
  *ed = (editor){.complete = LUA_NOREF};
  return 0;
}

LAC_OPEN("accel.console", line) {
  static const luaL_Reg funcs[] = {{"editor", new_editor}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"kind", editor_kind},   {"wait", editor_wait},
                                     {"hide", editor_hide},   {"add", editor_add},
                                     {"close", editor_close}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", editor_close}, {"__close", editor_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, EDITOR, metas, methods);
}
