/* Regular expressions: matching. Lookaround over more than one character is decided for all
 * positions of the text at once: an automaton runs over the text from the far end and marks the
 * positions of matches. This takes time linear in the text, whatever the length of the lookaround.
 * Searches that fail at many starts continue as one simulation of all starts. Called by
 * patterns. */
#include <stdlib.h>
#include <string.h>

#include "text/regex_dfa.h"
#include "text/unicode.h"

struct aci_regex_cache {
  const aci_regex *r;
  aci_rx_dfa main;
  aci_rx_dfa look[ACI_RX_LOOKS];
  /* for each position of the text a bit of every lookaround. NULL before there is one */
  uint8_t *looks;
  size_t cap_looks;
  bool marked; /* they belong to this text */
  int64_t budget;
};

aci_regex_cache *aci_regex_cache_new(const aci_regex *r) {
  aci_regex_cache *c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  c->r = r;
  bool ok = aci_rx_dfa_open(&c->main, r, &r->main, false);
  for (uint32_t k = 0; ok && k < r->n_look; k++)
    ok = aci_rx_dfa_open(&c->look[k], r, &r->look[k].p, true);
  if (ok) return c;
  aci_regex_cache_free(c);
  return NULL;
}

void aci_regex_cache_free(aci_regex_cache *c) {
  if (c == NULL) return;
  aci_rx_dfa_close(&c->main);
  for (uint32_t k = 0; k < c->r->n_look; k++) aci_rx_dfa_close(&c->look[k]);
  free(c->looks);
  free(c);
}

void aci_regex_begin(aci_regex_cache *c, size_t n) {
  c->budget = 1 << 20;
  c->budget += (int64_t)n * 64;
  c->marked = false;
  if (c->main.n_states > 0) return;
  aci_rx_dfa_forget(&c->main);
  for (uint32_t k = 0; k < c->r->n_look; k++) aci_rx_dfa_forget(&c->look[k]);
}

static inline uint32_t class_of(const aci_regex *r, const char *s, size_t at, size_t *next) {
  const unsigned char a = (unsigned char)s[at];
  if (a < 0x80) return *next = at + 1, r->ascii[a];
  const char *p = s + at;
  const uint32_t c = aci_utf8_next(&p);
  *next = (size_t)(p - s);
  return r->cell[r->page[c >> 8]][c & 255];
}

static uint32_t class_before(const aci_regex *r, const char *s, size_t at, size_t *next) {
  if (at == 0) return r->n_class + 1;
  const char *p = s + at;
  const uint32_t c = aci_utf8_before(&p);
  *next = (size_t)(p - s);
  return r->cell[r->page[c >> 8]][c & 255];
}

/* ---- lookaround ---- */

/* Marks the positions at which lookaround k holds. Lookarounds of lower numbers, which it may need,
 * are already marked. */
static void mark(aci_regex_cache *c, uint32_t k, const char *s, size_t n) {
  const aci_regex *r = c->r;
  aci_rx_dfa *d = &c->look[k];
  const bool ahead = r->look[k].ahead, negated = r->look[k].negated;
  const size_t last = ahead ? 0 : n;
  uint32_t number = aci_rx_dfa_start(d, r->n_class + !ahead);
  for (size_t at = ahead ? n : 0;;) {
    size_t next = at;
    const uint32_t now = ahead    ? class_before(r, s, at, &next)
                         : at < n ? class_of(r, s, at, &next)
                                  : r->n_class;
    const uint32_t symbol = aci_rx_symbol(d, now, c->looks[at]);
    int32_t step = d->step[(size_t)number * d->row + symbol];
    if (step == ACI_RX_UNKNOWN) step = aci_rx_dfa_compute(d, number, symbol);
    if ((step & 1) != negated) c->looks[at] |= (uint8_t)(1u << k);
    if (at == last || d->failed) return;
    number = (uint32_t)step >> 1;
    at = next;
  }
}

static ac_status mark_all(aci_regex_cache *c, const char *s, size_t n, ac_err *e) {
  if (n + 1 > c->cap_looks) {
    const size_t cap = n + n / 2 + 64;
    uint8_t *looks = realloc(c->looks, cap);
    if (looks == NULL) return AC_FAIL(e, OOM, "no memory for a regular expression");
    c->looks = looks;
    c->cap_looks = cap;
  }
  memset(c->looks, 0, n + 1);
  for (uint32_t k = 0; k < c->r->n_look; k++) {
    mark(c, k, s, n);
    if (!c->look[k].failed) continue;
    c->look[k].failed = false;
    return AC_FAIL(e, OOM, "no memory for a regular expression");
  }
  c->marked = true;
  return AC_OK;
}

