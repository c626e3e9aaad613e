/* NFC, NFD, NFKC, NFKD of Unicode 9.0. Origins follow the order of characters, as in the package
 * `tokenizers`: a decomposed character stands for the next one of the text, and its further parts
 * are new. Composing joins them again. Called by normalize.c. */
#include <string.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

static bool room(aci_encode_scratch *w, size_t n) {
  if (n <= w->cap_point) return true;
  size_t cap = w->cap_point, same = cap, third = cap;
  if (!aci_grow((void **)&w->point, &cap, n, sizeof *w->point) ||
      !aci_grow((void **)&w->change, &same, n, 1) || !aci_grow((void **)&w->class, &third, n, 1))
    return false;
  w->cap_point = cap;
  return true;
}

/* Sorts marks by their classes. Marks of one class keep their order. Runs of marks are sorted by
 * counting, since a class is a byte, so a long run does not take quadratic time. */
static bool sort_marks(aci_encode_scratch *w, size_t first, size_t n) {
  size_t count[257] = {0};
  bool sorted = true;
  for (size_t i = 0; i < n; i++) {
    count[w->class[first + i] + 1]++;
    sorted = sorted && (i == 0 || w->class[first + i - 1] <= w->class[first + i]);
  }
  if (sorted) return true;
  if (!room(w, first + 2 * n)) return false; /* the second half is scratch */
  for (int k = 0; k < 256; k++) count[k + 1] += count[k];
  for (size_t i = 0; i < n; i++) {
    const size_t to = first + n + count[w->class[first + i]]++;
    w->point[to] = w->point[first + i];
    w->change[to] = w->change[first + i];
    w->class[to] = w->class[first + i];
  }
  memcpy(w->point + first, w->point + first + n, n * sizeof *w->point);
  memcpy(w->change + first, w->change + first + n, n);
  memcpy(w->class + first, w->class + first + n, n);
  return true;
}

/* Fills w->point with the decomposition. *n: number of characters. */
static bool decompose(aci_encode_scratch *w, const aci_text *in, bool compatible, size_t *n) {
  size_t k = 0, pending = 0; /* marks since the last starter begin here */
  uint32_t parts[ACI_UNI_DECOMPOSED];
  for (const char *s = in->s, *end = in->s + in->n; s < end;) {
    const int m = aci_uni_decompose(aci_utf8_next(&s), compatible, parts);
    if (!room(w, k + (size_t)m)) return false;
    for (int i = 0; i < m; i++) {
      const int class = aci_uni_combining_class(parts[i]);
      if (class == 0) {
        if (k > pending + 1 && !sort_marks(w, pending, k - pending)) return false;
        pending = k + 1;
      }
      w->point[k] = parts[i];
      w->change[k] = i > 0;
      w->class[k++] = (uint8_t) class;
    }
  }
  if (k > pending + 1 && !sort_marks(w, pending, k - pending)) return false;
  *n = k;
  return true;
}

/* A change, which may fall far below zero when many characters become one. */
typedef struct composed {
  uint32_t c;
  int change;
} composed;

/* Canonical composition of w->point[0..n), written to r: each mark is joined with the last starter
 * unless a mark between them has the same or a higher class. Marks that stay are kept at the front
 * of w->point until the next starter. */
static bool compose(aci_encode_scratch *w, aci_rewrite *r, size_t n) {
  composed starter = {0, 0};
  bool has = false, blocked = false;
  int last = 0;       /* class of the last mark that stayed, when blocked */
  size_t waiting = 0; /* marks that stay after the starter: moved to the front of the arrays */
  for (size_t i = 0; i < n; i++) {
    const uint32_t c = w->point[i];
    const int class = w->class[i], change = w->change[i];
    if (!has) {
      if (class != 0) {
        if (!aci_rewrite_put(r, c, change)) return false;
      } else {
        starter = (composed){c, change};
        has = true;
      }
      continue;
    }
    const uint32_t together = !blocked || last < class ? aci_uni_compose(starter.c, c) : 0;
    if (together != 0) {
      starter.c = together;
      starter.change += change - 1;
      continue;
    }
    if (class == 0) {
      if (!aci_rewrite_put(r, starter.c, starter.change)) return false;
      for (size_t k = 0; k < waiting; k++)
        if (!aci_rewrite_put(r, w->point[k], w->change[k])) return false;
      waiting = 0;
      blocked = false;
      starter = (composed){c, change};
      continue;
    }
    w->point[waiting] = c;
    w->change[waiting++] = (int8_t)change;
    blocked = true;
    last = class;
  }
  if (has && !aci_rewrite_put(r, starter.c, starter.change)) return false;
  for (size_t k = 0; k < waiting; k++)
    if (!aci_rewrite_put(r, w->point[k], w->change[k])) return false;
  return true;
}

ac_status aci_normalize_form(aci_encode_scratch *w, aci_text *in, aci_text *out, bool compatible,
                             bool composes, ac_err *e) {
  size_t n;
  if (!decompose(w, in, compatible, &n)) return aci_no_memory(e);
  aci_rewrite r = {in, out, 0};
  if (composes) return compose(w, &r, n) ? AC_OK : aci_no_memory(e);
  for (size_t i = 0; i < n; i++)
    if (!aci_rewrite_put(&r, w->point[i], w->change[i])) return aci_no_memory(e);
  return AC_OK;
}
