/* Options of the launcher: number of ranks and machines, communication, and output. Called by
 * options.c, which finds them in one list with its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"

enum {
  PROCESSES = APP_LAUNCH_FIRST,
  PER_NODE,
  MACHINES,
  MACHINE,
  IP,
  PORT,
  BACKEND,
  TIMEOUT,
  AFFINITY,
  LOG_DIR,
  TEE,
  RESTARTS,
  INTERVAL,
  REPLACE,
  RUN,
  SECRET,
  INSECURE,
  RENDEZVOUS,
  WAIT_MACHINES
};

const app_option app_launch_options[APP_LAUNCH_OPTIONS] = {
    {"num_processes", 0, "N", PROCESSES, APP_ON_RANKS,
     "number of ranks on all machines; auto: one per core [no ranks]"},
    {"nproc_per_node", 0, "N", PER_NODE, APP_ON_RANKS,
     "number of ranks on each machine; auto: one per core"},
    {"num_machines", 0, "M|MIN:MAX", MACHINES, APP_ON_RANKS,
     "number of machines; start accel-run on each of them; MIN:MAX: continue without ranks and machines that die (1:1: on this machine alone) [1]"},
    {"machine_rank", 0, "R", MACHINE, APP_ON_RANKS, "number of this machine, from 0"},
    {"main_process_ip", 0, "IP", IP, APP_ON_RANKS, "address of machine 0"},
    {"main_process_port", 0, "PORT", PORT, APP_ON_RANKS, "a free port there"},
    {"backend", 0, "NAME", BACKEND, APP_ON_RANKS, "shm, tcp, mpi or solo [auto, or ACCEL_BACKEND]"},
    {"timeout", 0, "S", TIMEOUT, APP_ON_RANKS,
     "seconds to wait for another rank [1800, or ACCEL_TIMEOUT]"},
    {"cpu_affinity", 0, "auto|none", AFFINITY, APP_ON_RANKS,
     "pin each rank to its own CPUs if there are enough [auto]"},
    {"log_dir", 0, "DIR", LOG_DIR, APP_ON_RANKS,
     "write each rank's output to DIR/rank_<r>.log; show only errors of ranks other than 0"},
    {"tee", 0, NULL, TEE, APP_ON_RANKS, "with --log-dir: show all output as well"},
    {"max_restarts", 0, "N", RESTARTS, APP_ON_RANKS,
     "restart all ranks after a failure that a restart can mend, up to N times [0]"},
    {"monitor_interval", 0, "S", INTERVAL, APP_ON_RANKS,
     "seconds between a failure and the restart [0.1]"},
    {"replace", 0, "yes|no", REPLACE, APP_ON_RANKS,
     "with --num-machines 1:1: replace a rank that died by a new one with the state of the others [yes]"},
    {"run_id", 0, "NAME", RUN, APP_ON_RANKS, "name of the job, the same on all machines [IP:PORT]"},
    {"job_secret_file", 0, "FILE", SECRET, APP_ON_RANKS,
     "secret of the job's machines, the same on all; -: first line of standard input [ACCEL_JOB_SECRET, or a file of the user]"},
    {"insecure", 0, NULL, INSECURE, APP_ON_RANKS,
     "let machines join without proof that they know the secret (unsafe)"},
    {"rendezvous", 0, "HOST[:PORT],...", RENDEZVOUS, APP_ON_RANKS,
     "with --num-machines MIN:MAX: addresses that all machines contact, the same list on each [port 29400]"},
    {"wait_machines", 0, "S", WAIT_MACHINES, APP_ON_RANKS,
     "with --num-machines MIN:MAX: seconds for which a paused job waits for machines before it ends with status 75 [600]"},
};

/* Decimal, not negative, finite. */
static bool parse_seconds(const char *text, double *out) {
  char *end;
  if (strspn(text, "0123456789.") != strlen(text)) return false;
  *out = strtod(text, &end);
  return end != text && *end == 0 && *out < 1e9;
}

static bool parse_int(const char *value, uint64_t least, uint64_t most, int *out) {
  uint64_t v;
  if (!app_parse_number(value, most, &v) || v < least) return false;
  *out = (int)v;
  return true;
}

