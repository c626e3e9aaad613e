/* accel/attach.h - looking into a rank that runs: a Unix socket in a folder of the user's own, and a thread that answers there.
 *
 * The folder is $XDG_RUNTIME_DIR/accel, else /tmp/accel-<uid>, mode 0700 and owned by the user, or nothing is opened. A job has a folder in it
 * with a token of 256 bits (mode 0600) and, for each rank of this machine, a description `rank<r>.json` and a socket `rank<r>`. Whoever connects
 * must have this process's user id and send the token first. Nothing listens on a network address.
 *
 * Messages are frames: four bytes of length, the lowest first, and as many bytes, at most AC_ATTACH_MAX_FRAME. Requests are words:
 *
 *   hello TOKEN      -> "ok ID"       the first; ID names this connection. Anything else: "denied", and the end
 *   status           -> "step N" or "paused N": the step that the rank has made, or stands at
 *   stacks           -> the stack of the script, as text; `stacks all`: with functions of the library
 *   prompt ID        -> "parked"      this connection becomes the prompt's, once the rank stands; ID: of the connection that asks for
 *                                     pauses, with whose end the prompt goes. "busy": there is a prompt already
 *   pause N          -> "armed"       stand when step N has been made, N > what has been made so far; else "late M": M have been made.
 *                                     "no prompt": none is parked
 *   cancel           -> "ok"          take a pause back; "none": there is none, or the rank has made that step and stands, or is about to
 *   interrupt        -> "ok"          Ctrl-C for what the prompt has the rank evaluate
 *
 * Nothing here ever waits for a client on the rank's own thread: answers that a client does not read end its connection. */
#ifndef ACCEL_ATTACH_H
#define ACCEL_ATTACH_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AC_ATTACH_MAX_FRAME = 1 << 20, AC_ATTACH_STACKS = 64 << 10 };

typedef struct ac_attach ac_attach;

typedef struct ac_attach_options {
  size_t struct_size;
  const char *job;    /* what all ranks of the job have in common; NULL: this process is a job of its own */
  int rank, ranks;
  const char *script; /* what `accel-run ps` shows */
  const char *hosts;  /* names of the job's other machines, "a,b"; NULL: there are none */
  int segment;        /* descriptor of the ranks' control segment, which same-user readers open by /proc; -1: none */
  /* These are called on the service's thread. stacks writes text of at most n bytes and returns its length. */
  size_t (*stacks)(void *user, bool all, char *buf, size_t n);
  void (*interrupt)(void *user);
  void (*look)(void *user); /* twice a second; NULL: nothing is to be looked at */
  void *user;
} ac_attach_options;
#define AC_ATTACH_OPTIONS_INIT {sizeof(ac_attach_options), NULL, 0, 1, NULL, NULL, -1, NULL, NULL, NULL, NULL}

/* Makes folder, description and socket and starts the thread. IO: the system refuses one of them (the message says which), STATE: the
 * folder belongs to somebody else or is open to others. */
AC_API ac_status ac_attach_open(const ac_attach_options *o, ac_attach **out, ac_err *e);
/* Ends the thread, all connections and what is in the folder. NULL is fine. In a process that was forked since ac_attach_open it gives up that
 * process's copies alone: the thread and the files are the parent's. */
AC_API void ac_attach_close(ac_attach *a);
/* Removes a job's folder whose ranks are all gone, by kill -9, say; for those who list jobs. False: a rank has it, or is about to. */
AC_API bool ac_attach_tidy(const char *folder);
/* The name of the job's folder: 8 hexadecimal digits. */
AC_API const char *ac_attach_job(const ac_attach *a);

/* ---- the rank's own thread ---- */
enum {
  AC_ATTACH_PAUSE = 1, /* stand here: a pause was asked for at this step or one before */
  AC_ATTACH_GONE = 2   /* the client of the prompt is gone; told once */
};
/* A step has been made: says so to clients. What is asked for meanwhile; 0: nothing. */
AC_API unsigned ac_attach_step(ac_attach *a, uint64_t step);
/* Begins to stand at step boundary or breakpoint. *fd: the prompt's connection, owned by the caller from then on, the first time that a client
 * stands here; -1: the caller has it already. False: there is no prompt, go on. */
AC_API bool ac_attach_stand(ac_attach *a, int *fd);
/* Between on and off `interrupt` of the options is called where the client asks for it; off: none is on its way any more. The rank's own thread
 * says so around what the prompt has it evaluate. */
AC_API void ac_attach_interruptible(ac_attach *a, bool on);
/* Goes on. keep: the prompt stays with the caller, for the next time; else its connection has been closed and another client may come. */
AC_API void ac_attach_go(ac_attach *a, bool keep);
/* Arms a pause at this step, as `pause` does; for commands that go on to the next. 0: none. */
AC_API void ac_attach_pause_at(ac_attach *a, uint64_t step);
/* Whether a client has its prompt here or waits for it. */
AC_API bool ac_attach_has_prompt(const ac_attach *a);
/* Waits for a client that asks for a prompt; false: none came in that time (seconds < 0: for ever). For breakpoints. */
AC_API bool ac_attach_wait(ac_attach *a, double seconds);

#ifdef __cplusplus
}
#endif
#endif
