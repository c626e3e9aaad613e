/* Lua's patterns, matched by functions that can be stopped (host_match.c). Used by
 * host_strings.c. */
#ifndef LAC_HOST_MATCH_H
#define LAC_HOST_MATCH_H
#include "host_impl.h"

enum {
  LAC_CAPTURES = 32,
  LAC_MATCH_DEPTH = 200, /* of nested calls, as in Lua */
  LAC_MATCH_STEPS = 4096 /* between two looks at the host's flag */
};

/* Special lengths of a capture. */
enum { LAC_CAPTURE_OPEN = -1, LAC_CAPTURE_POSITION = -2 };

typedef struct lac_match {
  lua_State *L;
  ac_host *h;
  const char *text, *end, *pattern_end;
  int depth; /* calls left */
  unsigned steps;
  int n_captures;
  struct {
    const char *at;
    ptrdiff_t length;
  } capture[LAC_CAPTURES];
} lac_match;

/* text and pattern stay on the stack while it is used. */
void lac_match_init(lac_match *m, lua_State *L, ac_host *h, const char *text, size_t n_text,
                    const char *pattern, size_t n_pattern);
/* The end of a match of the pattern that begins at s, or NULL. Raises for malformed patterns, and
 * if the host is stopped. */
const char *lac_match_at(lac_match *m, const char *s, const char *pattern);
/* Pushes capture i (from 0), of the match from s to e. Without captures 0 is the whole match. */
void lac_match_push(lac_match *m, int i, const char *s, const char *e);
/* Pushes all captures, or the whole match (nothing if s is NULL). Returns their number. */
int lac_match_push_all(lac_match *m, const char *s, const char *e);
/* Called in loops: raises if the host is stopped. */
static inline void lac_match_step(lac_match *m) {
  if (__builtin_expect(++m->steps >= LAC_MATCH_STEPS, 0)) {
    m->steps = 0;
    if (atomic_load_explicit(&m->h->stop, memory_order_relaxed) != LAC_STOP_NONE)
      lac_host_raise_stop(m->L, m->h);
  }
}

#endif
