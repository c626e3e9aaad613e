/* Files from others, opened for reading, and their names in messages. Every reader of the library
 * opens through aci_open_read. User scripts, which may be pipes, are the only exception
 * (bindings/core/chunk.c). */
#ifndef ACI_OPEN_READ_H
#define ACI_OPEN_READ_H
#include "accel/base.h"

/* A path as messages show it, without control characters: its last 200 bytes, so that the cause
 * still fits after it. Returns path or buf. */
enum { ACI_PATH_SHOWN = 208 };
const char *aci_path_shown(const char *path, char buf[ACI_PATH_SHOWN]);
/* IO or NOT_FOUND from errno. */
ac_status aci_io_error(ac_err *e, const char *path, const char *doing, int err);
/* Opens a regular file for reading. Never waits and takes nothing else: a pipe, a device or a
 * socket is refused by name. */
ac_status aci_open_read(const char *path, int *fd, uint64_t *bytes, ac_err *e);

#endif
