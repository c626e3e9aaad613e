/* Which CPUs we may use and how they hang together, cut into one part per rank. Read once per job
 * by launch.c: an attribute of every core is a file, so no more of them are opened than the cut
 * needs. */
#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/launch_impl.h"

enum { MAX_CPUS = 1 << 16, LINE = 8192 };

int aci_cpu_list(const char *text, int *out, int max) {
  int n = 0;
  while (*text != 0 && *text != '\n') {
    char *end;
    long a = strtol(text, &end, 10), b = a;
    if (end == text || a < 0) return -1;
    if (*end == '-') {
      text = end + 1;
      b = strtol(text, &end, 10);
      if (end == text) return -1;
    }
    if (b < a || b >= MAX_CPUS) return -1;
    for (long v = a; v <= b; v++, n++)
      if (n < max) out[n] = (int)v;
    if (*end == ',') end++;
    else if (*end != 0 && *end != '\n') return -1;
    text = end;
  }
  return n;
}

static bool read_text(const char *path, char *buf, int n) {
  FILE *f = fopen(path, "re");
  if (f == NULL) return false;
  bool ok = fgets(buf, n, f) != NULL;
  fclose(f);
  return ok;
}

typedef struct row {
  int cpu, node, core; /* core: least number among the CPUs of its core */
} row;

static int by_place(const void *a, const void *b) {
  const row *x = a, *y = b;
  if (x->node != y->node) return x->node - y->node;
  if (x->core != y->core) return x->core - y->core;
  return x->cpu - y->cpu;
}

static int by_cpu(const void *a, const void *b) {
  return ((const row *)a)->cpu - ((const row *)b)->cpu;
}

static row *row_of(row *rows, int n, int cpu) {
  const row key = {.cpu = cpu};
  return bsearch(&key, rows, (size_t)n, sizeof *rows, by_cpu);
}

/* node of each row, from node<k>/cpulist. Without the files all are of node 0. */
static void read_nodes(const char *sys, row *rows, int n, int *list, char *text) {
  char path[600];
  snprintf(path, sizeof path, "%s/devices/system/node", sys);
  DIR *d = opendir(path);
  if (d == NULL) return;
  for (struct dirent *f; (f = readdir(d)) != NULL;) {
    int node;
    char rest;
    if (sscanf(f->d_name, "node%d%c", &node, &rest) != 1) continue;
    snprintf(path, sizeof path, "%s/devices/system/node/%.32s/cpulist", sys, f->d_name);
    if (!read_text(path, text, LINE)) continue;
    int k = aci_cpu_list(text, list, MAX_CPUS);
    for (int i = 0; i < k; i++) {
      row *r = row_of(rows, n, list[i]);
      if (r != NULL) r->node = node;
    }
  }
  closedir(d);
}

static void read_cores(const char *sys, row *rows, int n, int *list, char *text) {
  char path[600];
  snprintf(path, sizeof path, "%s/devices/system/cpu/smt/active", sys);
  if (read_text(path, text, LINE) && text[0] == '0') return;
  for (int i = 0; i < n; i++) {
    if (rows[i].core != rows[i].cpu) continue; /* named by a sibling */
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list", sys,
             rows[i].cpu);
    if (!read_text(path, text, LINE)) continue;
    int k = aci_cpu_list(text, list, MAX_CPUS);
    for (int s = 0; s < k; s++) {
      row *r = row_of(rows, n, list[s]);
      if (r != NULL) r->core = rows[i].cpu;
    }
  }
}

ac_status aci_cpus_of(const char *sys, const int *allowed, int n, aci_cpus *out, ac_err *e) {
  *out = (aci_cpus){0};
  row *rows = calloc((size_t)n + 1, sizeof *rows);
  int *list = malloc(MAX_CPUS * sizeof *list);
  char *text = malloc(LINE);
  out->cpu = calloc((size_t)n + 1, sizeof *out->cpu);
  out->core = calloc((size_t)n + 1, sizeof *out->core);
  ac_status st = AC_OK;
  if (rows == NULL || list == NULL || text == NULL || out->cpu == NULL || out->core == NULL) {
    st = AC_FAIL(e, OOM, "no memory for a list of %d CPUs", n);
    aci_cpus_free(out);
    goto done;
  }
  for (int i = 0; i < n; i++) rows[i] = (row){.cpu = allowed[i], .core = allowed[i]};
  qsort(rows, (size_t)n, sizeof *rows, by_cpu);
  read_nodes(sys, rows, n, list, text);
  read_cores(sys, rows, n, list, text);
  qsort(rows, (size_t)n, sizeof *rows, by_place);
  for (int i = 0; i < n; i++) {
    if (i == 0 || rows[i].core != rows[i - 1].core || rows[i].node != rows[i - 1].node)
      out->n_cores++;
    out->cpu[i] = rows[i].cpu;
    out->core[i] = out->n_cores - 1;
  }
  out->n = n;
done:
  free(rows);
  free(list);
  free(text);
  return st;
}

ac_status aci_cpus_read(const char *sys, aci_cpus *out, ac_err *e) {
  *out = (aci_cpus){0};
  /* the kernel's mask may be larger than a cpu_set_t */
  for (int bits = 1024; bits <= MAX_CPUS; bits *= 4) {
    cpu_set_t *set = CPU_ALLOC(bits);
    int *allowed = calloc((size_t)bits, sizeof *allowed), n = 0;
    const size_t bytes = CPU_ALLOC_SIZE(bits);
    if (set == NULL || allowed == NULL) {
      if (set != NULL) CPU_FREE(set);
      free(allowed);
      return AC_FAIL(e, OOM, "no memory for a list of %d CPUs", bits);
    }
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    for (int i = 0; ok && i < bits; i++)
      if (CPU_ISSET_S(i, bytes, set)) allowed[n++] = i;
    CPU_FREE(set);
    ac_status st = ok ? aci_cpus_of(sys, allowed, n, out, e) : AC_OK;
    free(allowed);
    if (ok) return st;
  }
  return AC_FAIL(e, UNSUPPORTED, "the CPUs that this process may use cannot be listed");
}

void aci_cpus_free(aci_cpus *c) {
  free(c->cpu);
  free(c->core);
  *c = (aci_cpus){0};
}

int aci_cpus_part(const aci_cpus *c, int r, int n, int *first) {
  *first = 0;
  if (c->n < n) return 0;
  const int64_t units = c->n_cores >= n ? c->n_cores : c->n; /* number of parts to deal out */
  const int begin = (int)(units * r / n), end = (int)(units * (r + 1) / n);
  if (units == c->n && c->n_cores < n) {
    *first = begin;
    return end - begin;
  }
  int k = 0;
  for (int i = 0; i < c->n; i++) {
    if (c->core[i] < begin || c->core[i] >= end) continue;
    if (k++ == 0) *first = i;
  }
  return k;
}
