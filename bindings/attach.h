/* Attaching to a host from outside: lac_attach.c has the host's end and accel.console.attach, attach_stacks.c the stack of a script that runs. */
#ifndef LAC_ATTACH_H
#define LAC_ATTACH_H
#include "accel/attach.h"
#include "comm/segment.h"
#include "core/lac.h"

/* A state's part. */
typedef struct lac_attach {
  ac_attach *a;        /* NULL: nobody can attach */
  aci_segment_map own; /* the status page of a process that no launcher started; head NULL: there is the ranks' */
  bool every_step;     /* lua/repl/attached.lua is called at every step: it watches something */
  int thread;          /* id of the thread that runs scripts */
} lac_attach;

/* Nobody can attach any more, and nothing is left in the user's folder. */
void lac_attach_close(lac_state *S);
/* The page on which this process says where it is; NULL: there is none. */
aci_page *lac_attach_page(const lac_state *S);
/* After a step has been made: publishes it, and stands at a prompt where that was asked for. May raise what a prompt raises. */
void lac_attach_step(lua_State *L, lac_state *S);

/* ---- attach_stacks.c ---- */
/* From then on the stack of S can be asked for, from any other thread; false: another state of the process has it. */
bool lac_stacks_open(lac_state *S, int thread, ac_err *e);
void lac_stacks_close(lac_state *S);
/* The stack as text of at most n bytes, a frame a line, the innermost first; returns its length. Waits for a second at most. */
size_t lac_stacks_take(lac_state *S, char *buf, size_t n);

#endif
