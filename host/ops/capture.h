/* Steps that a device records once and replays (accel.graph).
 *
 * A function is run some times as it is; the last of these runs is watched (AC_CAPTURE_WATCH): what could not be recorded is noted, and which leaves
 * get gradients. Then it runs once more while the device records instead of doing anything (AC_CAPTURE_RECORD); aci_capture_replay does what was
 * recorded, as often as one likes, with the host's part of it made good: RNG counters, versions of tensors, gradients of leaves.
 *
 * What a step holds still: memory that it allocates comes from a part of the pool that is kept for it; storages that it reads or writes and did not
 * make are retained. What a kernel was told by value is what it was when it was recorded: numbers that change from step to step live in device
 * memory (learning rate, step counts, loss scale), RNG counters are moved on by a word of device memory that a replay writes first. */
#ifndef ACI_OPS_CAPTURE_H
#define ACI_OPS_CAPTURE_H
#include "device/capture.h"
#include "ops/ctx_impl.h"

typedef struct aci_capture aci_capture;
typedef enum aci_capture_mode { AC_CAPTURE_WATCH, AC_CAPTURE_RECORD } aci_capture_mode;

/* For one function on one device, which the context has opened. UNSUPPORTED: the device records nothing. */
ac_status aci_capture_open(ac_ctx *c, ac_device *d, aci_capture **out, ac_err *e);
/* Its graph goes; results in its memory stay good. Also while it runs: then it is ended first. */
void aci_capture_close(aci_capture *k);

/* Begins a run of the function. STATE where another one is under way on the device. */
ac_status aci_capture_begin(aci_capture *k, aci_capture_mode mode, ac_err *e);
/* Ends it. keep: the run ended well; what was recorded can be replayed if nothing spoke against it (aci_capture_why). Otherwise it counts for
 * nothing: counters and gradients are those of its begin. */
ac_status aci_capture_end(aci_capture *k, bool keep, ac_err *e);
/* The run under way cannot be recorded: why, in words that go on "... inside of it". The first reason stays. Nothing without a run. */
void aci_capture_note(const aci_capture *k, const char *why);
/* "" where nothing speaks against it. Alive until the next begin. */
const char *aci_capture_why(const aci_capture *k);
/* How many leaves got gradients, and how many step boundaries there were. */
int aci_capture_leaves(const aci_capture *k);
int aci_capture_steps(const aci_capture *k);

/* Whether the run that ended last, watched or recorded, wrote to the tensor's memory. */
bool aci_capture_wrote(const aci_capture *k, const ac_tensor *t);

/* Whether a replay would do what a call of the function does now: the generator and the gradients of leaves are such as they were when it was
 * recorded. NULL: yes; else what is not. */
const char *aci_capture_differs(const aci_capture *k);
/* Does what was recorded. The first call follows the recording, which has moved the host's part on already; each later one moves it, except for step
 * boundaries: the caller makes those (aci_capture_steps), between replay and aci_capture_settle. */
ac_status aci_capture_replay(aci_capture *k, ac_err *e);
void aci_capture_settle(aci_capture *k);

#endif
