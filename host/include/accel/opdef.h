/* accel/opdef.h - how an op is written, inside this tree (one op, one file in host/ops) or in
 * somebody else's library.
 *
 *   AC_OP(softcap, .sig = "softcap(x: tensor, cap: float = 30) -> tensor", .shape = shape, .cpu = cpu, .grad = grad);
 *
 * The signature is the single source of the Lua function, argument checks, C prototype, stubs and
 * reference page. Types: tensor tensors operand scalar int ints float floats bool string pos dim
 * dims shape enum(a|b) dtype device generator. `?` marks an optional argument, `= literal` a
 * default, `x!` a mutated argument. Results: `-> view(x)` aliases x. `-> dynamic` has a shape that
 * depends on data: the shape rule gives the bound, and the kernel replaces each f->out, which has
 * no bytes yet, by a tensor of the true shape. `-> ()` is nothing, `-> (values: tensor, indices:
 * tensor?)` several.
 *
 * Life of a call: arguments are checked and completed -> autocast -> shape rule (creates outputs
 * without bytes) -> allocation -> kernel of the device -> recording for gradients. A shape rule and
 * a gradient rule never look at bytes, so they serve every device. */
#ifndef ACCEL_OPDEF_H
#define ACCEL_OPDEF_H
#include "accel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call in flight. */
typedef struct ac_frame {
  ac_ctx *ctx;
  const ac_op *op;
  const struct ac_op_desc *desc;
  const ac_value *args; /* one per parameter */
  int n_args, n_out;
  ac_tensor *out[AC_MAX_RESULTS]; /* owned by the frame until the call succeeded */
  ac_device *device;
  ac_team *team;
  ac_stream *stream;
  ac_generator rng_counter; /* drawn when the signature has a generator */
  bool inplace;             /* running as op_: out[0] is args[0] */
  bool autocast;            /* called inside a region of lowered precision */
  /* args[0] as it was before this call writes it, if its gradient needs it. Owned */
  ac_tensor *before;
} ac_frame;

/* Builds plain calls out of the x_<op> functions (generated, ops_x.h). Each returns a tensor
 * borrowed from the expression, or NULL after the first failure. NULL inputs give NULL, so that
 * only the end needs a check. */
typedef struct ac_expr {
  ac_ctx *ctx;
  ac_err *e;
  ac_status st;
  int n_tmp, cap_tmp;
  ac_tensor **tmp;
  void *lists; /* scratch lists of tensors, freed with the expression */
  ac_tensor *small[12];
} ac_expr;

/* An op on complex tensors in terms of others, called with the op itself: fills out (borrowed from
 * x), returns the number of results. */
typedef int (*ac_complex_fn)(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **out);

/* One node's backward in flight. Indices count the signature's parameters. dims are resolved. */
typedef struct ac_grad {
  ac_expr x; /* first: &g->x builds calls */
  const ac_op *op;
  const ac_value *args;     /* as called. Tensors that .save does not name are NULL */
  ac_tensor *const *out;    /* outputs that .save names, else NULL */
  ac_tensor *const *dout;   /* per output. NULL: no gradient came */
  ac_generator rng_counter; /* the forward's */
  struct aci_op_node *node;
  ac_tensor **din; /* by edge: use ac_grad_set */
} ac_grad;

/* An op on complex tensors: refused, its own rules and kernel take them, or the kernel gets each
 * complex tensor as floats with a further dim of two. */
enum { AC_COMPLEX_NONE = 0, AC_COMPLEX_NATIVE, AC_COMPLEX_PAIRS };
enum { AC_CAST_NONE = 0, AC_CAST_LOWER, AC_CAST_F32, AC_CAST_PROMOTE }; /* autocast class */
#define AC_SAVE_IN(i) (1u << (i))
#define AC_SAVE_OUT(i) (1u << (24 + (i))) /* of the first 8 results */

typedef ac_status (*ac_kernel)(ac_frame *f, ac_err *e);

typedef struct ac_op_desc {
  size_t struct_size;
  const char *name;
  const char *sig;
  /* Creates every output with ac_frame_out / ac_frame_view / ac_frame_alias. Checks shapes, dtypes
   * and values of arguments. */
  ac_kernel shape;
  ac_kernel cpu; /* kernels of other devices come from their providers */
  /* Gradient: sets din for every needed input with ac_grad_set. Absent: backward through this op
   * raises. */
  void (*grad)(ac_grad *g);
  /* The op in terms of others: fills out (borrowed from x), returns the number of results. Without
   * kernels it is the op. Otherwise create_graph differentiates it when .grad's own ops have no
   * gradient. */
  int (*composed)(ac_expr *x, const ac_value *args, ac_tensor **out);
  int64_t (*flops)(const ac_frame *f);
  const void *data; /* for shared kernels, e.g. the loops of a map */
  uint32_t save;    /* AC_SAVE_IN(arg) | AC_SAVE_OUT(result) */
  /* Saved only when one of these arguments (a bit each) needs a gradient. 0: always. Of the first 8
   * arguments, the first 4 results. */
  uint8_t save_for[8], save_out_for[4];
  uint8_t autocast;
  bool inplace; /* also exists as <name>_ writing into its first argument */
  /* each result element depends on the elements at its own position only (maps) */
  bool elementwise;
  bool nondiff; /* outputs never require grad (comparisons, argmax) */
  bool hidden;  /* not a function of scripts (backward kernels) */
  /* Bit i: argument i may be on another device than argument 0, to which it is copied first. The
   * kernel gets it uncopied when it has the dtype and the shape of argument 0, both are contiguous,
   * and no gradient is recorded for it. */
  uint32_t device_copies;
  /* .cpu is host code that touches no elements but by maps and fills: a kernel of every device with
   * drivers */
  bool any_device;
  /* .cpu moves bytes by the devices' vtables alone: a kernel of every device that has no better
   * one */
  bool by_vtable;
  double flops_per_element;
  /* Bit i: argument i is a weight that may stay f32 next to bf16 in a region of lowered precision.
   * The product rounds it as it reads it, and its gradient comes in f32. */
  uint32_t weights;
  /* Bit i: argument i may be a quantised tensor (ac_layout). If argument 0 is quantised, a first
   * result of as many bytes gets its layout. Views of their bytes are always possible. All other
   * ops refuse them. */
  uint32_t quantized;
  /* Runs instead of the op if a tensor or dtype among its arguments is complex. With neither this
   * nor complex_as such a call is refused, but views of one dtype always work. */
  ac_complex_fn on_complex;
  uint8_t complex_as; /* AC_COMPLEX_* */
  /* Further names of the op, separated by blanks: "concat concatenate". Each is a function and a
   * method of scripts as well, and with .inplace so is each followed by an underscore. Records,
   * profiles and errors have the op's own name. */
  const char *alias;
  /* With .inplace: <name>_ runs the op and copies its result into the first argument, because the
   * kernel cannot write there. Ops that are only .composed always do. */
  bool copy_back;
} ac_op_desc;

