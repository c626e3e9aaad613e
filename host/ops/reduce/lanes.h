/* One pass over a short contiguous run into one value, as vector code, in an order that depends on n alone:
 * 32 lanes, then 8, then one by one, then folded. The parts are kept apart, because writing single elements
 * of a lane array and reading it as a whole stalls for longer than a short row takes. */
#ifndef ACI_OPS_LANES_H
#define ACI_OPS_LANES_H
#include "device/cpu/isa.h"

enum { ACI_LANES = 32, ACI_LANES_SMALL = 8 };

#define ACI_FOLD(s, w, JOIN) \
  for (int k_ = 0; k_ < (w); k_++) s[k_] = JOIN(s[k_], s[k_ + (w)]);

/* Declares T result. STEP(a, i): a after element i was added; JOIN(a, b): two parts as one; both are macros.
 * init is neutral to JOIN. */
#define ACI_LANES_RUN(T, result, n, init, STEP, JOIN)                                \
  T result = (init);                                                                 \
  do {                                                                               \
    T s_[ACI_LANES], t_[ACI_LANES_SMALL];                                            \
    int64_t i_ = 0;                                                                  \
    if ((n) >= ACI_LANES) {                                                          \
      for (int k_ = 0; k_ < ACI_LANES; k_++) s_[k_] = (init);                        \
      for (; i_ + ACI_LANES <= (n); i_ += ACI_LANES)                                 \
        for (int k_ = 0; k_ < ACI_LANES; k_++) s_[k_] = STEP(s_[k_], i_ + k_);       \
      ACI_FOLD(s_, 16, JOIN)                                                         \
      ACI_FOLD(s_, 8, JOIN)                                                          \
      ACI_FOLD(s_, 4, JOIN)                                                          \
      result = JOIN(JOIN(s_[0], s_[1]), JOIN(s_[2], s_[3]));                         \
    }                                                                                \
    if (i_ + ACI_LANES_SMALL <= (n)) {                                               \
      for (int k_ = 0; k_ < ACI_LANES_SMALL; k_++) t_[k_] = (init);                  \
      for (; i_ + ACI_LANES_SMALL <= (n); i_ += ACI_LANES_SMALL)                     \
        for (int k_ = 0; k_ < ACI_LANES_SMALL; k_++) t_[k_] = STEP(t_[k_], i_ + k_); \
      ACI_FOLD(t_, 4, JOIN)                                                          \
      result = JOIN(result, JOIN(JOIN(t_[0], t_[1]), JOIN(t_[2], t_[3])));           \
    }                                                                                \
    for (; i_ < (n); i_++) result = STEP(result, i_);                                \
  } while (0)

#define ACI_JOIN_ADD(a, b) ((a) + (b))

#endif
