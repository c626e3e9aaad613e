/* One pass over a short contiguous run into one value, as vector code, in an order that depends on
 * n alone: 128 lanes (enough chains to hide the latency of a step), then 32, then 8, then one by
 * one, then folded. The parts are kept apart, because writing single elements of a lane array and
 * reading it as a whole stalls for longer than a short row takes. */
#ifndef ACI_OPS_LANES_H
#define ACI_OPS_LANES_H
#include <stdint.h>

#include "device/cpu/isa.h"

enum { ACI_LANES_WIDE = 128, ACI_LANES_PAIR = 64, ACI_LANES = 32, ACI_LANES_SMALL = 8 };

#define ACI_LANES_HALVE(s, w, JOIN) \
  for (int k_ = 0; k_ < (w); k_++) s[k_] = JOIN(s[k_], s[k_ + (w)]);

/* Declares T result. STEP(a, i): a after element i was added. JOIN(a, b): two parts as one. Both
 * are macros. init is neutral to JOIN. */
#define ACI_LANES_RUN(T, result, n, init, STEP, JOIN)                                \
  T result = (init);                                                                 \
  do {                                                                               \
    T w_[ACI_LANES_WIDE], s_[ACI_LANES], t_[ACI_LANES_SMALL];                        \
    int64_t i_ = 0;                                                                  \
    if ((n) >= 2 * ACI_LANES_WIDE) {                                                 \
      for (int k_ = 0; k_ < ACI_LANES_WIDE; k_++) w_[k_] = (init);                   \
      for (; i_ + ACI_LANES_WIDE <= (n); i_ += ACI_LANES_WIDE)                       \
        for (int k_ = 0; k_ < ACI_LANES_WIDE; k_++) w_[k_] = STEP(w_[k_], i_ + k_);  \
      ACI_LANES_HALVE(w_, 64, JOIN)                                                  \
      ACI_LANES_HALVE(w_, 32, JOIN)                                                  \
      ACI_LANES_HALVE(w_, 16, JOIN)                                                  \
      ACI_LANES_HALVE(w_, 8, JOIN)                                                   \
      ACI_LANES_HALVE(w_, 4, JOIN)                                                   \
      result = JOIN(JOIN(w_[0], w_[1]), JOIN(w_[2], w_[3]));                         \
    }                                                                                \
    if (i_ + ACI_LANES <= (n)) {                                                     \
      for (int k_ = 0; k_ < ACI_LANES; k_++) s_[k_] = (init);                        \
      for (; i_ + ACI_LANES <= (n); i_ += ACI_LANES)                                 \
        for (int k_ = 0; k_ < ACI_LANES; k_++) s_[k_] = STEP(s_[k_], i_ + k_);       \
      ACI_LANES_HALVE(s_, 16, JOIN)                                                  \
      ACI_LANES_HALVE(s_, 8, JOIN)                                                   \
      ACI_LANES_HALVE(s_, 4, JOIN)                                                   \
      result = JOIN(result, JOIN(JOIN(s_[0], s_[1]), JOIN(s_[2], s_[3])));           \
    }                                                                                \
    if (i_ + ACI_LANES_SMALL <= (n)) {                                               \
      for (int k_ = 0; k_ < ACI_LANES_SMALL; k_++) t_[k_] = (init);                  \
      for (; i_ + ACI_LANES_SMALL <= (n); i_ += ACI_LANES_SMALL)                     \
        for (int k_ = 0; k_ < ACI_LANES_SMALL; k_++) t_[k_] = STEP(t_[k_], i_ + k_); \
      ACI_LANES_HALVE(t_, 4, JOIN)                                                   \
      result = JOIN(result, JOIN(JOIN(t_[0], t_[1]), JOIN(t_[2], t_[3])));           \
    }                                                                                \
    for (; i_ < (n); i_++) result = STEP(result, i_);                                \
  } while (0)

