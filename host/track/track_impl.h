/* Declarations shared by the files of host/track, and the map of the folder.
 *
 *   queue.c    ac_track: records from the caller's thread to the writer's, the times of writes, the
 *              handling of failures
 *   append.c   a file that only ever grows by whole records
 *   events.c   sink: TensorBoard's event files
 *   http.c     a server for pages on this machine (accel/http.h)
 *   rest.c     requests to servers (accel/rest.h)
 *   png.c      images
 *   lines.c    sink: text, one line a record
 *   wandb.c    sink: W&B's transaction log
 *   store.c    sink: the run store, a database (store_impl.h has its files). system.c: samples of
 *              the machine
 *
 * Two buffers: the caller appends to one under a lock held for a copy, the writer's thread takes it
 * whole and leaves the other. */
#ifndef ACI_TRACK_IMPL_H
#define ACI_TRACK_IMPL_H
#include "accel/track.h"

typedef enum aci_track_kind { ACI_TRACK_SCALAR, ACI_TRACK_BYTES } aci_track_kind;
/* A record in a buffer: this head, then n bytes (a scalar's tag, or the bytes), then nothing up to
 * a multiple of 8. */
typedef struct aci_track_record {
  uint32_t kind, n;
  double wall, value;
  int64_t step;
} aci_track_record;
static inline const char *aci_track_data(const aci_track_record *r) {
  return (const char *)(r + 1);
}
static inline size_t aci_track_size(uint32_t n) {
  return sizeof(aci_track_record) + (((size_t)n + 7) & ~(size_t)7);
}

/* A destination of records. All functions but open run in the writer's thread. */
typedef struct aci_track_sink {
  bool scalars; /* takes numbers */
  /* Writes the records at p. *taken: bytes of the records that are on their way to the disk for
   * good, also on failure. The remaining ones are offered again. */
  ac_status (*write)(void *self, const char *p, size_t n, size_t *taken, ac_err *e);
  void (*close)(void *self);
  void (*tick)(void *self); /* before every attempt to write, even without records. May be NULL */
  void (*exit)(void *self, int status); /* ac_track_leave. May be NULL */
} aci_track_sink;
/* Takes over self and path (malloc'ed. NULL: OOM), also on failure. */
ac_status aci_track_new(const aci_track_sink *sink, void *self, char *path, ac_track **out,
                        ac_err *e);

/* ---- append.c ---- */
typedef struct aci_append {
  int fd;       /* -1: none */
  uint64_t end; /* bytes of whole records */
  bool torn;    /* bytes of a broken record could not be taken back: nothing may follow */
} aci_append;
/* One write() of a whole record. The remains of a failed write are cut off again. */
ac_status aci_append_record(aci_append *a, const char *path, const void *p, size_t n, ac_err *e);
/* Brings the file and its name to disk, and closes it. A failure of the disk is logged: nobody
 * waits for an event after the last record. */
void aci_append_close(aci_append *a, const char *path);

#endif
