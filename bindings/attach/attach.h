/* Attaching to a host from outside: lac_attach.c has the host's end and accel.console.attach,
 * attach_stacks.c the stack of a script that runs, attach_coroutines.c which of its coroutines that
 * is, attach_watch.c whether this rank is later than the others. */
#ifndef LAC_ATTACH_H
#define LAC_ATTACH_H
#include "accel/attach.h"
#include "comm/segment.h"
#include "bindings/core/lac.h"

/* A coroutine that was resumed and has not come back, on the C stack of who did it. */
typedef struct lac_running {
  lua_State *L;
  struct lac_running *below; /* NULL: the main thread */
} lac_running;

/* A state's part. */
typedef struct lac_attach {
  ac_attach *a; /* NULL: nobody can attach */
  /* of this machine's ranks, or of this process alone: mapped once more, since the service reads it
   * while worlds end */
  aci_segment_map pages;
  aci_page *page;       /* this process's among them */
  bool alone;           /* no launcher made them */
  aci_late_watch late;  /* the service's */
  char told[ACI_SITE];  /* the line of the last report that it is late */
  int64_t told_at;      /* the step, by when the one before was made */
  bool every_step;      /* lua/repl/attached.lua is called at every step: it watches something */
  bool console;         /* this process has a prompt of its own: Ctrl-C opens it */
  atomic_bool breaking; /* Ctrl-C was pressed, and the prompt is about to open */
  bool on_error;        /* an error that would end the script opens a prompt, as --pdb has it */
  int thread;           /* id of the thread that runs scripts */
  lac_running *running; /* the innermost coroutine. NULL: the main thread runs */
} lac_attach;

/* Nobody can attach any more, and nothing is left in the user's folder. */
void lac_attach_close(lac_state *S);
/* Publishes the status with which a process without a launcher is about to end. */
void lac_attach_ends(lac_state *S, int exit_code);
/* The status page of this process. NULL: there is none. */
static inline aci_page *lac_attach_page(const lac_state *S) { return S->attach->page; }
/* After each step: publishes it, and stands at a prompt if one was requested. May raise an error
 * from the prompt. */
void lac_attach_step(lua_State *L, lac_state *S);

/* ---- attach_stacks.c ---- */
/* From then on any other thread may ask for the stack of S. False: another state of the process is
 * registered. */
bool lac_stacks_open(lac_state *S, int thread, ac_err *e);
void lac_stacks_close(lac_state *S);
/* The stack as text of at most n bytes, a frame per line, the innermost first. all: with the
 * library's functions. Returns its length. Waits for a second at most. */
size_t lac_stacks_take(lac_state *S, bool all, char *buf, size_t n);

/* ---- attach_watch.c ---- */
/* Called twice a second by the service of S: whether this rank is late. It is named with its line,
 * once a line, in the log. */
void lac_attach_look(void *S);

/* ---- attach_coroutines.c ---- */
/* Called once, when a host is opened: S->attach->running is kept, by functions of its own in
 * coroutine. */
void lac_coroutines_open(lua_State *L, lac_state *S);

#endif
