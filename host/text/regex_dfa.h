/* The automaton of one program, which regex_dfa.c builds state by state for regex_run.c. */
#ifndef ACI_REGEX_DFA_H
#define ACI_REGEX_DFA_H
#include "text/regex_impl.h"

enum { ACI_RX_DEAD = 0, ACI_RX_UNKNOWN = -1 };

typedef struct aci_rx_state {
  uint32_t at, n; /* its program counters: pcs[at .. at + n - 1] of the automaton */
  uint8_t before; /* class of the character before, if the program has assertions on it */
} aci_rx_state;

typedef struct aci_rx_dfa {
  const aci_regex *r;
  const aci_rx_program *p;
  /* every match counts, not only the preferred one: the pcs of a state are a set, none is dropped
   * after a match */
  bool all;
  uint32_t stride; /* classes, and the ends of the text */
  uint32_t row;    /* stride, times the number of lookaround results */
  uint32_t most;   /* states */
  int32_t *step;   /* [state][symbol]: next state * 2 + (1: a match ends here), or UNKNOWN */
  aci_rx_state *states;
  uint32_t *pcs; /* of all states, one after another */
  uint32_t n_states, n_pcs, cap_states, cap_pcs;
  uint32_t *slots; /* hash table of states, four for each. 0: free */
  bool failed;     /* no memory */
  uint32_t age;    /* how often all states were dropped */
  /* the state at the beginning, if it does not depend on the character before. DEAD: unknown */
  uint32_t begin;
  /* scratch, as long as the program */
  uint32_t *stack, *list, *next;
  uint32_t *mark, *mark_next; /* == stamp: seen */
  uint32_t stamp;
  size_t *from, *from_next; /* starts, of the simulation */
  uint32_t n_next;          /* in next, from_next */
  size_t start;             /* of the thread that is followed */
} aci_rx_dfa;

/* False: out of memory. aci_rx_dfa_close also accepts a DFA that was opened in part */
bool aci_rx_dfa_open(aci_rx_dfa *d, const aci_regex *r, const aci_rx_program *p, bool all);
void aci_rx_dfa_close(aci_rx_dfa *d);
void aci_rx_dfa_forget(aci_rx_dfa *d);
/* The state at the first pc of the program. */
uint32_t aci_rx_dfa_start(aci_rx_dfa *d, uint32_t before);
/* The step from a state whose step is unknown so far. symbol: class + stride * the lookaround
 * result */
int32_t aci_rx_dfa_compute(aci_rx_dfa *d, uint32_t number, uint32_t symbol);

/* For simulating the program without states: starts a new step. Appends to next from pc, true if it
 * reached a match. */
void aci_rx_dfa_stamp(aci_rx_dfa *d);
bool aci_rx_dfa_follow(aci_rx_dfa *d, uint32_t pc, uint32_t before, uint32_t now, uint32_t looks);

/* The results of all lookarounds at a position of the text, as a part of a symbol. */
static inline uint32_t aci_rx_symbol(const aci_rx_dfa *d, uint32_t class, uint32_t looks) {
  return class + d->stride * (looks & ((1u << d->p->looks) - 1));
}

#endif
