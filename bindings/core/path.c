/* The location of the library's Lua files: found from the place of this library, so that a build
 * folder and an installation that was moved both work. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bindings/core/chunk.h"
#include "bindings/core/lac.h"

#ifndef ACCEL_LUA_DIR
#define ACCEL_LUA_DIR "/usr/local/share/lua/5.4"
#endif

static const char anchor;

static bool has_accel(const char *dir) {
  char path[2 * PATH_MAX];
  snprintf(path, sizeof path, "%s/accel/init.lua", dir);
  return access(path, R_OK) == 0;
}

bool lac_lua_dir(char *buf, size_t n) {
  /* from lib/libaccel.so or bin/x, from lib/<triplet>/, from lib/lua/5.4/accel/core.so and below a
   * triplet */
  static const char *const up[] = {"..", "../..", "../../../..", "../../../../.."};
  Dl_info info;
  char *real = NULL;
  bool found = false;
  if (dladdr(&anchor, &info) != 0 && info.dli_fname != NULL) real = realpath(info.dli_fname, NULL);
  if (real != NULL) {
    char *slash = strrchr(real, '/');
    if (slash != NULL) *slash = 0;
    for (size_t i = 0; i < sizeof up / sizeof up[0] && !found; i++) {
      char dir[PATH_MAX + 64];
      snprintf(dir, sizeof dir, "%s/%s/share/lua/5.4", real, up[i]);
      if (!has_accel(dir)) continue;
      char *plain = realpath(dir, NULL);
      found = plain != NULL && strlen(plain) < n;
      if (found) memcpy(buf, plain, strlen(plain) + 1);
      free(plain);
    }
    free(real);
  }
  if (!found && has_accel(ACCEL_LUA_DIR) && strlen(ACCEL_LUA_DIR) < n) {
    memcpy(buf, ACCEL_LUA_DIR, sizeof ACCEL_LUA_DIR);
    found = true;
  }
  return found;
}
