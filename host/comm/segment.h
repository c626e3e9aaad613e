/* The control segment: one memfd that the launcher makes and every local rank maps. It holds a
 * status page per rank, the abort reason that ends a job, and per group and rank the slots in which
 * collectives meet. Called by world.c, wait.c, shm/ and the launcher.
 *
 * Layout: head | pages[n_ranks] | slots[ACI_GROUPS][n_ranks] | stages[ACI_GROUPS][n_ranks] |
 * mailboxes[n_ranks][n_ranks]. The file is sparse: unused parts take no memory. Words that one rank
 * writes and others read stand alone on their cache lines.
 *
 * A slot has two of everything, used by turns (sequence number & 1): a rank writes its part for
 * collective s only after all arrived at s-1, so all have finished s-2. */
#ifndef ACI_COMM_SEGMENT_H
#define ACI_COMM_SEGMENT_H
#include <stdatomic.h>

#include "accel/comm.h"

enum {
  ACI_SITE = 64,            /* bytes of a script line's text */
  ACI_GROUPS = 128,         /* groups alive at once */
  ACI_INLINE = 4096,        /* bytes that travel in a slot */
  ACI_CHUNK = 256 << 10,    /* bytes of a staging buffer */
  ACI_MAX_LOCAL = 256,      /* ranks of one machine */
  ACI_MAILBOX_ENTRIES = 32, /* messages of one pair of ranks that may lie unread */
  ACI_ENTRY_DATA = 3840,    /* bytes that travel in an entry */
  /* the first entries, which have an eager buffer of ACI_CHUNK bytes each besides */
  ACI_EAGER_ENTRIES = 4
};

/* A rank's description of its collective. The first 40 bytes must be equal on all ranks. */
typedef struct aci_desc {
  uint32_t seq;                    /* of the group */
  uint8_t kind, dtype, op, device; /* device 1: of tensors on a GPU */
  int32_t root, tag;               /* 0 if the kind has none */
  uint64_t group;
  int64_t count;
  uint64_t counts_hash; /* 0: even parts. 0 for ALL_TO_ALL */
  /* not compared */
  uint8_t where_send, where_recv; /* aci_where */
  uint8_t pad[6];
  uint64_t at_send, at_recv; /* offsets in this rank's heap, for ACI_IN_HEAP */
  char site[ACI_SITE];
} aci_desc;
enum { ACI_DESC_SAME = 40 };
typedef enum aci_where { ACI_PRIVATE, ACI_IN_HEAP, ACI_IN_SLOT, ACI_IN_EAGER } aci_where;
_Static_assert(offsetof(aci_desc, where_send) == ACI_DESC_SAME, "compared part first");

typedef enum aci_state { ACI_ABSENT, ACI_RUNNING, ACI_LEFT, ACI_FAILED, ACI_DEAD } aci_state;

/* Status page of a rank: written by it (state also by the launcher), read by anyone at any time.
 * Texts may be torn while they change: `guard` is odd then (seqlock). */
