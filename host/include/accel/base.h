/* accel/base.h - the foundation of every stage: status and error, memory of the process,
 * parameters, log, threads.
 *
 * Errors: every fallible function returns ac_status and fills an ac_err owned by the caller.
 * Nothing here exits, raises or prints (the log goes through a callback). Only the first error of a
 * call is kept. Ownership: "new/free" are the caller's, "retain/release" count references,
 * parameters are borrowed unless the name ends in _take. All functions are thread-safe on distinct
 * objects. */
#ifndef ACCEL_BASE_H
#define ACCEL_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AC_API __attribute__((visibility("default")))
#define AC_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* X(NAME, code, name for people and scripts, recoverable by the caller) */
#define AC_STATUS_LIST(X)               \
  X(OK, 0, "ok", 1)                     \
  X(INVALID, 1, "invalid_argument", 1)  \
  X(SHAPE, 2, "shape", 1)               \
  X(DTYPE, 3, "dtype", 1)               \
  X(DEVICE, 4, "device", 1)             \
  X(INDEX, 5, "index_out_of_range", 1)  \
  X(OOM, 6, "out_of_memory", 1)         \
  X(UNSUPPORTED, 7, "unsupported", 1)   \
  X(RELEASED, 8, "released", 1)         \
  X(VERSION, 9, "modified_in_place", 1) \
  X(GRAD, 10, "autograd", 1)            \
  X(STATE, 11, "state", 1)              \
  X(IO, 12, "io", 1)                    \
  X(PARSE, 13, "parse", 1)              \
  X(NOT_FOUND, 14, "not_found", 1)      \
  X(INTERRUPTED, 15, "interrupted", 1)  \
  X(CALLBACK, 16, "callback", 1)        \
  X(INTERNAL, 17, "internal", 0)        \
  X(MISMATCH, 18, "mismatch", 1)        \
  X(PEER, 19, "peer", 1)                \
  X(TIMEOUT, 20, "timeout", 1)          \
  X(MEMBERSHIP, 21, "membership", 1)

/* Exit status of a program whose state is saved and that asks to be started again: EX_TEMPFAIL of
 * sysexits.h, which job schedulers put back into their queue. */
enum { AC_EXIT_REQUEUE = 75 };

typedef enum ac_status {
#define AC_X(name, code, text, rec) AC_##name = code,
  AC_STATUS_LIST(AC_X)
#undef AC_X
} ac_status;
enum { AC_STATUS_LAST = AC_MEMBERSHIP };

/* The story of one failure. Not initialised by callers: valid only after a function returned
 * something but AC_OK. */
typedef struct ac_err {
  ac_status code;
  int line; /* of the C source that raised it */
  const char *file;
  int rank;        /* -1: not known */
  char op[40];     /* "" when no op was running */
  char device[16]; /* "" when none is involved */
  char msg[600];   /* for people. No trailing newline */
} ac_err;

/* "shape", "out_of_memory", ... Never NULL. */
AC_API const char *ac_status_name(ac_status s);
/* Fills *e (e may be NULL) and returns code. Use it through AC_FAIL. */
AC_API ac_status ac_err_set(ac_err *e, ac_status code, const char *file, int line, const char *fmt,
                            ...) AC_PRINTF(5, 6);

#define AC_FAIL(e, code, ...) ac_err_set((e), AC_##code, __FILE__, __LINE__, __VA_ARGS__)
#define AC_TRY(expr)                            \
  do {                                          \
    ac_status ac_try_st_ = (expr);              \
    if (ac_try_st_ != AC_OK) return ac_try_st_; \
  } while (0)
#define AC_GOTO(label, st, expr)   \
  do {                             \
    (st) = (expr);                 \
    if ((st) != AC_OK) goto label; \
  } while (0)

/* Internal checks: a broken invariant of accel itself, in release builds as well. The library never
 * aborts. A failed check goes to the log, and the call returns AC_INTERNAL with the place. The
 * context that runs it, or, for a thread without one, the next context that is used, takes no more
 * calls: its state is unknown. */
