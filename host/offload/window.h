/* What window.c and trace.c share: the order of uses. With the queue's lock held. */
#ifndef ACI_OFFLOAD_WINDOW_H
#define ACI_OFFLOAD_WINDOW_H
#include "offload/offload.h"

/* Number i is used now: finds it in the last pass and puts w->pos behind it. */
void aci_window_record(aci_window *w, int i);
/* The pass ends: its uses are the ones expected. */
void aci_window_turn(aci_window *w);
/* Uses from now until number i is used, as far as is known; INT_MAX: it is not. */
int aci_window_distance(const aci_window *w, int i);

#endif
