/* Options of the launcher: how many ranks, on how many machines, how they talk and what becomes of their output. Called by
 * options.c, which finds them in one list with its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"

enum {
  PROCESSES = APP_LAUNCH_FIRST,
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
  INTERVAL
};

const app_option app_launch_options[APP_LAUNCH_OPTIONS] = {
    {"num_processes", 0, "N", PROCESSES, "ranks, over all machines; auto: one per core [no ranks]"},
    {"num_machines", 0, "M", MACHINES, "machines; accel-run is started on each of them [1]"},
    {"machine_rank", 0, "R", MACHINE, "which of them this one is, from 0"},
    {"main_process_ip", 0, "IP", IP, "address of machine 0"},
    {"main_process_port", 0, "PORT", PORT, "a free port there"},
    {"backend", 0, "NAME", BACKEND, "shm, tcp, mpi or solo [auto, or ACCEL_BACKEND]"},
    {"timeout", 0, "S", TIMEOUT, "seconds to wait for another rank [1800, or ACCEL_TIMEOUT]"},
    {"cpu_affinity", 0, "auto|none", AFFINITY, "give each rank CPUs of its own where there are enough [auto]"},
    {"log_dir", 0, "DIR", LOG_DIR, "write each rank's output to DIR/rank_<r>.log; of others than rank 0 show errors only"},
    {"tee", 0, NULL, TEE, "with --log-dir: show all of it, too"},
    {"max_restarts", 0, "N", RESTARTS, "after a failure start all ranks anew, up to N times [0]"},
    {"monitor_interval", 0, "S", INTERVAL, "seconds between a failure and the restart [0.1]"},
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

/* One of the words of "a|b|c". */
static bool one_of(const char *list, const char *word) {
  const size_t n = strlen(word);
  for (const char *p = list; p != NULL && *p != 0; p = strchr(p, '|') != NULL ? strchr(p, '|') + 1 : NULL)
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
  if (opt->id != PROCESSES && opt->id != BACKEND && opt->id != TIMEOUT && o->launch_option == NULL) o->launch_option = opt->name;
  switch (opt->id) {
    case PROCESSES:
      o->launches = true;
      l->num_processes = AC_LAUNCH_AUTO;
      if (strcmp(value, "auto") == 0 || parse_int(value, 1, 1 << 20, &l->num_processes)) return true;
      return app_usage("--num-processes: '%s' is no number of ranks (1 or more, or auto)%s", value, "");
    case MACHINES:
      if (parse_int(value, 1, 1 << 16, &l->num_machines)) return true;
      return app_usage("--num-machines: '%s' is no number of machines%s", value, "");
    case MACHINE:
      if (parse_int(value, 0, 1 << 16, &l->machine_rank)) return true;
      return app_usage("--machine-rank: '%s' is no number of a machine, the first of which is 0%s", value, "");
    case IP:
      if (value[0] == 0 || strlen(value) > 255) return app_usage("--main-process-ip: '%s' is no address%s", value, "");
      l->main_ip = value;
      return true;
    case PORT:
      if (parse_int(value, 0, 65535, &l->main_port)) return true;
      return app_usage("--main-process-port: '%s' is no port%s", value, "");
    case BACKEND: {
      const ac_param_info *info = param("BACKEND");
      o->backend = value;
      if (info == NULL || info->allowed == NULL || one_of(info->allowed, value)) return true;
      return app_usage("--backend: '%s' is none of %s", value, info->allowed);
    }
    case TIMEOUT:
      o->timeout = value;
      if (parse_seconds(value, &seconds) && seconds >= 0.01) return true;
      return app_usage("--timeout: '%s' is no number of seconds, 0.01 or more%s", value, "");
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
      return app_usage("--max-restarts: '%s' is no number%s", value, "");
    default:
      if (parse_seconds(value, &l->monitor_interval)) return true;
      return app_usage("--monitor-interval: '%s' is no number of seconds%s", value, "");
  }
}

bool app_launch_check(app_options *o) {
  if (!o->launches && o->launch_option != NULL) {
    char name[40];
    snprintf(name, sizeof name, "%s", o->launch_option);
    for (char *p = name; *p != 0; p++)
      if (*p == '_') *p = '-';
    return app_usage("--%s is for several ranks: give --num-processes, too%s", name, "");
  }
  if (o->launch.tee && o->launch.log_dir == NULL)
    return app_usage("--tee: there is no --log-dir to write to; without one all output is shown%s%s", "", "");
  o->launch.share_stdin = o->script != NULL && strcmp(o->script, "-") == 0;
  return true;
}
