/* How random ops draw. Every value is a function of its position, never of threads, memory layout
 * or earlier draws:
 *
 *   key     = seed ^ stream * 0x9E3779B97F4A7C15
 *   counter = (block, step << 32 | ordinal)          step and ordinal come from the call's RNG
 *   counter
 *
 * Draws that belong to rows of the global batch (dropout) use the ordinal within the micro-batch,
 * so that they do not depend on the cut of the batch. All others count through the step, with bit
 * 31 set from its second micro-batch on.
 *
 * Philox gives four 32-bit words per counter. Element i (row-major position in the tensor, from 0)
 * takes
 *   32-bit draws (f32, f16, bf16, dropout, bernoulli): word i % 4 of block i / 4, 64-bit draws
 *   (f64, integers, permutations): words 2 (i % 2) and 2 (i % 2) + 1 of block i / 2, low half
 *     first.
 *   normals: Box-Muller on neighbours: elements 2j and 2j + 1 from the words (f64: the 64-bit
 *   draws) of both.
 * Dropout counts elements of the global batch: i = row0 * (elements per row) + local position, with
 * row0 from the call's counter. */
#ifndef ACI_OPS_DRAW_H
#define ACI_OPS_DRAW_H
#include "base/philox.h"
#include "ops/index/index.h"

typedef struct aci_draw {
  uint64_t key, call;
} aci_draw;

static inline aci_draw aci_draw_of_rows(const ac_generator *rng_counter) {
  aci_draw d = {rng_counter->seed ^ (uint64_t)rng_counter->stream * 0x9E3779B97F4A7C15u,
                (uint64_t)rng_counter->step << 32 | rng_counter->ordinal};
  return d;
}
static inline aci_draw aci_draw_of(const ac_generator *rng_counter) {
  aci_draw d = aci_draw_of_rows(rng_counter);
  if (rng_counter->drawn != 0) d.call += rng_counter->drawn | UINT32_C(1) << 31;
  return d;
}

/* Places a tensor of ndim dims among those of all ranks: adds the counter's first row and ranges to
 * first[], and puts the larger extents into extent[], which holds the tensor's own. SHAPE if a
 * range does not hold the tensor. */
ac_status aci_draw_ranges(const ac_generator *rng_counter, int ndim, int64_t *first,
                          int64_t *extent, ac_err *e);

enum { ACI_DRAW_ROW = 1024 }; /* elements drawn at a time */
/* Words 4 first .. 4 (first + n) - 1. */
void aci_draw_words(const aci_draw *d, uint64_t first, int64_t n, uint32_t *words);

/* Turns the words of n elements, 4 / per_block each, into values of the compute type. n is even. */
typedef void (*aci_draw_fn)(int64_t n, const uint32_t *words, const void *params, void *row);
/* Fills x (any strides and dtype) with fn's values. per_block elements share a block: 4 or 2. */
void aci_draw_fill(ac_frame *f, const ac_tensor *x, aci_ctype ct, int per_block, aci_draw_fn fn,
                   const void *params);

/* Gradient rule of ops that overwrite their tensor: nothing flows to the old values. */
void aci_draw_no_grad(ac_grad *g);

#endif
