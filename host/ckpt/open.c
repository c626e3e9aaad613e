/* A committed checkpoint as a reader sees it: its manifest, its files' sizes, whole files,
 * checksums. Called by the bindings and scan.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "ckpt/ckpt_impl.h"
#include "file/io.h"

static ac_status check_sizes(const ac_ckpt *c, ac_err *e) {
  char shown[ACI_PATH_SHOWN], name[ACI_ST_SHOWN];
  for (int i = 0; i < c->m.n; i++) {
    const ac_ckpt_file *f = &c->m.file[i];
    struct stat sb;
    char *path = aci_ckpt_join(c->path, f->name);
    if (path == NULL) return AC_FAIL(e, OOM, "no memory to open a checkpoint");
    const int rc = stat(path, &sb), err = errno;
    free(path);
    aci_st_shown(f->name, strlen(f->name), name);
    if (rc != 0)
      return AC_FAIL(e, PARSE, "%s: damaged: file '%s' of the manifest: %s",
                     aci_path_shown(c->path, shown), name, strerror(err));
    if (!S_ISREG(sb.st_mode))
      return AC_FAIL(e, PARSE, "%s: damaged: '%s' is not a regular file",
                     aci_path_shown(c->path, shown), name);
    if ((uint64_t)sb.st_size != f->bytes)
      return AC_FAIL(e, PARSE,
                     "%s: damaged: file '%s' has %llu bytes, not the %llu that were written",
                     aci_path_shown(c->path, shown), name, (unsigned long long)sb.st_size,
                     (unsigned long long)f->bytes);
  }
  return AC_OK;
}

ac_status ac_ckpt_open(const char *path, ac_ckpt **out, ac_err *e) {
  struct stat sb;
  char shown[ACI_PATH_SHOWN];
  ac_err inner;
  *out = NULL;
  if (stat(path, &sb) != 0) return aci_io_error(e, path, "cannot open the checkpoint", errno);
  if (!S_ISDIR(sb.st_mode))
    return AC_FAIL(e, PARSE, "%s: not a checkpoint: a file, not a folder",
                   aci_path_shown(path, shown));
  ac_ckpt *c = calloc(1, sizeof *c);
  char *manifest = aci_ckpt_join(path, ACI_CKPT_MANIFEST);
  ac_status st = AC_OK;
  if (c != NULL) c->m.part = -1;
  if (c == NULL || manifest == NULL || (c->path = strdup(path)) == NULL)
    AC_GOTO(done, st, AC_FAIL(e, OOM, "no memory to open a checkpoint"));
  st = aci_manifest_read(&c->m, manifest, -1, &inner);
  if (st == AC_NOT_FOUND)
    st = AC_FAIL(e, NOT_FOUND, "%s: not a checkpoint: it has no " ACI_CKPT_MANIFEST,
                 aci_path_shown(path, shown));
  else if (st != AC_OK && e != NULL) *e = inner;
  if (st == AC_OK) st = check_sizes(c, e);
  if (st == AC_OK) st = aci_ckpt_list_objects(c, e);
done:
  free(manifest);
  if (st == AC_OK) *out = c;
  else ac_ckpt_close(c);
  return st;
}

void ac_ckpt_close(ac_ckpt *c) {
  if (c == NULL) return;
  aci_ckpt_close_objects(c);
  aci_manifest_fini(&c->m);
  free(c->path);
  free(c);
}

const char *ac_ckpt_path(const ac_ckpt *c) { return c->path; }
const char *ac_ckpt_manifest(const ac_ckpt *c, size_t *n) {
  *n = c->m.text_bytes;
  return c->m.text;
}
int ac_ckpt_n_files(const ac_ckpt *c) { return c->m.n; }
const ac_ckpt_file *ac_ckpt_file_at(const ac_ckpt *c, int i) { return &c->m.file[i]; }
uint64_t ac_ckpt_bytes(const ac_ckpt *c) { return c->m.bytes; }

static ac_status wrong_sum(const ac_ckpt *c, const ac_ckpt_file *f, uint32_t crc, const char *more,
                           ac_err *e) {
  char shown[ACI_PATH_SHOWN], name[ACI_ST_SHOWN];
  return AC_FAIL(e, PARSE,
                 "%s: damaged: file '%s' does not match its checksum (%08x, not %08x)%.260s",
                 aci_path_shown(c->path, shown), aci_st_shown(f->name, strlen(f->name), name), crc,
                 f->crc32c, more);
}

ac_status ac_ckpt_read_bytes(const ac_ckpt *c, const char *file, char **out, size_t *n, ac_err *e) {
  char shown[ACI_PATH_SHOWN], name[ACI_ST_SHOWN];
  const ac_ckpt_file *f = NULL;
  *out = NULL;
  for (int i = 0; i < c->m.n && f == NULL; i++)
    if (strcmp(c->m.file[i].name, file) == 0) f = &c->m.file[i];
  if (f == NULL)
    return AC_FAIL(e, NOT_FOUND, "%s: no file '%s' in this checkpoint",
                   aci_path_shown(c->path, shown), aci_st_shown(file, strlen(file), name));
  char *path = aci_ckpt_join(c->path, file);
  if (path == NULL) return AC_FAIL(e, OOM, "no memory to open a checkpoint");
  ac_status st = aci_read_whole(path, f->bytes, out, n, e);
  free(path);
  if (st != AC_OK) return st;
  const uint32_t crc = aci_crc32c(0, *out, *n);
  if (*n == f->bytes && crc == f->crc32c) return AC_OK;
  free(*out);
  *out = NULL;
  return wrong_sum(c, f, crc, "", e);
}

/* ---- checksums of everything ---- */

