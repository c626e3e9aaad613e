/* Regular expressions: the DFA of a program, built lazily. A state is the list of program counters
 * (pcs, as of a Pike VM), the preferred first, that the text so far leads to. Assertions are
 * decided when the next character is known, so a match is reported one character late. Called by
 * regex_run.c. */
#include "text/regex_dfa.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_STATES = 64, STATES = 4096, STEPS = 1 << 20, FIRST_PCS = 1024, PCS = 1 << 18 };

bool aci_rx_dfa_open(aci_rx_dfa *d, const aci_regex *r, const aci_rx_program *p, bool all) {
  const size_t n = p->n;
  *d = (aci_rx_dfa){.r = r, .p = p, .all = all, .stride = r->n_class + 2};
  d->row = d->stride << p->looks;
  for (d->most = 8; d->most < STATES && d->most * 2 * d->row <= STEPS / (1 + r->n_look);)
    d->most *= 2;
  d->cap_states = d->most < FIRST_STATES ? d->most : FIRST_STATES;
  d->cap_pcs = FIRST_PCS;
  d->step = malloc((size_t)d->cap_states * d->row * sizeof *d->step);
  d->states = malloc(d->cap_states * sizeof *d->states);
  d->pcs = malloc(FIRST_PCS * sizeof *d->pcs);
  d->slots = malloc(4 * (size_t)d->cap_states * sizeof *d->slots);
  d->stack = malloc((2 * n + 2) * sizeof *d->stack);
  d->list = malloc(n * sizeof *d->list);
  d->next = malloc(n * sizeof *d->next);
  d->mark = calloc(n, sizeof *d->mark);
  d->mark_next = calloc(n, sizeof *d->mark_next);
  d->from = malloc(n * sizeof *d->from);
  d->from_next = malloc(n * sizeof *d->from_next);
  return d->step != NULL && d->states != NULL && d->pcs != NULL && d->slots != NULL &&
         d->stack != NULL && d->list != NULL && d->next != NULL && d->mark != NULL &&
         d->mark_next != NULL && d->from != NULL && d->from_next != NULL;
}

void aci_rx_dfa_close(aci_rx_dfa *d) {
  void *const parts[] = {d->step, d->states, d->pcs,       d->slots, d->stack,    d->list,
                         d->next, d->mark,   d->mark_next, d->from,  d->from_next};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) free(parts[i]);
}

/* Drops all states but the dead one. */
void aci_rx_dfa_forget(aci_rx_dfa *d) {
  d->n_states = 1;
  d->age++;
  d->begin = ACI_RX_DEAD;
  d->n_pcs = 0;
  memset(d->slots, 0, 4 * (size_t)d->cap_states * sizeof *d->slots);
  for (uint32_t k = 0; k < d->row; k++) d->step[k] = ACI_RX_DEAD;
  d->states[ACI_RX_DEAD] = (aci_rx_state){0, 0, 0};
}

