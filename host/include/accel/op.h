/* accel/op.h - the context and the one way in: ac_call.
 *
 * A context owns modes, generators, devices, thread team and the table of ops. There is one per Lua
 * state or thread of control. It is not thread-safe. Everything that works on bytes goes through
 * ac_call: autocast, shape rule, allocation, kernel, recording, tracing. The typed functions of
 * accel/ops.h (generated from the ops' signatures) are thin wrappers around it. */
#ifndef ACCEL_OP_H
#define ACCEL_OP_H
#include "accel/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ac_ctx ac_ctx;
typedef struct ac_op ac_op; /* an op as registered in one context */
struct ac_op_desc;          /* the descriptor that an op's author writes: accel/opdef.h */

/* ---- context ---- */
typedef struct ac_ctx_options {
  size_t struct_size;
  int n_threads;       /* 0: ACCEL_NUM_THREADS, OMP_NUM_THREADS, then the cores we may run on */
  size_t memory_limit; /* bytes of the CPU pool. 0: ACCEL_MEM_LIMIT, then 90 % of the machine */
  uint64_t seed;       /* of the default generator */
  /* devices of another context, used by this one as well (retained), the first by default. 0: it
   * opens its own. Tensors of helper threads can then be used here: one pool, one limit */
  ac_device *const *devices;
  int n_devices;
  /* device of new tensors, for contexts that open their own devices. "cpu", "cuda:1", ... "cuda":
   * of several, the one of this local rank, round robin. "auto": ACCEL_DEVICE, otherwise the
   * available kind that providers prefer, otherwise the CPU. NULL: ACCEL_DEVICE, otherwise the CPU.
   * It is opened on first use ("auto") or at once. DEVICE when it does not exist */
  const char *device;
  int local_rank;
} ac_ctx_options;
#define AC_CTX_OPTIONS_INIT \
  { sizeof(ac_ctx_options), 0, 0, 0, NULL, 0, NULL, 0 }
/* o NULL: defaults */
AC_API ac_status ac_ctx_new(const ac_ctx_options *o, ac_ctx **out, ac_err *e);
AC_API void ac_ctx_free(ac_ctx *c);
AC_API ac_team *ac_ctx_team(ac_ctx *c);
AC_API const ac_params *ac_ctx_params(ac_ctx *c);
/* "cpu", "meta", "cuda:1". Borrowed. NOT_FOUND / UNSUPPORTED list the available devices. */
AC_API ac_status ac_ctx_device(ac_ctx *c, const char *name, ac_device **out, ac_err *e);
/* Adds a device that the caller opened. The context takes the reference. STATE when one of that
 * name is there. */
AC_API ac_status ac_ctx_add_device(ac_ctx *c, ac_device *d_take, ac_err *e);
/* A flag of a kind of device, "cuda" and "tf32", as this context has it: BOOL (0, 1), INT or SIZE.
 * It starts with the value of the parameter of its name (ACCEL_CUDA_TF32). Setting it affects no
 * other context. DEVICE: no such kind, INVALID names the nearest flag. */
AC_API ac_status ac_ctx_device_flag(ac_ctx *c, const char *device, const char *flag, int64_t *value,
                                    ac_err *e);
AC_API ac_status ac_ctx_set_device_flag(ac_ctx *c, const char *device, const char *flag,
                                        int64_t value, ac_err *e);
/* The stream of this context's calls. NULL (default) is the device's own order. Borrowed. */
AC_API void ac_ctx_set_stream(ac_ctx *c, ac_stream *s);
AC_API ac_device *ac_ctx_default_device(ac_ctx *c);
/* NULL: as "auto" of ac_ctx_options, found and opened when it is first asked for. */
AC_API void ac_ctx_set_default_device(ac_ctx *c, ac_device *d);
/* 0 (default) or 1: index base of dims and positions in messages. Values passed to C are always
 * 0-based. */
AC_API void ac_ctx_set_index_base(ac_ctx *c, int base);
AC_API bool ac_ctx_grad_enabled(const ac_ctx *c);
AC_API bool ac_ctx_set_grad_enabled(ac_ctx *c, bool on); /* returns the previous value */

/* ---- random numbers: counters, not state. Key = seed and stream. Counter = step, call ordinal, global element. ---- */
/* Dim `dim` of a randomly masked tensor is a range of that dim of a larger tensor, whose other
 * parts are on other ranks. Elements are drawn as in the larger tensor. */