#define AC_OP(op_name, ...)             \
  const ac_op_desc aci_op_##op_name = { \
      .struct_size = sizeof(ac_op_desc), .name = #op_name, __VA_ARGS__}

/* A kernel of one context for an existing op, its in-place form included. Kernels in a provider's
 * table register by themselves. NOT_FOUND for unknown ops. */
AC_API ac_status ac_kernel_register(ac_ctx *c, const char *op, ac_device_kind kind,
                                    ac_kernel kernel, ac_err *e);

/* Flag i of the device that runs the call (ac_device_provider), as the calling context has it. */
AC_API int64_t ac_frame_flag(const ac_frame *f, int i);

/* ---- for shape rules ---- */
/* Next output, contiguous, on the frame's device. */
AC_API ac_status ac_frame_out(ac_frame *f, ac_dtype dt, int ndim, const int64_t *shape, ac_err *e);
/* Next output, with these strides (in elements, covering a contiguous span in some order of
 * dims). */
AC_API ac_status ac_frame_out_strided(ac_frame *f, ac_dtype dt, int ndim, const int64_t *shape,
                                      const int64_t *stride, ac_err *e);
/* Next output is a view of argument arg. */
AC_API ac_status ac_frame_view(ac_frame *f, int arg, int ndim, const int64_t *shape,
                               const int64_t *stride, int64_t offset, ac_err *e);
/* Next output is argument arg itself (mutating ops). */
AC_API ac_status ac_frame_alias(ac_frame *f, int arg, ac_err *e);
/* Argument dim -> 0..ndim-1. INDEX names op, parameter, value and rank in the caller's index
 * base. */
AC_API ac_status ac_frame_dim(const ac_frame *f, int arg, int ndim, int *dim, ac_err *e);
/* dims (or one dim, or NONE = all) -> bit mask over ndim. Repeated dims are an error. */
AC_API ac_status ac_frame_dims(const ac_frame *f, int arg, int ndim, uint32_t *mask, ac_err *e);
/* Promotion of tensor, operand and scalar arguments from first to last (inclusive) as PyTorch's
 * result_type does. */
AC_API ac_dtype ac_frame_promote(const ac_frame *f, int first, int last);
/* A dim or position as the caller counts it (adds the index base to non-negative values). */
AC_API int64_t ac_frame_show(const ac_frame *f, int64_t zero_based);

/* ---- for gradient rules ---- */
AC_API bool ac_grad_needs(const ac_grad *g, int arg);
/* i-th of a tensors argument */
AC_API bool ac_grad_needs_at(const ac_grad *g, int arg, int i);
/* The tensor that the first part of a split backward (gradients of inputs) keeps for the second
 * part (gradients of weights). NULL if there is none. keep does nothing in a backward that is not
 * split. */
AC_API ac_tensor *ac_grad_kept(const ac_grad *g);
AC_API void ac_grad_keep(ac_grad *g, ac_tensor *t);
/* t borrowed. NULL = no gradient */
AC_API void ac_grad_set(ac_grad *g, int arg, ac_tensor *t);
AC_API void ac_grad_set_at(ac_grad *g, int arg, int i, ac_tensor *t);
/* Shape, dtype and device of a tensor argument, saved or not. */
AC_API int ac_grad_ndim(const ac_grad *g, int arg, int i);
AC_API const int64_t *ac_grad_shape(const ac_grad *g, int arg, int i);
AC_API ac_device *ac_grad_device(const ac_grad *g, int arg, int i);
AC_API ac_dtype ac_grad_dtype(const ac_grad *g, int arg, int i);
/* t summed down to the shape of argument arg (undoes broadcasting) and cast to its dtype. Returns t
 * itself when there is nothing to do. */
AC_API ac_tensor *ac_grad_reduce_to(ac_grad *g, int arg, ac_tensor *t);

/* ---- expressions ---- */
AC_API void ac_expr_init(ac_expr *x, ac_ctx *c, ac_err *e);
AC_API void ac_expr_end(ac_expr *x); /* releases every intermediate */
/* Hands an owned reference to the expression. Returns it borrowed. */
AC_API ac_tensor *ac_expr_own(ac_expr *x, ac_tensor *t);
/* Calls an op with ready-made values. Results are borrowed. NULL on failure or when a required
 * tensor is NULL. */
AC_API ac_tensor *ac_expr_call(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **more,
                               int n_more);

#ifdef __cplusplus
}
#endif
#endif
