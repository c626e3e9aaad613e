/* Loading libedit or readline (line_api.h). Neither is linked: a start costs nothing, and
 * readline's licence stays the user's choice. */
#include "line_api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The process has one: their state is global as well. */
static lac_line_api loaded;
static bool tried[LAC_LINE_LIBRARIES];

static const char *const libraries[][2] = {{"libedit", "libedit.so.2"},
                                           {"readline", "libreadline.so.8"}};

const char *lac_line_name(int i) { return libraries[i][0]; }

static bool find(void *lib, const char *name, void *slot) {
  void *p = dlsym(lib, name);
  if (p == NULL) return false;
  memcpy(slot, &p, sizeof p);
  return true;
}

/* An interpreter may have linked one of them: the other one's calls to itself would end up
 * there. */
static bool other_is_there(int i) {
  void *lib = dlopen(libraries[1 - i][1], RTLD_NOW | RTLD_NOLOAD);
  if (lib != NULL) dlclose(lib);
  return lib != NULL;
}

const lac_line_api *lac_line_load(int i) {
  if (loaded.name != NULL) return strcmp(loaded.name, libraries[i][0]) == 0 ? &loaded : NULL;
  if (tried[i]) return NULL;
  tried[i] = true;
  if (other_is_there(i)) return NULL;
  void *lib = dlopen(libraries[i][1], RTLD_NOW | RTLD_LOCAL);
  if (lib == NULL) return NULL;
  lac_line_api a = {.name = NULL};
  char **name = NULL;
  const struct {
    const char *symbol;
    void *slot;
  } needed[] = {{"rl_callback_handler_install", &a.install},
                {"rl_callback_handler_remove", &a.remove_handler},
                {"rl_callback_read_char", &a.read_char},
                {"rl_forced_update_display", &a.update},
                {"rl_on_new_line", &a.on_new_line},
                {"rl_set_prompt", &a.set_prompt},
                {"add_history", &a.add_history},
                {"stifle_history", &a.stifle},
                {"rl_completion_matches", &a.matches},
                {"rl_attempted_completion_function", &a.attempted},
                {"rl_attempted_completion_over", &a.attempted_over},
                {"rl_completion_append_character", &a.append},
                {"rl_catch_signals", &a.catch_signals},
                {"rl_line_buffer", &a.line},
                {"rl_point", &a.point},
                {"rl_basic_word_break_characters", &a.basic_breaks},
                {"rl_completer_word_break_characters", &a.breaks}};
  for (size_t k = 0; k < sizeof needed / sizeof needed[0]; k++) {
    if (find(lib, needed[k].symbol, needed[k].slot)) continue;
    dlclose(lib);
    return NULL;
  }
  /* for conditions in ~/.inputrc */
  if (find(lib, "rl_readline_name", &name)) *name = (char *)(uintptr_t) "accel";
  find(lib, "rl_catch_sigwinch", &a.catch_winch);
  find(lib, "rl_parse_and_bind", &a.bind);
  a.name = libraries[i][0];
  loaded = a;
  return &loaded;
}
