/* Whole reads and atomic writes over POSIX files, with errors that name path and cause. */
#ifndef ACI_FILE_IO_H
#define ACI_FILE_IO_H
#include <errno.h>

#include "accel/base.h"

/* A path as messages show it: its last 200 bytes, so that the cause still fits behind it. Returns path or
 * buf. */
enum { ACI_PATH_SHOWN = 208 };
const char *aci_path_shown(const char *path, char buf[ACI_PATH_SHOWN]);
/* Makes a system call again while a signal interrupts it. */
#define ACI_AGAIN(rc, call) \
  do (rc) = (call);         \
  while ((rc) < 0 && errno == EINTR)
/* IO or NOT_FOUND from errno. */
ac_status aci_io_error(ac_err *e, const char *path, const char *doing, int err);
/* Opens a regular file for reading; never waits (a pipe would) and takes nothing else. */
ac_status aci_open_read(const char *path, int *fd, uint64_t *bytes, ac_err *e);
/* Exactly n bytes at offset; a short file is IO. */
ac_status aci_pread_all(int fd, const char *path, void *buf, size_t n, uint64_t offset, ac_err *e);
/* The same into p, many bytes on the threads of team (NULL: the calling one). *crc: their CRC-32C, NULL where nobody asks. p NULL: nothing but
 * the checksum. Of several errors that of the first byte. */
ac_status aci_read_blocks(int fd, const char *path, void *p, uint64_t n, uint64_t offset, ac_team *team, uint32_t *crc, ac_err *e);

/* Writes exactly n bytes at offset. */
ac_status aci_pwrite_all(int fd, const char *path, const void *p, size_t n, uint64_t offset, ac_err *e);
/* Space for the whole file, before its first byte: IO names path, bytes and what is free. File systems that cannot say no are fine.
 * keep_size: the file's length stays. */
ac_status aci_reserve(int fd, const char *path, uint64_t bytes, bool keep_size, ac_err *e);
/* A name is on disk when its folder is. Folders that cannot be opened or synced (some network and overlay file systems) are no
 * error: there is nothing else to ask for. sync_folder_of: the one that path lies in. */
ac_status aci_sync_folder(const char *folder, ac_err *e);
ac_status aci_sync_folder_of(const char *path, ac_err *e);
/* The whole of a regular file in malloc'ed memory with a zero byte behind it; IO when it has more than `most` bytes. */
ac_status aci_read_whole(const char *path, uint64_t most, char **out, size_t *bytes, ac_err *e);

/* A file that replaces `path` when committed, and leaves no trace otherwise. A symbolic link is followed:
 * the file that it names is replaced. An existing file hands on its permissions and, where we may, its
 * owner; a new one gets those of the umask. Anything but a regular file in its place is refused. What a killed
 * process left in the folder goes (left_over.h). */
typedef struct aci_atomic_file {
  int fd; /* -1: not open */
  char *path, *tmp;
} aci_atomic_file; /* {.fd = -1} */
ac_status aci_atomic_open(aci_atomic_file *f, const char *path, uint64_t expected_bytes, ac_err *e);
ac_status aci_atomic_write(aci_atomic_file *f, const void *p, size_t n, ac_err *e);
/* fsync, rename, fsync of the folder. */
ac_status aci_atomic_commit(aci_atomic_file *f, ac_err *e);
void aci_atomic_abort(aci_atomic_file *f); /* harmless after commit and on {.fd = -1} */

#endif
