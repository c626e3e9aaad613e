/* Types shared by the files regex_*.c: sets of code points, the syntax tree, the program. */
#ifndef ACI_REGEX_IMPL_H
#define ACI_REGEX_IMPL_H
#include "text/regex.h"

enum {
  ACI_RX_DEPTH = 64, /* of groups and classes */
  ACI_RX_NODES = 1 << 16,
  ACI_RX_PROGRAM = 1 << 15,
  ACI_RX_STEPS = 1 << 20, /* of the passes over the tree */
  ACI_RX_WORK = 1 << 20,  /* of the parser: ranges of sets that are read, united and folded */
  ACI_RX_SETS = 1024,
  /* of characters that no set distinguishes. Two more stand for the ends of the text */
  ACI_RX_CLASSES = 250,
  ACI_RX_REPEAT = 1000,
  ACI_RX_LOOKS = 8 /* lookaround over more than one character: a bit of a byte each */
};

/* Sorted, disjoint, not touching ranges [first, last]. */
typedef struct aci_rx_set {
  uint32_t (*r)[2];
  uint32_t n, cap;
  bool edge; /* of lookaround: also the end of the text, or its beginning */
} aci_rx_set;

typedef enum aci_rx_kind {
  ACI_RX_EMPTY,
  ACI_RX_SET,
  ACI_RX_CAT,
  ACI_RX_ALT,
  ACI_RX_REPEAT_N,
  ACI_RX_AHEAD,  /* the next character, or the end of the text, is of the set */
  ACI_RX_BEHIND, /* the one before is */
  ACI_RX_LOOK    /* lookaround number `set` of the tree holds here */
} aci_rx_kind;
enum { ACI_RX_GREEDY, ACI_RX_LAZY };

/* Nodes by number, 0: none. Children are a linked list, so that long patterns are not deep. */
typedef struct aci_rx_node {
  uint8_t kind, greed;
  bool once; /* from one position it matches in at most one way: a converted atomic group */
  uint16_t set;
  uint32_t child, next;
  int32_t min, max; /* max -1: no limit */
} aci_rx_node;

/* Lookaround over more than one character. Inner ones come before those around them. */
typedef struct aci_rx_look {
  uint32_t child; /* of lookahead: turned round, to be read from right to left */
  bool ahead, negated;
} aci_rx_look;

typedef struct aci_rx_tree {
  aci_rx_node *node;
  uint32_t n, cap;
  aci_rx_set *set;
  uint32_t n_set, cap_set;
  aci_rx_look look[ACI_RX_LOOKS];
  uint32_t n_look;
  uint16_t any; /* the set of all characters, if there is lookaround */
  uint32_t root;
} aci_rx_tree;

ac_status aci_rx_parse(const char *pattern, size_t n, aci_rx_tree *t, ac_err *e);
void aci_rx_tree_fini(aci_rx_tree *t);

/* ---- sets: false without memory ---- */
bool aci_rx_add(aci_rx_set *s, uint32_t first, uint32_t last);
bool aci_rx_unite(aci_rx_set *s, const aci_rx_set *other);
bool aci_rx_intersect(aci_rx_set *s, const aci_rx_set *other);
bool aci_rx_complement(aci_rx_set *s);
bool aci_rx_has(const aci_rx_set *s, uint32_t c);
bool aci_rx_close_case(aci_rx_set *s);
/* Adds \p{name}. *known: whether it exists. */
bool aci_rx_property(aci_rx_set *s, const char *name, size_t n, bool *known);
/* Adds [:name:], equal to \p{name} except for punct. */
bool aci_rx_bracket(aci_rx_set *s, const char *name, size_t n, bool *known);
bool aci_rx_add_space(aci_rx_set *s);
/* Adds \w. Outside [...] it includes a few numbers of Latin-1. */
bool aci_rx_add_word(aci_rx_set *s, bool outside);

/* ---- program ---- */
typedef enum aci_rx_op {
  ACI_RX_OP_SET,
  ACI_RX_OP_SPLIT,
  ACI_RX_OP_JUMP,
  ACI_RX_OP_AHEAD,
  ACI_RX_OP_BEHIND,
  ACI_RX_OP_LOOK,
  ACI_RX_OP_MATCH
} aci_rx_op;
typedef struct aci_rx_inst {
  uint8_t op;
  uint16_t set;
  uint32_t x, y; /* next instruction. A split tries x first */
} aci_rx_inst;

typedef struct aci_rx_program {
  aci_rx_inst *inst;
  uint32_t n;
  uint32_t looks;    /* it refers to lookarounds with numbers below this */
  uint64_t first[4]; /* classes with which a match may begin */
  bool nullable, behind;
} aci_rx_program;

struct aci_regex {
  aci_rx_program main;
  struct {
    aci_rx_program p; /* finds a match that ends here, wherever it began */
    bool ahead, negated;
  } look[ACI_RX_LOOKS];
  uint32_t n_look;
  uint64_t (*set)[4]; /* bit = class */
  uint32_t n_set;
  uint32_t n_class; /* then the end of the text, then its beginning */
  uint8_t ascii[128];
  uint16_t page[0x1100]; /* class of c: cell[page[c >> 8]][c & 255] */
  uint8_t (*cell)[256];
};

static inline bool aci_rx_bit(const uint64_t set[4], uint32_t c) {
  return set[c >> 6] >> (c & 63) & 1;
}

#endif
