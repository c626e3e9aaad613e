/* Parts of the stage: folder.c keeps the user's folder of jobs, connection.c the frames of one client, attach.c is the thread that
 * serves them and what the rank's own thread asks it. */
#ifndef ACI_ATTACH_IMPL_H
#define ACI_ATTACH_IMPL_H
#include <pthread.h>
#include <stdatomic.h>

#include "accel/attach.h"

enum { ACI_TOKEN = 64, ACI_CLIENTS = 16, ACI_JOB_NAME = 8 };

/* ---- folder.c ---- */
typedef struct aci_folder {
  int fd;                        /* of the job's folder; -1: none */
  char path[256], job[ACI_JOB_NAME + 1];
  char token[ACI_TOKEN + 1];     /* hexadecimal */
  char socket[24], description[32]; /* names of this rank's files in it; "": not made */
} aci_folder;
/* Finds or makes the job's folder and its token. The folder is locked, shared, until it is closed: who tidies up wants the lock for himself, so
 * that no token is taken from ranks that have read it. */
ac_status aci_folder_open(aci_folder *f, const ac_attach_options *o, ac_err *e);
/* A listening socket of mode 0600 in it. */
ac_status aci_folder_listen(aci_folder *f, int rank, int *fd, ac_err *e);
/* Writes the rank's description; the socket is there by then. */
ac_status aci_folder_describe(aci_folder *f, const ac_attach_options *o, ac_err *e);
/* Removes this rank's files, and the folder with the last one. */
void aci_folder_close(aci_folder *f);

/* ---- connection.c ---- */
typedef struct aci_client {
  int fd; /* -1: free */
  uint32_t id;
  bool admitted;  /* its token was right */
  bool prompt;    /* parked: the rank takes it when it stands; nothing is read from it before */
  uint32_t owner; /* then: the connection that it belongs to */
  int64_t opened; /* ns: who says nothing is not waited for */
  uint32_t n;
  unsigned char head[4];
  char *frame; /* of the frame that is coming in; NULL: its length is not known yet */
  uint32_t length, got;
} aci_client;
/* Reads what is there. 1: a whole frame is in c->frame (terminated, free it by aci_client_next), 0: not yet, -1: the client is gone or
 * sends what is no frame. */
int aci_client_read(aci_client *c);
void aci_client_next(aci_client *c);
/* Sends a frame without waiting; false: the client does not read, or is gone. */
bool aci_client_send(aci_client *c, const char *p, size_t n);
void aci_client_close(aci_client *c);
/* The user at the other end is this process's. */
bool aci_client_same_user(int fd);
/* Equal tokens, in time that says nothing of where they differ. */
bool aci_token_equal(const char *token, const char *given, size_t n);

#endif
