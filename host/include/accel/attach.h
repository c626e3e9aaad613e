/* accel/attach.h - looking into a rank that runs: a Unix socket in a folder of the user's own, and
 * a thread that answers there.
 *
 * The folder is $XDG_RUNTIME_DIR/accel, else /tmp/accel-<uid>, mode 0700 and owned by the user, or
 * nothing is opened. A job has a folder in it with a token of 256 bits (mode 0600) and, for each
 * rank of this machine, a description `rank<r>.json` and a socket `rank<r>`. Whoever connects must
 * have this process's user id and send the token first. Nothing listens on a network address.
 *
 * Messages are frames: four bytes of length, the lowest first, and as many bytes, at most
 * AC_ATTACH_MAX_FRAME. Requests are words:
 *
 *   hello TOKEN      -> "ok ID"       must come first. ID names this connection. Anything else:
 *                    "denied", and the end
 *   status           -> "step N" or "paused N": the step that the rank has made, or stands at
 *   stacks           -> the script's stack, as text. `stacks all` includes functions of the library
 *   prompt ID        -> "parked"      this connection becomes the prompt's once the rank stops. ID:
 *                    the connection that asks
 *                                     pauses, with whose end the prompt goes. "busy": there is a
 *                                     prompt already
 *   pause N          -> "armed"       stop after step N, if N is ahead. Otherwise "late M": M steps
 *                    have been made.
 *                                     "no prompt": none is parked
 *   cancel           -> "ok"          withdraw a pause. "none": no pause is pending, or the rank
 *                    has reached or is reaching that step
 *   interrupt        -> "ok"          Ctrl-C for the code that the prompt has the rank evaluate
 *
 * Nothing here ever waits for a client on the rank's own thread: answers that a client does not
 * read end its connection. */
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
  /* an id that all ranks of the job share. NULL: this process is a job of its own */
  const char *job;
  int rank, ranks;
  const char *script; /* shown by `accel-run ps` */
  const char *hosts;  /* names of the job's other machines, "a,b". NULL: none */
  /* descriptor of the ranks' control segment, which same-user readers open through /proc. -1:
   * none */
  int segment;
  /* These are called on the service's thread. stacks writes text of at most n bytes and returns its
   * length. */
  size_t (*stacks)(void *user, bool all, char *buf, size_t n);
  void (*interrupt)(void *user);
  void (*look)(void *user); /* called twice a second. NULL: never */
  void *user;
} ac_attach_options;
#define AC_ATTACH_OPTIONS_INIT \
  { sizeof(ac_attach_options), NULL, 0, 1, NULL, NULL, -1, NULL, NULL, NULL, NULL }

/* Makes folder, description and socket and starts the thread. IO: the system refuses one of them
 * (the message names it). STATE: the folder belongs to another user or is open to others. */
AC_API ac_status ac_attach_open(const ac_attach_options *o, ac_attach **out, ac_err *e);
/* Ends the thread and all connections, and removes the folder's contents. NULL is fine. In a
 * process forked since ac_attach_open it drops only that process's copies: the parent keeps the
 * thread and the files. */
AC_API void ac_attach_close(ac_attach *a);
/* Removes a job's folder whose ranks are all gone, for example after kill -9. Called by programs
 * that list jobs. False: a rank owns the folder, or is about to. */
AC_API bool ac_attach_tidy(const char *folder);
/* The name of the job's folder: 8 hexadecimal digits. */
AC_API const char *ac_attach_job(const ac_attach *a);

/* ---- the rank's own thread ---- */
enum {
  AC_ATTACH_PAUSE = 1, /* stand here: a pause was asked for at this step or one before */
  AC_ATTACH_GONE = 2   /* the client of the prompt is gone. Reported once */
};
/* Reports a finished step to clients. Returns the requests that have arrived since the last call.
 * 0: none. */
AC_API unsigned ac_attach_step(ac_attach *a, uint64_t step);
/* Starts to stand at a step boundary or breakpoint. *fd: the prompt's connection, the first time
 * that a client waits here. The caller owns it from then on. -1: the caller has it already. False:
 * there is no prompt, continue. */
AC_API bool ac_attach_stand(ac_attach *a, int *fd);
/* While on, a client's `interrupt` calls the option `interrupt`. After off returns, no such call is
 * under way. The rank's own thread switches it around the code that the prompt evaluates. */
AC_API void ac_attach_interruptible(ac_attach *a, bool on);
/* Continues the run. keep: the prompt stays with the caller for the next stop. Otherwise its
 * connection has been closed and another client may come. */
AC_API void ac_attach_go(ac_attach *a, bool keep);
/* Arms a pause at this step, as `pause` does, for commands that continue to the next step. 0:
 * none. */
AC_API void ac_attach_pause_at(ac_attach *a, uint64_t step);
/* Whether a client has its prompt here or waits for it. */
AC_API bool ac_attach_has_prompt(const ac_attach *a);
/* Waits for a client that asks for a prompt. False: none came in that time (seconds < 0: wait
 * without limit). For breakpoints. */
AC_API bool ac_attach_wait(ac_attach *a, double seconds);

#ifdef __cplusplus
}
#endif
#endif
