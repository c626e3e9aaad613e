/* Membership of an elastic job: which machines belong to it, and which update was committed last.
 *
 * The core is a pure state machine. It has no clock, no sockets, no threads and no Lua, and it
 * allocates nothing: each agent passes it events with its own monotonic time, and it answers by
 * two callbacks, `send` and `act`. The simulator in tests/host/launch/member runs the same code.
 *
 *   record.c    generation records: order, search, hash
 *   acceptor.c  promises and votes of one slot. Used by agents, sentinels and the witness
 *   choose.c    the record that a proposer would like: eviction, verdict of the update, joiners
 *   propose.c   ballots: who proposes when, counting of promises and votes
 *   member.c    events: beats, silence, changes, learning of a record
 *   start.c     the first record, from the agents at the seed addresses
 *
 * Records form a chain. Record g+1 is the value of one single-decree Paxos instance, slot g+1,
 * whose acceptors are the machines of record g and the witness. A record names the machines with
 * their living ranks and carries `committed`, the last committed update. Rank order, quotas and
 * owners of parts follow from the chain, so they need no agreement of their own.
 *
 * A change of the generation: the first agent that sees a reason marks its beats, all agents tell
 * their ranks to leave their waits (ACI_MEMBER_DRAIN), and an agent whose ranks have stopped
 * reports their phase (aci_member_drained). From then on its ranks apply nothing until the next
 * record. A proposer waits for the report of each machine that it hears, so the verdict needs no
 * further exchange: if some rank has applied update u, all ranks had prepared u before, and every
 * report shows that. */
#ifndef ACI_MEMBER_H
#define ACI_MEMBER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef ACI_MEMBER_MAX /* the simulator compiles the core with a smaller one */
#define ACI_MEMBER_MAX 1024
#endif

enum { ACI_MEMBER_WORDS = (ACI_MEMBER_MAX + 63) / 64 };

/* Positions in a record's list of machines. */
typedef struct aci_member_set {
  uint64_t word[ACI_MEMBER_WORDS];
} aci_member_set;

/* A machine of a record. uid is unique among all agents that ever ran, so an agent that restarts
 * is another machine. Ids rise with time: survivors keep their order. */
typedef struct aci_machine {
  uint64_t uid;
  uint64_t ranks; /* bit r: local rank r lives */
  uint32_t id, pad;
} aci_machine;

typedef struct aci_record {
  uint64_t number; /* the generation, from 1. 0: none yet */
  uint64_t before; /* hash of the record before */
  uint64_t run;    /* the job's run id */
  uint64_t committed;
  uint32_t next_id, n;
  aci_machine machine[ACI_MEMBER_MAX]; /* n of them, by rising id */
} aci_record;

void aci_record_copy(aci_record *to, const aci_record *from);
uint64_t aci_record_hash(const aci_record *r);
/* Position of a machine. -1: not in it. */
int aci_record_find(const aci_record *r, uint32_t id, uint64_t uid);

typedef enum aci_member_kind {
  ACI_MEMBER_BEAT = 1, /* every 0.1 s, and when a flag changes */
  ACI_MEMBER_PREPARE,  /* slot, ballot, record: the one before, NULL for the first slot */
  ACI_MEMBER_PROMISE,  /* slot, ballot, accepted, record (if accepted is not 0) */
  ACI_MEMBER_ACCEPT,   /* slot, ballot, record */
  ACI_MEMBER_ACCEPTED, /* slot, ballot */
  ACI_MEMBER_REFUSED,  /* slot, ballot: the highest one promised */
  ACI_MEMBER_RECORD,   /* record: decided */
  ACI_MEMBER_DEAD,     /* from a sentinel: the agent with uid is reaped, the record that it knew */
} aci_member_kind;

enum {                       /* flags of a beat */
       ACI_BEAT_CHANGE = 1,  /* generation `slot` must be left */
       ACI_BEAT_DRAINED = 2, /* the report is final for generation `slot` */
       ACI_BEAT_LEAVING = 4, /* wants to be left out of the next record */
       ACI_BEAT_JOINS = 8,   /* not a member, asks to become one */
       ACI_BEAT_READY = 16,  /* a joiner that holds the state of the job */
       ACI_BEAT_LATER = 32   /* the change is planned: at the next boundary between two updates */
};

typedef struct aci_member_msg {
  uint8_t kind, flags;
  int16_t seed; /* of the sender: position in the list of seeds, -1: not a seed */
  uint32_t id;  /* of the sender in the record that it knows */
  uint64_t from;
  uint64_t seq;  /* of the sender's beats, rising */
  uint64_t slot; /* beats: number of the record that the sender knows */
  uint64_t ballot, accepted;
  uint64_t applied, prepared, ranks;
  uint64_t uid;                 /* DEAD */
  aci_member_set heard, recent; /* beats: machines heard within `silence` and within `lease` */
  const aci_record *record;     /* valid during the call */
} aci_member_msg;

enum { /* addresses beside the uid of a machine */
       ACI_MEMBER_WITNESS = 1
};
#define ACI_MEMBER_SEED (UINT64_C(1) << 63) /* + i: whoever listens at address i */

/* ---- acceptor.c ----
 * Promises and votes: a page that agent and sentinel share. After it has reaped the agent, the
 * sentinel answers from the page in its place. An agent can be killed between any two stores, so
 * a vote becomes valid by one store, and a stale value is recognised by its number. */
typedef struct aci_acceptor {
  uint64_t slot, promised, promised_to;
  uint64_t accepted; /* ballot << 1 | index of its value */
  aci_record value[2];
  uint64_t newest; /* index of the newest decided record that it knows */
  aci_record decided[2];
} aci_acceptor;

