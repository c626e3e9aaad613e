/* Interruption of a script: lac_step.c serves it at step boundaries. Set by a signal handler
 * through the host (host_interrupt.c), a prompt (lac_console.c) or a parent (lac_process.c). */
#ifndef LAC_INTERRUPT_H
#define LAC_INTERRUPT_H
#include <stdatomic.h>

#include "bindings/core/state.h"

/* A state's part. */
typedef struct lac_interrupt {
  _Atomic int signal;   /* requested. 0: nothing */
  _Atomic bool noticed; /* the script knows: a step came, or it asked */
  _Atomic bool as_flag; /* the script asks for it, nothing is raised */
  /* ... for SIGTERM and SIGUSR1 alone, upon which it saves its state and ends */
  _Atomic bool requeue;
  int64_t step_at;           /* ns of the last step. 0: none yet */
  _Atomic int64_t step_long; /* ns of the longest time between two */
  bool raised;               /* the interrupt on which ranks agreed was raised */
  int agreed;                /* ... or waits for accel.interrupted(): its signal. 0: none */
} lac_interrupt;

/* In place of a hook that has done its work: the host's own, which stops scripts and counts their
 * instructions, or none. */
void lac_host_rehook(lua_State *L);

#endif
