/* The recorder that runs in a Lua state: lac_profile.c. */
#ifndef LAC_PROFILE_H
#define LAC_PROFILE_H
#include "accel/profile.h"

struct recorder;
/* A state's part. */
typedef struct lac_profiling {
  ac_profile *running;       /* NULL: none */
  struct recorder *recorder; /* its handle */
} lac_profiling;

struct lac_state;
/* lac_offload.c: p records transfers between tiers from now on. NULL: no recording. */
void lac_offload_watch(struct lac_state *S, const ac_profile *p);

#endif