typedef struct ac_draw_range {
  int32_t dim;    /* 1 is the first. 0: no range */
  int64_t at, of; /* first position, extent of the larger tensor's dim */
} ac_draw_range;
enum { AC_DRAW_RANGES = 2 };
typedef struct ac_generator {
  uint64_t seed;
  uint32_t stream;
  uint32_t step;    /* advanced by ac_step */
  uint32_t ordinal; /* calls since the micro-batch began */
  /* calls of the step before this micro-batch: numbers that belong to no row do not come again */
  uint32_t drawn;
  /* 1: drawing does not advance it: always the same numbers (dropout's backward) */
  uint32_t fixed;
  int64_t row0;                        /* global row of local row 0, for batch-shaped draws */
  ac_draw_range range[AC_DRAW_RANGES]; /* for dropout masks. Entries in use come first */
} ac_generator;
AC_API ac_generator *ac_ctx_generator(ac_ctx *c);              /* the default one */
AC_API void ac_generator_seed(ac_generator *g, uint64_t seed); /* resets all but the seed */
/* The counter of one call (a copy with fixed = 1). g advances to the next ordinal. */
AC_API ac_generator ac_generator_draw(ac_generator *g);
/* Draws from now on belong to the micro-batch whose first row is row0 (from 0) of the global
 * batch. */
AC_API void ac_generator_micro_batch(ac_generator *g, int64_t row0);
/* The step boundary: advances generators, runs step callbacks (collector, signals, profiler).
 * INTERRUPTED when one asks to stop. */
AC_API ac_status ac_step(ac_ctx *c, ac_err *e);

/* ---- values and calls ---- */
typedef enum ac_type {
  AC_T_NONE,
  AC_T_TENSOR,
  AC_T_TENSORS,
  AC_T_OPERAND,
  AC_T_SCALAR,
  AC_T_INT,
  AC_T_INTS,
  AC_T_FLOAT,
  AC_T_FLOATS,
  AC_T_BOOL,
  AC_T_STRING,
  AC_T_POS,
  AC_T_DIM,
  AC_T_DIMS,
  AC_T_SHAPE,
  AC_T_ENUM,
  AC_T_DTYPE,
  AC_T_DEVICE,
  AC_T_GENERATOR
} ac_type;

#define AC_INT_NONE INT64_MIN /* an omitted element of a list, for signatures with ints|none */

/* An argument or result. kind selects the member. OPERAND never appears (it is TENSOR or SCALAR).
 * POS, DIM and INT use i. INTS, DIMS and SHAPE use ints. ENUM uses i (position in the list). An
 * absent optional is NONE. Everything is borrowed. */
typedef struct ac_value {
  ac_type kind;
  int32_t n; /* of tensors, ints, floats */
  union {
    ac_tensor *tensor;
    ac_tensor **tensors;
    ac_scalar scalar;
    int64_t i;
    const int64_t *ints;
    double f;
    const double *floats;
    bool b;
    const char *str;
    ac_dtype dtype;
    ac_device *device;
    ac_generator *generator; /* NONE: the context's own */
  };
} ac_value;

/* A tensor or a number, for the typed functions. */
typedef struct ac_operand {
  ac_tensor *tensor; /* NULL: use scalar */
  ac_scalar scalar;
} ac_operand;
AC_API ac_operand ac_operand_tensor(ac_tensor *t);
AC_API ac_operand ac_operand_float(double f);
AC_API ac_operand ac_operand_int(int64_t i);

#define AC_MAX_ARGS 24
#define AC_MAX_RESULTS 64

AC_API const ac_op *ac_op_find(ac_ctx *c, const char *name); /* NULL: no such op */
AC_API const char *ac_op_name(const ac_op *op);
/* args: one per parameter of the signature, in order. results: filled with n_results values
 * (TENSOR), each an owned reference. On failure nothing was changed and no result is owned. */
AC_API ac_status ac_call(ac_ctx *c, const ac_op *op, const ac_value *args, ac_value *results,
                         int *n_results, ac_err *e);
/* Adds an op of a program, and its function and method for scripts. c NULL: to all contexts opened
 * later. desc must live on. Its kernel gets contiguous tensors. STATE: the name exists. */
AC_API ac_status ac_op_register(ac_ctx *c, const struct ac_op_desc *desc, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
