/* Usage of the machine and the process, for charts next to the charts of a run: read from /proc,
 * the file system and GPUs' drivers. Called by store.c in the writer's thread. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "track/system.h"

static double of_timeval(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

/* Jiffies of all CPUs: those spent on something, all. */
static bool cpu_times(double *busy, double *all) {
  unsigned long long t[8] = {0};
  FILE *f = fopen("/proc/stat", "re");
  if (f == NULL) return false;
  const int n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", t, t + 1, t + 2, t + 3,
                       t + 4, t + 5, t + 6, t + 7);
  fclose(f);
  if (n < 4) return false;
  *all = 0;
  for (int i = 0; i < 8; i++) *all += (double)t[i];
  *busy = *all - (double)t[3] - (double)t[4]; /* idle, waiting for a disk */
  return true;
}

static bool memory_percent(double *out) {
  unsigned long long total = 0, available = 0, v;
  char line[128];
  FILE *f = fopen("/proc/meminfo", "re");
  if (f == NULL) return false;
  while (fgets(line, sizeof line, f) != NULL) {
    if (sscanf(line, "MemTotal: %llu", &v) == 1) total = v;
    if (sscanf(line, "MemAvailable: %llu", &v) == 1) available = v;
  }
  fclose(f);
  *out = total > 0 ? 100.0 * (double)(total - available) / (double)total : 0;
  return total > 0 && available > 0;
}

static bool resident_mib(double *out) {
  unsigned long long size, resident;
  FILE *f = fopen("/proc/self/statm", "re");
  if (f == NULL) return false;
  const bool ok = fscanf(f, "%llu %llu", &size, &resident) == 2;
  fclose(f);
  if (ok) *out = (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
  return ok;
}

static int put_gpus(aci_gpus *gpus, aci_system_value *out) {
  aci_gpu_sample samples[ACI_GPUS];
  const unsigned count = aci_gpus_sample(gpus, samples);
  int n = 0;
  for (unsigned i = 0; i < count; i++)
    for (int k = 0; k < ACI_GPU_VALUES; k++)
      if (samples[i].has[k]) {
        snprintf(out[n].tag, sizeof out[n].tag, "system/gpu%u_%s", i, aci_gpu_values[k]);
        out[n++].value = samples[i].value[k];
      }
  return n;
}

int aci_system_sample(aci_system *s, double now, const char *folder, aci_system_value *out) {
  int n = 0;
  double busy, all, value;
  struct rusage use;
  struct statvfs fs;
#define PUT(name, v) \
  out[n++] = (aci_system_value) { "system/" name, (v) }
  if (cpu_times(&busy, &all)) {
    if (s->all > 0 && all > s->all) PUT("cpu_percent", 100 * (busy - s->busy) / (all - s->all));
    s->busy = busy;
    s->all = all;
  }
  if (getrusage(RUSAGE_SELF, &use) == 0) {
    const double own = of_timeval(use.ru_utime) + of_timeval(use.ru_stime);
    if (s->wall > 0 && now > s->wall)
      PUT("process_cpu_percent", 100 * (own - s->own) / (now - s->wall));
    s->own = own;
    s->wall = now;
  }
  if (memory_percent(&value)) PUT("memory_percent", value);
  if (resident_mib(&value)) PUT("process_memory_mib", value);
  if (statvfs(folder, &fs) == 0)
    PUT("disk_free_gib", (double)fs.f_bavail * (double)fs.f_frsize / (1 << 30));
#undef PUT
  return n + put_gpus(&s->gpus, out + n);
}

void aci_system_close(aci_system *s) { aci_gpus_close(&s->gpus); }
