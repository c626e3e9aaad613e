/* accel/track.h - numbers to people: what a run logs goes into a queue in memory and reaches a file in a thread of its own.
 *
 * A writer belongs to one thread. A second one, its own, writes once a second, and at a flush and at the end. What is logged
 * is on its way to the disk after a second at most, so that a killed process loses no more than that. Nothing that a disk does stops
 * the caller: records wait in memory while a file cannot be written (up to AC_TRACK_MAX_BYTES; what comes after that is left out and
 * counted) and are written once it can. */
#ifndef ACCEL_TRACK_H
#define ACCEL_TRACK_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AC_TRACK_MAX_BYTES = 64 << 20, AC_TRACK_MAX_RECORD = 16 << 20 };

typedef struct ac_track ac_track;

/* A file of TensorBoard's events in a folder that is there, of a name that no other writer takes. */
AC_API ac_status ac_track_open_events(const char *folder, ac_track **out, ac_err *e);
/* A file of lines: ac_track_bytes takes them, as they are to stand in it. head: the first line of a new or empty file (optional). An
 * unfinished last line of a file that is there already is ended first. */
AC_API ac_status ac_track_open_lines(const char *path, const char *head, ac_track **out, ac_err *e);
/* The transaction log of a W&B run, a new file: ac_track_bytes takes encoded wandb_internal.Records. */
AC_API ac_status ac_track_open_wandb(const char *path, ac_track **out, ac_err *e);

/* A number of a step. wall: seconds since 1970; 0: now. tag is copied. INVALID: this writer takes no numbers, or the tag is too long. */
AC_API ac_status ac_track_scalar(ac_track *t, const char *tag, int64_t step, double value, double wall, ac_err *e);
/* Bytes of a step: of events one encoded Summary, of W&B one Record, of lines a line with its end. INVALID: above AC_TRACK_MAX_RECORD. */
AC_API ac_status ac_track_bytes(ac_track *t, int64_t step, const void *p, size_t n, double wall, ac_err *e);

/* Waits until everything logged so far is written; the reason where it cannot be. */
AC_API ac_status ac_track_flush(ac_track *t, ac_err *e);
/* Whether the last attempt to write failed, and why. */
AC_API bool ac_track_fault(ac_track *t, ac_err *e);
AC_API uint64_t ac_track_dropped(ac_track *t);  /* records left out since the queue was full, or lost at the end */
AC_API const char *ac_track_path(const ac_track *t); /* of the first file */
/* Writes what is left, once more where it failed before; the reason where it cannot be. t is gone either way. */
AC_API ac_status ac_track_close(ac_track *t, ac_err *e);

/* For a program that is about to call exit(status), as a script's os.exit makes accel-run do: writes what is in the queues of this process
 * and stops their threads. Nobody logs after that. */
AC_API void ac_track_leave(int status);

/* A PNG file of pixels, row by row, channels interleaved: 1 grey, 2 with alpha, 3 RGB, 4 RGBA; sides of 1 to 16,384. *out: malloc'ed. */
AC_API ac_status ac_png_encode(const uint8_t *pixels, int width, int height, int channels, char **out, size_t *n, ac_err *e);
/* The SHA-256 of n bytes. */
AC_API void ac_sha256(const void *p, size_t n, uint8_t out[32]);

#ifdef __cplusplus
}
#endif
#endif
