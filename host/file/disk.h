/* How many bytes reach a file in one go: a fixed head, then data in order, whose checksum is taken
 * on the way. The head is written last, since it may hold checksums. Used by the writers of
 * safetensors files and of checkpoints.
 *
 * Large files bypass the page cache (O_DIRECT, from aligned blocks) if the file system allows it,
 * with several blocks under way at once (io_uring) if the kernel offers it. Everything else is
 * written in place. Memory: ACI_DISK_BLOCK * ACI_DISK_BLOCKS. */
#ifndef ACI_FILE_DISK_H
#define ACI_FILE_DISK_H
#include <stdatomic.h>

#include "accel/base.h"
#include "file/uring.h"

enum {
  ACI_DISK_BLOCK = 2 << 20,
  ACI_DISK_BLOCKS = 4,
  ACI_DISK_PAGE = 4096,
  ACI_DISK_LARGE = 8 << 20
};

typedef struct aci_disk {
  /* the caller's, constant */
  bool buffered; /* never past the page cache */
  bool no_uring;
  const _Atomic bool *stop;  /* (optional) true: INTERRUPTED soon */
  _Atomic uint64_t *written; /* (optional) counts bytes as they are handed to the system */
  /* of the file being written */
  int fd;
  const char *path; /* for messages */
  uint64_t head, bytes, at;
  bool staged;          /* through the blocks */
  bool direct;          /* still past the page cache */
  unsigned char *first; /* the head's pages, followed by the first bytes of data */
  uint64_t first_bytes;
  int slot; /* block that is being filled, with so many bytes, for this place */
  size_t fill;
  uint64_t place;
  /* kept from file to file */
  unsigned char *blocks;
  aci_uring *ring;
  bool no_ring;
  int under_way;
  struct {
    bool busy;
    uint32_t bytes;
    uint64_t place;
  } block[ACI_DISK_BLOCKS];
} aci_disk; /* zeroed, with the caller's fields set. Then any number of files, then aci_disk_fini */

/* The parameters DIRECT_IO and IO_URING. */
void aci_disk_params(aci_disk *d);
/* Begins a file of `bytes` in all, `head` of them the head. The caller owns fd, open for writing.
 * path must live until the end. */
ac_status aci_disk_begin(aci_disk *d, int fd, const char *path, uint64_t head, uint64_t bytes,
                         ac_err *e);
/* The next n bytes of data. *crc continues over them. */
ac_status aci_disk_put(aci_disk *d, const void *p, size_t n, uint32_t *crc, ac_err *e);
/* All data was put: waits for it, writes the head, gives the file its length. fsync is the
 * caller's. */
ac_status aci_disk_end(aci_disk *d, const void *head, ac_err *e);
void aci_disk_fini(aci_disk *d); /* also after errors: waits for writes under way */

#endif
