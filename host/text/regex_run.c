/* Regular expressions: matching. An automaton is built state by state as the text asks for it. A state is the list of
 * places in the program, the preferred first, that the text so far leads to; assertions are decided when the next
 * character is known, so a match is seen one character late. Searches that fail at many starts go on as one simulation
 * of all starts. Called by patterns. */
#include <stdlib.h>
#include <string.h>

#include "text/regex_impl.h"
#include "text/unicode.h"

enum { FIRST_STATES = 64, STATES = 4096, FIRST_PLACES = 1024, PLACES = 1 << 18, DEAD = 0, UNKNOWN = -1 };

typedef struct state {
  uint32_t at, n; /* its places */
  uint8_t before; /* class of the character before, where the program asks */
} state;

struct aci_regex_cache {
  const aci_regex *r;
  uint32_t row;  /* classes, and the end of the text */
  int32_t *step; /* [state][class]: next state * 2 + (1: a match ends here), or UNKNOWN */
  state *states;
  uint32_t *places; /* of all states */
  uint32_t n_states, n_places, cap_states, cap_places;
  uint32_t *slots; /* hash table of states, four for each; 0: free */
  bool failed;     /* no memory */
  uint32_t age;    /* how often all was forgotten */
  int64_t budget;
  uint32_t
      begin; /* the state at the beginning, where it does not depend on what stands before; DEAD: not known */
  /* scratch, as long as the program */
  uint32_t *stack, *list, *next;
  uint32_t *mark, *mark_next; /* == stamp: seen */
  uint32_t stamp;
  size_t *from, *from_next; /* starts, of the simulation */
  uint32_t n_next;          /* in next, from_next */
  size_t start;             /* of the thread that is followed */
};

aci_regex_cache *aci_regex_cache_new(const aci_regex *r) {
  aci_regex_cache *c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  const size_t n = r->n_prog;
  c->r = r;
  c->row = r->n_class + 1;
  c->cap_states = FIRST_STATES;
  c->cap_places = FIRST_PLACES;
  c->step = malloc((size_t)FIRST_STATES * c->row * sizeof *c->step);
  c->states = malloc(FIRST_STATES * sizeof *c->states);
  c->places = malloc(FIRST_PLACES * sizeof *c->places);
  c->slots = malloc(4 * FIRST_STATES * sizeof *c->slots);
  c->stack = malloc((2 * n + 2) * sizeof *c->stack);
  c->list = malloc(n * sizeof *c->list);
  c->next = malloc(n * sizeof *c->next);
  c->mark = calloc(n, sizeof *c->mark);
  c->mark_next = calloc(n, sizeof *c->mark_next);
  c->from = malloc(n * sizeof *c->from);
  c->from_next = malloc(n * sizeof *c->from_next);
  if (c->step == NULL || c->states == NULL || c->places == NULL || c->slots == NULL || c->stack == NULL ||
      c->list == NULL || c->next == NULL || c->mark == NULL || c->mark_next == NULL || c->from == NULL ||
      c->from_next == NULL) {
    aci_regex_cache_free(c);
    return NULL;
  }
  return c;
}

void aci_regex_cache_free(aci_regex_cache *c) {
  if (c == NULL) return;
  void *const parts[] = {c->step, c->states, c->places,    c->slots, c->stack,    c->list,
                         c->next, c->mark,   c->mark_next, c->from,  c->from_next};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) free(parts[i]);
  free(c);
}

/* Forgets all states but the dead one. */
static void forget(aci_regex_cache *c) {
  c->n_states = 1;
  c->age++;
  c->begin = DEAD;
  c->n_places = 0;
  memset(c->slots, 0, 4 * (size_t)c->cap_states * sizeof *c->slots);
  for (uint32_t k = 0; k < c->row; k++) c->step[k] = DEAD;
  c->states[DEAD] = (state){0, 0, 0};
}

void aci_regex_begin(aci_regex_cache *c, size_t n) {
  c->budget = 1 << 20;
  c->budget += (int64_t)n * 64;
  if (c->n_states == 0) forget(c);
}

