/* accel/host.h - Lua with accel inside a C program.
 *
 *   ac_host *h; ac_err e;
 *   if (ac_host_open(NULL, &h, &e) != AC_OK || ac_host_run_file(h, "train.lua", 0, NULL, &e) != AC_OK) fprintf(stderr, "%s\n", e.msg);
 *   ac_host_close(h);
 *
 * A host is one Lua state with one context. Several hosts may live in a process, each used by one
 * thread at a time: a call from a second thread while one runs returns INVALID. So do NULL
 * addresses, negative counts and unknown types. Functions whose comment names no other thread are
 * called by the thread that uses the host. Texts and arrays that a program passes are borrowed for
 * the call. e may be NULL. The library never exits, installs no signal
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

/* ---- what a program can take over from a host: fields of ac_host_options ----
 * These functions are called on the thread that runs the host, within a call of it, and on threads
 * of its data workers. `user` is the field of that name. They must not call into the host. Texts
 * are borrowed for the call. During ac_host_open h is the address that it returns later. */

typedef enum ac_host_stream {
  AC_HOST_OUT,    /* print, io.write, io.stdout */
  AC_HOST_ERR,    /* io.stderr */
  AC_HOST_WARNING /* warn(), without a line end */
} ac_host_stream;
/* len bytes of output: whole lines, and the rest of a line when the script flushes it or ends. A
 * zero byte follows. */
typedef void (*ac_host_output_fn)(void *user, ac_host *h, ac_host_stream stream, const char *text,
                                  size_t len);
/* A message of the library while this host runs. Other threads of the library (files, ranks) use
 * the sink of ac_log_set. */
typedef void (*ac_host_log_fn)(void *user, ac_host *h, ac_log_level level, const char *subsystem,
                               const char *msg);
/* Lua's allocator: n 0 frees p and returns NULL, p NULL allocates, otherwise it resizes. A smaller n
 * must not fail. NULL: no memory. old is the size of p. */
typedef void *(*ac_host_alloc_fn)(void *user, void *p, size_t old, size_t n);
/* The path to use in place of `path`, for files and folders that a script names: by io, os, lfs,
 * loadfile, dofile, require (except the library's own modules), and by functions of accel. NULL
 * refuses it. The text must be valid until the next call. */
typedef const char *(*ac_host_path_fn)(void *user, ac_host *h, const char *path);

/* Rights that scripts do not have. A function that needs one raises an error that names the right.
 * Functions of debug that reach into functions of the library are then refused as well. */
enum {
  /* setmetatable refuses a metatable with __gc: Lua calls no hook in a finalizer, so that
   * ac_host_interrupt_now cannot stop one that loops. Finalizers of the library stay */
  AC_HOST_NO_FINALIZERS = 1,
  /* no files and folders: io but write, read, stdin, stdout, stderr; os.remove, rename, tmpname;
   * lfs; the functions of accel that take a path or an address of a server */
  AC_HOST_NO_IO = 2,
  /* no processes and no environment: os but time, date, clock, difftime, exit; io.popen;
   * accel.process, accel.launch */
  AC_HOST_NO_OS = 4,
  /* no code but the scripts that the program runs: load, loadfile, dofile, package.loadlib; require
   * finds the library's modules only; no prompts */
  AC_HOST_NO_LOAD = 8
};

typedef struct ac_host_options {
  size_t struct_size;
  int n_threads;       /* as in ac_ctx_options */
  size_t memory_limit; /* bytes of tensors. 0: as in ac_ctx_options */
  uint64_t seed;       /* of tensors and math.random. 0: ACCEL_SEED */
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
  /* AC_HOST_NO_..., joined by |. 0: scripts may do everything */
  uint32_t rights;
  /* of `log`: messages from this level on. 0 (AC_LOG_TRACE) stands for AC_LOG_WARN */
  ac_log_level log_level;
  /* keep Lua's own string.find, match, gmatch, gsub, rep and table.concat, sort. Otherwise a host
   * has functions of the same results that ac_host_interrupt_now can stop */
  bool stock_functions;
  /* modules that scripts may require, with the modules below them: "accel" allows "accel.nn". NULL
   * ends the list, which must stay valid while the host is open. NULL: every module */
  const char *const *modules;
  ac_host_path_fn path;     /* NULL: paths are used as they are */
  ac_host_output_fn output; /* NULL: the streams of the process, and warnings go to the log */
  ac_host_log_fn log;       /* NULL: the sink of ac_log_set */
  ac_host_alloc_fn alloc;   /* NULL: the library's own, over malloc */
  /* bytes of Lua's heap, beyond which scripts get out_of_memory. 0: no limit. An open host takes
   * about a megabyte */
  size_t lua_memory;
  /* instructions of Lua that a run or call may take, counted in hundreds. It then ends with
   * INTERRUPTED, as by ac_host_interrupt_now. 0: no limit. Counting makes scripts slower */
  uint64_t instructions;
  void *user; /* first argument of the functions above */
} ac_host_options;
#define AC_HOST_OPTIONS_INIT                                                                       \
  {                                                                                                \
    sizeof(ac_host_options), 0, 0, 0, NULL, true, true, false, false, NULL, NULL, 0, AC_LOG_TRACE, \
        false, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL                                            \
  }

