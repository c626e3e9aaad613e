/* The files of one part: all of them are made and get their space before the first byte is written,
 * then each is written and brought to disk. Runs in the save's thread (save.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "ckpt/ckpt_impl.h"
#include "file/io.h"

/* The folders between the checkpoint's and the file. Other parts may make them as well. */
static ac_status make_subfolders(const ac_ckpt_save *s, const aci_save_file *f, ac_err *e) {
  char *p = strdup(f->path);
  if (p == NULL) return AC_FAIL(e, OOM, "no memory for a checkpoint");
  ac_status st = AC_OK;
  for (char *c = p + strlen(s->folder) + 1; st == AC_OK && (c = strchr(c, '/')) != NULL;
       *c++ = '/') {
    int rc;
    *c = 0;
    ACI_AGAIN(rc, mkdir(p, 0777));
    if (rc != 0 && errno != EEXIST) st = aci_io_error(e, p, "cannot make the folder", errno);
  }
  free(p);
  return st;
}

static ac_status open_file(const aci_save_file *f, int flags, int *fd, ac_err *e) {
  ACI_AGAIN(*fd, open(f->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0666));
  return *fd >= 0 ? AC_OK
                  : aci_io_error(e, f->path, flags != 0 ? "cannot create" : "cannot open", errno);
}

static ac_status close_file(const aci_save_file *f, int fd, ac_status st, ac_err *e) {
  const int rc = close(fd);
  return st != AC_OK || rc == 0 || errno == EINTR ? st
                                                  : aci_io_error(e, f->path, "cannot close", errno);
}

static ac_status sync_file(const aci_save_file *f, int fd, ac_err *e) {
  int rc;
  ACI_AGAIN(rc, fsync(fd));
  return rc == 0 ? AC_OK : aci_io_error(e, f->path, "cannot sync it to disk", errno);
}

static ac_status write_file(ac_ckpt_save *s, aci_save_file *f, aci_disk *d, ac_err *e) {
  int fd;
  AC_TRY(open_file(f, 0, &fd, e));
  ac_status st;
  if (f->tensors) {
    st = aci_st_plan_write(&f->plan, d, fd, f->path, &f->crc, e);
  } else {
    f->crc = aci_crc32c(0, f->bytes, f->n);
    st = aci_pwrite_all(fd, f->path, f->bytes, f->n, 0, e);
    atomic_fetch_add_explicit(&s->written, f->n, memory_order_relaxed);
  }
  if (st == AC_OK) st = sync_file(f, fd, e);
  return close_file(f, fd, st, e);
}

ac_status aci_ckpt_write_files(ac_ckpt_save *s, ac_err *e) {
  ac_status st = AC_OK;
  for (int i = 0; i < s->n; i++) {
    int fd;
    AC_TRY(aci_ckpt_stopped(s, e));
    AC_TRY(make_subfolders(s, &s->file[i], e));
    AC_TRY(open_file(&s->file[i], O_CREAT | O_EXCL, &fd, e));
    AC_TRY(close_file(&s->file[i], fd, aci_reserve(fd, s->file[i].path, s->file[i].size, false, e),
                      e));
  }
  aci_disk d = {.stop = &s->stop, .written = &s->written};
  aci_disk_params(&d);
  for (int i = 0; i < s->n && st == AC_OK; i++) st = write_file(s, &s->file[i], &d, e);
  aci_disk_fini(&d);
  return st;
}