/* ---- matches ---- */

/* The end of the match that begins at `at`. False: none does. */
static inline bool run(aci_regex_cache *c, const uint8_t *looks, const char *s, size_t n, size_t at,
                       size_t *end) {
  const aci_regex *r = c->r;
  aci_rx_dfa *d = &c->main;
  size_t before = at;
  uint32_t number = d->begin;
  if (number == ACI_RX_DEAD)
    number = aci_rx_dfa_start(d, d->p->behind ? class_before(r, s, at, &before) : 0);
  bool found = false;
  const size_t begin = at;
  const uint32_t row = d->row;
  while (number != ACI_RX_DEAD) {
    size_t next = at;
    uint32_t now = at < n ? class_of(r, s, at, &next) : r->n_class;
    if (looks != NULL) now = aci_rx_symbol(d, now, looks[at]);
    int32_t step = d->step[(size_t)number * row + now];
    if (step == ACI_RX_UNKNOWN) step = aci_rx_dfa_compute(d, number, now);
    if (step & 1) found = true, *end = at;
    if (at >= n) break;
    number = (uint32_t)step >> 1;
    at = next;
  }
  c->budget -= (int64_t)(at - begin) + 1;
  return found;
}

static bool match_at(aci_regex_cache *c, const char *s, size_t n, size_t at, size_t *end) {
  return c->r->n_look == 0 ? run(c, NULL, s, n, at, end) : run(c, c->looks, s, n, at, end);
}

/* Simulates all starts from `at` on at once, each with the pcs it has reached. Earlier starts are
 * preferred. */
static bool search(aci_regex_cache *c, const char *s, size_t n, size_t at, size_t *begin,
                   size_t *end) {
  const aci_regex *r = c->r;
  aci_rx_dfa *d = &c->main;
  size_t previous;
  uint32_t n_list = 0, before = class_before(r, s, at, &previous);
  bool found = false;
  for (;;) {
    size_t next = at;
    const uint32_t now = at < n ? class_of(r, s, at, &next) : r->n_class;
    const uint32_t looks = r->n_look > 0 ? c->looks[at] : 0;
    bool match = false;
    aci_rx_dfa_stamp(d);
    for (uint32_t i = 0; !match && i < n_list; i++) {
      d->start = d->from[i];
      match = aci_rx_dfa_follow(d, d->list[i], before, now, looks);
    }
    if (!match && !found) {
      d->start = at;
      match = aci_rx_dfa_follow(d, 0, before, now, looks);
    }
    if (match) found = true, *begin = d->start, *end = at;
    uint32_t *const list = d->list;
    size_t *const from = d->from;
    d->list = d->next;
    d->from = d->from_next;
    d->next = list;
    d->from_next = from;
    n_list = d->n_next;
    c->budget -= 1 + (int64_t)n_list / 8;
    if (at >= n || (found && n_list == 0) || c->budget < 0) return found;
    before = now;
    at = next;
  }
}

ac_status aci_regex_find(aci_regex_cache *c, const char *s, size_t n, size_t from, size_t *begin,
                         size_t *end, bool *found, ac_err *e) {
  const aci_regex *r = c->r;
  int64_t wasted = 4096;
  *found = false;
  if (r->n_look > 0 && !c->marked) AC_TRY(mark_all(c, s, n, e));
  for (size_t at = from;;) {
    size_t next = at;
    if (!r->main.nullable)
      for (; at < n; at = next)
        if (aci_rx_bit(r->main.first, class_of(r, s, at, &next))) break;
    if (at >= n && !r->main.nullable) break;
    const int64_t was = c->budget;
    if (match_at(c, s, n, at, end)) {
      *begin = at;
      *found = true;
      break;
    }
    if (at >= n) break;
    (void)class_of(r, s, at, &next);
    wasted -= was - c->budget - (int64_t)(next - at) - 1;
    at = next;
    if (wasted < 0) {
      *found = search(c, s, n, at, begin, end);
      break;
    }
    if (c->budget < 0) break;
  }
  if (c->main.failed) {
    c->main.failed = false;
    return AC_FAIL(e, OOM, "no memory for a regular expression");
  }
  if (c->budget < 0)
    return AC_FAIL(
        e, UNSUPPORTED,
        "a regular expression of the tokenizer takes more than 64 steps per byte on a text of %zu bytes",
        n);
  return AC_OK;
}
