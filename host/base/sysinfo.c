/* Memory and CPUs that the machine, its cgroups and our affinity leave us. Called when limits and
 * teams are sized. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel/base.h"
#include "base/base_impl.h"

static FILE *open_leaf(const char *dir, const char *leaf) {
  char path[2 * PATH_MAX + 64];
  const int len = snprintf(path, sizeof path, "%s/%s", dir, leaf);
  return len > 0 && (size_t)len < sizeof path ? fopen(path, "re") : NULL;
}

static bool read_leaf(const char *dir, const char *leaf, char *buf, int n) {
  FILE *f = open_leaf(dir, leaf);
  if (f == NULL) return false;
  bool ok = fgets(buf, n, f) != NULL;
  fclose(f);
  return ok;
}

typedef void group_fn(const char *dir, const char *line, void *arg);

/* Calls fn with the first line of `leaf` in our own group of a controller and in each group around
 * it, innermost first. `controller` is NULL for the unified hierarchy. dir: the group's. */
static void each_cgroup(const char *controller, const char *leaf, group_fn *fn, void *arg) {
  FILE *f = fopen("/proc/self/cgroup", "re");
  if (f == NULL) return;
  char line[PATH_MAX], group[PATH_MAX] = "";
  bool found = false;
  while (!found && fgets(line, sizeof line, f) != NULL) { /* "4:memory:/a/b" or "0::/a/b" */
    char *names = strchr(line, ':'), *path = names == NULL ? NULL : strchr(names + 1, ':');
    if (path == NULL) continue;
    *path++ = '\0';
    names++;
    path[strcspn(path, "\n")] = '\0';
    bool ours = controller == NULL && names[0] == '\0';
    for (char *save, *w = strtok_r(names, ",", &save); w != NULL && controller != NULL;
         w = strtok_r(NULL, ",", &save))
      ours = ours || strcmp(w, controller) == 0;
    if (!ours) continue;
    memcpy(group, path, strlen(path) + 1);
    found = true;
  }
  fclose(f);
  if (!found) return;
  for (;;) {
    char dir[2 * PATH_MAX], text[256];
    int len = snprintf(dir, sizeof dir, "/sys/fs/cgroup/%s%s%s",
                       controller == NULL ? "" : controller, controller == NULL ? "" : "/", group);
    if (len > 0 && (size_t)len < sizeof dir && read_leaf(dir, leaf, text, sizeof text))
      fn(dir, text, arg);
    char *cut = strrchr(group, '/');
    if (cut == NULL) return;
    *cut = '\0'; /* "/" becomes "": the root, read once more in vain at worst */
  }
}

static void lower_bytes(const char *dir, const char *line, void *arg) {
  (void)dir;
  uint64_t *least = arg;
  char *end;
  unsigned long long v = strtoull(line, &end, 10); /* "max" parses to no digits */
  if (end != line && v > 0 && v < *least) *least = v;
}

uint64_t aci_host_memory(void) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  uint64_t least = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
  each_cgroup(NULL, "memory.max", lower_bytes, &least);
  each_cgroup("memory", "memory.limit_in_bytes", lower_bytes, &least);
  return least == UINT64_MAX ? 0 : least;
}

/* The room below a group's limit. Pages of files that have been unused for a while do not count as
 * in use, because the system reclaims them first. */
static void lower_free(const char *dir, const char *line, void *arg) {
  uint64_t *least = arg, limit = UINT64_MAX;
  unsigned long long idle = 0, v;
  char text[256];
  lower_bytes(dir, line, &limit);
  if (limit == UINT64_MAX) return;
  if (!read_leaf(dir, "memory.current", text, sizeof text) &&
      !read_leaf(dir, "memory.usage_in_bytes", text, sizeof text))
    return;
  if (sscanf(text, "%llu", &v) != 1) return;
  const uint64_t used = v;
  FILE *f = open_leaf(dir, "memory.stat");
  for (bool all = false; f != NULL && fgets(text, sizeof text, f) != NULL;) {
    if (sscanf(text, "total_inactive_file %llu", &v) == 1) { /* version 1: with the groups inside */
      idle = v;
      all = true;
    } else if (!all && sscanf(text, "inactive_file %llu", &v) == 1) {
      idle = v;
    }
  }
  if (f != NULL) fclose(f);
  /* 0 is: unknown */
  const uint64_t kept = used > idle ? used - idle : 0, left = limit > kept ? limit - kept : 1;
  if (left < *least) *least = left;
}

uint64_t aci_host_available(void) {
  uint64_t least = aci_host_memory();
  unsigned long long kb;
  char line[128];
  if (least == 0) least = UINT64_MAX;
  FILE *f = fopen("/proc/meminfo", "re");
  while (f != NULL && fgets(line, sizeof line, f) != NULL)
    if (sscanf(line, "MemAvailable: %llu", &kb) == 1 && kb < least >> 10)
      least = (uint64_t)kb << 10;
  if (f != NULL) fclose(f);
  each_cgroup(NULL, "memory.max", lower_free, &least);
  each_cgroup("memory", "memory.limit_in_bytes", lower_free, &least);
  return least == UINT64_MAX ? 0 : least;
}

static void lower_cpus(const char *dir, const char *line, void *arg) {
  (void)dir;
  int *least = arg;
  long long quota, period;
  /* "max 100000" */
  if (sscanf(line, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return;
  long long cpus = (quota + period - 1) / period;
  if (cpus < *least) *least = (int)cpus;
}

int aci_host_cpus(void) {
  int n = 0;
  /* the kernel's mask may be larger than a cpu_set_t: grow until it fits */
  for (int bits = 1024; n == 0 && bits <= 1 << 16; bits *= 4) {
    cpu_set_t *set = CPU_ALLOC(bits);
    if (set == NULL) break;
    if (sched_getaffinity(0, CPU_ALLOC_SIZE(bits), set) == 0)
      n = CPU_COUNT_S(CPU_ALLOC_SIZE(bits), set);
    CPU_FREE(set);
  }
  if (n == 0) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (n < 1) n = 1;
  each_cgroup(NULL, "cpu.max", lower_cpus, &n);
  return n;
}

const char *aci_bytes_text(char *buf, size_t buf_bytes, uint64_t bytes) {
  static const char unit[][4] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    snprintf(buf, buf_bytes, "%llu B", (unsigned long long)bytes);
    return buf;
  }
  double v = (double)bytes / 1024;
  int u = 0;
  for (; v >= 1023.95 && u < 5; u++) v /= 1024;
  int tenths = (int)(v * 10 + 0.5);
  if (tenths % 10 == 0) snprintf(buf, buf_bytes, "%d %s", tenths / 10, unit[u]);
  else snprintf(buf, buf_bytes, "%d.%d %s", tenths / 10, tenths % 10, unit[u]);
  return buf;
}
