/* accel/host.h - Lua with accel inside a C program.
 *
 *   ac_host *h; ac_err e;
 *   if (ac_host_open(NULL, &h, &e) != AC_OK || ac_host_run_file(h, "train.lua", 0, NULL, &e) != AC_OK) fprintf(stderr, "%s\n", e.msg);
 *   ac_host_close(h);
 *
 * A host is one Lua state with one context. Several hosts may live in a process, each used by one
 * thread at a time. A call from a second thread while one runs returns INVALID. So do NULL
 * addresses, negative counts and unknown types. The library never exits, installs no signal
 * handler, writes nothing to stdout or stderr (scripts may) and leaves errno, locale and working
 * directory alone. Scripts are text. Binary chunks are refused. os.exit ends the script, not the
 * process: ac_host_exit_code returns its status. */
#ifndef ACCEL_HOST_H
#define ACCEL_HOST_H
#include "accel/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lua_State;
typedef struct ac_host ac_host;

typedef struct ac_host_options {
  size_t struct_size;
  int n_threads; /* as in ac_ctx_options */
  size_t memory_limit;
  uint64_t seed;
  const char *
      /* folder that holds accel/init.lua. NULL: the folder of this library, otherwise the installed
       * one */
      lua_dir;
  bool strict;       /* reading an undeclared global is an error */
  bool sorted_pairs; /* pairs visits keys in sorted order, the same in every process */
  bool keep_gc;      /* leave Lua's collector in incremental mode (default: generational) */
  /* as one of many ranks that the environment speaks of, join their world at once, and tell them
   * when a script fails or the host closes. Without ranks, or without join, a script that uses
   * accel.dist makes a world then */
  bool join;
  /* with join: the script to run next, whose contents must be the same on all ranks. NULL: not
   * compared */
  const char *script;
  /* device of new tensors, as in ac_ctx_options. NULL: ACCEL_DEVICE, otherwise the CPU */
  const char *device;
} ac_host_options;
#define AC_HOST_OPTIONS_INIT \
  { sizeof(ac_host_options), 0, 0, 0, NULL, true, true, false, false, NULL, NULL }

/* o NULL: AC_HOST_OPTIONS_INIT. */
AC_API ac_status ac_host_open(const ac_host_options *o, ac_host **out, ac_err *e);
/* NULL is fine. A host that was closed already is a warning, and the other functions return INVALID
 * (or NULL, "" and false) for it as long as no new host has its address. Called by a function that
 * a script of this host runs, it does nothing, and that run or call returns INVALID. */
AC_API void ac_host_close(ac_host *h);
AC_API ac_ctx *ac_host_ctx(ac_host *h);
/* Two values at the bottom of its stack are the host's: leave them there. */
AC_API struct lua_State *ac_host_lua(ac_host *h);
/* NULL: not joined so far, or left. Borrowed. It is freed when the script destroys it and when the
 * host closes. */
AC_API ac_world *ac_host_world(ac_host *h);
/* Leaves the world, for programs that end in the middle of a script (os.exit): peers learn the
 * script's line, and with an exit code other than 0 that this rank failed. */
AC_API void ac_host_leave(ac_host *h, int exit_code);
/* Tells programs that are attached the status with which the process is about to end. */
AC_API void ac_host_ends(ac_host *h, int exit_code);

/* Lets other programs of the same user look into this host while it runs scripts: accel-run ps,
 * top, stacks and attach (accel/attach.h). To show the stack of a script in a loop or a wait it
 * installs a handler of SIGURG. That is the only signal a host ever takes. One host of a process
 * can listen at a time. script: the name to show. IO and STATE as ac_attach_open, STATE for a
 * second host. Must be called by the thread that runs the scripts, after ac_host_open. Listening
 * ends with the host. */
AC_API ac_status ac_host_listen(ac_host *h, const char *script, ac_err *e);

/* Runs a script (path "-": standard input) with arguments: the global arg (arg[0] = path) and
 * `...`. CALLBACK when the script raised (or the code of accel's own error), PARSE for syntax
 * errors, NOT_FOUND and IO for files. */
