/* Declarations shared by fuse.c, fuse_reduce.c and fuse_memory.c. */
#ifndef ACI_OPS_FUSE_IMPL_H
#define ACI_OPS_FUSE_IMPL_H
#include "ops/core/ctx_impl.h"
#include "ops/core/fuse_code.h"
#include "ops/core/fuse_device.h"
#include "ops/core/fuse_pass.h"

/* Elements from which on chains outgrow the second cache (measured: 1.0x at 2^16, 1.3x and more
 * from 2^18 on). */
enum { ACI_FUSE_FEWEST = 1 << 17 };
enum { ACI_FUSE_FEWEST_DEVICE = 1 << 10 }; /* there a launch less is a gain of its own */

struct aci_fuse {
  ac_ctx *ctx; /* NULL: closed */
  int refs;    /* nodes, and the owner */
  int depth;
  uint32_t region; /* how many outermost ones there were */
  int backward;    /* the context's in_backward in which calls wait */
  /* of the call under way, and its result: kernels that it uses on the way do not wait */
  const ac_op *op;
  const ac_tensor *result;
  aci_fuse_node *newest;
  aci_fuse_codes *codes; /* NULL: chains run formula by formula */
  aci_fuse_counts n;
  const ac_device *target_of; /* the exact device of the next field. NULL: none asked so far */
  char target[64];
  bool refused[AC_DEV_KINDS]; /* it has no compiler, which was reported */
};

/* Elements from which on chains outgrow a cache, or a launch. */
static inline int64_t aci_fuse_fewest(const ac_device *d) {
  return d->kind == AC_DEV_CPU ? ACI_FUSE_FEWEST : ACI_FUSE_FEWEST_DEVICE;
}

extern const ac_provider aci_fuse_waiting;
static inline aci_fuse_node *aci_fuse_node_of(const ac_storage *s) {
  return s->provider == &aci_fuse_waiting ? s->impl : NULL;
}

/* ---- a node on its way ---- */
/* Whether the call that computes o may have it wait, as far as this follows from neither its
 * formula nor its size. */
bool aci_fuse_can_wait(const aci_fuse *z, const ac_frame *f, const ac_tensor *o);
bool aci_fuse_leads_to_gradient(const ac_frame *f);
/* Operand k of n is argument k of the call. child: its node, if that takes part in n's pass, or
 * NULL. */
void aci_fuse_give_operand(const ac_frame *f, aci_fuse_node *n, int k, aci_fuse_node *child);
void aci_fuse_wait(aci_fuse_node *n);
void aci_fuse_node_free(aci_fuse_node *n); /* of one that does not wait (any more) */
/* All arguments are in memory afterwards. */
ac_status aci_fuse_settle_operands(const ac_frame *f, ac_err *e);

/* ---- computing ---- */
ac_status aci_fuse_compute_node(aci_fuse_node *n, ac_err *e);
/* The waiting nodes of the chain before n, operands first, and n. False: they do not fit one
 * pass. */
bool aci_fuse_collect(aci_fuse_node *n, aci_fuse_pass *p);
void aci_fuse_forget(aci_fuse_pass *p); /* the collected nodes. The pass is empty again */
/* Those that are written are tensors like any other from now on. */
void aci_fuse_done(aci_fuse *z, aci_fuse_node *const *node, int n);
/* A reduction by its own kernel. */
ac_status aci_fuse_walk(aci_fuse_node *n, ac_err *e);

/* ---- fuse_memory.c ---- */
/* Memory for a storage that has none so far. */
ac_status aci_fuse_allocate(ac_storage *s, ac_err *e);
/* Lays out operands, and allocates memory for the pass's results, or for all of its nodes. take:
 * reuse the memory of operands that end with the pass. */
void aci_fuse_locate(aci_fuse_pass *p);
ac_status aci_fuse_allocate_pass(aci_fuse_pass *p, bool all, bool take, ac_err *e);
/* The pass failed before it wrote anything: operands have their memory again. */
void aci_fuse_give_back(aci_fuse_pass *p);

/* ---- fuse_device.c ---- */
/* The compiler for the device. NULL: nothing waits there. */
const aci_fuse_device *aci_fuse_device_of(aci_fuse *z, const ac_device *d);
ac_status aci_fuse_device_run(aci_fuse *z, const aci_fuse_device *driver, aci_fuse_pass *p,
                              ac_frame *f, bool *generated, ac_err *e);

#endif
