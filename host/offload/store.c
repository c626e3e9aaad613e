/* Stores: the homes of storages that are not on a device. Host memory is a CPU device of its own,
 * whose pool has the limit. A file is cut into homes that begin at pages. See offload.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "file/io.h"
#include "offload/offload.h"
#include "tensor/tensor_impl.h"

const char *aci_tier_name(aci_tier t) { return t == ACI_TIER_HOST ? "host" : "file"; }

static ac_status store_new(aci_tier tier, const char *path, aci_store **out, ac_err *e) {
  aci_store *s = calloc(1, sizeof *s);
  *out = NULL;
  if (s != NULL && path != NULL && (s->path = strdup(path)) == NULL) {
    free(s);
    s = NULL;
  }
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for a store");
  s->ref = 1;
  s->tier = tier;
  s->fd = -1;
  pthread_mutex_init(&s->lock, NULL);
  *out = s;
  return AC_OK;
}

ac_status aci_store_host(size_t limit, aci_store **out, ac_err *e) {
  AC_TRY(store_new(ACI_TIER_HOST, NULL, out, e));
  const ac_status st = ac_device_open(ac_device_cpu_vtable(), 0, limit, NULL, &(*out)->memory, e);
  if (st != AC_OK) {
    aci_store_release(*out);
    *out = NULL;
  }
  return st;
}

ac_status aci_store_create(const char *path, uint64_t limit, bool keep, aci_store **out,
                           ac_err *e) {
  AC_TRY(store_new(ACI_TIER_FILE, path, out, e));
  aci_store *s = *out;
  s->limit = limit;
  ACI_AGAIN(s->fd, open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (s->fd >= 0 && (keep || unlink(path) == 0)) return AC_OK;
  const ac_status st = aci_io_error(e, path, s->fd < 0 ? "cannot create" : "cannot unlink", errno);
  aci_store_release(s);
  *out = NULL;
  return st;
}

ac_status aci_store_open(const char *path, aci_store **out, ac_err *e) {
  AC_TRY(store_new(ACI_TIER_FILE, path, out, e));
  (*out)->fixed = true;
  const ac_status st = aci_open_read(path, &(*out)->fd, &(*out)->end, e);
  if (st != AC_OK) {
    (*out)->fd = -1;
    aci_store_release(*out);
    *out = NULL;
  }
  return st;
}

ac_status aci_store_phantom(aci_tier tier, size_t limit, aci_store **out, ac_err *e) {
  AC_TRY(store_new(tier, "(a dry run's file)", out, e));
  (*out)->phantom = true;
  (*out)->limit = limit;
  if (tier == ACI_TIER_FILE) return AC_OK;
  const ac_status st = ac_device_open(ac_device_meta_vtable(), 0, limit, NULL, &(*out)->memory, e);
  if (st != AC_OK) {
    aci_store_release(*out);
    *out = NULL;
  }
  return st;
}

void aci_store_retain(aci_store *s) { atomic_fetch_add_explicit(&s->ref, 1, memory_order_relaxed); }

void aci_store_release(aci_store *s) {
  if (s == NULL || !aci_unref(&s->ref)) return;
  if (s->asked != NULL) {
    pthread_mutex_lock(&s->asked->lock);
    if (s->cached) s->asked->cached_bytes -= s->end;
    pthread_mutex_unlock(&s->asked->lock);
    aci_io_queue_release(s->asked);
  }
  if (s->memory != NULL) ac_device_release(s->memory);
  if (s->fd >= 0) close(s->fd);
  pthread_mutex_destroy(&s->lock);
  free(s->hole);
  free(s->path);
  free(s);
}

uint64_t aci_store_used(aci_store *s) {
  if (s->tier == ACI_TIER_HOST) {
    ac_mem_stats m;
    ac_mem_stats_get(s->memory, &m);
    return m.live_bytes;
  }
  pthread_mutex_lock(&s->lock);
  const uint64_t used = s->used;
  pthread_mutex_unlock(&s->lock);
  return used;
}

/* ---- homes in a file ---- */

static uint64_t padded(size_t bytes) {
  return ((uint64_t)bytes + ACI_OFFLOAD_PAGE - 1) / ACI_OFFLOAD_PAGE * ACI_OFFLOAD_PAGE;
}

