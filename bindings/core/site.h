/* Lines of scripts: site.c. */
#ifndef LAC_SITE_H
#define LAC_SITE_H
#include "bindings/core/state.h"

enum { LAC_SITE = 64 }; /* bytes of a script line's text */

void lac_sites_open(lua_State *L);
/* Whether a source belongs to the library: its Lua files, and those inside the binary
 * ("=lua/..."). */
bool lac_site_own(const lac_state *S, const char *source);
/* Pushes "train.lua:12: " of the first frame that is the caller's own, or "". */
void lac_push_where(lua_State *L, lac_state *S);
/* The same line as "train.lua:12", "" when there is none. The search starts with the function at
 * `level`. Returns buf. */
const char *lac_site(lua_State *L, const lac_state *S, int level, char buf[LAC_SITE]);
/* Such a text of a chunk's short name and a line. */
const char *lac_site_text(const char *source, int line, char buf[LAC_SITE]);
/* Number of a script line ("train.lua:12") for lac_box.site. 0 when there is none. */
uint32_t lac_site_here(lua_State *L, lac_state *S);
/* Pushes its text ("train.lua:12", or nil for 0). */
void lac_site_push(lua_State *L, uint32_t site);

#endif