typedef struct aci_page {
  _Alignas(64) _Atomic uint32_t state; /* aci_state. Futex word */
  _Atomic uint32_t stopped;            /* the launcher saw it stop (SIGSTOP). 0: runs */
  int32_t pid, rank;
  char version[24], host[40];
  uint64_t script_hash, build_hash;
  char script[104];
  _Alignas(64) _Atomic uint32_t guard;
  _Atomic uint32_t beat; /* rises with every collective and step */
  uint64_t step;
  char at[ACI_SITE]; /* last script line known */
  /* the object of its wait */
  /* 0: not waiting. Otherwise it counts waits, so that a stable wait can be told from the next */
  _Atomic uint32_t waiting;
  /* ns: the awaited event had not come then. Outdated when it no longer waits */
  _Atomic int64_t checked_at;
  int64_t since;    /* ns */
  uint32_t kind;    /* aci_wait_kind of the wait */
  uint32_t n_waits; /* the rank's own: the last value of `waiting` */
  int32_t tid;      /* thread that joined: it runs the script */
  aci_desc want;
  uint32_t missing[ACI_MAX_LOCAL / 32]; /* bit per world rank of this machine, by local rank */
  /* how it ended */
  int32_t exit_code, signal;
  char last[256];
  size_t heap_span; /* bytes of every heap that it has mapped. 0: none */
  /* for people who look on (accel-run top, attach) */
  /* it stands at a prompt of `attach` or a breakpoint: time does not count for those that wait for
   * it */
  _Atomic uint32_t prompt;
  /* time of its last step, and the time since the step before. 0: unknown */
  _Atomic int64_t stepped_at, step_ns;
  _Atomic double loss, tokens_per_s; /* last values logged by the script. NaN: none */
  /* how late it is by aci_late, and the usual time of a step. 0: it is not late */
  _Atomic int64_t late_ns, usual_ns;
  /* counts events that may let a send or receive of this rank continue: changes of its mailboxes by
   * others, works of its own queue. Futex word */
  _Alignas(64) _Atomic uint32_t doorbell;
  _Atomic uint32_t doorbell_sleepers;
  /* of an elastic job: update << 2 | ac_phase */
  _Alignas(64) _Atomic uint64_t phase;
  _Atomic uint32_t reported; /* the round for which this rank waits, with the next two in place */
  uint32_t next_group;
  uint32_t holds_foreign; /* it uses memory in heaps of other ranks */
  /* aci_join. Futex word: the launcher sets HEALING when the rank is a member */
  _Atomic uint32_t joins;
  _Atomic uint32_t at_boundary; /* it waits between two updates for a planned change */
  /* of one that was healed: what it received, and the time from its first message on */
  uint64_t heal_bytes;
  double heal_seconds;
} aci_page;

/* A rank that was started into a job that runs. NONE: one of the start, or healed. */
typedef enum aci_join {
  ACI_JOIN_NONE,
  ACI_JOIN_STARTED,
  ACI_JOIN_READY,
  ACI_JOIN_HEALING
} aci_join;

/* Whether a wait can be part of a deadlock. SOFT: other threads of its rank may end it. NETWORK:
 * data may still be on its way. MEMORY: nothing but the missing ranks' next step ends it. */
typedef enum aci_wait_kind { ACI_WAIT_SOFT, ACI_WAIT_NETWORK, ACI_WAIT_MEMORY } aci_wait_kind;

/* Why the job ends: the first to take `taken` writes it, then raises `set`. Ranks that wait look at
 * `set`. */
typedef struct aci_abort_reason {
  _Alignas(64) _Atomic uint32_t set; /* futex word */
  _Atomic uint32_t taken;
  /* Of an elastic job: counts the losses of ranks. A rank that knows an older number must leave its
   * waits and join the next generation (generation.c) */
  _Atomic uint32_t round;
  int32_t code; /* ac_status */
  int32_t rank; /* the culprit, by its number at the start. -1: several */
  char text[512];
} aci_abort_reason;

/* The newest generation of an elastic job. The launcher writes it while every member waits for it,
 * and then raises `formed`. */
typedef struct aci_members {
  _Alignas(64) _Atomic uint32_t formed; /* the round that it ended. Futex word */
  uint32_t elastic;                     /* whether the job is one */
  uint64_t number;                      /* the generation, from 1 */
  uint64_t committed;                   /* last update that counts. 0: unknown or none */
  uint32_t next_group;
  int32_t n;
  uint8_t seat[ACI_MAX_LOCAL];    /* of rank i: its number at the start, over all machines */
  uint8_t healing[ACI_MAX_LOCAL]; /* by that number: it has no state yet */
  double seconds;                 /* since the first loss */
  char reason[512];
  uint32_t change;  /* ac_change */
  int32_t launcher; /* its process, for requests. 0: this job takes none */
  /* asks the members to come between two updates, where ranks join and leave (comm/join.c) */
  _Atomic uint32_t asked;
  /* what a person or a script asked the launcher for. 0: nothing. The number of ranks, and 1 + the
   * seat of one that leaves */
  _Atomic uint32_t want_ranks, want_leave;
} aci_members;