static uint64_t hash_of(const uint32_t *places, uint32_t n, uint32_t before) {
  uint64_t h = before + 0x9E3779B97F4A7C15u * n;
  for (uint32_t i = 0; i < n; i++) h = (h ^ places[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
  return h;
}

/* Room for one more state of n places: false when there is none, within the limits or in memory. */
static bool room(aci_regex_cache *c, uint32_t n) {
  if (c->n_places + n > c->cap_places) {
    uint32_t cap = c->cap_places;
    while (cap < PLACES && c->n_places + n > cap) cap *= 2;
    uint32_t *places = c->n_places + n > cap ? NULL : realloc(c->places, cap * sizeof *places);
    if (places == NULL) return false;
    c->places = places;
    c->cap_places = cap;
  }
  if (c->n_states < c->cap_states) return true;
  const uint32_t cap = c->cap_states * 4;
  if (cap > STATES) return false;
  int32_t *step = realloc(c->step, (size_t)cap * c->row * sizeof *step);
  if (step != NULL) c->step = step;
  state *states = realloc(c->states, cap * sizeof *states);
  if (states != NULL) c->states = states;
  uint32_t *slots = step != NULL && states != NULL ? calloc(4 * (size_t)cap, sizeof *slots) : NULL;
  if (slots == NULL) return false;
  free(c->slots);
  c->slots = slots;
  c->cap_states = cap;
  for (uint32_t i = 1; i < c->n_states; i++) {
    const state *s = &c->states[i];
    uint32_t slot = (uint32_t)(hash_of(c->places + s->at, s->n, s->before) & (4 * cap - 1));
    while (slots[slot] != 0) slot = (slot + 1) & (4 * cap - 1);
    slots[slot] = i;
  }
  return true;
}

/* The state of these places; forgets the others when there is no room. */
static uint32_t state_of(aci_regex_cache *c, const uint32_t *places, uint32_t n, uint32_t before) {
  if (n == 0) return DEAD;
  if (!room(c, n)) {
    forget(c);
    if (!room(c, n)) return c->failed = true, DEAD;
  }
  const uint32_t mask = 4 * c->cap_states - 1;
  uint32_t slot = (uint32_t)(hash_of(places, n, before) & mask);
  for (; c->slots[slot] != 0; slot = (slot + 1) & mask) {
    const state *s = &c->states[c->slots[slot]];
    if (s->n == n && s->before == before && memcmp(c->places + s->at, places, n * sizeof *places) == 0)
      return c->slots[slot];
  }
  const uint32_t number = c->n_states++;
  c->slots[slot] = number;
  c->states[number] = (state){c->n_places, n, (uint8_t)before};
  memcpy(c->places + c->n_places, places, n * sizeof *places);
  c->n_places += n;
  for (uint32_t k = 0; k < c->row; k++) c->step[(size_t)number * c->row + k] = UNKNOWN;
  return number;
}

/* Follows the program from a place through everything but characters, the preferred way first; fn sees the characters.
 * true: it came to a match, and what is less preferred is of no interest. */
static bool follow(aci_regex_cache *c, uint32_t place, uint32_t before, uint32_t now,
                   void (*fn)(aci_regex_cache *, uint32_t)) {
  const aci_regex *r = c->r;
  uint32_t n = 0;
  c->stack[n++] = place;
  while (n > 0) {
    const uint32_t at = c->stack[--n];
    if (c->mark[at] == c->stamp) continue;
    c->mark[at] = c->stamp;
    const aci_rx_inst *i = &r->prog[at];
    switch (i->op) {
      case ACI_RX_OP_SET:
        if (now < r->n_class && aci_rx_bit(r->set[i->set], now)) fn(c, i->x);
        break;
      case ACI_RX_OP_SPLIT:
        c->stack[n++] = i->y;
        c->stack[n++] = i->x;
        break;
      case ACI_RX_OP_JUMP: c->stack[n++] = i->x; break;
      case ACI_RX_OP_AHEAD:
        if (aci_rx_bit(r->set[i->set], now)) c->stack[n++] = i->x;
        break;
      case ACI_RX_OP_BEHIND:
        if (aci_rx_bit(r->set[i->set], before)) c->stack[n++] = i->x;
        break;
      default: return true;
    }
  }
  return false;
}

static void stamp_new(aci_regex_cache *c) {
  if (++c->stamp != 0) return;
  memset(c->mark, 0, c->r->n_prog * sizeof *c->mark);
  memset(c->mark_next, 0, c->r->n_prog * sizeof *c->mark_next);
  c->stamp = 1;
}

/* ---- the automaton ---- */
static void collect(aci_regex_cache *c, uint32_t place) {
  if (c->mark_next[place] == c->stamp) return;
  c->mark_next[place] = c->stamp;
  c->from_next[c->n_next] = c->start;
  c->next[c->n_next++] = place;
}

static int32_t compute(aci_regex_cache *c, uint32_t number, uint32_t now) {
  const state *s = &c->states[number];
  bool match = false;
  stamp_new(c);
  c->n_next = 0;
  c->start = 0;
  for (uint32_t i = 0; !match && i < s->n; i++)
    match = follow(c, c->places[s->at + i], s->before, now, collect);
  const uint32_t age = c->age;
  const uint32_t to = state_of(c, c->next, c->n_next, c->r->behind ? now : 0);
  const int32_t step = (int32_t)(to * 2 + match);
  if (c->age == age) c->step[(size_t)number * c->row + now] = step; /* else the row was forgotten */
  return step;
}

static inline uint32_t class_of(const aci_regex *r, const char *s, size_t at, size_t *next) {
  const unsigned char a = (unsigned char)s[at];
  if (a < 0x80) return *next = at + 1, r->ascii[a];
  const char *p = s + at;
  const uint32_t c = aci_utf8_next(&p);
  *next = (size_t)(p - s);
  return r->cell[r->page[c >> 8]][c & 255];
}

static uint32_t class_before(const aci_regex *r, const char *s, size_t at) {
  if (at == 0) return r->n_class + 1;
  const char *p = s + at;
  const uint32_t c = aci_utf8_before(&p);
  return r->cell[r->page[c >> 8]][c & 255];
}

/* The end of the match that begins at `at`; false: none does. */
static bool match_at(aci_regex_cache *c, const char *s, size_t n, size_t at, size_t *end) {
  const aci_regex *r = c->r;
  const uint32_t zero = 0;
  uint32_t number = c->begin;
  if (number == DEAD) {
    number = state_of(c, &zero, 1, r->behind ? class_before(r, s, at) : 0);
    if (!r->behind) c->begin = number;
  }
  bool found = false;
  const size_t begin = at;
  const uint32_t row = c->row;
  while (number != DEAD) {
    size_t next = at;
    const uint32_t now = at < n ? class_of(r, s, at, &next) : r->n_class;
    int32_t step = c->step[(size_t)number * row + now];
    if (step == UNKNOWN) step = compute(c, number, now);
    if (step & 1) found = true, *end = at;
    if (at >= n) break;
    number = (uint32_t)step >> 1;
    at = next;
  }
  c->budget -= (int64_t)(at - begin) + 1;
  return found;
}

/* All starts from `at` on at once, each with the places it has come to; earlier starts are preferred. */
static bool search(aci_regex_cache *c, const char *s, size_t n, size_t at, size_t *begin, size_t *end) {
  const aci_regex *r = c->r;
  uint32_t n_list = 0, before = class_before(r, s, at);
  bool found = false;
  for (;;) {
    size_t next = at;
    const uint32_t now = at < n ? class_of(r, s, at, &next) : r->n_class;
    bool match = false;
    stamp_new(c);
    c->n_next = 0;
    for (uint32_t i = 0; !match && i < n_list; i++) {
      c->start = c->from[i];
      match = follow(c, c->list[i], before, now, collect);
    }
    if (!match && !found) {
      c->start = at;
      match = follow(c, 0, before, now, collect);
    }
    if (match) found = true, *begin = c->start, *end = at;
    uint32_t *const list = c->list;
    size_t *const from = c->from;
    c->list = c->next;
    c->from = c->from_next;
    c->next = list;
    c->from_next = from;
    n_list = c->n_next;
    c->budget -= 1 + (int64_t)n_list / 8;
    if (at >= n || (found && n_list == 0) || c->budget < 0) return found;
    before = now;
    at = next;
  }
}

ac_status aci_regex_find(aci_regex_cache *c, const char *s, size_t n, size_t from, size_t *begin, size_t *end,
                         bool *found, ac_err *e) {
  const aci_regex *r = c->r;
  int64_t wasted = 4096;
  *found = false;
  for (size_t at = from;;) {
    size_t next = at;
    if (!r->nullable)
      for (; at < n; at = next)
        if (aci_rx_bit(r->first, class_of(r, s, at, &next))) break;
    if (at >= n && !r->nullable) break;
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
  if (c->failed) {
    c->failed = false;
    return AC_FAIL(e, OOM, "no memory for a regular expression");
  }
  if (c->budget < 0)
    return AC_FAIL(
        e, UNSUPPORTED,
        "a regular expression of the tokenizer takes more than 64 steps per byte on a text of %zu bytes", n);
  return AC_OK;
}
