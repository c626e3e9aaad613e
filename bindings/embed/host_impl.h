/* A host as its files see it: host.c opens it, host_protect.c is the entry of each call, host_run.c
 * runs scripts, host_call.c exchanges values with them, host_interrupt.c stops them. */
#ifndef LAC_HOST_IMPL_H
#define LAC_HOST_IMPL_H
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "accel/host.h"
#include "base/log.h"
#include "bindings/core/lac.h"

/* A file of the host whose bytes go to the program (host_output.c). */
typedef struct lac_output {
  ac_host *h;
  ac_host_stream stream;
  FILE *file; /* NULL: the program did not ask for it */
} lac_output;

/* ONCE: an error that the script may catch */
typedef enum lac_stop { LAC_STOP_NONE, LAC_STOP_ASKED, LAC_STOP_BUDGET, LAC_STOP_ONCE } lac_stop;

struct ac_host {
  struct ac_host *next; /* of all that are open (host_check.c) */
  lua_State *L;
  lac_state *S;
  ac_host_options o; /* as it was opened. Its strings are not the host's */
  /* of the last failed run. NULL: none. short_text if there was no memory for a copy */
  char *error_text;
  char short_text[200];
  bool exited, join, refused;
  int exit_code;
  char warning[512];
  bool warnings_off;
  lac_output output[2];
  ac_host_ref *refs, *dead_refs; /* host_value.c */
  _Atomic bool has_dead;
  size_t lua_bytes;         /* of Lua's heap */
  _Atomic uintptr_t thread; /* that runs it. 0: none */
  int depth;                /* of protected calls, kept by that thread */
  uintptr_t frame;          /* stack position of the outermost call */
  bool closed_inside;       /* by a function that a script called */

  /* host_interrupt.c */
  _Atomic(lua_State *) running; /* the main thread or coroutine whose code runs */
  _Atomic int held;             /* threads that set a hook: Lua's allocator frees nothing */
  _Atomic int stop;             /* lac_stop: the script is to end */
  bool stopped;                 /* it was told so */
  char stop_text[LAC_SITE + 90];
  uint64_t instructions, used; /* a call's budget, in steps of its own. 0: none */

  /* host_drive.c */
  lua_State *driven; /* the started script. NULL: none */
  int driven_args;   /* values on its stack for the first resume */
  int64_t deadline;  /* ns: it yields then. 0: never */
  bool has_text;     /* error_text is there already */
};

/* ac_host_open on the devices of another context, for threads that work for a Lua state (data
 * workers). */
ac_status lac_host_open_on(const ac_host_options *o, ac_device *const *devices, int n_devices,
                           ac_host **out, ac_err *e);

/* Lua's allocator for this host, whose ud is the host. */
lua_Alloc lac_host_allocator(const ac_host *h);

/* Runs body(arg) protected. The error value is turned into e. h->error_text has the traceback. */
ac_status lac_host_protect(ac_host *h, lua_CFunction body, void *arg, ac_err *e);
/* (host): makes the message handler of protected calls. Called once, before the first of them. */
int lac_host_handler(lua_State *L);
/* Whether a protected call is under way. A longjmp or a C++ exception of the program may have left
 * one without an end. Then the stack is shorter now than before. */
bool lac_host_is_running(const ac_host *h);
/* Keeps the text of ac_host_error_text. NULL: no error. */
void lac_host_set_error(ac_host *h, const char *text);

/* ---- host_interrupt.c ---- */
/* A protected call begins, the outermost one. */
void lac_host_begin(ac_host *h);
/* From now on L runs: a coroutine, or the thread that resumed it. */
void lac_host_switch(ac_host *h, lua_State *L);
/* Waits until no other thread sets a hook. Called by Lua's allocator before it frees memory. */
void lac_host_hold(ac_host *h);
/* Raises the error of a stop. Called by functions in C that take long when they find h->stop
 * set. */
void lac_host_raise_stop(lua_State *L, ac_host *h);
/* co yields when h->deadline has passed, or stops as any script. */
void lac_host_watch(ac_host *h, lua_State *co);
/* ns of a clock that only goes forward. */
int64_t lac_host_now(void);
/* The script has ended, and the host can be used again. */
void lac_host_unstop(ac_host *h);

/* ---- host_rights.c: rights that the program takes from scripts ---- */
bool lac_host_limited(const ac_host *h);
/* Adds fields to the options of lua/boot.lua, on top of the stack. */
void lac_rights_describe(lua_State *L, ac_host *h);
/* After it has run. */
void lac_rights_open(lua_State *L, ac_host *h);

/* ---- host_output.c ---- */
void lac_output_open(lua_State *L, ac_host *h);
/* After the Lua state was closed. */
void lac_output_close(ac_host *h);
/* Around every call: the log of this thread goes to the host, and its output to the program when it
 * ends. */
aci_log_sink lac_output_begin(ac_host *h);
void lac_output_end(ac_host *h, aci_log_sink was);
/* process-wide: whether any host ever had a log of its own. Otherwise none looks at the thread's. */
extern atomic_bool lac_any_log;
static inline bool lac_output_is_taken(const ac_host *h) {
  return h->o.log != NULL || h->o.output != NULL ||
         atomic_load_explicit(&lac_any_log, memory_order_relaxed);
}
/* Lua's function of warnings. ud: the host. */
void lac_host_warning(void *ud, const char *text, int more);

/* host_strings.c: replaces functions of string and table by ones that can be stopped. */
void lac_strings_open(lua_State *L, ac_host *h);

#endif