typedef enum aci_segment_key { ACI_NO_KEY, ACI_HAS_KEY, ACI_INSECURE } aci_segment_key;

typedef struct aci_head {
  char magic[8]; /* "accelsg1" */
  uint32_t layout, n_ranks;
  uint32_t n_cpus; /* that the ranks share, as its maker may use them */
  uint64_t run_id[2];
  /* aci_segment_key: a secret from the launcher for ranks that talk over a network */
  uint32_t has_key;
  uint8_t job_key[32];       /* secret.h */
  char key_origin[120];      /* the source of its secret, for messages */
  _Atomic uint32_t key_done; /* ranks that will not read job_key again */
  size_t total, at_pages, at_slots, at_stages, at_mailboxes;
  _Atomic uint32_t joined;
  _Atomic uint64_t stop_at;    /* step at which all ranks stop after an interrupt. 0: no request */
  _Atomic int32_t stop_signal; /* the signal that asked for it */
  _Atomic uint32_t console; /* ranks are at a prompt: Ctrl-C is the prompt's, not the launcher's */
  aci_abort_reason abort_reason;
  aci_members members;
  _Atomic uint32_t n_slots;          /* groups that ever had a slot: sleepers wait only there */
  _Atomic uint32_t base[ACI_GROUPS]; /* values of a slot's words when its last group ended */
} aci_head;

/* One rank's side of one group. */
typedef struct aci_slot {
  /* seq of the collective whose descriptor and data are in place */
  _Alignas(64) _Atomic uint32_t arrived;
  _Atomic uint32_t sleepers;           /* who sleeps on `arrived` or `phase` */
  _Alignas(64) _Atomic uint32_t phase; /* counts steps inside collectives, never goes back */
  _Alignas(64) aci_desc desc[2];
  _Alignas(64) unsigned char data[2][ACI_INLINE];
} aci_slot;

/* Staging buffers of one rank in one group. */
typedef struct aci_stage {
  _Alignas(4096) unsigned char in[2][ACI_CHUNK], out[2][ACI_CHUNK];
} aci_stage;

/* A message of one rank for another, as long as the receiver has not read it. */
typedef enum aci_mailbox_entry_state {
  ACI_ENTRY_FREE,
  ACI_ENTRY_OFFERED,
  ACI_ENTRY_TAKEN,
  ACI_ENTRY_READ
} aci_mailbox_entry_state;
typedef struct aci_mailbox_entry {
  /* FREE -> OFFERED by the sender -> TAKEN -> READ by the receiver. Data in the entry or in its
   * eager buffer goes to FREE at once */
  _Alignas(64) _Atomic uint32_t state;
  uint32_t order;   /* of the offers of this pair */
  uint64_t channel; /* group and tag */
  aci_desc desc;
  _Alignas(64) _Atomic uint32_t filled;  /* pieces that the sender put into mailbox->piece */
  _Alignas(64) _Atomic uint32_t emptied; /* pieces that the receiver took out */
  _Alignas(64) unsigned char data[ACI_ENTRY_DATA];
} aci_mailbox_entry;

/* From one rank to one other. */
typedef struct aci_mailbox {
  /* counts them: the receiver looks at entries when it has changed */
  _Alignas(4096) _Atomic uint32_t offers;
  /* channel of the oldest receive that found nothing. 0: none */
  _Alignas(64) _Atomic uint64_t want;
  aci_mailbox_entry entry[ACI_MAILBOX_ENTRIES];
  _Alignas(4096) unsigned char eager[ACI_EAGER_ENTRIES][ACI_CHUNK];
  unsigned char piece[2][ACI_CHUNK]; /* of one large message at a time */
} aci_mailbox;

