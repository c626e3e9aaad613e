/* Whole reads and atomic writes over POSIX files, with errors that name path and cause. */
#ifndef ACI_FILE_IO_H
#define ACI_FILE_IO_H
#include <errno.h>

#include "accel/base.h"
#include "base/open_read.h"

/* Makes a system call again while a signal interrupts it. */
#define ACI_AGAIN(rc, call) \
  do (rc) = (call);         \
  while ((rc) < 0 && errno == EINTR)
/* Exactly n bytes at offset. A short file is IO. */
ac_status aci_pread_all(int fd, const char *path, void *buf, size_t n, uint64_t offset, ac_err *e);
/* The same into p, many bytes on the threads of team (NULL: the calling one). *crc: their CRC-32C,
 * NULL if not wanted. p NULL: only the checksum. Of several errors, returns the one of the first
 * byte. */
ac_status aci_read_blocks(int fd, const char *path, void *p, uint64_t n, uint64_t offset,
                          ac_team *team, uint32_t *crc, ac_err *e);

/* Writes exactly n bytes at offset. */
ac_status aci_pwrite_all(int fd, const char *path, const void *p, size_t n, uint64_t offset,
                         ac_err *e);
/* Space for the whole file, before its first byte. IO names path, bytes and free space. File
 * systems that never refuse are fine. keep_size: the file's length stays. */
ac_status aci_reserve(int fd, const char *path, uint64_t bytes, bool keep_size, ac_err *e);
/* A name is on disk when its folder is. Folders that cannot be opened or synced (some network and
 * overlay file systems) are not an error: there is nothing else to do. sync_folder_of: the folder
 * that contains path. */
ac_status aci_sync_folder(const char *folder, ac_err *e);
ac_status aci_sync_folder_of(const char *path, ac_err *e);
/* The whole of a regular file in malloc'ed memory with a trailing zero byte. IO when it has more
 * than `most` bytes. */
ac_status aci_read_whole(const char *path, uint64_t most, char **out, size_t *bytes, ac_err *e);

/* Makes a folder and those above it, and brings the name of each new one to disk. A folder that
 * exists is fine. */
ac_status aci_make_folders(const char *path, ac_err *e);
/* renameat2: flags of ACI_RENAME_*. EINVAL or ENOSYS in errno: the file system cannot. */
enum { ACI_RENAME_NEW = 1, ACI_RENAME_EXCHANGE = 2 };
int aci_rename_as(const char *from, const char *to, unsigned flags);
/* Gives a file the name `to` unless something has it: EEXIST in errno. Atomic if the file system
 * has renameat2, as on local disks, or links, as NFS has. Otherwise under a lock of the folder. */
int aci_rename_new(const char *from, const char *to);

/* A file that replaces `path` when committed, and leaves no trace otherwise. A symbolic link is
 * followed: the target of the link is replaced. It takes over the permissions of an existing file
 * and, if the system allows it, its owner. A new file gets the permissions of the umask.
 * aci_atomic_open_as sets `mode` in both cases (0: as above). Anything but a regular file in its
 * place is refused. An interrupted set of the folder is completed first (set.h), and left-overs of
 * killed processes are removed (left_over.h). A file of a set (aci_set_add) takes its name when the
 * set is committed. */
typedef struct aci_atomic_file {
  int fd; /* -1: not open */
  char *path, *tmp;
  struct aci_set *set; /* NULL: a file by itself */
} aci_atomic_file;     /* {.fd = -1} */
ac_status aci_atomic_open(aci_atomic_file *f, const char *path, uint64_t expected_bytes, ac_err *e);
ac_status aci_atomic_open_as(aci_atomic_file *f, const char *path, unsigned mode,
                             uint64_t expected_bytes, ac_err *e);
ac_status aci_atomic_write(aci_atomic_file *f, const void *p, size_t n, ac_err *e);
/* fsync, rename, fsync of the folder. Of a file of a set: fsync. */
ac_status aci_atomic_commit(aci_atomic_file *f, ac_err *e);
void aci_atomic_abort(aci_atomic_file *f); /* harmless after commit and on {.fd = -1} */

#endif
