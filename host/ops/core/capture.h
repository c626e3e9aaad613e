/* Steps that a device records once and replays (accel.graph).
 *
 * A function first runs normally a few times. The last of these runs is watched (AC_CAPTURE_WATCH):
 * operations that cannot be recorded are
 * noted, and the leaves that get gradients. Then it runs once more while the device records instead
 * of executing (AC_CAPTURE_RECORD). aci_capture_replay runs the recording, any number of times, and
 * updates the host's part: RNG counters, versions of tensors, gradients of leaves.
 *
 * A step pins its memory: its allocations come from a part of the pool that is kept for it, and
 * storages from outside that it reads or writes are retained. Values passed to kernels stay as they
 * were at recording. So numbers that change from step to step are in device memory (learning rate,
 * step counts, loss scale), and RNG counters are advanced by a word of device memory that a replay
 * writes first. */
#ifndef ACI_OPS_CAPTURE_H
#define ACI_OPS_CAPTURE_H
#include "device/capture.h"
#include "ops/core/ctx_impl.h"

typedef struct aci_capture aci_capture;
typedef enum aci_capture_mode { AC_CAPTURE_WATCH, AC_CAPTURE_RECORD } aci_capture_mode;

/* For one function on one device, which the context has opened. UNSUPPORTED: the device records
 * nothing. */
ac_status aci_capture_open(ac_ctx *c, ac_device *d, aci_capture **out, ac_err *e);
/* Frees its graph. Results in its memory stay valid. May be called while it runs: then it is ended
 * first. */
void aci_capture_close(aci_capture *k);

/* Begins a run of the function. STATE if another one is under way on the device. */
ac_status aci_capture_begin(aci_capture *k, aci_capture_mode mode, ac_err *e);
/* Ends it. keep: the run succeeded. The recording can be replayed unless an obstacle was found
 * (aci_capture_why). Otherwise the run is undone: counters and gradients are as at its begin. */
ac_status aci_capture_end(aci_capture *k, bool keep, ac_err *e);
/* The run under way cannot be recorded. why must complete "... inside of it". The first reason
 * stays. Nothing without a run. */
void aci_capture_note(const aci_capture *k, const char *why);
/* "" without an obstacle. Alive until the next begin. */
const char *aci_capture_why(const aci_capture *k);
/* How many leaves got gradients, and how many step boundaries there were. */
int aci_capture_leaves(const aci_capture *k);
int aci_capture_steps(const aci_capture *k);

/* Whether the run that ended last, watched or recorded, wrote to the tensor's memory. */
bool aci_capture_wrote(const aci_capture *k, const ac_tensor *t);

/* Whether a replay is equivalent to calling the function now: the generator and the gradients of
 * leaves must be as they were at recording. NULL: yes. Otherwise the difference. */
const char *aci_capture_differs(const aci_capture *k);
/* Runs the recording. The first call follows the recording, which has already advanced the host's
 * part. Each later call advances it, except for step boundaries: the caller makes those
 * (aci_capture_steps), between replay and aci_capture_settle. */
ac_status aci_capture_replay(aci_capture *k, ac_err *e);
void aci_capture_settle(aci_capture *k);

#endif
