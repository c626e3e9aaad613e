/* Declarations shared by window.c and trace.c: the order of uses. With the queue's lock held. */
#ifndef ACI_OFFLOAD_WINDOW_H
#define ACI_OFFLOAD_WINDOW_H
#include "offload/offload.h"

/* Number i is used now: finds it in the last pass and moves w->pos past it. */
void aci_window_record(aci_window *w, int i);
/* The pass ends: its uses are the ones expected. */
void aci_window_turn(aci_window *w);
/* Before any pass was seen: storages are expected to be used in the order in which they were made,
 * as layers mostly are. */
void aci_window_guess(aci_window *w);
/* Uses from now until number i is used, as far as known. INT_MAX: unknown. */
int aci_window_distance(const aci_window *w, int i);

/* ---- resident.c ---- */
bool aci_on_cpu(const aci_window *w);
bool aci_is_paged(const aci_tiered *t);
/* Whether the home is memory of the window's device, so that nothing ever has to come. */
bool aci_is_at_home(const aci_window *w, const aci_tiered *t);
/* Memory of the device for t, or the present place of its bytes. OOM as from a pool. The caller
 * must then send for the pages of a map, or for bytes that are not in place. */
ac_status aci_resident_make(aci_window *w, aci_tiered *t, ac_err *e);
void aci_resident_drop(aci_window *w, aci_tiered *t); /* not there afterwards */
/* stage: page-locked memory on the way to or from the device. unstage: releases it. UNSUPPORTED
 * while work is recorded. */
ac_status aci_resident_stage(aci_window *w, aci_tiered *t, ac_err *e);
void aci_resident_unstage(aci_window *w, aci_tiered *t);
/* The bytes were read: moves them to the place at which kernels find them. */
ac_status aci_resident_arrive(aci_window *w, aci_tiered *t, ac_err *e);
/* A map that is held and was written: its bytes get a block of their own, if there is room for
 * one. */
void aci_resident_own(aci_window *w, aci_tiered *t);
void aci_resident_unmap(aci_tiered *t); /* of one that is out: no map afterwards */

/* ---- copies.c ---- */
/* Before a transfer of t through t->stage: makes the events and records the position of the compute
 * stream. Does nothing on a device without streams. */
ac_status aci_lane_open(aci_window *w, aci_tiered *t, ac_err *e);
ac_status aci_lane_start_down(aci_lane *x, void *to, size_t bytes, ac_err *e);
/* The compute stream waits for the copy to the device, if one is under way. t->stage is kept until
 * the copy is done. UNSUPPORTED: work is recorded. */
ac_status aci_lane_arrive(aci_window *w, aci_tiered *t, ac_err *e);
/* Before the memory of t goes, whatever copy is under way: the device's is not used again before
 * it, t->stage is kept until it is through. */
void aci_lane_end(aci_window *w, aci_tiered *t);
/* Frees the page-locked memory of finished copies. all: waits for the others. True: there was
 * some. */
bool aci_lanes_reclaim(aci_window *w, bool all);
void aci_lane_close(aci_window *w, aci_tiered *t); /* of one that goes */
void aci_lanes_close(aci_window *w);

#endif
