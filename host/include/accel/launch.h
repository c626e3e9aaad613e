/* accel/launch.h - one program on every rank of this machine: start, watch, restart, report
 * failures.
 *
 * ac_launch starts the local ranks of a job, gives them the memory in which they meet (descriptors,
 * no names and no ports), torchrun's variables, CPUs and threads, passes their output and signals
 * on, and returns when all are gone. The first failure ends the job on every rank and is the one
 * that is reported. */
#ifndef ACCEL_LAUNCH_H
#define ACCEL_LAUNCH_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AC_LAUNCH_AUTO = -1 };

/* Errors that a restart cannot fix are not restarted: wrong usage (by exit status) and a refused
 * run (a script that does not load, accel.util.refuse). The status page and the abort reason name a
 * refused run by this text. The rank that refuses prints the reason. */
enum { AC_EXIT_USAGE = 2 };
#define AC_REFUSED_TEXT "the run is refused"

typedef struct ac_launch_options {
  size_t struct_size;
  /* ranks of the world, over all machines. AC_LAUNCH_AUTO: one per core, on every machine */
  int num_processes;
  int num_machines;    /* 0, 1: this one alone */
  int machine_rank;    /* -1: not given, needed with several machines, as are the next two */
  const char *main_ip; /* of the machine of rank 0. NULL: not given */
  /* 0: not given. On a single machine a free port is then reserved for the job */
  int main_port;
  /* how often all ranks restart after a failure that a restart may fix. They then run with
   * ACCEL_RESUME=restart, unless that is set */
  int max_restarts;
  double monitor_interval; /* seconds between a failure and the next start */
  /* threads of each rank's kernels, passed as OMP_NUM_THREADS. 0: cores / ranks, unless it is
   * set */
  int num_threads;
  bool cpu_affinity;   /* give each rank CPUs of its own if there are enough */
  const char *log_dir; /* every rank's output goes to rank_<r>.log here. NULL: none */
  bool tee;            /* also show the output that goes there */
  const char *program; /* path of what each rank runs. NULL: this program */
  char *const *argv;   /* its command line, argv[0] first, NULL last */
  /* each rank reads the whole of standard input. Otherwise rank 0 has it, and the others read
   * nothing */
  bool share_stdin;
  int fd_out, fd_err; /* descriptors for shown output */
  /* NULL: none. Command line, as argv, of a prompt for the ranks: a separate process that has the
   * terminal and a socket to each rank (appended to the command line: segment=FD,front=FD:FD...).
   * The job lasts as long as the prompt does. A rank that dies does not end the others, the
   * prompt's exit status is the job's, and it handles SIGINT itself */
  char *const *front_argv;
  /* names the job on all of its machines. NULL: main_ip:main_port. The secret of several machines
   * comes from ACCEL_JOB_SECRET_FILE, ACCEL_JOB_SECRET or a file of the user */
  const char *run_id;
  /* ranks of each machine, instead of num_processes. 0: not given */
  int nproc_per_node;
  /* An elastic job, of min_machines to num_machines machines: ranks that die by a signal are left
   * out, and the others continue (accel/comm.h). It needs nproc_per_node. With more than one machine
   * those that die or fall silent are left out as well, as long as min_machines remain and they are
   * more than half. 0: the first failure ends the job */
  int min_machines;
  /* "HOST[:PORT],...": where the machines of such a job meet, the same on all of them. NULL: none */
  const char *rendezvous;
  double wait_machines; /* seconds that a job waits for missing machines before it ends */
  /* start a new process for a rank that was lost, which takes its state from the others */
  bool replace;
} ac_launch_options;
#define AC_LAUNCH_OPTIONS_INIT                                                                     \
  {                                                                                                \
    sizeof(ac_launch_options), AC_LAUNCH_AUTO, 1, -1, NULL, 0, 0, 0.1, 0, true, NULL, false, NULL, \
        NULL, false, 1, 2, NULL, NULL, 0, 0, NULL, 600, true                                       \
  }

typedef struct ac_launch_result {
  /* 0, otherwise the status of the first rank that failed (128 + N: ended by signal N).
   * AC_EXIT_REQUEUE: ranks exited with it, which is not a failure */
  int exit_status;
  /* the signal that asked this process to stop, if that ended the job. SIGPIPE: the reader of our
   * output is gone, and the caller did not ignore that. Otherwise 0 */
  int signal;
} ac_launch_result;

/* Runs the job. AC_OK: every rank exited with 0 or AC_EXIT_REQUEUE (of an elastic job: every rank
 * that was not lost), or the job was interrupted (result->signal). PEER: a rank failed, and *e is the one line that names rank, signal or status,
 * and script line. INVALID: wrong options. IO, OOM: the system refuses a resource.
 *
 * Must be called by the main thread of a program without other threads or children. Ranks die with
 * the calling thread (by SIGKILL, which also ends stopped ranks), and children are waited for.
 * Meanwhile a signalfd takes SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD, and SIGPIPE is ignored.
 * All of that is restored at the end. Each of the first four is passed on to the ranks. A rank that
 * shares our process group gets a terminal's signals twice, once from each. The greater of the two
 * counts is the number of key presses. */
AC_API ac_status ac_launch(const ac_launch_options *o, ac_launch_result *result, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
