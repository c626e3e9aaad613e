/* Scratch for the pieces of a parallel loop: as many buffers as pieces can run at once, taken from
 * the device's pool before anything is written, handed to whichever piece runs. A buffer's contents
 * never outlive its piece, so results do not depend on the assignment of buffers. */
#ifndef ACI_OPS_SLOTS_H
#define ACI_OPS_SLOTS_H
#include <stdatomic.h>

#include "accel/opdef.h"

enum { ACI_MAX_SLOTS = 256 };

typedef struct aci_slots {
  ac_block *block;
  char *base;
  size_t bytes; /* of each, a multiple of 64 */
  int n;
  atomic_flag busy[ACI_MAX_SLOTS];
} aci_slots;

/* n_pieces: how many the loop has at most. bytes 0 is fine. */
static inline ac_status aci_slots_open(aci_slots *s, ac_frame *f, int64_t n_pieces, size_t bytes,
                                       ac_err *e) {
  int64_t n = f->team != NULL ? ac_team_size(f->team) : 1;
  if (n > n_pieces) n = n_pieces;
  s->n = (int)(n < 1 ? 1 : n > ACI_MAX_SLOTS ? ACI_MAX_SLOTS : n);
  s->bytes = (bytes + 63) / 64 * 64;
  s->block = NULL;
  for (int i = 0; i < s->n; i++) atomic_flag_clear_explicit(&s->busy[i], memory_order_relaxed);
  AC_TRY(ac_block_alloc(f->device, s->bytes * (size_t)s->n, AC_MEM_ACTIVATION, f->stream, &s->block,
                        e));
  s->base = (char *)ac_block_ptr(s->block);
  return AC_OK;
}
static inline void aci_slots_close(aci_slots *s) { ac_block_free(s->block); }

static inline int aci_slots_take(aci_slots *s) {
  for (int i = 0;; i = i + 1 < s->n ? i + 1 : 0)
    if (!atomic_flag_test_and_set_explicit(&s->busy[i], memory_order_acquire)) return i;
}
static inline void aci_slots_give(aci_slots *s, int i) {
  atomic_flag_clear_explicit(&s->busy[i], memory_order_release);
}
static inline char *aci_slots_at(const aci_slots *s, int i) {
  return s->base + s->bytes * (size_t)i;
}

#endif
