/* accel/track.h - logs of a run: records go into a queue in memory, and a separate thread writes
 * them to a file.
 *
 * A writer belongs to one thread. A second one, its own, writes once a second, and at a flush and
 * at the end. Records are on their way to the disk after a second at most, so a killed process
 * loses no more than that. A slow or full disk never blocks the caller. Records wait in memory
 * while a file cannot be written, and are written once it can. At most AC_TRACK_MAX_BYTES wait.
 * Records beyond that are dropped and counted. */
#ifndef ACCEL_TRACK_H
#define ACCEL_TRACK_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AC_TRACK_MAX_BYTES = 64 << 20, AC_TRACK_MAX_RECORD = 16 << 20 };

typedef struct ac_track ac_track;

/* A file of TensorBoard's events in a folder that is there, of a name that no other writer
 * takes. */
AC_API ac_status ac_track_open_events(const char *folder, ac_track **out, ac_err *e);
/* A file of lines: ac_track_bytes takes them, as they are to stand in it. head: the first line of a
 * new or empty file (optional). An unfinished last line of a file that is there already is ended
 * first. */
AC_API ac_status ac_track_open_lines(const char *path, const char *head, ac_track **out, ac_err *e);
/* The transaction log of a W&B run, a new file: ac_track_bytes takes encoded
 * wandb_internal.Records. */
AC_API ac_status ac_track_open_wandb(const char *path, ac_track **out, ac_err *e);

/* A number of a step. wall: seconds since 1970. 0: now. tag is copied. INVALID: this writer takes
 * no numbers, or the tag is too long. */
AC_API ac_status ac_track_scalar(ac_track *t, const char *tag, int64_t step, double value,
                                 double wall, ac_err *e);
/* Bytes of a step: of events one encoded Summary, of W&B one Record, of lines a line with its end.
 * INVALID: above AC_TRACK_MAX_RECORD. */
AC_API ac_status ac_track_bytes(ac_track *t, int64_t step, const void *p, size_t n, double wall,
                                ac_err *e);

/* Waits until everything logged so far is written. Fails with the reason if it cannot be. */
AC_API ac_status ac_track_flush(ac_track *t, ac_err *e);
/* Whether the last attempt to write failed, and why. */
AC_API bool ac_track_fault(ac_track *t, ac_err *e);
/* records left out since the queue was full, or lost at the end */
AC_API uint64_t ac_track_dropped(ac_track *t);
AC_API const char *ac_track_path(const ac_track *t); /* of the first file */
/* Writes the remaining records, with one retry after a failure. Fails with the reason if they
 * cannot be written. t is gone either way. */
AC_API ac_status ac_track_close(ac_track *t, ac_err *e);

/* For a program that is about to call exit(status), as accel-run does after a script's os.exit:
 * writes the queues of this process and stops their threads. Nobody logs after that. */
AC_API void ac_track_leave(int status);

/* A PNG file of pixels, row by row, channels interleaved: 1 grey, 2 with alpha, 3 RGB, 4 RGBA.
 * Sides of 1 to 16,384. *out: malloc'ed. */
AC_API ac_status ac_png_encode(const uint8_t *pixels, int width, int height, int channels,
                               char **out, size_t *n, ac_err *e);
/* The SHA-256 of n bytes. */
AC_API void ac_sha256(const void *p, size_t n, uint8_t out[32]);

#ifdef __cplusplus
}
#endif
#endif