/* Two sums over one run in one pass: declares T r1, r2. STEP1, STEP2 as above. */
#define ACI_LANES_SUM2(T, r1, r2, n, STEP1, STEP2)                                      \
  T r1 = 0, r2 = 0;                                                                     \
  do {                                                                                  \
    T a_[ACI_LANES_PAIR], b_[ACI_LANES_PAIR], c_[ACI_LANES_SMALL], d_[ACI_LANES_SMALL]; \
    int64_t i_ = 0;                                                                     \
    if ((n) >= ACI_LANES_PAIR) {                                                        \
      for (int k_ = 0; k_ < ACI_LANES_PAIR; k_++) a_[k_] = b_[k_] = 0;                  \
      for (; i_ + ACI_LANES_PAIR <= (n); i_ += ACI_LANES_PAIR)                          \
        for (int k_ = 0; k_ < ACI_LANES_PAIR; k_++) {                                   \
          a_[k_] = STEP1(a_[k_], i_ + k_);                                              \
          b_[k_] = STEP2(b_[k_], i_ + k_);                                              \
        }                                                                               \
      ACI_LANES_HALVE(a_, 32, ACI_JOIN_ADD)                                             \
      ACI_LANES_HALVE(b_, 32, ACI_JOIN_ADD)                                             \
      ACI_LANES_HALVE(a_, 16, ACI_JOIN_ADD)                                             \
      ACI_LANES_HALVE(b_, 16, ACI_JOIN_ADD)                                             \
      ACI_LANES_HALVE(a_, 8, ACI_JOIN_ADD)                                              \
      ACI_LANES_HALVE(b_, 8, ACI_JOIN_ADD)                                              \
      ACI_LANES_HALVE(a_, 4, ACI_JOIN_ADD)                                              \
      ACI_LANES_HALVE(b_, 4, ACI_JOIN_ADD)                                              \
      r1 = (a_[0] + a_[1]) + (a_[2] + a_[3]);                                           \
      r2 = (b_[0] + b_[1]) + (b_[2] + b_[3]);                                           \
    }                                                                                   \
    if (i_ + ACI_LANES_SMALL <= (n)) {                                                  \
      for (int k_ = 0; k_ < ACI_LANES_SMALL; k_++) c_[k_] = d_[k_] = 0;                 \
      for (; i_ + ACI_LANES_SMALL <= (n); i_ += ACI_LANES_SMALL)                        \
        for (int k_ = 0; k_ < ACI_LANES_SMALL; k_++) {                                  \
          c_[k_] = STEP1(c_[k_], i_ + k_);                                              \
          d_[k_] = STEP2(d_[k_], i_ + k_);                                              \
        }                                                                               \
      ACI_LANES_HALVE(c_, 4, ACI_JOIN_ADD)                                              \
      ACI_LANES_HALVE(d_, 4, ACI_JOIN_ADD)                                              \
      r1 += (c_[0] + c_[1]) + (c_[2] + c_[3]);                                          \
      r2 += (d_[0] + d_[1]) + (d_[2] + d_[3]);                                          \
    }                                                                                   \
    for (; i_ < (n); i_++) {                                                            \
      r1 = STEP1(r1, i_);                                                               \
      r2 = STEP2(r2, i_);                                                               \
    }                                                                                   \
  } while (0)

/* Prefetches the n bytes at p. Call it before working on the bytes before them: rows are often
 * whole pages, at whose ends the hardware stops prefetching. Long rows need no help. p may point
 * anywhere: nothing is read. */
static inline AC_INLINE void aci_prefetch(uintptr_t p, int64_t n) {
  if (n < 1024 || n > 16384) return;
  for (int64_t i = 0; i < n; i += 64) __builtin_prefetch((const void *)(p + (uintptr_t)i));
}
/* The row that follows the one of n bytes at p. */
static inline AC_INLINE void aci_row_ahead(const void *p, int64_t n) {
  aci_prefetch((uintptr_t)p + (uintptr_t)n, n);
}

#define ACI_JOIN_ADD(a, b) ((a) + (b))

#endif
