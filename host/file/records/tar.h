/* tar archives, read in order: v7, ustar, GNU and pax names and sizes. Called by
 * bindings/file/lac_records.c for shards of samples.
 *
 * Strict: a header whose checksum is wrong, a member that is cut off, a missing end of the archive and
 * data after it are errors. Sparse members are refused. Nothing is written anywhere, so names may be
 * anything. */
#ifndef ACI_RECORDS_TAR_H
#define ACI_RECORDS_TAR_H
#include "base/strbuf.h"
#include "file/compress/compress.h"

typedef enum aci_tar_type {
  ACI_TAR_FILE,
  ACI_TAR_FOLDER,
  ACI_TAR_LINK,
  ACI_TAR_SYMLINK,
  ACI_TAR_OTHER
} aci_tar_type;

typedef struct aci_tar {
  aci_content *content;
  uint64_t left, padding; /* of the member: bytes not read, and zeros after them */
  aci_strbuf name;        /* of the member */
  aci_tar_type type;
  uint64_t size, at; /* of the member: bytes, and the place of its first */
  bool ended, begun;
} aci_tar;

ac_status aci_tar_open(const char *path, aci_tar *t, ac_err *e);
/* The next member. After the last one `ended` is set. */
ac_status aci_tar_next(aci_tar *t, ac_err *e);
/* Up to n bytes of the member, fewer only at its end. */
ac_status aci_tar_read(aci_tar *t, void *p, size_t n, size_t *got, ac_err *e);
void aci_tar_close(aci_tar *t);

#endif
