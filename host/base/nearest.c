/* The nearest of some names: every "did you mean" of options, parameters, fields and ops. */
#include <ctype.h>
#include <string.h>

#include "accel/base.h"

enum { LONGEST = 64 }; /* longer words are typed by machines, and have no typing mistakes */

static int fold(char c) { return c == '-' ? '_' : tolower((unsigned char)c); }

static int min_int(int a, int b) { return a < b ? a : b; }

/* Edits (insert, delete, replace, swap of neighbours) from a (na bytes) to b (nb bytes), case and
 * dash/underscore apart. */
static int distance(const char *a, int na, const char *b, int nb) {
  int row[3][LONGEST + 1]; /* i-2, i-1, i */
  int *two = row[0], *one = row[1], *cur = row[2];
  for (int j = 0; j <= nb; j++) one[j] = j;
  for (int i = 1; i <= na; i++) {
    cur[0] = i;
    for (int j = 1; j <= nb; j++) {
      int differs = fold(a[i - 1]) != fold(b[j - 1]);
      int d = min_int(min_int(one[j] + 1, cur[j - 1] + 1), one[j - 1] + differs);
      if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]))
        d = min_int(d, two[j - 2] + 1);
      cur[j] = d;
    }
    int *t = two;
    two = one;
    one = cur;
    cur = t;
  }
  return one[nb];
}

const char *ac_nearest(const char *word, const char *const *names, int n) {
  size_t nw = strlen(word);
  if (nw == 0 || nw > LONGEST) return NULL;
  const char *best = NULL;
  int best_cost = 0;
  for (int i = 0; i < n; i++) {
    size_t nc = strlen(names[i]);
    if (nc == 0 || nc > LONGEST) continue;
    /* a third of the longer word may be wrong. Beyond that the guess is noise */
    int longer = (int)(nw > nc ? nw : nc), allowed = min_int((longer + 1) / 3, 4);
    int d = distance(word, (int)nw, names[i], (int)nc), cost;
    size_t shorter = nw < nc ? nw : nc;
    if (d <= allowed) {
      /* of equally near names, one with the same first and last letter, which few misspell */
      cost = 4 * d + (fold(word[0]) != fold(names[i][0])) +
             (fold(word[nw - 1]) != fold(names[i][nc - 1]));
    } else if (shorter >= 3 && distance(word, (int)shorter, names[i], (int)shorter) == 0) {
      /* the beginning of a longer name ("keep" for keepdim) ranks after every close spelling */
      cost = 64 + d;
    } else {
      continue;
    }
    if (best == NULL || cost < best_cost) {
      best = names[i];
      best_cost = cost;
    }
  }
  return best;
}
