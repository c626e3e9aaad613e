/* Insides of the launcher: the plan of a job, its ranks, their output.
 *
 *   launch.c     options, the environment of ranks, attempts (restarts)
 *   plan.c       numbers of ranks and machines, options of elastic jobs
 *   topology.c   which CPUs there are, and who gets which
 *   spawn.c      fork and exec of one rank
 *   front.c      the prompt of a REPL over the ranks, and the sockets between them
 *   supervise.c  the loop: deaths, stops, signals, deadlines
 *   elastic.c    jobs that continue without the ranks that died
 *   replace.c    ranks that join them and leave them between two updates
 *   cause.c      the texts for failures
 *   output.c     from the ranks' pipes to the console and the log files
 *   agent/       the same over several machines: their accel-runs agree on each change
 *   member/      which machines belong to an elastic job: the core of these agents. One machine needs
 *                no agreement (elastic.c) */
#ifndef ACI_LAUNCH_IMPL_H
#define ACI_LAUNCH_IMPL_H
#include <signal.h>
#include <sys/types.h>

#include "accel/launch.h"
#include "comm/secret.h"
#include "comm/segment.h"

/* ---- topology.c ---- */
typedef struct aci_cpus {
  int n, n_cores; /* CPUs we may run on. Cores they belong to */
  int *cpu;       /* numbers, neighbours in the machine side by side: by NUMA node, core, thread */
  int *core;      /* of cpu[i]: 0..n_cores-1, rising */
} aci_cpus;
/* The CPUs that our affinity mask leaves. sys: "/sys". */
ac_status aci_cpus_read(const char *sys, aci_cpus *out, ac_err *e);
/* The same for a list of CPUs. */
ac_status aci_cpus_of(const char *sys, const int *allowed, int n, aci_cpus *out, ac_err *e);
void aci_cpus_free(aci_cpus *c);
/* The part of rank r of n: whole cores when there are n, else whole CPUs. Returns their number,
 * *first is the index of the first. 0: there are fewer CPUs than ranks. */
int aci_cpus_part(const aci_cpus *c, int r, int n, int *first);
/* "0-3,8" -> numbers. -1: not such a list. Returns their number. Fills up to max. */
int aci_cpu_list(const char *text, int *out, int max);

/* ---- output.c ---- */
enum { ACI_LINE_MAX = 64 << 10, ACI_SINK_FULL = 1 << 20 };

/* Bytes for a console descriptor, written when it can take them, so that a stuck terminal does not
 * block supervision. */
typedef struct aci_sink {
  int fd;
  bool dead;   /* it takes no more: later output is dropped */
  bool closed; /* since its reader is gone */
  char *buf;
  size_t begin, end, cap;
} aci_sink;
void aci_sink_put(aci_sink *s, const char *text, size_t n);
/* Writes as much as the descriptor takes at once. */
void aci_sink_flush(aci_sink *s);
void aci_sink_free(aci_sink *s);
/* Has the reader of a pipe or socket gone? */
bool aci_reader_gone(int fd);
static inline size_t aci_sink_waiting(const aci_sink *s) { return s->end - s->begin; }

/* One pipe from a rank. */
typedef struct aci_stream {
  int fd;         /* our end, not blocking. -1: closed */
  aci_sink *show; /* NULL: not shown */
  int log;        /* descriptor of the log file. -1: none */
  /* "[rank 1] ". "" (rank 0) adds nothing, and passes on a partial line after a moment */
  char prefix[24];
  char *line; /* of ACI_LINE_MAX + 1 bytes: the start of a line that has not ended */
  size_t n;
  int64_t partial_at; /* when to show that partial line, ns. 0: not */
  int rank;
} aci_stream;
/* Reads once, up to a line's bytes. False: nothing is there now. At the end of the pipe the stream
 * is closed. */
bool aci_stream_read(aci_stream *s);
/* Shows the partial line. */
void aci_stream_flush_partial(aci_stream *s);
/* Ends the last line, closes. */
void aci_stream_close(aci_stream *s);

