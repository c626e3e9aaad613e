/* The plan of a job: how many ranks and machines there are, and which options of elastic jobs go
 * together. Called by launch.c before anything is made. */
#include <string.h>

#include "base/base_impl.h"
#include "comm/comm_impl.h"
#include "launch/launch_impl.h"

ac_status aci_plan_ranks(aci_job *j, int cores, ac_err *e) {
  const ac_launch_options *o = j->o;
  j->machines = o->num_machines > 1 ? o->num_machines : 1;
  j->machine = o->machine_rank > 0 ? o->machine_rank : 0;
  if (o->num_processes != AC_LAUNCH_AUTO && o->num_processes < 1)
    return AC_FAIL(e, INVALID, "num_processes: %d is not a number of ranks", o->num_processes);
  if (o->num_machines < 0)
    return AC_FAIL(e, INVALID, "num_machines: %d is not a number of machines", o->num_machines);
  if (o->nproc_per_node > 0) {
    j->n = o->nproc_per_node;
    j->world = j->n * j->machines;
  } else if (o->num_processes == AC_LAUNCH_AUTO) {
    j->n = cores < ACI_MAX_LOCAL ? cores : ACI_MAX_LOCAL;
    j->world = j->n * j->machines;
  } else {
    j->world = o->num_processes;
    if (j->world < j->machines)
      return AC_FAIL(e, INVALID, "%d machines are too many for %d rank%s", j->machines, j->world,
                     j->world == 1 ? "" : "s");
    if (j->world % j->machines != 0)
      return AC_FAIL(
          e, INVALID,
          "num_processes counts the ranks of all machines: %d cannot be split evenly over %d machines",
          j->world, j->machines);
    j->n = j->world / j->machines;
  }
  if (o->machine_rank >= j->machines)
    return AC_FAIL(e, INVALID, "machine_rank: %d must be below num_machines, which is %d",
                   o->machine_rank, j->machines);
  if (j->machines > 1 && o->min_machines == 0) {
    const char *missing = o->machine_rank < 0  ? "machine_rank, which of them this one is"
                          : o->main_ip == NULL ? "main_process_ip, the address of machine 0"
                          : o->main_port == 0  ? "main_process_port, on which machine 0 listens"
                                               : NULL;
    if (missing != NULL) return AC_FAIL(e, INVALID, "%d machines need %s", j->machines, missing);
  }
  if (o->main_port < 0 || o->main_port > 65535)
    return AC_FAIL(e, INVALID, "main_process_port: %d is not a port", o->main_port);
  if (o->rendezvous != NULL && j->n > 64)
    return AC_FAIL(e, INVALID, "%d ranks on one machine; a job of num_machines MIN:MAX may have 64",
                   j->n);
  if (o->rendezvous != NULL && (int64_t)j->n * o->num_machines > ACI_MAX_LOCAL)
    return AC_FAIL(e, INVALID,
                   "%d ranks on each of up to %d machines; a job of num_machines MIN:MAX may have "
                   "%d ranks in all",
                   j->n, o->num_machines, ACI_MAX_LOCAL);
  if (j->n > ACI_MAX_LOCAL)
    return AC_FAIL(e, INVALID, "%d ranks on one machine; there is room for %d", j->n,
                   ACI_MAX_LOCAL);
  j->first = j->machine * j->n;
  return AC_OK;
}

/* An elastic job of several machines. */
static ac_status check_machines(const ac_launch_options *o, const ac_params *params, ac_err *e) {
  const char *backend = ac_params_str(params, "BACKEND");
  if (o->rendezvous == NULL)
    return AC_FAIL(e, INVALID,
                   "num_machines %d:%d needs --rendezvous HOST[:PORT],..., where the machines meet",
                   o->min_machines, o->num_machines);
  if (o->machine_rank >= 0 || o->main_ip != NULL || o->main_port != 0)
    return AC_FAIL(e, INVALID,
                   "machine_rank, main_process_ip and main_process_port have no meaning with "
                   "num_machines %d:%d: the machines meet at --rendezvous",
                   o->min_machines, o->num_machines);
  if (ac_params_int(params, "INSECURE") != 0)
    return AC_FAIL(e, INVALID,
                   "num_machines %d:%d: its machines must prove who they are; leave out --insecure",
                   o->min_machines, o->num_machines);
  if (o->max_restarts > 0)
    return AC_FAIL(
        e, INVALID,
        "num_machines %d:%d: max_restarts restarts the ranks of one machine or of a fixed "
        "number; leave it out",
        o->min_machines, o->num_machines);
  if (strcmp(backend, "shm") == 0)
    return AC_FAIL(e, INVALID,
                   "num_machines %d:%d: machines share no memory; use --backend tcp, or omit it",
                   o->min_machines, o->num_machines);
  return AC_OK;
}

ac_status aci_plan_check(const ac_launch_options *o, const ac_params *params, ac_err *e) {
  const char *backend = ac_params_str(params, "BACKEND");
  if (o->nproc_per_node < AC_LAUNCH_AUTO || o->nproc_per_node > 1 << 20)
    return AC_FAIL(e, INVALID, "nproc_per_node: %d is not a number of ranks", o->nproc_per_node);
  if (o->min_machines != 0 && (o->min_machines < 1 || o->num_machines < o->min_machines))
    return AC_FAIL(e, INVALID, "num_machines %d:%d: expected MIN:MAX, as 1:1", o->min_machines,
                   o->num_machines);
  if (o->min_machines != 0 && o->num_processes != AC_LAUNCH_AUTO)
    return AC_FAIL(e, INVALID,
                   "num_processes counts the ranks of a job that loses none; with num_machines "
                   "%d:%d give --nproc-per-node, the ranks of each machine",
                   o->min_machines, o->num_machines);
  if (o->nproc_per_node != 0 && o->num_processes != AC_LAUNCH_AUTO)
    return AC_FAIL(e, INVALID,
                   "num_processes counts the ranks of all machines, nproc_per_node those of each; "
                   "give one of them");
  if (o->rendezvous != NULL && (o->min_machines == 0 || o->num_machines == 1))
    return AC_FAIL(
        e, INVALID,
        "rendezvous is for a range of machines, as --num-machines 2:4; other jobs meet at "
        "--main-process-ip and --main-process-port");
  if (o->min_machines == 0) return AC_OK;
  if (o->nproc_per_node == 0)
    return AC_FAIL(e, INVALID,
                   "num_machines %d:%d needs --nproc-per-node, the ranks on each machine",
                   o->min_machines, o->num_machines);
  if (o->num_machines > 1) AC_TRY(check_machines(o, params, e));
  if (o->front_argv != NULL)
    return AC_FAIL(e, INVALID, "num_machines 1:1: a prompt cannot lose ranks; use --num-processes");
  if (strcmp(backend, "auto") != 0 && strcmp(backend, "shm") != 0 && strcmp(backend, "tcp") != 0)
    return AC_FAIL(
        e, INVALID,
        "num_machines 1:1: backend %s cannot lose ranks; use --backend shm or tcp, or omit it",
        backend);
  return AC_OK;
}