/* Answers a PREPARE or an ACCEPT. false: no answer, the message is of an older slot. The answer's
 * record points into the page. The host of a sentinel or a witness fills in the sender. */
bool aci_acceptor_answer(aci_acceptor *a, const aci_member_msg *msg, aci_member_msg *answer);

/* A record is decided. The witness calls it for a RECORD, agents learn by themselves. */
void aci_acceptor_learn(aci_acceptor *a, const aci_record *record);
/* What a sentinel tells the machines of the record, once per beat, until a record lacks its agent:
 * false if there is no record, or it lacks `uid`. */
bool aci_acceptor_dead(const aci_acceptor *a, uint64_t uid, aci_member_msg *out);

typedef enum aci_member_act {
  ACI_MEMBER_DRAIN = 1,   /* stop the ranks at once, then call aci_member_drained */
  ACI_MEMBER_DRAIN_LATER, /* the same at the next boundary between two updates */
  ACI_MEMBER_ENTER,       /* kill what `record` does not name, apply up to its `committed`, set
                               up the generation, then call aci_member_entered */
  ACI_MEMBER_EXPELLED,    /* kill all ranks and end: the sentinel votes on and starts a new agent */
  ACI_MEMBER_PAUSED       /* no quorum, or fewer than `min` machines: the job waits */
} aci_member_act;

/* The callbacks must not call the core: they queue what they cause. */
typedef struct aci_member_host {
  void *user;
  void (*send)(void *user, uint64_t to, const aci_member_msg *msg);
  void (*act)(void *user, aci_member_act act, const aci_record *record);
} aci_member_host;

/* Times in milliseconds. They must be equal on all machines, `silence` at least lease + 5 beats. */
typedef struct aci_member_options {
  uint64_t run;
  uint64_t committed; /* of the state with which a new job starts */
  uint64_t ranks;     /* bits of the local ranks at the start */
  uint32_t min, max;  /* machines */
  int n_seeds, seed;  /* seed: own position, -1 if this machine is not one */
  int n_dial;         /* addresses where members may be: the seeds, then what discovery found */
  bool witness;
  uint32_t beat, lease, silence, ballot, drain, start_wait;
} aci_member_options;

#define ACI_MEMBER_OPTIONS                                                                      \
  {                                                                                             \
    .min = 1, .max = 1, .n_seeds = 1, .n_dial = 1, .beat = 100, .lease = 1000, .silence = 1500, \
    .ballot = 200, .drain = 2000, .start_wait = 5000                                            \
  }

typedef enum aci_member_state {
  ACI_MEMBER_OUTSIDE,  /* not in a record */
  ACI_MEMBER_ENTERING, /* the host sets the generation up */
  ACI_MEMBER_RUNNING,
  ACI_MEMBER_DRAINING, /* the host stops the ranks */
  ACI_MEMBER_DRAINED,  /* their report is final */
  ACI_MEMBER_GONE      /* expelled */
} aci_member_state;

typedef struct aci_member_peer { /* what a machine of the record told last */
  uint64_t heard_at, seq;
  uint64_t applied, prepared, ranks;
  aci_member_set heard, recent;
  uint8_t flags;
  bool dead; /* by its sentinel */
} aci_member_peer;

typedef struct aci_stranger { /* an agent that asks to be let in */
  uint64_t uid, heard_at, slot, ranks;
  aci_member_set heard;
  int16_t seed;
  uint8_t flags;
} aci_stranger;

typedef struct aci_member {
  aci_member_options o;
  aci_member_host host;
  aci_acceptor *page;
  uint64_t uid, seq;
  aci_member_state state;
  bool planned, leaving, ready, may_start, paused;
  int self; /* position in the record, -1: not in it */
  uint64_t started_at, ticked_at, beat_at, changed_at, entered_at;
  uint64_t applied, prepared, ranks; /* the report */
  aci_record record;                 /* the newest decided one that is known */
  aci_member_peer peer[ACI_MEMBER_MAX];
  int n_strangers;
  aci_stranger stranger[ACI_MEMBER_MAX];
  /* as a proposer */
  uint64_t ready_at, ballot, highest, retry_at;
  uint64_t best; /* highest accepted ballot among the promises */
  bool accepting;
  aci_member_set votes;
  bool witness_voted;
  aci_record value;
} aci_member;

/* `page` outlives the agent and is zero at first. may_start: false for a seed that knows that the
 * job ran before: it joins only. */
void aci_member_init(aci_member *m, const aci_member_options *o, const aci_member_host *host,
                     uint64_t uid, aci_acceptor *page, bool may_start, uint64_t now);
/* At least once per beat. */
void aci_member_tick(aci_member *m, uint64_t now);
void aci_member_receive(aci_member *m, uint64_t now, const aci_member_msg *msg);
/* A local reason to change the generation: a rank died, a link broke, or (planned) a rank is back. */
void aci_member_change(aci_member *m, uint64_t now, bool planned);
/* All local ranks have stopped: the least update that each of them prepared, the highest that any
 * of them applied, and the living ones. */
void aci_member_drained(aci_member *m, uint64_t now, uint64_t applied, uint64_t prepared,
                        uint64_t ranks);
void aci_member_entered(aci_member *m, uint64_t now);
void aci_member_leave(aci_member *m, uint64_t now);
/* A joiner holds the job's state and can become a member. */
void aci_member_ready(aci_member *m);
/* Whether this machine may rename a checkpoint, prune and write to trackers: a quorum of the
 * generation heard it within `lease`, and it heard them. */
bool aci_member_has_lease(const aci_member *m, uint64_t now);

#endif