/* Opens a host: *out is the program's until ac_host_close, and NULL after a failure. o NULL:
 * AC_HOST_OPTIONS_INIT. o is copied, but for the functions, modules and user that it names, which
 * must live as long as the host. INVALID for options that cannot be, DEVICE, OOM, UNSUPPORTED for a
 * struct of newer headers with fields that this library lacks, and errors of joining ranks. Any
 * thread. */
AC_API ac_status ac_host_open(const ac_host_options *o, ac_host **out, ac_err *e);
/* Frees a host with its scripts. Tensors and references of the program stay valid until they are
 * released. NULL is fine. A host that was closed already is a warning, and the other functions return INVALID
 * (or NULL, "" and false) for it as long as no new host has its address. Called by a function that
 * a script of this host runs, it does nothing, and that run or call returns INVALID. */
AC_API void ac_host_close(ac_host *h);
/* The context of a host, borrowed: for ops and tensors in C, between calls of the host or within a
 * function that a script calls. NULL for a host that was closed. */
AC_API ac_ctx *ac_host_ctx(ac_host *h);
/* The main Lua thread, borrowed. Functions of Lua that may raise need a protected call around them.
 * Two values at the bottom of its stack are the host's: leave them there. */
AC_API struct lua_State *ac_host_lua(ac_host *h);
/* The world of ranks. NULL: not joined so far, or left. Borrowed. It is freed when the script destroys it and when the
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
/* The same for a script in memory, text that ends with a zero. name: the name in messages, e.g. "setup". It is arg[0] as well. */
AC_API ac_status ac_host_run_string(ac_host *h, const char *code, const char *name, int argc,
                                    const char *const *argv, ac_err *e);

/* ---- a script in steps, for programs with a loop of their own ---- */
/* Loads a script (path or code, as above) that ac_host_step runs piece by piece, as a coroutine of
 * the host. STATE while another one has not ended. Between steps the program may use the host as
 * always. The thread that runs the host. */
AC_API ac_status ac_host_start_file(ac_host *h, const char *path, int argc, const char *const *argv,
                                    ac_err *e);
AC_API ac_status ac_host_start(ac_host *h, const char *code, const char *name, int argc,
                               const char *const *argv, ac_err *e);
typedef enum ac_host_progress {
  AC_HOST_ENDED,   /* the script has ended, or failed */
  AC_HOST_AT_STEP, /* it has called accel.step, which optimizer:step() does */
  AC_HOST_PAUSED   /* its time was over */
} ac_host_progress;
/* Runs the started script until its next step boundary, its end, or for about `seconds` (0: without
 * a limit). An op, or a function in C that calls back into Lua, is not left in its middle. *progress
 * (or NULL) is the reason of the return. Errors as of ac_host_run_*: then the script has ended.
 * STATE: none was started. */
AC_API ac_status ac_host_step(ac_host *h, double seconds, ac_host_progress *progress, ac_err *e);
/* Gives up the started script: its <close> variables are closed. Nothing if there is none. */
AC_API void ac_host_stop(ac_host *h);

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
  AC_HOST_TENSOR,
  /* references: the value itself stays in the host */
  AC_HOST_TABLE,
  AC_HOST_FUNCTION,
  AC_HOST_OBJECT /* a coroutine or userdata */
} ac_host_type;
typedef struct ac_host_ref ac_host_ref;
typedef struct ac_host_value {
  ac_host_type type;
  size_t len; /* of a string, in bytes */
  union {
    bool b;
    int64_t i;
    double n;
    const char *s; /* ends with a zero that len does not count */
    ac_tensor *t;
    ac_host_ref *ref; /* of a table, function or object. Of use in its own host alone */
  };
} ac_host_value;

