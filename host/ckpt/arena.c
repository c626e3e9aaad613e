/* Memory of asynchronous saves: one map, as large as the largest save so far, which later saves use
 * again, since fresh pages cost more than the copy. Called by the bindings, which own one per Lua
 * state, and by save.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ckpt/ckpt_impl.h"
#include "device/device_impl.h"
#include "tensor/host_read.h"

enum { ALIGN = 64 };

ac_status ac_ckpt_arena_new(ac_ckpt_arena **out, ac_err *e) {
  *out = calloc(1, sizeof **out);
  return *out != NULL ? AC_OK : AC_FAIL(e, OOM, "no memory for a checkpoint");
}

size_t ac_ckpt_arena_bytes(const ac_ckpt_arena *a) { return a->bytes; }
bool ac_ckpt_arena_busy(const ac_ckpt_arena *a) {
  return atomic_load_explicit(&a->busy, memory_order_acquire);
}

void ac_ckpt_arena_trim(ac_ckpt_arena *a) {
  if (a->p == NULL || ac_ckpt_arena_busy(a)) return;
  munmap(a->p, a->bytes);
  a->p = NULL;
  a->bytes = 0;
}

void ac_ckpt_arena_free(ac_ckpt_arena *a) {
  if (a == NULL) return;
  ac_ckpt_arena_trim(a);
  free(a);
}

static size_t round_up(uint64_t n) { return (size_t)((n + ALIGN - 1) / ALIGN * ALIGN); }

static bool is_copied(const aci_save_file *f, const ac_tensor *t) {
  for (int i = 0; i < f->n_held; i++)
    if (f->held[i] == t) return f->copied[i];
  return false;
}

typedef struct piece {
  unsigned char *to;
  const unsigned char *from;
  uint64_t at, bytes; /* of all pieces before it */
} piece;
typedef struct job {
  const piece *v;
  int n;
} job;
enum { UNIT = 1 << 20 };

/* Bytes [begin, end) * UNIT of all pieces in a row. Their thread reads them long after they have
 * left the caches: stores go past those, which saves reading every line of the copy first. */
static void copy(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  uint64_t at = (uint64_t)begin * UNIT;
  const uint64_t stop = (uint64_t)end * UNIT;
  int lo = 0, hi = j->n - 1; /* the last piece that begins at or before `at` */
  while (lo < hi) {
    const int mid = (lo + hi + 1) / 2;
    if (j->v[mid].at <= at) lo = mid;
    else hi = mid - 1;
  }
  for (int i = lo; i < j->n && j->v[i].at < stop; i++) {
    const piece *p = &j->v[i];
    const uint64_t from = at > p->at ? at - p->at : 0,
                   until = stop - p->at < p->bytes ? stop - p->at : p->bytes;
    if (from < until) aci_copy_streamed(p->to + from, p->from + from, (size_t)(until - from));
  }
}

ac_status aci_ckpt_snapshot(ac_ckpt_save *s, ac_ckpt_arena *a, ac_team *team, ac_err *e) {
  size_t need = 0;
  int n = 0;
  for (int f = 0; f < s->n; f++)
    for (int i = 0; i < s->file[f].plan.n; i++) {
      if (s->file[f].plan.item[i].bytes == 0 ||
          is_copied(&s->file[f], s->file[f].plan.item[i].tensor))
        continue;
      need += round_up(s->file[f].plan.item[i].bytes);
      n++;
    }
  if (need > a->bytes) {
    ac_ckpt_arena_trim(a);
    void *p = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      return AC_FAIL(e, OOM, "%s: no memory for the copy of an asynchronous save (%zu bytes): %s",
                     s->path, need, strerror(errno));
    a->p = p;
    a->bytes = need;
  }
  piece *v = malloc(((size_t)n + 1) * sizeof *v);
  if (v == NULL) return AC_FAIL(e, OOM, "%s: no memory for a checkpoint", s->path);
  ac_status st = AC_OK;
  size_t at = 0;
  uint64_t sum = 0;
  n = 0;
  for (int f = 0; f < s->n; f++)
    for (int i = 0; i < s->file[f].plan.n; i++) {
      aci_st_item *x = &s->file[f].plan.item[i];
      if (x->bytes == 0 || is_copied(&s->file[f], x->tensor)) continue;
      if (x->data == NULL) { /* its bytes are fetched */
        aci_host_read r;
        AC_GOTO(done, st, aci_host_read_open(x->tensor, false, &r, e));
        memcpy(a->p + at,
               r.base + (size_t)x->tensor->offset * aci_dsize((ac_dtype)x->tensor->dtype),
               (size_t)x->bytes);
        aci_host_read_close(&r);
        x->data = a->p + at;
        at += round_up(x->bytes);
        continue;
      }
      v[n++] = (piece){a->p + at, x->data, sum, x->bytes};
      x->data = a->p + at;
      at += round_up(x->bytes);
      sum += x->bytes;
    }
  job j = {v, n};
  const int64_t units = (int64_t)((sum + UNIT - 1) / UNIT);
  if (team != NULL) ac_parallel_for(team, units, 1, copy, &j);
  else if (n > 0) copy(&j, 0, units);
done:
  free(v);
  return st;
}