/* The first hole with room, else the end of the file. */
static ac_status take(aci_store *s, uint64_t n, uint64_t *at, ac_err *e) {
  for (int i = 0; i < s->n_holes; i++) {
    if (s->hole[i].bytes < n) continue;
    *at = s->hole[i].at;
    s->hole[i].at += n;
    s->hole[i].bytes -= n;
    if (s->hole[i].bytes == 0)
      memmove(s->hole + i, s->hole + i + 1, (size_t)(--s->n_holes - i) * sizeof *s->hole);
    return AC_OK;
  }
  if (!s->phantom) {
    AC_TRY(aci_reserve(s->fd, s->path, s->end + n, false, e));
    int rc; /* a file system that cannot reserve */
    ACI_AGAIN(rc, ftruncate(s->fd, (off_t)(s->end + n)));
    if (rc != 0) return aci_io_error(e, s->path, "cannot give it its length", errno);
  }
  *at = s->end;
  s->end += n;
  return AC_OK;
}

/* Holes lie in the order of the file, with something in use between any two. */
static void give(aci_store *s, uint64_t at, uint64_t n) {
  int i = 0;
  while (i < s->n_holes && s->hole[i].at < at) i++;
  const bool before = i > 0 && s->hole[i - 1].at + s->hole[i - 1].bytes == at;
  const bool behind = i < s->n_holes && at + n == s->hole[i].at;
  if (before && behind) {
    s->hole[i - 1].bytes += n + s->hole[i].bytes;
    memmove(s->hole + i, s->hole + i + 1, (size_t)(--s->n_holes - i) * sizeof *s->hole);
  } else if (before) {
    s->hole[i - 1].bytes += n;
  } else if (behind) {
    s->hole[i] = (aci_hole){at, n + s->hole[i].bytes};
  } else {
    if (s->n_holes == s->cap_holes) {
      const int cap = s->cap_holes == 0 ? 16 : 2 * s->cap_holes;
      aci_hole *more = realloc(s->hole, (size_t)cap * sizeof *more);
      if (more == NULL) return; /* the room is lost, nothing else */
      s->hole = more;
      s->cap_holes = cap;
    }
    memmove(s->hole + i + 1, s->hole + i, (size_t)(s->n_holes++ - i) * sizeof *s->hole);
    s->hole[i] = (aci_hole){at, n};
  }
}

ac_status aci_home_new(aci_store *s, size_t bytes, aci_home *out, ac_err *e) {
  *out = (aci_home){.bytes = bytes};
  if (s->tier == ACI_TIER_HOST) {
    AC_TRY(ac_block_alloc(s->memory, bytes, AC_MEM_PINNED, NULL, &out->block, e));
  } else {
    const uint64_t n = padded(bytes);
    char shown[ACI_PATH_SHOWN], a[24], b[24];
    if (s->fixed) return AC_FAIL(e, INVALID, "%s is read-only", aci_path_shown(s->path, shown));
    pthread_mutex_lock(&s->lock);
    ac_status st = AC_OK;
    if (s->limit > 0 && (n > s->limit || s->used > s->limit - n))
      st = AC_FAIL(e, OOM, "%s: asked for %s, %s in use of the file's limit of %s",
                   aci_path_shown(s->path, shown), aci_bytes_text(a, sizeof a, n),
                   aci_bytes_text(b, sizeof b, s->used),
                   aci_bytes_text((char[24]){0}, 24, s->limit));
    if (st == AC_OK) st = take(s, n, &out->at, e);
    if (st == AC_OK) s->used += n;
    pthread_mutex_unlock(&s->lock);
    AC_TRY(st);
  }
  aci_store_retain(s);
  out->store = s;
  return AC_OK;
}

ac_status aci_home_at(aci_store *s, uint64_t at, size_t bytes, aci_home *out, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  *out = (aci_home){.bytes = bytes, .at = at};
  if (bytes > s->end || at > s->end - bytes)
    return AC_FAIL(e, IO, "%s: %zu bytes from %llu on are asked for, the file has %llu",
                   aci_path_shown(s->path, shown), bytes, (unsigned long long)at,
                   (unsigned long long)s->end);
  aci_store_retain(s);
  out->store = s;
  return AC_OK;
}

void aci_home_free(aci_home *h) {
  aci_store *s = h->store;
  if (s == NULL) return;
  ac_block_free(h->block);
  if (s->tier == ACI_TIER_FILE && !s->fixed) {
    const uint64_t n = padded(h->bytes);
    pthread_mutex_lock(&s->lock);
    if (n > 0) give(s, h->at, n);
    s->used -= n;
    pthread_mutex_unlock(&s->lock);
  }
  h->store = NULL;
  h->block = NULL;
  aci_store_release(s);
}
