/* The automaton of one program, which regex_dfa.c builds state by state for regex_run.c. */
#ifndef ACI_REGEX_DFA_H
#define ACI_REGEX_DFA_H
#include "text/regex_impl.h"

enum { ACI_RX_DEAD = 0, ACI_RX_UNKNOWN = -1 };

typedef struct aci_rx_state {
  uint32_t at, n; /* its places */
  uint8_t before; /* class of the character before, where the program has assertions on it */
} aci_rx_state;

typedef struct aci_rx_dfa {
  const aci_regex *r;
  const aci_rx_program *p;
  bool all; /* every match counts, not the preferred one alone: places are a set, and none is cut off */
  uint32_t stride; /* classes, and the ends of the text */
  uint32_t row;    /* stride, times what lookaround may say */
  uint32_t most;   /* states */
  int32_t *step;   /* [state][symbol]: next state * 2 + (1: a match ends here), or UNKNOWN */
  aci_rx_state *states;
  uint32_t *places; /* of all states */
  uint32_t n_states, n_places, cap_states, cap_places;
  uint32_t *slots; /* hash table of states, four for each; 0: free */
  bool failed;     /* no memory */
  uint32_t age;    /* how often all states were dropped */
  /* the state at the beginning, where it does not depend on what stands before; DEAD: not known */
  uint32_t begin;
  /* scratch, as long as the program */
  uint32_t *stack, *list, *next;
  uint32_t *mark, *mark_next; /* == stamp: seen */
  uint32_t stamp;
  size_t *from, *from_next; /* starts, of the simulation */
  uint32_t n_next;          /* in next, from_next */
  size_t start;             /* of the thread that is followed */
} aci_rx_dfa;

/* false: no memory; aci_rx_dfa_close is for what was opened in part too */
bool aci_rx_dfa_open(aci_rx_dfa *d, const aci_regex *r, const aci_rx_program *p, bool all);
void aci_rx_dfa_close(aci_rx_dfa *d);
void aci_rx_dfa_forget(aci_rx_dfa *d);
/* The state at the first place of the program. */
uint32_t aci_rx_dfa_start(aci_rx_dfa *d, uint32_t before);
/* The step from a state that is not known yet. symbol: class + stride * what lookaround says */
int32_t aci_rx_dfa_compute(aci_rx_dfa *d, uint32_t number, uint32_t symbol);

/* For a simulation: a new step; and what it collects in next from a place, true where it came to a match. */
void aci_rx_dfa_stamp(aci_rx_dfa *d);
bool aci_rx_dfa_follow(aci_rx_dfa *d, uint32_t place, uint32_t before, uint32_t now, uint32_t looks);

/* What the lookaround of a place says to the program, as a part of a symbol. */
static inline uint32_t aci_rx_symbol(const aci_rx_dfa *d, uint32_t class, uint32_t looks) {
  return class + d->stride * (looks & ((1u << d->p->looks) - 1));
}

#endif
