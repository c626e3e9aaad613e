/* Insides of an agent: the accel-run process of one machine of an elastic job. It drives the
 * membership core (launch/member/) with what its ranks do and what other agents tell it, and carries
 * out what the core decides. The calls of the launcher are in launch_impl.h.
 *
 *   begin.c  joining
 *   agent.c  life: events, the end
 *   enter.c  a change of the generation: the report of the ranks, the new members, the line
 *   wire.c   messages of the core as bytes
 *   net.c    connections between agents
 *   seeds.c  where they meet, and who fits
 *
 * One thread, that of supervise.c. The callbacks of the core queue what they cause, and pump carries
 * it out. */
#ifndef ACI_LAUNCH_AGENT_H
#define ACI_LAUNCH_AGENT_H
#include "launch/agent/net.h"
#include "launch/launch_impl.h"
#include "launch/member/member.h"

enum { ACI_AGENT_MACHINES = 256, ACI_AGENT_ACTS = 16, ACI_AGENT_TURN_MS = 20 };

typedef struct aci_agent_machine { /* of the first record */
  uint64_t uid;
  uint32_t id;
  int first, n; /* numbers of its ranks at the start */
  bool done;    /* they have finished */
  bool lost;    /* all of them, as its agent said */
} aci_agent_machine;

typedef struct aci_agent {
  aci_job *j;
  aci_net *net;
  aci_net_hello own;
  aci_member member;
  aci_acceptor page;
  int n_machines;
  aci_agent_machine machine[ACI_AGENT_MACHINES];
  /* of the core's callbacks: messages to this agent itself, and acts, oldest first */
  unsigned char *self;
  size_t n_self, self_room;
  aci_member_act acts[ACI_AGENT_ACTS];
  int n_acts;
  aci_record got;     /* of the message under way */
  aci_record entered; /* the newest that the ranks entered */
  bool draining;      /* ranks are on their way to their report */
  bool again;         /* a rank was lost after the report: the next record is outdated */
  bool finished;      /* no rank of this machine is left */
  bool votes_only;    /* and others go on without it: it only answers as an acceptor */
  bool out;           /* this machine is not part of the job any more */
  bool told_pause, failed;
  int64_t silent_since, told_at, paused_at, done_at;
  char end[700]; /* why this machine ends other than by its ranks. "" */
  int end_status;
} aci_agent;

/* ---- wire.c ---- */
/* Bytes of msg in out (ACI_NET_FRAME of them). 0: it does not fit. */
size_t aci_member_pack(const aci_member_msg *msg, unsigned char *out);
/* record: where the message's record goes. False: the bytes are not a message. */
bool aci_member_unpack(const void *bytes, size_t n, aci_member_msg *out, aci_record *record);

/* ---- agent.c ---- */
/* Callbacks of the core and of net.c. user: the agent. */
void aci_agent_send(void *user, uint64_t to, const aci_member_msg *msg);
void aci_agent_queue(void *user, aci_member_act act, const aci_record *record);
void aci_agent_take(void *user, uint64_t from, aci_frame type, const void *body, size_t n);
/* Carries out what the core has queued. */
void aci_agent_pump(aci_agent *a);
const aci_agent_machine *aci_agent_find(const aci_agent *a, uint64_t uid);
/* "node4", or "machine 3". */
const char *aci_agent_host(const aci_agent *a, const aci_machine *m, char *buf, size_t n);
static inline uint64_t aci_agent_now(void) { return (uint64_t)(aci_now_ns() / 1000000); }

/* ---- enter.c ---- */
void aci_agent_drain(aci_agent *a);
/* Reports when all ranks have stopped. */
void aci_agent_look(aci_agent *a);
void aci_agent_enter(aci_agent *a);
/* The job waits for machines: the line, and the end after --wait-machines. */
void aci_agent_pause(aci_agent *a);

#endif