/* One more owner of a tensor or reference, for a program that keeps an argument. Nothing for other
 * types. Any thread. */
AC_API void ac_host_value_retain(const ac_host_value *v);
/* Gives up one owner, and sets *v to AC_HOST_NIL. Nothing for other types and NULL. Any thread,
 * within a call of the host, and after it was closed. */
AC_API void ac_host_value_release(ac_host_value *v);

/* Calls a global function, or one in a table ("model.step"). Arguments are borrowed. Up to
 * max_results results are filled in, and *n_results (or NULL) is their number: release tensors,
 * tables, functions and objects by ac_host_value_release. Strings live until the next call into the
 * host. NOT_FOUND, CALLBACK as above, INVALID for misuse. The thread that runs the host. */
AC_API ac_status ac_host_call(ac_host *h, const char *function, int n_args,
                              const ac_host_value *args, int max_results, ac_host_value *results,
                              int *n_results, ac_err *e);

/* The same for a function that a script gave away (AC_HOST_FUNCTION), or a table or object that can
 * be called. INVALID for others, and for values of another host. */
AC_API ac_status ac_host_call_value(ac_host *h, const ac_host_value *function, int n_args,
                                    const ac_host_value *args, int max_results,
                                    ac_host_value *results, int *n_results, ac_err *e);

/* ---- tables ---- */
/* These take a table or an object with fields, and NULL for the globals. They follow metatables, so
 * that they may run code of the script and fail as ac_host_call does. Values that they give are
 * owned, as results of ac_host_call. The thread that runs the host. */
/* *out: a new table. */
AC_API ac_status ac_host_table_new(ac_host *h, ac_host_value *out, ac_err *e);
/* *out = t[key]. AC_HOST_NIL if there is none. */
AC_API ac_status ac_host_table_get(ac_host *h, const ac_host_value *t, const ac_host_value *key,
                                   ac_host_value *out, ac_err *e);
/* t[key] = value. NIL removes the key. */
AC_API ac_status ac_host_table_set(ac_host *h, const ac_host_value *t, const ac_host_value *key,
                                   const ac_host_value *value, ac_err *e);
/* *n = #t. */
AC_API ac_status ac_host_table_length(ac_host *h, const ac_host_value *t, int64_t *n, ac_err *e);
/* Walks a table, in no fixed order and without metatables: *key is NIL for the first pair. Releases
 * *key and *value (set it to NIL before) and fills both with the next pair, or with NIL after the
 * last one. Do not add keys meanwhile. */
AC_API ac_status ac_host_table_next(ac_host *h, const ac_host_value *t, ac_host_value *key,
                                    ac_host_value *value, ac_err *e);

/* ---- functions of the program ---- */
/* A C function for scripts. args are borrowed: retain tables, functions and tensors to keep them.
 * results: at most max_results, *n_results is their number. Tensors and references are owned, and
 * the host takes them. Strings are copied. Anything but AC_OK raises an error with e's message in
 * the script. It may call ops and this host, but not ac_host_run_* or ac_host_close. It must return,
 * not jump or throw: the guide embedding-rules describes exceptions. Called on the thread that runs
 * the host. */
typedef ac_status (*ac_host_fn)(void *user, ac_ctx *c, int n_args, const ac_host_value *args,
                                int max_results, ac_host_value *results, int *n_results, ac_err *e);
/* Registers fn as a function of scripts, for as long as the host is open. name: "load_batch" is a
 * global, "app.load_batch" a field of a global table, made when missing. user: its first argument.
 * STATE when a part of the name is not a table. */
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
/* Ends the script that runs, or that runs next: run or call returns INTERRUPTED. From a signal
 * handler or any thread, while the host is open. Every instruction of Lua raises the error from
 * then on, in coroutines, in functions of the script that handle errors and in __close, so that the
 * script cannot catch it. Ops do not start any more, and a running one ends first. A script cannot
 * be stopped in a finalizer (AC_HOST_NO_FINALIZERS refuses them), in a function that it gave to
 * debug.sethook, or in a C function of another library. Afterwards the host can be used again. */
AC_API void ac_host_interrupt_now(ac_host *h);
/* The same, but as one error with code "interrupted" at the next instruction, which the script may
 * catch to save its state. Its <close> variables run. */
AC_API void ac_host_interrupt_once(ac_host *h);

#ifdef __cplusplus
}
#endif
#endif
