/* Insides of a context, and the slots in which later stages hang their part of a call.
 *
 * The slots are callbacks, so that ops depends on nothing to its right: autograd fills
 * check/record, precision fills cast, profile and dry run add observers. A slot that is NULL costs
 * one comparison. */
#ifndef ACI_OPS_CTX_IMPL_H
#define ACI_OPS_CTX_IMPL_H
#include "accel/opdef.h"
#include "base/fault.h"
#include "ops/core/sig.h"
#include "tensor/tensor_impl.h"

enum { ACI_MAX_DEVICES = 16, ACI_MAX_OBSERVERS = 4, ACI_MAX_STEP_HOOKS = 8 };

/* An op as one context knows it. */
struct ac_op {
  const ac_op_desc *desc;
  aci_sig *sig; /* parsed at first use: start-up touches only the ops that run */
  char name[40];
  bool inplace; /* the name_ form: out[0] is args[0] */
  bool parsed;
  bool is_view; /* results alias an argument: no bytes move, no kernel is needed */
  /* shapes of results depend on data: the kernel gives them their bytes (aci_frame_size) */
  bool dynamic;
  uint8_t n_params, n_results;
  int8_t rng_arg;       /* parameter of type generator, -1 */
  uint32_t mutates;     /* bit per parameter */
  uint32_t defaults;    /* bit per parameter that has a default and may not be none */
  uint32_t tensor_args; /* bit per parameter that may hold tensors */
  /* bit per parameter that a call must give: neither a default nor optional */
  uint32_t needed;
  /* bit per parameter with a default that may be none as well: not given is not none */
  uint32_t fallbacks;
  uint32_t tensors; /* bit per parameter that takes one tensor */
  bool takes_list, gives_list;
  bool gives_self; /* writes its first argument, which is its result */
  bool plain_args; /* of a program: its kernel gets contiguous tensors alone */
  ac_kernel kernel[AC_DEV_KINDS];
};

/* A device's replacement for the drivers that kernels share. With it, kernels that only choose a
 * map or value (.any_device) serve the device unchanged. */
struct aci_map;     /* ops/map */
struct aci_range;   /* ops/index */
struct aci_product; /* ops/matmul */
struct aci_remap;   /* ops/index */
typedef struct aci_drivers {
  ac_status (*run_map)(ac_frame *f, const struct aci_map *m, ac_err *e);
  /* t := the element in bytes, any strides */
  ac_status (*fill)(ac_frame *f, const ac_tensor *t, const void *bytes, ac_err *e);
  /* aci_range_copy */
  ac_status (*copy_range)(ac_frame *f, int ndim, const int64_t *shape, const struct aci_range *dst,
                          const struct aci_range *src, ac_err *e);
  /* aci_product_run, its batch dims joined: n, m and every extent of the batch are above 0 */
  ac_status (*product)(ac_frame *f, const struct aci_product *p, ac_err *e);
  /* aci_remap_run, for dims without runs of their own */
  ac_status (*remap)(ac_frame *f, const ac_tensor *y, const void *x, const struct aci_remap *m,
                     const void *fill, ac_err *e);
} aci_drivers;

typedef struct aci_observer {
  void (*before)(void *user, const ac_frame *f); /* (optional) */
  void (*after)(void *user, const ac_frame *f, ac_status st);
  void *user;
} aci_observer;

/* Further trace events (profile): the nodes of a backward, and gradients that arrive at leaves. */
typedef struct aci_tracer {
  void (*backward)(void *user, bool begins); /* an outermost one */
  void (*node)(void *user, const char *name, bool begins);
  void (*leaf)(void *user, const ac_tensor *leaf); /* its gradient was accumulated */
  void *user;
} aci_tracer;

typedef struct aci_step_hook {
  ac_status (*fn)(void *user, ac_err *e);
  void *user;
} aci_step_hook;

struct ac_ctx {
  /* an internal check that failed: the state is unknown, and no call is taken any more */
  aci_fault fault;
  /* no further op starts: its owner stops the script that runs. Set by any thread, with the
   * __atomic functions (C++ reads this header) */
  bool stop;
  ac_params *params;
  ac_team *team;
  int n_devices;
  ac_device *device[ACI_MAX_DEVICES];
  bool devices_shared;       /* they are another context's, whose team they use */
  ac_device *default_device; /* NULL: to be chosen when it is first asked for */
  int local_rank;            /* which GPU that is */
  ac_stream *stream;         /* queue for calls. NULL: the device's own order */
  ac_generator gen;
  /* on the device: a replay's increments of RNG counters. NULL: no step is being recorded */
  const uint64_t *replayed;
  int index_base;
  uint64_t step;

  /* Tables of the kinds of devices (devices.c): read at every call. */
  /* bit per kind whose kernels are in the table of ops */
  uint32_t attached;
  const aci_drivers *drivers[AC_DEV_KINDS]; /* NULL: the CPU's own */
  /* by position in the provider's table. NULL: not requested so far */
  int64_t *flags[AC_DEV_KINDS];

  /* modes */
  bool grad_enabled;
  bool autocast_on;        /* read before calling cast */
  ac_dtype autocast_dtype; /* of the innermost region of lowered precision */
  bool check_nan;
  /* a call with an argument on meta takes place there, wherever the others are */
  bool meta_absorbs;
  bool record_more; /* saved-tensor hooks or anomaly mode: recording asks for more than the node */

