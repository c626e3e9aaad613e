/* accel/profile.h - a profile of part of a run: spans of ops, backward, collectives and of the
 * script, and the memory of the pools by category.
 *
 * A recorder hangs callbacks on its context (ops, backward), on the pools of the context's devices
 * and, if one is given, on a world (collectives). Without a recorder each of these places costs one
 * comparison. Times are nanoseconds of CLOCK_MONOTONIC, the same clock for all processes of a
 * machine. A recorder belongs to the thread that owns its context. */
#ifndef ACCEL_PROFILE_H
#define ACCEL_PROFILE_H
#include "accel/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ac_profile ac_profile;

typedef struct ac_profile_options {
  size_t struct_size;
  bool shapes; /* of tensor arguments, with their dtypes */
  bool memory; /* blocks of the pools */
  bool sites;  /* script lines, as the context knows them (ac_ctx_set_sites) */
  bool flops;
  /* wait for the device after each op, so that its span holds the time of its kernels */
  bool sync;
  size_t max_spans; /* 0: 4 million. Later spans are dropped and counted */
} ac_profile_options;
#define AC_PROFILE_OPTIONS_INIT \
  { sizeof(ac_profile_options), false, false, false, false, false, 0 }

/* X(NAME, name for people) */
#define AC_SPAN_LIST(X)          \
  X(OP, "op")                    \
  X(BACKWARD, "backward")        \
  X(COLLECTIVE, "collective")    \
  X(FUNCTION, "user_annotation") \
  X(MODULE, "module")            \
  X(OPTIMIZER, "optimizer")      \
  X(LOADER, "loader")            \
  X(STEP, "step")                \
  X(OFFLOAD, "offload")
typedef enum ac_span_kind {
#define AC_X(name, text) AC_SPAN_##name,
  AC_SPAN_LIST(AC_X)
#undef AC_X
      AC_SPAN_KINDS
} ac_span_kind;
AC_API const char *ac_span_kind_name(ac_span_kind k);

/* One span. Texts live as long as the recorder. */
typedef struct ac_span {
  int64_t begin, end; /* ns */
  const char *name;
  /* "[[2, 3], [3, 4], []]": of the arguments in order, [] for anything but a tensor. NULL: not
   * recorded */
  const char *shapes;
  const char *dtypes; /* "[f32, f32, int]". NULL: not recorded */
  const char *site;   /* "train.lua:12". NULL: not recorded */
  int64_t parent;     /* the span around it, -1: none */
  ac_span_kind kind;
  /* 0: the context's. 1: the world's communication thread. 2: the thread that moves bytes between
   * tiers */
  int thread;
  int64_t flops; /* -1: not recorded or not known */
  /* with flops: bytes of the op's tensors, arguments and results. 0 for views */
  uint64_t moved;
  int64_t memory; /* bytes allocated less bytes freed while it was innermost */
  /* of a collective: its payload, count times bytes of an element. Of offload: the bytes moved or
   * waited for */
  uint64_t bytes;
  uint64_t sent; /* of a collective: bytes that this rank sent */
  int32_t group; /* of a collective: ranks in the group */
  bool remote;   /* of a collective: some of them are on other machines */
} ac_span;

/* Nothing is recorded yet. */
AC_API ac_status ac_profile_new(ac_ctx *c, const ac_profile_options *o, ac_profile **out,
                                ac_err *e);
/* Can be called once. w: the world whose collectives are recorded (while it keeps a flight
 * recorder), borrowed until ac_profile_stop. NULL: none. STATE: this recorder or another one
 * records already. */
AC_API ac_status ac_profile_start(ac_profile *p, ac_world *w, ac_err *e);
/* The world was closed while this recorded: nothing of it is touched any more. */
AC_API void ac_profile_world_closed(ac_profile *p);
/* Open spans end here. */
AC_API void ac_profile_stop(ac_profile *p);
AC_API void ac_profile_free(ac_profile *p); /* stops. NULL is fine */
AC_API bool ac_profile_running(const ac_profile *p);

/* Spans of the script. begin returns a number for end, which also ends spans that are still open
 * inside. -1: the span was dropped. */
AC_API int64_t ac_profile_begin(ac_profile *p, ac_span_kind kind, const char *name);
AC_API void ac_profile_end(ac_profile *p, int64_t span);

AC_API int64_t ac_profile_n_spans(const ac_profile *p);
AC_API void ac_profile_span(const ac_profile *p, int64_t i, ac_span *out);
AC_API int64_t ac_profile_dropped(const ac_profile *p);
AC_API int64_t ac_profile_start_ns(const ac_profile *p);
AC_API int64_t ac_profile_stop_ns(const ac_profile *p); /* 0: it runs */

/* ---- memory ---- */
/* Categories. A block has one category, the one of its last mark. Without a mark it is ACTIVATION
 * if it was made outside backward and lived into one, OTHER if it lived into several (data,
 * buffers) or existed before the start, and TEMPORARY otherwise. Leaves that backward reaches are
 * marked PARAMETER and their gradients GRADIENT by themselves. */
#define AC_MEMORY_LIST(X)      \
  X(PARAMETER, "parameters")   \
  X(GRADIENT, "gradients")     \
  X(STATE, "states")           \
  X(ACTIVATION, "activations") \
  X(TEMPORARY, "temporaries")  \
  X(OTHER, "others")
typedef enum ac_memory_category {
#define AC_X(name, text) AC_MEMORY_##name,
  AC_MEMORY_LIST(AC_X)
#undef AC_X
      AC_MEMORY_CATEGORIES
} ac_memory_category;
AC_API const char *ac_memory_category_name(ac_memory_category c);

/* Sets the category of t's block. No effect if memory is not recorded or t has no block. */
AC_API void ac_profile_mark(ac_profile *p, const ac_tensor *t, ac_memory_category c);

/* Bytes by category at one moment. */
typedef struct ac_memory_point {
  int64_t ns;
  uint64_t bytes[AC_MEMORY_CATEGORIES];
  uint64_t total;
} ac_memory_point;
/* The timeline of the context's i-th device: its state at the start, then one point per allocation
 * and free. Stopped recorders only: categories are known at the end. Returns the number of points,
 * of which up to max are written, those at equal distances and always the peak. peak (optional):
 * the moment of the greatest total, which is the pool's peak_bytes of this stretch. */
AC_API int64_t ac_profile_memory(const ac_profile *p, int device, ac_memory_point *out, int64_t max,
                                 ac_memory_point *peak);
AC_API int ac_profile_n_devices(const ac_profile *p);
AC_API const char *ac_profile_device(const ac_profile *p, int device); /* "cpu" */

/* ---- trace files ---- */
/* Adds text, one or more JSON objects with commas between, to the events of a trace in Chrome's
 * format at path. Several processes may add to one file, each under a lock, and it is valid JSON
 * after each. head: further members of the file's object, "\"a\": 1", which also names the run: a
 * file of another head is replaced. ac_trace_write replaces any file. IO with the reason. */
AC_API ac_status ac_trace_write(const char *path, const char *head, const char *text, size_t n,
                                ac_err *e);
AC_API ac_status ac_trace_add(const char *path, const char *head, const char *text, size_t n,
                              ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
