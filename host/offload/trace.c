/* The order in which the storages of a window are used: the order of the last pass, which the next
 * one is expected to repeat. */
#include <limits.h>
#include <stdlib.h>

#include "offload/window.h"

/* Without pass boundaries a trace ends when every storage has been used so many times. */
enum { ROUNDS = 4 };

/* start, place: the uses of every number, in order. */
static void index_trace(aci_window *w) {
  int n = 0;
  for (int i = 0; i < w->n_trace; i++)
    if (w->trace[i] >= n) n = w->trace[i] + 1;
  int *start = calloc((size_t)n + 2, sizeof *start),
      *place = malloc(((size_t)w->n_trace + 1) * sizeof *place);
  free(w->start);
  free(w->place);
  w->start = start;
  w->place = place;
  w->n_known = 0;
  if (start == NULL || place == NULL) return; /* nothing is expected, then */
  w->n_known = n;
  for (int i = 0; i < w->n_trace; i++) start[w->trace[i] + 2]++;
  for (int i = 2; i <= n + 1; i++) start[i] += start[i - 1];
  for (int i = 0; i < w->n_trace; i++) place[start[w->trace[i] + 1]++] = i;
}

void aci_window_turn(aci_window *w) {
  w->passes++;
  if (w->n_now == 0) return;
  int *old = w->trace;
  const int cap = w->cap_trace;
  w->trace = w->now;
  w->n_trace = w->n_now;
  w->cap_trace = w->cap_now;
  w->now = old;
  w->cap_now = cap;
  w->n_now = 0;
  index_trace(w);
}

void aci_window_guess(aci_window *w) {
  for (int i = 0; i < w->n_all; i++)
    if (w->all[i] != NULL) aci_window_record(w, i);
  aci_window_turn(w);
}

/* The first use of number i in the trace at pos or later. n_trace + its first of all, if it wraps
 * around. -1: none. */
static int next_use(const aci_window *w, int i, int pos) {
  if (i >= w->n_known || w->start[i] == w->start[i + 1]) return -1;
  int lo = w->start[i], hi = w->start[i + 1];
  const int first = w->place[lo];
  while (lo < hi) {
    const int mid = lo + (hi - lo) / 2;
    if (w->place[mid] < pos) lo = mid + 1;
    else hi = mid;
  }
  return lo < w->start[i + 1] ? w->place[lo] : w->n_trace + first;
}

int aci_window_distance(const aci_window *w, int i) {
  const int at = w->pos < 0 ? -1 : next_use(w, i, w->pos);
  return at < 0 ? INT_MAX : at - w->pos;
}

void aci_window_record(aci_window *w, int i) {
  if (w->n_now > 0 && w->now[w->n_now - 1] == i) return; /* once more by the same layer */
  if (w->n_now >= ROUNDS * w->n_all + 64) {
    aci_window_turn(w);
    w->pos = -1;
  }
  if (w->n_now == w->cap_now) {
    const int cap = w->cap_now == 0 ? 128 : 2 * w->cap_now;
    int *more = realloc(w->now, (size_t)cap * sizeof *more);
    if (more == NULL) return;
    w->now = more;
    w->cap_now = cap;
  }
  w->now[w->n_now++] = i;
  const int at = next_use(w, i, w->pos < 0 ? 0 : w->pos);
  w->pos = at < 0 ? -1 : (at + 1) % w->n_trace;
}
