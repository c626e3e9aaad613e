/* Chains of maps and reductions as one pass over memory, in regions that ask for it
 * (accel.compile).
 *
 * Inside a region a map (map/map.h) is not run: its result knows its formula and its operands, and
 * waits. When another op or the host reads a waiting result, it is computed together with its whole
 * chain, block after block of rows that stay in the first cache: each formula's own loop over 1024
 * elements, then the next one's. A frequent pass gets a generated kernel (fuse_code.h). Only
 * results that are read, or that a gradient may read, go to memory. The loops are the same as for
 * single calls, so every bit is the same.
 *
 * Reductions wait as well. A reduction over contiguous rows of a few thousand elements takes part
 * in a pass, which then goes row by row. Later steps of the chain (x - max, exp, / sum) find the
 * row in the cache (fuse_rows.c). Any other, of everything or over leading dims, is the last of its
 * chain: its own kernel takes the elements from the pass that makes them, instead of from memory.
 * Either way elements are added up in the order of a single call.
 *
 * A waiting tensor has a provider (accel/tensor.h) that computes it and gives it memory, and it is
 * then like any other. A result that is never written never has memory. A written one takes the
 * memory of an operand whose last reader it is (fuse_memory.c). Before an operand is written,
 * results that wait for it are computed.
 *
 * Callers    Only the thread that owns the context: the dispatcher (ops/core/call.c), the engine
 *            (autograd/engine.c) and accel.compile.
 * Ownership  A waiting result retains its operands. The aci_fuse does not retain results: one that
 *            is dropped while it waits is never computed.
 * Lifetime   A tensor waits only inside its region. At the region's end results and tensors that
 *            gradients need are computed. Tensors that the region's function neither returned nor
 *            dropped can then no longer be read (an error reports it). */
#ifndef ACI_OPS_FUSE_H
#define ACI_OPS_FUSE_H
#include "ops/map/plan.h"
#include "ops/reduce/plan.h"

typedef struct aci_fuse aci_fuse;
typedef struct aci_fuse_counts {
  /* calls that waited, passes over memory, results that these wrote */
  int64_t waited, passes, written;
  int64_t waiting;   /* tensors that wait now */
  int64_t generated; /* passes by a kernel that was made for them (fuse_code.h) */
} aci_fuse_counts;

/* One for a context, which outlives it. close leaves remaining tensors intact. */
ac_status aci_fuse_open(ac_ctx *c, aci_fuse **out, ac_err *e);
void aci_fuse_close(aci_fuse *z);
/* A region. Regions nest. */
void aci_fuse_enter(aci_fuse *z);
/* Ends it. all: computes every waiting tensor, not only those that gradients need. The region is
 * over also after a failure. */
ac_status aci_fuse_leave(aci_fuse *z, bool all, ac_err *e);
aci_fuse_counts aci_fuse_count(const aci_fuse *z);

/* A backward through calls of a region is a region as well: gradients wait, and are computed when
 * they reach a leaf, or at the end. Call begin when the engine has raised the context's
 * in_backward, and end after every begin that did not fail. NULL: no region. */
ac_status aci_fuse_begin_backward(aci_fuse *z, int *before, ac_err *e);
ac_status aci_fuse_end_backward(aci_fuse *z, int before, ac_err *e);
/* Computes all that waits. */
ac_status aci_fuse_compute_all(aci_fuse *z, ac_err *e);
/* The number of the outermost region under way, so that backward keeps to it. 0 outside. */
uint32_t aci_fuse_region(const ac_ctx *c);
/* The one of a context inside a region, NULL outside. */
aci_fuse *aci_fuse_of(const ac_ctx *c);
/* Whether t waits. */
bool aci_fuse_waits(const ac_tensor *t);

/* t's values are in memory from now on, and nothing waits for its present ones: for code that is
 * not an op and may write t. */
ac_status aci_fuse_settle(ac_ctx *c, const ac_tensor *t, ac_err *e);

/* t is wanted: a pass that computes it as an intermediate also writes it. */
void aci_fuse_want(ac_ctx *c, const ac_tensor *t);
/* Computes wanted results, and those that gradients may read, in as few passes as chains allow. */
ac_status aci_fuse_compute(ac_ctx *c, ac_err *e);

/* ---- for map.c, reduce/ and call.c ---- */
/* Whether this call may be given operands that wait: a map, or one of aci_fuse_reduces, inside a
 * region. */
bool aci_fuse_takes(const ac_frame *f);
/* Gives the result of a call that may wait a storage without memory. If the call does not wait, its
 * kernel allocates it. False: not such a call. */
bool aci_fuse_promise(const ac_frame *f, ac_tensor *result);
/* Computes the results that wait for the values that this call is about to change. If that fails
 * the call must not run. */
ac_status aci_fuse_before_call(const ac_frame *f, ac_err *e);
/* Lets a map wait, if possible (*waits). Otherwise its operands are in memory afterwards. */
ac_status aci_fuse_map(ac_frame *f, const aci_map *m, bool *waits, ac_err *e);

/* A reduction of floats to one result, as its kernel was called. */
typedef struct aci_fuse_reduction {
  /* The kernel: out (contiguous) := the reduction of the plan's lists. */
  ac_status (*walk)(ac_frame *f, const aci_reduce_plan *p, const struct aci_fuse_reduction *r,
                    ac_tensor *out, ac_err *e);
  /* The same for one list of n >= 1 elements at x. direct: the tensor's own dtype is f32. NULL: it
   * never waits. */
  double (*row)(const struct aci_fuse_reduction *r, const float *x, int64_t n, bool direct);
  double number;    /* a divisor, an exponent: theirs */
  const void *data; /* theirs, static */
} aci_fuse_reduction;
/* The .data of ops whose kernels do nothing but call aci_fuse_reduce. */
extern const int aci_fuse_reduces;
/* Lets a reduction of x wait, inside a region and if possible. Otherwise runs it, after its waiting
 * operands. */
ac_status aci_fuse_reduce(ac_frame *f, const ac_tensor *x, const aci_reduce_plan *p,
                          const aci_fuse_reduction *how, ac_tensor *out, ac_err *e);

#endif