/* "MIN:MAX" */
static bool parse_range(const char *value, int *least, int *most) {
  char first[16];
  const size_t n = strcspn(value, ":");
  snprintf(first, sizeof first, "%.*s", (int)n, value);
  return n < sizeof first && parse_int(first, 1, 1 << 16, least) &&
         parse_int(value + n + 1, (uint64_t)*least, 1 << 16, most);
}

/* One of the words of "a|b|c". */
static bool one_of(const char *list, const char *word) {
  const size_t n = strlen(word);
  for (const char *p = list; p != NULL && *p != 0;
       p = strchr(p, '|') != NULL ? strchr(p, '|') + 1 : NULL)
    if (n > 0 && strncmp(p, word, n) == 0 && (p[n] == '|' || p[n] == 0)) return true;
  return false;
}

static const ac_param_info *param(const char *name) {
  for (int i = 0; i < ac_params_count(); i++)
    if (strcmp(ac_params_info(i)->name, name) == 0) return ac_params_info(i);
  return NULL;
}

bool app_launch_set(app_options *o, const app_option *opt, const char *value) {
  ac_launch_options *l = &o->launch;
  double seconds;
  switch (opt->id) {
    case PROCESSES:
      o->launches = true;
      l->num_processes = AC_LAUNCH_AUTO;
      if (strcmp(value, "auto") == 0 || parse_int(value, 1, 1 << 20, &l->num_processes))
        return true;
      return app_usage("--num-processes: '%s' is not a number of ranks (1 or more, or auto)%s",
                       value, "");
    case PER_NODE:
      o->launches = true;
      l->nproc_per_node = AC_LAUNCH_AUTO;
      if (strcmp(value, "auto") == 0 || parse_int(value, 1, 1 << 20, &l->nproc_per_node))
        return true;
      return app_usage("--nproc-per-node: '%s' is not a number of ranks (1 or more, or auto)%s",
                       value, "");
    case MACHINES:
      l->min_machines = 0;
      if (strchr(value, ':') != NULL ? parse_range(value, &l->min_machines, &l->num_machines)
                                     : parse_int(value, 1, 1 << 16, &l->num_machines))
        return true;
      return app_usage("--num-machines: '%s' is not a number of machines, or MIN:MAX as in 1:1%s",
                       value, "");
    case MACHINE:
      if (parse_int(value, 0, 1 << 16, &l->machine_rank)) return true;
      return app_usage(
          "--machine-rank: '%s' is not a number of a machine, the first of which is 0%s", value,
          "");
    case IP:
      if (value[0] == 0 || strlen(value) > 255)
        return app_usage("--main-process-ip: '%s' is not an address%s", value, "");
      l->main_ip = value;
      return true;
    case PORT:
      if (parse_int(value, 0, 65535, &l->main_port)) return true;
      return app_usage("--main-process-port: '%s' is not a port%s", value, "");
    case BACKEND: {
      const ac_param_info *info = param("BACKEND");
      o->backend = value;
      if (info == NULL || info->allowed == NULL || one_of(info->allowed, value)) return true;
      return app_usage("--backend: '%s' is not one of %s", value, info->allowed);
    }
    case TIMEOUT:
      o->timeout = value;
      if (parse_seconds(value, &seconds) && seconds >= 0.01) return true;
      return app_usage("--timeout: '%s' is not a number of seconds, 0.01 or more%s", value, "");
    case AFFINITY:
      l->cpu_affinity = strcmp(value, "auto") == 0;
      if (l->cpu_affinity || strcmp(value, "none") == 0) return true;
      return app_usage("--cpu-affinity: '%s' is neither auto nor none%s", value, "");
    case LOG_DIR:
      if (value[0] == 0) return app_usage("--log-dir: the name of the folder is empty%s%s", "", "");
      l->log_dir = value;
      return true;
    case TEE: l->tee = true; return true;
    case RESTARTS:
      if (parse_int(value, 0, 1 << 20, &l->max_restarts)) return true;
      return app_usage("--max-restarts: '%s' is not a number%s", value, "");
    case REPLACE:
      l->replace = strcmp(value, "yes") == 0;
      if (l->replace || strcmp(value, "no") == 0) return true;
      return app_usage("--replace: '%s' is neither yes nor no%s", value, "");
    case RUN:
      if (value[0] == 0 || strlen(value) > 63)
        return app_usage("--run-id: expected 1 to 63 characters, got '%s'%s", value, "");
      l->run_id = value;
      /* for ranks that another launcher started */
      return setenv("TORCHELASTIC_RUN_ID", value, 1) == 0;
    case SECRET:
      if (value[0] == 0)
        return app_usage("--job-secret-file: the name of the file is empty%s%s", "", "");
      return setenv("ACCEL_JOB_SECRET_FILE", value, 1) == 0;
    case INSECURE: return setenv("ACCEL_INSECURE", "1", 1) == 0;
    case RENDEZVOUS:
      if (value[0] == 0 || strlen(value) > 255)
        return app_usage("--rendezvous: '%s' is not a list of HOST[:PORT]%s", value, "");
      l->rendezvous = value;
      return true;
    case WAIT_MACHINES:
      if (parse_seconds(value, &l->wait_machines)) return true;
      return app_usage("--wait-machines: '%s' is not a number of seconds%s", value, "");
    default:
      if (parse_seconds(value, &l->monitor_interval)) return true;
      return app_usage("--monitor-interval: '%s' is not a number of seconds%s", value, "");
  }
}

