/* accel/launch.h - one program on every rank of this machine: start, watch, restart, name what failed.
 *
 * ac_launch starts the local ranks of a job, gives them the memory in which they meet (descriptors, no names and no ports),
 * torchrun's variables, CPUs and threads, passes their output and signals on, and returns when all are gone. The first failure
 * ends the job on every rank and is the one that is reported. */
#ifndef ACCEL_LAUNCH_H
#define ACCEL_LAUNCH_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AC_LAUNCH_AUTO = -1 };

typedef struct ac_launch_options {
  size_t struct_size;
  int num_processes;        /* ranks of the world, over all machines; AC_LAUNCH_AUTO: one per core, on every machine */
  int num_machines;         /* 0, 1: this one alone */
  int machine_rank;         /* -1: not given, needed with several machines, as are the next two */
  const char *main_ip;      /* of the machine of rank 0. NULL: not given */
  int main_port;            /* 0: not given; alone on a machine a free one is kept for the job */
  int max_restarts;         /* how often all ranks start anew after a failure; then with ACCEL_RESUME=auto, unless that is set */
  double monitor_interval;  /* seconds between a failure and the next start */
  int num_threads;          /* of each rank's kernels, told by OMP_NUM_THREADS; 0: cores / ranks, unless it is set */
  bool cpu_affinity;        /* give each rank CPUs of its own where there are enough */
  const char *log_dir;      /* every rank's output goes to rank_<r>.log here. NULL: none */
  bool tee;                 /* and what goes there is shown, too */
  const char *program;      /* path of what each rank runs. NULL: this program */
  char *const *argv;        /* its command line, argv[0] first, NULL last */
  bool share_stdin;         /* each rank reads the whole of standard input; else rank 0 has it, and the others nothing */
  int fd_out, fd_err;       /* where output is shown */
  char *const *front_argv;  /* NULL: none. Command line, as argv, of a prompt for the ranks: a process beside them that has the
                               terminal and a socket to each of them (what follows it on the command line: segment=FD,front=FD:FD...).
                               The job lasts as long as it does, a rank that dies does not end the others, its exit status is the
                               job's, and SIGINT is its own affair */
} ac_launch_options;
#define AC_LAUNCH_OPTIONS_INIT \
  {sizeof(ac_launch_options), AC_LAUNCH_AUTO, 1, -1, NULL, 0, 0, 0.1, 0, true, NULL, false, NULL, NULL, false, 1, 2, NULL}

typedef struct ac_launch_result {
  int exit_status; /* 0, else that of the first rank that failed (128 + N: it was ended by signal N); AC_EXIT_REQUEUE: ranks left
                      with it, which is no failure */
  int signal;      /* the signal that asked this process to stop, when that is how the job ended; SIGPIPE: the reader of our
                      output is gone, and the caller did not ignore that; else 0 */
} ac_launch_result;

/* Runs the job. AC_OK: every rank exited with 0 or AC_EXIT_REQUEUE, or the job was interrupted (result->signal). PEER: a rank
 * failed, and *e is the one line that names rank, signal or status, and script line. INVALID for options, IO and OOM for what the system
 * refuses.
 *
 * To be called by the main thread of a program without other threads or children: ranks die with the calling thread (by
 * SIGKILL, so that a stopped one does, too), children are waited for, and meanwhile SIGINT, SIGTERM, SIGHUP, SIGUSR1 and
 * SIGCHLD are taken by a signalfd and SIGPIPE is ignored; all is put back at the end. Each of the first four is passed on to the ranks.
 * A rank that shares our process group gets those of a terminal twice, once from each: the greater of the two counts is
 * the number of key presses. */
AC_API ac_status ac_launch(const ac_launch_options *o, ac_launch_result *result, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