/* ---- the job ---- */
typedef struct aci_rank {
  pid_t pid; /* 0: not started */
  bool ended;
  int code, sig; /* how it ended: exit code, or signal */
  bool core;     /* with a core dump */
  int stopped;   /* by this signal. 0: it runs */
  int ended_by;  /* the signal that we sent to end it. 0: none */
  /* of an elastic job: time of its stop in ns, 0: it runs or is traced. We killed it for that. It
   * was lost in the change under way */
  int64_t stopped_at;
  bool expelled, lost;
  /* It was started into the job, and does not have its state yet. It was asked to leave, and has. It
   * took too long to take the state over, since healing_at (ns). Starts of this seat since a rank was
   * healed in it. How a guest ended */
  bool joins, leaves, gone, hangs;
  int64_t healing_at;
  int tries;
  char end[240];
  aci_stream out, err;
  int log; /* its log file. -1: none */
} aci_rank;

/* The losses of an elastic job (elastic.c). */
typedef struct aci_elastic {
  bool pending;  /* the survivors are on their way to the next generation */
  bool planned;  /* nobody was lost: ranks join or leave */
  bool counts;   /* a rank with the job's state was lost, not only guests */
  bool resizing; /* a person asked for the number of ranks */
  int wanted;    /* number of ranks that the job should have */
  int n_order;   /* members in the order of their ranks, by seat */
  uint8_t order[ACI_MAX_LOCAL];
  int64_t began; /* ns: when the first of its losses was seen */
  int first;     /* that rank */
  uint64_t generation, update;
  int losses, first_at_update; /* at `update`: generations that ended there. The first lost rank */
  char text[1400];             /* who was lost and how */
} aci_elastic;

typedef struct aci_job {
  const ac_launch_options *o;
  int n, world, first; /* local ranks, ranks of the world, global rank of local rank 0 */
  int machines, machine;
  int attempt; /* 0, 1, ... */
  char run_id[ACI_RUN_ID], run[17], host[64], program[512];
  const char *address;
  aci_job_key key;   /* the key for proofs between ranks over a network */
  int port, port_fd; /* port_fd keeps the port ours. -1: none */
  int threads;       /* OMP_NUM_THREADS of the ranks. 0: unchanged */
  bool pin;
  aci_cpus cpus;
  /* socket pairs of the local ranks and a prompt: theirs, its. -1: closed. NULL: none */
  int *console, *front;
  int null_fd, script_fd; /* /dev/null. A copy of standard input for all, -1: none */
  sigset_t mask;          /* the caller's */
  struct sigaction pipe_action, size_action; /* the caller's, of SIGPIPE and SIGXFSZ */
  int signal_fd;
  /* of this attempt */
  aci_segment_map segment;
  int *heaps;
  aci_rank *ranks;
  aci_sink out, err; /* one of them serves both if they are the same file */
  bool one_sink;
  int alive;
  pid_t front_pid; /* the prompt of front_argv. 0: there is none, or it is gone */
  int front_code, front_sig;
  int failed;               /* local rank that failed first. -1: none */
  int64_t term_at, kill_at; /* deadlines of survivors, ns. 0: none */
  /* signals that asked us to stop, over all attempts */
  int signal, n_signals;
  bool pipe_closed; /* whoever read our output is gone, which ends the job as it ends a filter */
  uint64_t oom_kills;
  bool refused;    /* the last attempt, by its root cause */
  bool resizes;    /* ranks may join and leave an elastic job */
  bool replaces;   /* and new ones take the place of lost ones */
  int64_t timeout; /* of a wait for another rank, ns. 0: none */
  aci_elastic elastic;
  struct aci_agent *agent; /* of an elastic job of several machines. NULL: none */
} aci_job;

/* ---- plan.c ---- */
/* Ranks and machines, from the options. */
ac_status aci_plan_ranks(aci_job *j, int cores, ac_err *e);
/* The options of an elastic job, and the ranks of each machine. */
ac_status aci_plan_check(const ac_launch_options *o, const ac_params *params, ac_err *e);

/* ---- spawn.c ---- */
/* Starts local rank r: environment, pipes, log file, process. */
ac_status aci_rank_start(aci_job *j, int r, ac_err *e);
void aci_rank_free(aci_rank *r);
/* Makes the socket pairs. Without a prompt of our own a script gets them as well, if there are not
 * too many ranks. */
ac_status aci_consoles_make(aci_job *j, ac_err *e);
void aci_consoles_close(aci_job *j);
/* Starts the prompt. */
ac_status aci_front_start(aci_job *j, ac_err *e);