enum { BLOCK = 4 << 20 };
static const uint64_t STEP = (uint64_t)256 << 20;

/* The damaged tensor of a file: " (tensor 'x')", or another fault of the file. */
static void find_tensor(const char *path, char *buf, size_t n) {
  ac_err e;
  ac_safetensors *f = NULL;
  buf[0] = 0;
  if (ac_safetensors_open(path, &f, &e) != AC_OK) {
    const char *what = strstr(e.msg, "rule ");
    snprintf(buf, n, ": %s", what != NULL ? what : "its header cannot be read");
    return;
  }
  char *block = malloc(BLOCK), name[ACI_ST_SHOWN];
  for (int i = 0; i < f->n && block != NULL && buf[0] == 0; i++) {
    const aci_st_entry *t = &f->entry[i];
    uint32_t crc = 0;
    if (!t->has_crc) continue;
    for (uint64_t at = t->pub.begin; at < t->pub.end; at += BLOCK) {
      const size_t k = t->pub.end - at < BLOCK ? (size_t)(t->pub.end - at) : BLOCK;
      if (aci_pread_all(f->fd, path, block, k, f->data_at + at, NULL) != AC_OK) break;
      crc = aci_crc32c(crc, block, k);
    }
    if (crc != t->crc)
      snprintf(buf, n, ": tensor '%s', bytes %llu to %llu",
               aci_st_shown(t->pub.name, strlen(t->pub.name), name),
               (unsigned long long)(f->data_at + t->pub.begin),
               (unsigned long long)(f->data_at + t->pub.end));
  }
  if (buf[0] == 0) snprintf(buf, n, ": its header, not its tensors");
  free(block);
  ac_safetensors_close(f);
}

/* The first tensor at byte `at` or later whose bytes were compared with its checksum. NULL without
 * one. f: NULL or an open file. */
static const aci_st_entry *compared_from(const ac_safetensors *f, uint64_t at) {
  int lo = 0, hi = f != NULL ? f->n : 0;
  while (lo < hi) {
    const int mid = (lo + hi) / 2;
    if (f->data_at + f->entry[mid].pub.begin < at) lo = mid + 1;
    else hi = mid;
  }
  while (f != NULL && lo < f->n && !f->entry[lo].compared) lo++;
  return f != NULL && lo < f->n ? &f->entry[lo] : NULL;
}

/* Takes the next bytes of a file into its checksum, at most `most`. Tensors that were compared with
 * their own checksum when they were read contribute that, the others are read. */
static ac_status sum_some(ac_ckpt *c, const ac_safetensors *opened, const char *path, int fd,
                          uint64_t most, ac_team *team, ac_err *e) {
  while (most > 0) {
    const aci_st_entry *t = compared_from(opened, c->offset);
    const uint64_t begin = t != NULL ? opened->data_at + t->pub.begin : c->m.file[c->at].bytes;
    uint64_t until;
    uint32_t crc;
    if (begin == c->offset) { /* t is one: the end of the file is not asked for */
      until = opened->data_at + t->pub.end;
      c->crc = aci_crc32c_combine(c->crc, t->crc, until - begin);
    } else {
      until = begin - c->offset < most ? begin : c->offset + most;
      AC_TRY(aci_read_blocks(fd, path, NULL, until - c->offset, c->offset, team, &crc, e));
      c->crc = aci_crc32c_combine(c->crc, crc, until - c->offset);
    }
    most -= until - c->offset < most ? until - c->offset : most;
    c->offset = until;
  }
  return AC_OK;
}

/* Verifies more of file c->at. Moves to the next file when it is valid. */
static ac_status verify_some(ac_ckpt *c, ac_team *team, uint64_t *left, ac_err *e) {
  const ac_ckpt_file *f = &c->m.file[c->at];
  uint64_t bytes;
  int fd;
  char *path = aci_ckpt_join(c->path, f->name), more[280] = "";
  if (path == NULL) return AC_FAIL(e, OOM, "no memory to read a checkpoint");
  ac_status st = aci_open_read(path, &fd, &bytes, e);
  if (st == AC_OK) {
    const uint64_t before = c->offset, rest = f->bytes - before;
    st = sum_some(c, aci_ckpt_opened(c, f->name, path), path, fd, rest < *left ? rest : *left, team,
                  e);
    close(fd);
    const uint64_t done = c->offset - before;
    *left -= done < *left ? done : *left;
    if (st == AC_OK && c->offset == f->bytes) {
      if (c->crc != f->crc32c) {
        if (aci_is_safetensors(f->name)) find_tensor(path, more, sizeof more);
        st = wrong_sum(c, f, c->crc, more, e);
      }
      c->summed += f->bytes;
      c->at++;
      c->offset = 0;
      c->crc = 0;
    }
  }
  free(path);
  return st;
}

ac_status ac_ckpt_verify(ac_ckpt *c, ac_team *team, uint64_t *done, ac_err *e) {
  uint64_t left = STEP;
  if (*done == 0) {
    c->at = 0;
    c->offset = 0;
    c->crc = 0;
    c->summed = 0;
  }
  ac_status st = AC_OK;
  /* empty files at the end belong to the last step */
  while (st == AC_OK && c->at < c->m.n && (left > 0 || c->m.file[c->at].bytes == 0))
    st = verify_some(c, team, &left, e);
  *done = c->summed + c->offset;
  return st;
}