AC_API ac_status ac_host_run_file(ac_host *h, const char *path, int argc, const char *const *argv,
                                  ac_err *e);
/* name: the name in messages, e.g. "setup". It is arg[0] as well. */
AC_API ac_status ac_host_run_string(ac_host *h, const char *code, const char *name, int argc,
                                    const char *const *argv, ac_err *e);
/* Message and traceback (with the shapes of local tensors) of the last failed run or call. "" when
 * it succeeded. Valid until the next call. */
AC_API const char *ac_host_error_text(const ac_host *h);
/* True when the last run ended by os.exit. *code is its argument (true and none: 0, false: 1). */
AC_API bool ac_host_exit_code(const ac_host *h, int *code);
/* True when another start cannot mend the error of the last run: the script does not load, or
 * accel.util.refuse raised it. */
AC_API bool ac_host_refused(const ac_host *h);

/* ---- values ---- */
typedef enum ac_host_type {
  AC_HOST_NIL,
  AC_HOST_BOOL,
  AC_HOST_INT,
  AC_HOST_NUMBER,
  AC_HOST_STRING,
  AC_HOST_TENSOR
} ac_host_type;
typedef struct ac_host_value {
  ac_host_type type;
  size_t len; /* of a string, in bytes */
  union {
    bool b;
    int64_t i;
    double n;
    const char *s; /* ends with a zero that len does not count */
    ac_tensor *t;
  };
} ac_host_value;

/* Calls a global function, or one in a table ("model.step"). Arguments are borrowed. Up to
 * max_results results are filled in: tensors are owned references, strings live until the next call
 * into the host. NOT_FOUND, CALLBACK as above, DTYPE for results of other types. */
AC_API ac_status ac_host_call(ac_host *h, const char *function, int n_args,
                              const ac_host_value *args, int max_results, ac_host_value *results,
                              int *n_results, ac_err *e);

/* A C function for scripts. args are borrowed. results: tensors are owned references that the host
 * takes, strings are copied. Anything but AC_OK raises an error with e's message in the script. It
 * may call ops, but not ac_host_run_* or ac_host_close. */
typedef ac_status (*ac_host_fn)(void *user, ac_ctx *c, int n_args, const ac_host_value *args,
                                int max_results, ac_host_value *results, int *n_results, ac_err *e);
/* name: "load_batch" is a global, "app.load_batch" a field of a global table, made when missing. */
AC_API ac_status ac_host_register(ac_host *h, const char *name, ac_host_fn fn, void *user,
                                  ac_err *e);

/* ---- interruption: safe in signal handlers ---- */
/* At the next accel.step() the script gets an error with code "interrupted". After
 * accel.on_interrupt("flag") it sees accel.interrupted() instead. False: the script has made no
 * step so far and has not called accel.on_interrupt, so it may never serve the request. */
AC_API bool ac_host_interrupt(ac_host *h, int signal_number);
/* Milliseconds after an interrupt within which the script should have noticed it: a second, or
 * twice its longest time between steps when that is more. 0: it has noticed, by a step or by
 * accel.interrupted(). */
AC_API int ac_host_interrupt_grace(const ac_host *h);
/* Whether the script serves SIGUSR1, as it does SIGTERM, by accel.on_interrupt("requeue"): it saves
 * its state and ends. */
AC_API bool ac_host_requeues(const ac_host *h);
/* Ctrl-C: true if the script is stopped by a debugger's prompt in this process. False: it has none,
 * or the last Ctrl-C is not served so far. Only calls what a handler of signals may. */
AC_API bool ac_host_breaks(ac_host *h);
/* Whether the ranks of this machine have a prompt, whose Ctrl-C a rank must not serve. */
AC_API bool ac_host_at_prompt(const ac_host *h);
/* Raises at the next instruction of Lua. */
AC_API void ac_host_interrupt_now(ac_host *h);

#ifdef __cplusplus
}
#endif
#endif