static uint64_t hash_of(const uint32_t *pcs, uint32_t n, uint32_t before) {
  uint64_t h = before + 0x9E3779B97F4A7C15u * n;
  for (uint32_t i = 0; i < n; i++) h = (h ^ pcs[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
  return h;
}

/* Makes room for one more state of n pcs. False: the limits or the memory do not allow it. */
static bool room(aci_rx_dfa *d, uint32_t n) {
  if (d->n_pcs + n > d->cap_pcs) {
    uint32_t cap = d->cap_pcs;
    while (cap < PCS && d->n_pcs + n > cap) cap *= 2;
    uint32_t *pcs = d->n_pcs + n > cap ? NULL : realloc(d->pcs, cap * sizeof *pcs);
    if (pcs == NULL) return false;
    d->pcs = pcs;
    d->cap_pcs = cap;
  }
  if (d->n_states < d->cap_states) return true;
  if (d->cap_states == d->most) return false;
  const uint32_t cap = d->cap_states * 4 < d->most ? d->cap_states * 4 : d->most;
  int32_t *step = realloc(d->step, (size_t)cap * d->row * sizeof *step);
  if (step != NULL) d->step = step;
  aci_rx_state *states = realloc(d->states, cap * sizeof *states);
  if (states != NULL) d->states = states;
  uint32_t *slots = step != NULL && states != NULL ? calloc(4 * (size_t)cap, sizeof *slots) : NULL;
  if (slots == NULL) return false;
  free(d->slots);
  d->slots = slots;
  d->cap_states = cap;
  for (uint32_t i = 1; i < d->n_states; i++) {
    const aci_rx_state *s = &d->states[i];
    uint32_t slot = (uint32_t)(hash_of(d->pcs + s->at, s->n, s->before) & (4 * cap - 1));
    while (slots[slot] != 0) slot = (slot + 1) & (4 * cap - 1);
    slots[slot] = i;
  }
  return true;
}

/* The state of these pcs. Drops all others when there is no room. */
static uint32_t state_of(aci_rx_dfa *d, const uint32_t *pcs, uint32_t n, uint32_t before) {
  if (n == 0) return ACI_RX_DEAD;
  if (!room(d, n)) {
    aci_rx_dfa_forget(d);
    if (!room(d, n)) return d->failed = true, ACI_RX_DEAD;
  }
  const uint32_t mask = 4 * d->cap_states - 1;
  uint32_t slot = (uint32_t)(hash_of(pcs, n, before) & mask);
  for (; d->slots[slot] != 0; slot = (slot + 1) & mask) {
    const aci_rx_state *s = &d->states[d->slots[slot]];
    if (s->n == n && s->before == before && memcmp(d->pcs + s->at, pcs, n * sizeof *pcs) == 0)
      return d->slots[slot];
  }
  const uint32_t number = d->n_states++;
  d->slots[slot] = number;
  d->states[number] = (aci_rx_state){d->n_pcs, n, (uint8_t)before};
  memcpy(d->pcs + d->n_pcs, pcs, n * sizeof *pcs);
  d->n_pcs += n;
  for (uint32_t k = 0; k < d->row; k++) d->step[(size_t)number * d->row + k] = ACI_RX_UNKNOWN;
  return number;
}

uint32_t aci_rx_dfa_start(aci_rx_dfa *d, uint32_t before) {
  const uint32_t zero = 0;
  if (d->begin != ACI_RX_DEAD) return d->begin;
  const uint32_t number = state_of(d, &zero, 1, d->p->behind ? before : 0);
  if (!d->p->behind) d->begin = number;
  return number;
}

void aci_rx_dfa_stamp(aci_rx_dfa *d) {
  d->n_next = 0;
  if (++d->stamp != 0) return;
  memset(d->mark, 0, d->p->n * sizeof *d->mark);
  memset(d->mark_next, 0, d->p->n * sizeof *d->mark_next);
  d->stamp = 1;
}

static void collect(aci_rx_dfa *d, uint32_t pc) {
  if (d->mark_next[pc] == d->stamp) return;
  d->mark_next[pc] = d->stamp;
  d->from_next[d->n_next] = d->start;
  d->next[d->n_next++] = pc;
}

/* Follows the program from pc through all instructions that read no character, the preferred branch
 * first, and appends to next the pcs after the character. true: it reached a match, and less
 * preferred branches no longer matter. */
bool aci_rx_dfa_follow(aci_rx_dfa *d, uint32_t pc, uint32_t before, uint32_t now, uint32_t looks) {
  const aci_regex *r = d->r;
  bool match = false;
  uint32_t n = 0;
  d->stack[n++] = pc;
  while (n > 0) {
    const uint32_t at = d->stack[--n];
    if (d->mark[at] == d->stamp) continue;
    d->mark[at] = d->stamp;
    const aci_rx_inst *i = &d->p->inst[at];
    switch (i->op) {
      case ACI_RX_OP_SET:
        if (now < r->n_class && aci_rx_bit(r->set[i->set], now)) collect(d, i->x);
        break;
      case ACI_RX_OP_SPLIT:
        d->stack[n++] = i->y;
        d->stack[n++] = i->x;
        break;
      case ACI_RX_OP_JUMP: d->stack[n++] = i->x; break;
      case ACI_RX_OP_AHEAD:
        if (aci_rx_bit(r->set[i->set], now)) d->stack[n++] = i->x;
        break;
      case ACI_RX_OP_BEHIND:
        if (aci_rx_bit(r->set[i->set], before)) d->stack[n++] = i->x;
        break;
      case ACI_RX_OP_LOOK:
        if (looks >> i->set & 1) d->stack[n++] = i->x;
        break;
      default:
        if (!d->all) return true;
        match = true;
    }
  }
  return match;
}

static int by_number(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

int32_t aci_rx_dfa_compute(aci_rx_dfa *d, uint32_t number, uint32_t symbol) {
  const aci_rx_state *s = &d->states[number];
  const uint32_t now = symbol % d->stride, looks = symbol / d->stride;
  bool match = false;
  aci_rx_dfa_stamp(d);
  d->start = 0;
  for (uint32_t i = 0; (d->all || !match) && i < s->n; i++)
    if (aci_rx_dfa_follow(d, d->pcs[s->at + i], s->before, now, looks)) match = true;
  if (d->all) qsort(d->next, d->n_next, sizeof *d->next, by_number);
  const uint32_t age = d->age;
  const uint32_t to = state_of(d, d->next, d->n_next, d->p->behind ? now : 0);
  const int32_t step = (int32_t)(to * 2 + match);
  /* else the row was dropped */
  if (d->age == age) d->step[(size_t)number * d->row + symbol] = step;
  return step;
}
