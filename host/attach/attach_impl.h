/* Parts of the stage: folder.c keeps the user's folder of jobs, connection.c the frames of one
 * client, attach.c is the thread that serves them, rank.c has the calls of the rank's own
 * thread. */
#ifndef ACI_ATTACH_IMPL_H
#define ACI_ATTACH_IMPL_H
#include <pthread.h>
#include <stdatomic.h>

#include "accel/attach.h"
#include "base/gate.h"

enum { ACI_TOKEN = 64, ACI_CLIENTS = 16, ACI_JOB_NAME = 8, ACI_UNPROVED_BYTES = 256 };

/* ---- folder.c ---- */
typedef struct aci_folder {
  int fd; /* of the job's folder. -1: none */
  char path[256], job[ACI_JOB_NAME + 1];
  char token[ACI_TOKEN + 1];        /* hexadecimal */
  char socket[24], description[32]; /* names of this rank's files in it. "": not made */
} aci_folder;
/* Finds or makes the job's folder and its token. The folder is locked, shared, until it is closed:
 * who tidies up wants the lock for himself, so that no token is taken from ranks that have read
 * it. */
ac_status aci_folder_open(aci_folder *f, const ac_attach_options *o, ac_err *e);
/* A listening socket of mode 0600 in it. */
ac_status aci_folder_listen(aci_folder *f, int rank, int *fd, ac_err *e);
/* Writes the rank's description. The socket exists by then. */
ac_status aci_folder_describe(aci_folder *f, const ac_attach_options *o, ac_err *e);
/* Removes this rank's files, and the folder with the last one. */
void aci_folder_close(aci_folder *f);

/* ---- connection.c ---- */
typedef struct aci_client {
  int fd; /* -1: free */
  uint32_t id;
  bool admitted;  /* its token was right */
  bool prompt;    /* parked: the rank takes it when it stands. Nothing is read from it before */
  uint32_t owner; /* then: the connection that it belongs to */
  uint32_t n;
  unsigned char head[4];
  char *frame; /* of the incoming frame. NULL: its length is unknown so far */
  uint32_t length, got;
} aci_client;
/* Reads available bytes. 1: a whole frame is in c->frame (terminated, free it by aci_client_next),
 * 0: not yet, -1: the client is gone or sent something other than a frame. */
int aci_client_read(aci_client *c);
void aci_client_next(aci_client *c);
/* Sends a frame without waiting. False: the client does not read, or is gone. */
bool aci_client_send(aci_client *c, const char *p, size_t n);
void aci_client_close(aci_client *c);
/* The user at the other end is this process's. */
bool aci_client_same_user(int fd);
/* Compares tokens in time that does not depend on the position of a difference. */
bool aci_token_equal(const char *token, const char *given, size_t n);

/* ---- attach.c and rank.c ---- */
struct ac_attach {
  ac_attach_options o;
  aci_folder folder;
  int listener, wake; /* wake: an eventfd, for the end and when a prompt is given back */
  pthread_t thread;
  aci_client client[ACI_CLIENTS];
  aci_gate gate; /* its places are the numbers of clients. Admitted ones are trusted */
  uint32_t last_id;
  bool full; /* nobody could be accepted: not asked again before a pause */
  /* a child that was forked has none of this: no thread, and the files are its parent's */
  pid_t process;
  /* shared */
  _Atomic bool over;
  _Atomic uint64_t step, pause_at; /* pause_at 0: none */
  _Atomic bool standing, gone;
  _Atomic uint32_t owner; /* id of the connection whose prompt this is. 0: there is no prompt */
  uint32_t held;          /* the owner whose prompt the rank took. Only the rank uses it */
  pthread_mutex_t lock;
  pthread_cond_t came;
  /* the prompt's code can be interrupted: such signals do not reach the script */
  bool interruptible;
  int prompt_fd; /* parked. -1: none, or the rank has taken it */
};

/* Takes the parked connection. only: -1 for any, otherwise that one or none. Returns -1 when there
 * is none. */
int aci_attach_take_parked(ac_attach *a, int only);
/* No prompt of this owner any more, unless another one has come. */
void aci_attach_disown(ac_attach *a, uint32_t owner);
/* Has the thread look again. */
void aci_attach_wake(ac_attach *a);

#endif