/* ---- supervise.c ---- */
/* Until no rank is left. */
void aci_supervise(aci_job *j);
/* Waits, serving signals. False: a signal asked to stop. */
bool aci_job_sleep(aci_job *j, double seconds);
/* Kills the remaining processes that ranks started. They have our run id in their environment. */
void aci_job_sweep(const aci_job *j);

/* Ends the job for the failure of local rank r, unless it has failed before. */
void aci_job_fail(aci_job *j, int r);

/* ---- elastic.c ---- */
void aci_elastic_begin(aci_job *j); /* of an attempt, before its ranks start */
/* Takes those of the n ranks that ended whose loss the job survives. The others go to `rest`.
 * Returns their number. */
int aci_elastic_take(aci_job *j, const int *ended, int n, int *rest);
/* The rank to blame for a failure: a loss before it that the survivors could not handle, or
 * worst. */
int aci_elastic_cause(const aci_job *j, int worst);
/* Forms the next generation when all survivors wait for it, and ends ranks that are stopped for too
 * long. Called at least at each deadline (ns, 0: none). */
void aci_elastic_turn(aci_job *j);
int64_t aci_elastic_deadline(const aci_job *j);
void aci_elastic_say(aci_job *j, const char *lost, const char *rest); /* "accel-run: lost; rest" */
/* Sets the phases of the n local ranks `seat` to the verdict. */
void aci_elastic_set_phases(const aci_job *j, const int *seat, int n, uint64_t committed);
void aci_elastic_free_heaps(aci_job *j, const int *seat, int n); /* of lost ranks */

/* ---- agent/ ---- */
struct pollfd;
enum { ACI_AGENT_POLLS = 1536 };
/* Meets the other machines, and completes the plan: which ranks run here, where rank 0 is. After a
 * signal it returns early. */
ac_status aci_agent_join(aci_job *j, ac_err *e);
/* The rest does nothing without an agent. */
int aci_agent_polls(const aci_job *j, struct pollfd *p);
void aci_agent_serve(aci_job *j); /* after each poll, at least at each deadline */
int64_t aci_agent_deadline(const aci_job *j);
/* Ranks of this machine were lost, with a line about them. all: none is left. */
void aci_agent_lost(aci_job *j, const char *text, bool all);
/* The job ends everywhere: the number of the rank to blame, the reason. */
void aci_agent_failed(aci_job *j, int rank, const char *text);
/* The ranks of this machine have ended: waits until the others need it no more. Corrects the result
 * of a machine that ended for another reason than its ranks. */
ac_status aci_agent_finish(aci_job *j, ac_launch_result *result, ac_status st, ac_err *e);
void aci_agent_free(aci_job *j);

/* ---- replace.c ---- */
void aci_replace_begin(aci_job *j);
/* A rank that joins has ended. True: it was a member, so that the others must go on without it. */
bool aci_replace_ended(aci_job *j, int r);
/* While no generation is being formed: starts ranks, asks members to a boundary, and begins the
 * planned change when all are there. */
void aci_replace_turn(aci_job *j);
int64_t aci_replace_deadline(const aci_job *j);
void aci_replace_expire(aci_job *j); /* ends ranks for whose state the others wait too long */
/* Takes ranks that leave out of the n seats, and adds those that are ready. Returns their number.
 * ACI_MAX_LOCAL seats have room. */
int aci_replace_members(aci_job *j, int *seat, int n, uint64_t committed);
void aci_replace_formed(aci_job *j, const int *seat, int n); /* before the ranks see it */
void aci_replace_admit(aci_job *j);                          /* after that */

/* ---- cause.c ---- */
const char *aci_signal_name(int n, char *buf, size_t size); /* "SIGKILL" */
/* "rank 2 (pid 123) was killed by SIGKILL at train.lua:31 in all_reduce f32 (1000) sum": for the
 * abort reason. */
void aci_cause_of(const aci_job *j, int r, char *buf, size_t n);
/* The rank that caused the end. -1: nobody failed. */
int aci_root_cause(const aci_job *j);
/* The last line of a failed job. */
void aci_root_cause_text(const aci_job *j, int root, char *buf, size_t n);
/* A restart cannot fix the failure of root. */
bool aci_root_refused(const aci_job *j, int root);
uint64_t aci_oom_kills(void); /* of this machine so far */

#endif