  /* table of ops: built-ins first (see the generated table), then their in-place forms, then
   * registered ones */
  int n_ops, cap_ops;
  ac_op **ops;
  /* after ac_op_register: the owner makes the op a function of scripts. NULL: no scripts */
  ac_status (*op_added)(void *user, const ac_op *op, ac_err *e);
  void *op_added_user;
  uint32_t *op_hash; /* open addressing, index + 1 */
  uint32_t op_hash_mask;

  /* autograd's slots: set by aci_autograd_open */
  /* before a kernel that mutates. May fill f->before */
  ac_status (*ag_check)(ac_ctx *c, ac_frame *f, ac_err *e);
  /* after the kernel, before versions rise */
  ac_status (*ag_record)(ac_ctx *c, ac_frame *f, ac_err *e);
  uint64_t node_seq;
  struct ac_saved_hooks *saved_hooks; /* innermost. NULL: tensors are saved directly */
  bool anomaly, anomaly_nan;
  struct ac_sites *sites; /* origin of calls, for anomaly mode. NULL: unknown */

  /* precision's slot: may replace tensors in args by casts (owned by the expression) */
  ac_status (*cast)(ac_ctx *c, const ac_op *op, ac_value *args, ac_expr *x, ac_err *e);
  void *autocast;
  void (*autocast_free)(ac_ctx *c);

  /* Asks the owner to free memory (collect garbage, empty caches). True: try again. Called inside
   * backward, where the engine holds every tensor in use, and between calls. For a call from
   * outside it is not used: its caller repeats it, because its arguments may have been garbage. */
  bool (*on_oom)(void *user);
  void *oom_user;
  int in_backward;  /* engine runs in flight */
  bool only_inputs; /* the backward under way gives gradients of named inputs only */
  /* callbacks for when it falls to 0 (ac_backward_queue) */
  struct aci_final_callback *final_callbacks;

  aci_tracer *tracer;    /* NULL: nobody traces */
  struct aci_fuse *fuse; /* calls that wait (ops/core/fuse.h). NULL: none ever did */
  int n_observers;
  aci_observer observer[ACI_MAX_OBSERVERS];
  int n_step_hooks;
  aci_step_hook step_hook[ACI_MAX_STEP_HOOKS];
};

/* ---- devices.c ---- */
ac_status aci_ctx_open_devices(ac_ctx *c, const ac_ctx_options *o, ac_err *e);
ac_status aci_ctx_choose_device(ac_ctx *c, const ac_ctx_options *o, ac_err *e);
/* Kernels that follow from the op's descriptor, for the CPU and the kinds of device that are
 * attached. */
void aci_op_kernels(const ac_ctx *c, ac_op *op);
/* Called for a tensor on a device that another context opened: this one opens it as well and
 * registers the kernels of its kind. */
ac_status aci_ctx_attach_device(ac_ctx *c, const ac_device *d, ac_err *e);
/* A further meta device, "meta:INDEX" (device/meta/meta_flags.h), which is opened the first
 * time. */
ac_status aci_ctx_phantom(ac_ctx *c, int index, ac_device **out, ac_err *e);
/* Copies of a context's flags, malloc'ed, NULL for kinds that were never requested. For another
 * context, which takes them over (and leaves NULL). A worker has the flags that its owner had when
 * it was started. */
ac_status aci_ctx_flags_copy(const ac_ctx *c, int64_t *copy[AC_DEV_KINDS], ac_err *e);
void aci_ctx_flags_take(ac_ctx *c, int64_t *given[AC_DEV_KINDS]);
/* Flag i of the kind of device that runs this call, as the calling context has it. */
static inline int64_t aci_flag(const ac_frame *f, int i) {
  return f->ctx->flags[f->device->kind][i];
}

const ac_op *aci_ctx_builtin(const ac_ctx *c, int index);
/* The parsed signature of an op whose call has begun, or that aci_op_parse accepted. NULL
 * before. */
const aci_sig *aci_op_sig(const ac_op *op);
ac_status aci_op_parse(const ac_op *op, ac_err *e);
/* AC_OK, or AC_INTERNAL after an internal check failed in this context, or in a thread that belongs
 * to none. */
ac_status aci_ctx_usable(ac_ctx *c, ac_err *e);
/* Room for n tensors that lives as long as the expression. NULL without memory. */
ac_tensor **aci_expr_list(ac_expr *x, int n);
/* The op of which this is the in-place form. */
const ac_op *aci_op_base(const ac_ctx *c, const ac_op *op);
/* Every op, for listings: i in 0..n-1. */
int aci_ctx_n_ops(const ac_ctx *c);
const ac_op *aci_ctx_op(const ac_ctx *c, int i);
ac_status aci_ctx_add_observer(ac_ctx *c, aci_observer o, ac_err *e);
void aci_ctx_remove_observer(ac_ctx *c, void *user);
ac_status aci_ctx_add_step_hook(ac_ctx *c, aci_step_hook h, ac_err *e);
/* ag_check and ag_record are installed by ac_autograd_open (accel/autograd.h), cast by
 * precision. */

/* Generated tables (ops_table.c). */
extern const ac_op_desc *const aci_builtin_ops[];
extern const int aci_n_builtin_ops;
extern const uint16_t aci_builtin_inplace[];
extern const int aci_n_builtin_inplace;

#endif