typedef struct aci_segment_map {
  int fd;
  aci_head *head; /* NULL: not mapped */
} aci_segment_map;

/* Makes a segment for n ranks. The descriptor is close-on-exec. The launcher clears that for its
 * ranks. */
ac_status aci_segment_make(int n_ranks, aci_segment_map *out, ac_err *e);
/* Maps the segment of an inherited descriptor. Checks that it is one. */
ac_status aci_segment_open(int fd, aci_segment_map *out, ac_err *e);
void aci_segment_close(aci_segment_map *m); /* unmaps, closes the descriptor */
/* A rank has joined. The last one wipes the key of the job. */
void aci_segment_key_done(aci_head *h);
static inline aci_page *aci_page_of(const aci_head *h, int local_rank) {
  return (aci_page *)((char *)h + h->at_pages) + local_rank;
}
static inline aci_slot *aci_slot_of(const aci_head *h, int group, int local_rank) {
  return (aci_slot *)((char *)h + h->at_slots) + (size_t)group * h->n_ranks + (size_t)local_rank;
}
static inline aci_stage *aci_stage_of(const aci_head *h, int group, int local_rank) {
  return (aci_stage *)((char *)h + h->at_stages) + (size_t)group * h->n_ranks + (size_t)local_rank;
}
static inline aci_mailbox *aci_mailbox_of(const aci_head *h, int from_local, int to_local) {
  return (aci_mailbox *)((char *)h + h->at_mailboxes) + (size_t)from_local * h->n_ranks +
         (size_t)to_local;
}
/* Makes the pages of a range of the segment exist, so that no access to them fails later. */
ac_status aci_segment_commit(const aci_segment_map *m, const void *p, size_t bytes, ac_err *e);
/* Ends the job for a reason, unless one is set already. Wakes every sleeper. True: it was the
 * first. */
bool aci_abort_segment(aci_head *h, ac_status code, int rank, const char *text);
/* Clears it. No rank may be in a wait. */
void aci_abort_clear(aci_head *h);
/* Wakes every sleeper, to look at the abort reason and the round. */
void aci_segment_wake(aci_head *h);
/* Empties all slots, staging buffers and mailboxes. No rank may use them. */
ac_status aci_segment_empty(const aci_segment_map *m, ac_err *e);
/* Copies a page's texts without tearing. */
void aci_page_read(const aci_page *p, aci_page *copy);
void aci_page_set_at(aci_page *p, const char *site, uint64_t step);
/* A watcher's memory of a rank. Zero at first. */
typedef struct aci_late_watch {
  int64_t stepped_at; /* of the step that it is at */
  int64_t starved;    /* ns: its waiting time for a CPU soon after. -1: not read */
} aci_late_watch;
/* late.c: ns since the last step of local rank `own`, which is this process, if that is more than
 * twice the ranks' median step plus one second, and another rank is further or waits for it. *usual
 * is that median then. 0: it is not late. A rank that waits, stands at a prompt, or had no CPU for
 * so long is not late either. */
int64_t aci_late(const aci_head *h, int own, aci_late_watch *w, int64_t now, int64_t *usual);
/* Writers of a page's texts, threads of one process, take turns. */
void aci_page_lock(aci_page *p);
void aci_page_unlock(aci_page *p);

/* Rings a rank's doorbell. Call it after the change. */
void aci_doorbell_ring(aci_page *p);
/* Sleeps until the doorbell has rung since `seen` was read off it, which was before the look that
 * found nothing to do, or for ns. */
void aci_doorbell_wait(aci_page *p, uint32_t seen, int64_t ns);
/* futex on a word that processes share. Returns at once when *word != value. timeout_ns < 0:
 * none. */
void aci_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns);
void aci_futex_wake(_Atomic uint32_t *word);
int64_t aci_now_ns(void); /* CLOCK_MONOTONIC */

#endif