AC_API ac_status ac_fault(ac_err *e, const char *expr, const char *file, int line);
/* In functions that return ac_status. */
#define AC_CHECK(x, e)                                                           \
  do {                                                                           \
    if (__builtin_expect(!(x), 0)) return ac_fault((e), #x, __FILE__, __LINE__); \
  } while (0)
/* In all others: whether x holds. If it does not, the caller must return without touching
 * anything. */
#define AC_HOLDS(x) (__builtin_expect(!!(x), 1) || ac_fault(NULL, #x, __FILE__, __LINE__) == AC_OK)

/* Bytes of a size: "4096", "8G", "1.5GiB", "5GB". K M G T P and KiB MiB ... are powers of 2^10, KB
 * MB ... are powers of 10^3, in either case; a small b after a capital, "8Gb", means bits. Returns
 * false, and leaves *out alone, for anything else. */
AC_API bool ac_size_parse(const char *text, int64_t *out);

/* ---- parameters: one typed table (base/params.def), read from the environment as ACCEL_<NAME> ---- */
typedef enum ac_param_type {
  AC_PARAM_INT,
  AC_PARAM_BOOL,
  AC_PARAM_SIZE,
  AC_PARAM_STR,
  AC_PARAM_FLOAT
} ac_param_type;
typedef struct ac_param_info {
  const char *name; /* "NUM_THREADS": the environment variable is ACCEL_NUM_THREADS */
  ac_param_type type;
  const char *fallback; /* default, as text */
  const char *allowed;  /* "a|b|c", "min..max" or NULL */
  const char *help;
} ac_param_info;
typedef struct ac_params ac_params; /* a snapshot: reading it never touches the environment again */
/* INVALID names the variable, its value and the allowed values */
AC_API ac_status ac_params_new(ac_params **out, ac_err *e);
AC_API void ac_params_free(ac_params *p);
AC_API int ac_params_count(void);
AC_API const ac_param_info *ac_params_info(int i);
/* INT, BOOL, SIZE. An unknown name returns 0 and logs a line */
AC_API int64_t ac_params_int(const ac_params *p, const char *name);
AC_API double ac_params_float(const ac_params *p, const char *name);
AC_API const char *ac_params_str(const ac_params *p, const char *name);
AC_API bool ac_params_is_set(const ac_params *p, const char *name);
/* ACCEL_* variables of the environment that no row names. Returns the number, fills up to max
 * (borrowed). */
AC_API int ac_params_unknown(const char **names, int max);
/* Nearest of n names by edit distance, NULL when none is near. Used by every "did you mean". */
AC_API const char *ac_nearest(const char *word, const char *const *names, int n);

/* ---- log ---- */
typedef enum ac_log_level {
  AC_LOG_TRACE,
  AC_LOG_DEBUG,
  AC_LOG_INFO,
  AC_LOG_WARN,
  AC_LOG_ERROR,
  AC_LOG_OFF
} ac_log_level;
typedef void (*ac_log_fn)(void *user, ac_log_level level, const char *subsystem, const char *msg);
/* Process-wide sink, set once by the program that hosts us (default: nothing is written). */
AC_API void ac_log_set(ac_log_fn fn, void *user, ac_log_level level);
AC_API void ac_log_write(ac_log_level level, const char *subsystem, const char *fmt, ...)
    AC_PRINTF(3, 4);

/* ---- threads ---- */
/* fixed set of workers that spin briefly, then park. Created on first use */
typedef struct ac_team ac_team;
/* n_threads counts the caller. 0: the cores this process may run on */
AC_API ac_status ac_team_new(int n_threads, ac_team **out, ac_err *e);
AC_API void ac_team_free(ac_team *t);
AC_API int ac_team_size(const ac_team *t);
typedef void (*ac_range_fn)(void *arg, int64_t begin, int64_t end);
/* Runs fn over [0,n) in pieces of exactly `grain` (the last may be shorter): the cut depends on n
 * and grain only, never on the number of threads, so that results do not either. Pieces are handed
 * out dynamically. Nested calls run inline. */
AC_API void ac_parallel_for(ac_team *t, int64_t n, int64_t grain, ac_range_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