/* --backend and --timeout also serve ranks that another launcher starts. run_line checks whether
 * there are any. */
static bool needs_launch(const app_option *opt) {
  return opt->id >= APP_LAUNCH_FIRST && opt->id != PROCESSES && opt->id != BACKEND &&
         opt->id != TIMEOUT && (opt->id < RUN || opt->id >= RENDEZVOUS);
}

static bool is_given(const app_options *o, int id) {
  for (int i = 0; i < o->n_given; i++)
    if (o->given[i].option->id == id) return true;
  return false;
}

bool app_launch_check(app_options *o) {
  char name[40];
  if (!o->launches && o->launch.min_machines > 0) {
    snprintf(name, sizeof name, "%d:%d", o->launch.min_machines, o->launch.num_machines);
    return app_usage("--num-machines %s needs --nproc-per-node, the ranks on each machine%s", name,
                     "");
  }
  for (int i = 0; i < o->n_given && !o->launches; i++) {
    int id = o->given[i].option->id;
    bool elastic = id == REPLACE || id == RENDEZVOUS || id == WAIT_MACHINES;
    if (needs_launch(o->given[i].option))
      return app_usage(
          elastic
              ? "--%s is for jobs that may lose ranks; add --num-machines %s and --nproc-per-node"
              : "--%s is for several ranks; add --num-processes%s",
          app_spell(o->given[i].option->name, name, sizeof name),
          !elastic        ? ""
          : id == REPLACE ? "1:1"
                          : "MIN:MAX");
  }
  if (is_given(o, WAIT_MACHINES) && o->launch.rendezvous == NULL)
    return app_usage("--wait-machines: one machine waits for no other; add --num-machines MIN:MAX "
                     "and --rendezvous%s%s",
                     "", "");
  if (is_given(o, INTERVAL) && o->launch.max_restarts == 0)
    return app_usage("--monitor-interval: there is no restart to wait for; add --max-restarts%s%s",
                     "", "");
  if (is_given(o, REPLACE) && o->launch.min_machines == 0)
    return app_usage("--replace: only an elastic job replaces ranks; add --num-machines 1:1%s%s",
                     "", "");
  if (is_given(o, REPLACE) && o->launch.replace &&
      (o->launch.num_machines > 1 || (o->backend != NULL && strcmp(o->backend, "tcp") == 0)))
    return app_usage("--replace yes: ranks on %s cannot be replaced yet; leave it out%s",
                     o->launch.num_machines > 1 ? "several machines" : "tcp", "");
  if (o->launch.tee && o->launch.log_dir == NULL)
    return app_usage(
        "--tee: there is no --log-dir to write to; without one all output is shown%s%s", "", "");
  for (int i = 0; i < o->n_given && o->launches && o->launch.num_machines <= 1; i++)
    if (o->given[i].option->id == SECRET || o->given[i].option->id == INSECURE)
      fprintf(
          stderr,
          "accel-run: warning: --%s has no effect on one machine: its ranks share a key in memory; add --num-machines\n",
          app_spell(o->given[i].option->name, name, sizeof name));
  o->launch.share_stdin = o->script != NULL && strcmp(o->script, "-") == 0;
  return true;
}
