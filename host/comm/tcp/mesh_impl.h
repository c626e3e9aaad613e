/* Declarations shared by the files of the mesh: peers, messages, transfers.
 *
 * Wire: messages of a 32-byte head and a body, in the byte order of the machine. DATA goes out in
 * start order per peer, at most EAGER bytes of a message before the receiver has a place for it
 * (GRANT). So the data kept for late receivers stays small, and a busy receiver never blocks
 * others' descriptors.
 *
 * `lock` guards all of it. poll and every call that leaves this folder happen without it. */
#ifndef ACI_COMM_MESH_IMPL_H
#define ACI_COMM_MESH_IMPL_H
#include "comm/secret.h"
#include "comm/tcp/mesh.h"

enum {
  ACI_PROTOCOL = 4,
  ACI_EAGER = 64 << 10,      /* bytes of a message that travel unasked */
  ACI_DATA_MOST = 256 << 10, /* most bytes of a DATA message */
  ACI_CONTROL_MOST = 1024,   /* most bytes of any other message's body */
  ACI_RECV_BUFFER = 8 << 10, /* receive buffer of a peer */
  /* bytes kept for late receivers per peer, beyond which it is not read */
  ACI_UNEXPECTED_MOST = 256 << 20,
  ACI_WAIT_RANKS = 64 /* missing ranks that a WAIT message names */
};

typedef enum aci_message_type {
  ACI_MSG_DESC = 1,
  ACI_MSG_DATA,
  ACI_MSG_GRANT,
  ACI_MSG_WAIT,
  ACI_MSG_LEAVE,
  ACI_MSG_ABORT,
  /* the sender's earlier data belongs to finished calls. total: the generation that it enters. 0: the
   * prompt restarts */
  ACI_MSG_RESET
} aci_message_type;

typedef struct aci_message {
  uint8_t type, first; /* first: the transfer begins here */
  uint16_t zero;
  uint32_t number;  /* the sender's, of the transfer */
  uint64_t channel; /* of DESC: the group */
  uint64_t total;   /* bytes of the transfer */
  uint32_t bytes;   /* of the body */
  uint32_t zero2;
} aci_message;
_Static_assert(sizeof(aci_message) == 32, "no padding");

typedef struct aci_wait_body { /* WAIT: the ranks that the sender waits for. n 0: no longer */
  uint32_t n, number;          /* number: the sender's own for this wait. Never 0 */
  aci_desc want;
  int32_t ranks[ACI_WAIT_RANKS];
  /* the wait of each of them that the sender knew of. 0: none */
  uint32_t known_wait[ACI_WAIT_RANKS];
} aci_wait_body;
_Static_assert(sizeof(aci_wait_body) <= ACI_CONTROL_MOST, "fits a message");

typedef struct aci_abort_body {
  int32_t code, rank;
  char text[512];
} aci_abort_body;

/* A transfer to a peer, or from it once its first message was matched. */
typedef struct aci_transfer {
  struct aci_transfer *next;
  aci_request *move;           /* NULL: cancelled, or nobody asked for it yet */
  uint64_t channel, total, at; /* at: bytes gone or come */
  uint32_t number;
  bool begun, granted; /* sends: first message is out, may continue */
  bool wanted;         /* receives: matched, perhaps cancelled after that */
  bool other_size;     /* receives: not the bytes that were asked for */
  unsigned char *kept; /* receives: data that came before the request */
} aci_transfer;

typedef struct aci_list {
  aci_transfer *first, *last;
} aci_list;

typedef struct aci_pending_desc { /* a DESC that this rank has not answered yet */
  struct aci_pending_desc *next;
  aci_desc desc;
} aci_pending_desc;

typedef struct aci_peer {
  int fd; /* -1: none */
  aci_state state;
  char why[200]; /* DEAD: the evidence. LEFT: the script line */
  int64_t died;  /* ns */
  /* out */
  unsigned char *control; /* messages but DATA */
  size_t control_at, control_bytes, control_room;
  aci_list sends;
  uint32_t next_transfer_number;
  aci_message head; /* the DATA message under way */
  size_t head_at;   /* bytes of it gone */
  size_t body_left; /* 0 and head_at 0: no message is under way */
  const unsigned char *body;
  aci_transfer *sending;
  unsigned char *orphan; /* rest of a message whose transfer was cancelled */
  bool full, broken;     /* socket takes no more now, or never again */
  /* in */
  unsigned char stage[ACI_RECV_BUFFER];
  size_t stage_at, stage_bytes;
  size_t body_wanted; /* of the DATA message under way */
  aci_transfer *receiving;
  aci_list posted;   /* receives without a message */
  aci_list incoming; /* messages that are not complete or not asked for */
  size_t kept;
  aci_pending_desc *descs;
  int n_descs;
  char last_site[ACI_SITE]; /* of its last DESC */
  aci_wait_body wait;       /* n 0: does not wait, as far as we know */
  bool reset;               /* its RESET has come, ours is still to follow up */
  uint64_t generation;      /* of an elastic job: by its last RESET */
  int start;                /* its number at the start */
  int unresponsive;         /* looks at the connection without an answer */
} aci_peer;

struct aci_mesh {
  ac_world *world;
  int rank, size;
  int listener, wake; /* wake: eventfd that aborts write */
  pthread_mutex_t lock;
  aci_peer *peers;
  aci_peer_info *infos;
  aci_peer_info own;
  aci_job_key key; /* the key for proofs between peers (auth.h) */
  char run_id[ACI_RUN_ID];
  /* rank 0's count of restarts: connections of an earlier attempt prove nothing */
  uint32_t generation;
  struct pollfd *polls;
  bool abort_sent; /* the abort reason is known to the others */
  bool leave_sent;
  aci_wait_body wait;           /* the last announced wait. Its number stays when it is over */
  void (*other_progress)(void); /* NULL: none */
  bool has_abort;               /* of a peer, not yet passed on */
  aci_abort_body abort_reason;
  int64_t checked_at; /* at the connections */
};

