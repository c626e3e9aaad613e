/* accel/base.h - what every stage stands on: status and error, memory of the process, parameters, log, threads.
 *
 * Errors: every fallible function returns ac_status and fills an ac_err owned by the caller; nothing here exits,
 * raises or prints (the log goes through a callback). Only the first error of a call is kept.
 * Ownership: "new/free" are the caller's, "retain/release" count references, parameters are borrowed unless the name
 * ends in _take. All functions are thread-safe on distinct objects. */
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
#define AC_STATUS_LIST(X)                      \
  X(OK, 0, "ok", 1)                            \
  X(INVALID, 1, "invalid_argument", 1)         \
  X(SHAPE, 2, "shape", 1)                      \
  X(DTYPE, 3, "dtype", 1)                      \
  X(DEVICE, 4, "device", 1)                    \
  X(INDEX, 5, "index_out_of_range", 1)         \
  X(OOM, 6, "out_of_memory", 1)                \
  X(UNSUPPORTED, 7, "unsupported", 1)          \
  X(RELEASED, 8, "released", 1)                \
  X(VERSION, 9, "modified_in_place", 1)        \
  X(GRAD, 10, "autograd", 1)                   \
  X(STATE, 11, "state", 1)                     \
  X(IO, 12, "io", 1)                           \
  X(PARSE, 13, "parse", 1)                     \
  X(NOT_FOUND, 14, "not_found", 1)             \
  X(INTERRUPTED, 15, "interrupted", 1)         \
  X(CALLBACK, 16, "callback", 1)               \
  X(INTERNAL, 17, "internal", 0)               \
  X(MISMATCH, 18, "mismatch", 1)               \
  X(PEER, 19, "peer", 1)                       \
  X(TIMEOUT, 20, "timeout", 1)

/* Exit status of a program whose state is saved and that asks to be started again: EX_TEMPFAIL of sysexits.h, which job schedulers
 * put back into their queue. */
enum { AC_EXIT_REQUEUE = 75 };

typedef enum ac_status {
#define AC_X(name, code, text, rec) AC_##name = code,
  AC_STATUS_LIST(AC_X)
#undef AC_X
} ac_status;

/* The story of one failure. Not initialised by callers: valid only after a function returned something but AC_OK. */
typedef struct ac_err {
  ac_status code;
  int line;          /* of the C source that raised it */
  const char *file;
  int rank;          /* -1: not known */
  char op[40];       /* "" when no op was running */
  char device[16];   /* "" when none is involved */
  char msg[600];     /* for people; no trailing newline */
} ac_err;

/* "shape", "out_of_memory", ...; never NULL. */
AC_API const char *ac_status_name(ac_status s);
/* Fills *e (e may be NULL) and returns code; use through AC_FAIL. */
AC_API ac_status ac_err_set(ac_err *e, ac_status code, const char *file, int line, const char *fmt, ...) AC_PRINTF(5, 6);

#define AC_FAIL(e, code, ...) ac_err_set((e), AC_##code, __FILE__, __LINE__, __VA_ARGS__)
#define AC_TRY(expr)                       \
  do {                                     \
    ac_status ac_try_st_ = (expr);         \
    if (ac_try_st_ != AC_OK) return ac_try_st_; \
  } while (0)
#define AC_GOTO(label, st, expr)      \
  do {                                \
    (st) = (expr);                    \
    if ((st) != AC_OK) goto label;    \
  } while (0)

/* Our own broken invariant: stays on in release, prints through the log, calls the hook, aborts. */
AC_API void ac_assert_fail(const char *expr, const char *file, int line) __attribute__((noreturn));
#define AC_ASSERT(x) (__builtin_expect(!!(x), 1) ? (void)0 : ac_assert_fail(#x, __FILE__, __LINE__))

/* ---- parameters: one typed table (base/params.def), read from the environment as ACCEL_<NAME> ---- */
typedef enum ac_param_type { AC_PARAM_INT, AC_PARAM_BOOL, AC_PARAM_SIZE, AC_PARAM_STR, AC_PARAM_FLOAT } ac_param_type;
typedef struct ac_param_info {
  const char *name;       /* "NUM_THREADS": the environment variable is ACCEL_NUM_THREADS */
  ac_param_type type;
  const char *fallback;   /* default, as text */
  const char *allowed;    /* "a|b|c", "min..max" or NULL */
  const char *help;
} ac_param_info;
typedef struct ac_params ac_params; /* a snapshot: reading it never touches the environment again */
AC_API ac_status ac_params_new(ac_params **out, ac_err *e); /* INVALID names variable, value and what is allowed */
AC_API void ac_params_free(ac_params *p);
AC_API int ac_params_count(void);
AC_API const ac_param_info *ac_params_info(int i);
AC_API int64_t ac_params_int(const ac_params *p, const char *name); /* INT, BOOL, SIZE; asserts that it exists */
AC_API double ac_params_float(const ac_params *p, const char *name);
AC_API const char *ac_params_str(const ac_params *p, const char *name);
AC_API bool ac_params_is_set(const ac_params *p, const char *name);
/* ACCEL_* variables of the environment that no row names; returns the number, fills up to max (borrowed). */
AC_API int ac_params_unknown(const char **names, int max);
/* Nearest of n names by edit distance, NULL when none is near. Used by every "did you mean". */
AC_API const char *ac_nearest(const char *word, const char *const *names, int n);

/* ---- log ---- */
typedef enum ac_log_level { AC_LOG_TRACE, AC_LOG_DEBUG, AC_LOG_INFO, AC_LOG_WARN, AC_LOG_ERROR, AC_LOG_OFF } ac_log_level;
typedef void (*ac_log_fn)(void *user, ac_log_level level, const char *subsystem, const char *msg);
/* Process-wide sink, set once by the program that hosts us (default: nothing is written). */
AC_API void ac_log_set(ac_log_fn fn, void *user, ac_log_level level);
AC_API void ac_log_write(ac_log_level level, const char *subsystem, const char *fmt, ...) AC_PRINTF(3, 4);

/* ---- threads ---- */
typedef struct ac_team ac_team; /* fixed set of workers that spin briefly, then park; created with its first use */
AC_API ac_status ac_team_new(int n_threads, ac_team **out, ac_err *e); /* n_threads counts the caller; 0: cores we may run on */
AC_API void ac_team_free(ac_team *t);
AC_API int ac_team_size(const ac_team *t);
typedef void (*ac_range_fn)(void *arg, int64_t begin, int64_t end);
/* Runs fn over [0,n) in pieces of exactly `grain` (the last may be shorter): the cut depends on n and grain only, never on
 * the number of threads, so that results do not either. Pieces are handed out dynamically. Nested calls run inline. */
AC_API void ac_parallel_for(ac_team *t, int64_t n, int64_t grain, ac_range_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