/* "rank 3 (host:pid)" */
const char *aci_peer_name(const aci_mesh *m, int rank, char *buf, size_t n);

/* ---- mesh.c ---- */
ac_status aci_mesh_new(ac_world *w, aci_mesh **out, ac_err *e);
/* Listens at a numeric address (NULL: see aci_mesh_open) and completes m->own. */
ac_status aci_mesh_listen(aci_mesh *m, const char *address, ac_err *e);
/* Takes a connected socket as the link to rank. */
void aci_mesh_adopt(aci_mesh *m, int rank, int fd);

/* ---- out.c (lock held) ---- */
/* Queues a message with a body and tries to send. No memory: the peer counts as dead. */
void aci_out_control(aci_mesh *m, int rank, const aci_message *f, const void *body);
void aci_out_flush(aci_mesh *m, int rank);
bool aci_out_waits(const aci_peer *p); /* something is to be sent */
/* Forgets a send. The rest of its message is kept apart. */
void aci_out_cancel(aci_mesh *m, int rank, aci_transfer *t);
void aci_list_add(aci_list *l, aci_transfer *t);
void aci_list_remove(aci_list *l, aci_transfer *t);
/* frees the contents. The handles of those moves have no transfer any more */
void aci_list_drop(aci_list *l);

/* ---- in.c (lock held) ---- */
/* Reads available data. False: there was none. */
bool aci_in_read(aci_mesh *m, int rank);
/* Gives a receive its message, if that has begun. */
void aci_in_match(aci_mesh *m, int rank, aci_transfer *t);
void aci_in_cancel(aci_mesh *m, int rank, aci_transfer *t);
bool aci_in_may_read(const aci_peer *p);
/* why: "closed its connection", for messages */
void aci_peer_dies(aci_mesh *m, int rank, const char *why);
/* Text from outside: ended within its n bytes, without control characters. */
void aci_text_clean(char *text, size_t n);
void aci_descs_drop(aci_peer *p); /* frees the descriptors that wait to be compared */
void aci_peer_fini(aci_peer *p);
/* Receives that nobody waits for any more: their remaining data is read and dropped. */
void aci_peer_give_up_receives(aci_peer *p);
/* Forgets all that has come. No transfer is under way. */
void aci_peer_clear(aci_peer *p);

/* ---- progress.c (lock not held) ---- */
/* Sends and receives without blocking. Waits at most wait_ms for something to do. */
void aci_mesh_poll(aci_mesh *m, int wait_ms);
/* AC_OK, or why the job ends: the abort reason, a peer's, a dead peer. */
ac_status aci_mesh_check_end(aci_mesh *m, ac_err *e);
/* The job ends: rank `peer` left, and `what` ("in all_reduce ...") needs it. */
ac_status aci_mesh_left(aci_mesh *m, int peer, const aci_desc *want, ac_err *e);

/* ---- deadlock.c (lock held) ---- */
/* Whether a peer that this rank waits for waits for this rank. Fills the text of a deadlock. False:
 * none. */
bool aci_mesh_mutual_wait(aci_mesh *m, int peer, const aci_desc *mine, char *text, size_t n);
/* The same over several ranks, from their WAIT messages. missing: n global ranks. */
bool aci_mesh_wait_cycle(aci_mesh *m, const aci_desc *mine, const int *missing, int n, char *text,
                         size_t bytes);
/* fresh: announces a new wait. Otherwise it is announced again if one of the missing ranks waits
 * anew. */
void aci_mesh_tell_wait(aci_mesh *m, const aci_desc *mine, const int *missing, int n, bool fresh);
void aci_mesh_wait_over(aci_mesh *m);

/* ---- socket.c ---- */
/* Non-blocking, close-on-exec, no delay, probed when idle. */
void aci_socket_tune(int fd);
/* It is not probed: it outlives a time without a network. */
void aci_socket_keep(int fd);
int aci_socket_listen(const char *address, int port, int *got_port, char *why,
                      size_t n); /* numeric address, NULL: all. -1: see why */
/* begins. Numeric address */
int aci_socket_dial(const char *address, int port, char *why, size_t n);
int aci_socket_error(int fd); /* errno of a finished connect, 0: connected */
/* Numeric text of either end. "" when unknown. */
void aci_socket_address(int fd, bool of_peer, char *buf, size_t n);
bool aci_address_is_loopback(const char *numeric);
/* Up to max numeric addresses that other machines may reach. */
int aci_addresses_here(char (*out)[ACI_ADDRESS], int max);
/* "a:1" or "[a::b]:1" */
const char *aci_endpoint_text(const char *address, int port, char *buf, size_t n);
/* True if a live kernel at the other end would have answered by now. Call it twice a second. */
bool aci_socket_is_unresponsive(int fd);

/* ---- rendezvous.c ---- */
/* Every rank's info to all: infos[size]. Ranks but 0 listen first (aci_mesh_listen) and are linked
 * to rank 0 afterwards. */
ac_status aci_rendezvous(aci_mesh *m, aci_peer_info *infos, ac_err *e);
/* May these two be in one world? text: why not. whose: true when the newcomer is of another job. */
ac_status aci_peer_info_check(const aci_peer_info *ours, const aci_peer_info *theirs, bool *foreign,
                              char *text, size_t n);

#endif
