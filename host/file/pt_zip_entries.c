/* The directory of a torch.save archive: every entry stored as it is, its local header saying the
 * same, entries side by side from the first byte to the directory, the directory to the end.
 * Nothing lies between them that another reader of the file might take for its content. Called by
 * pt_zip.c. */
#include <stdlib.h>
#include <string.h>

#include "file/io.h"
#include "file/pt.h"
#include "file/safetensors.h"

enum { EOCD = 22, LOCATOR = 20, EOCD64 = 56, CENTRAL = 46, LOCAL = 30 };
enum { FLAG_DESCRIPTOR = 8, FLAG_UTF8 = 0x800 };

static uint64_t le(const unsigned char *p, int n) {
  uint64_t v = 0;
  while (n-- > 0) v = v << 8 | p[n];
  return v;
}
static bool is_magic(const unsigned char *p, char a, char b) {
  return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}
static ac_status read_at(const ac_pt *f, void *to, size_t n, uint64_t at, ac_err *e) {
  return aci_pread_all(f->fd, f->path, to, n, f->begin + at, e);
}
#define SHOWN(s, n) aci_st_shown((s), (n), (char[ACI_ST_SHOWN]){0})
#define REFUSE(at, rule, ...) aci_pt_refuse(e, f, f->begin + (at), rule, __VA_ARGS__)

/* ---- the end: position of the directory ---- */

typedef struct place {
  uint64_t at, bytes, n;
} place;

static ac_status find_directory(ac_pt *f, place *d, ac_err *e) {
  const uint64_t size = f->end - f->begin;
  unsigned char t[EOCD64 + LOCATOR + EOCD];
  if (size < EOCD)
    return REFUSE(size, "truncated", "an archive of %llu bytes", (unsigned long long)size);
  const size_t tail = size < sizeof t ? (size_t)size : sizeof t;
  AC_TRY(read_at(f, t, tail, size - tail, e));
  const unsigned char *p = t + tail - EOCD;
  uint64_t end = size - EOCD;
  if (!is_magic(p, 5, 6) || le(p + 20, 2) != 0)
    return REFUSE(
        end, "truncated",
        "the archive's directory does not end with the file: it was cut, or something follows it");
  if (le(p + 4, 2) != 0 || le(p + 6, 2) != 0)
    return REFUSE(end, "format", "an archive of several files");
  *d = (place){.n = le(p + 10, 2), .bytes = le(p + 12, 4), .at = le(p + 16, 4)};
  if (le(p + 8, 2) != d->n) return REFUSE(end, "size", "the directory's numbers of entries differ");
  if (d->at != UINT32_MAX && d->at > end)
    return REFUSE(end, "truncated", "the directory begins at %llu, after the end",
                  (unsigned long long)d->at);
  if (tail == sizeof t && is_magic(t + EOCD64, 6, 7)) {
    const unsigned char *l = t + EOCD64, *q = t;
    const uint64_t at = size - tail;
    if (le(l + 4, 4) != 0 || le(l + 16, 4) != 1)
      return REFUSE(end - LOCATOR, "format", "an archive of several files");
    if (le(l + 8, 8) != at || !is_magic(q, 6, 6) || le(q + 4, 8) != EOCD64 - 12)
      return REFUSE(end - LOCATOR, "truncated",
                    "the zip64 end of the directory is not before its locator");
    if (le(q + 16, 4) != 0 || le(q + 20, 4) != 0)
      return REFUSE(at, "format", "an archive of several files");
    const place d64 = {.n = le(q + 32, 8), .bytes = le(q + 40, 8), .at = le(q + 48, 8)};
    if (le(q + 24, 8) != d64.n || (d->n != UINT16_MAX && d->n != d64.n) ||
        (d->bytes != UINT32_MAX && d->bytes != d64.bytes) ||
        (d->at != UINT32_MAX && d->at != d64.at))
      return REFUSE(at, "size", "the directory's two ends differ");
    *d = d64;
    end = at;
  }
  if (d->at > end || d->bytes != end - d->at)
    return REFUSE(end, "size", "the directory's %llu bytes at %llu do not end at its end record",
                  (unsigned long long)d->bytes, (unsigned long long)d->at);
  if (d->n > d->bytes / CENTRAL || d->n > ACI_PT_MAX_ENTRIES || d->bytes > ACI_PT_MAX_PICKLE)
    return REFUSE(end, "size", "%llu entries in a directory of %llu bytes",
                  (unsigned long long)d->n, (unsigned long long)d->bytes);
  return AC_OK;
}

/* ---- names ---- */

static bool starts(const char *s, size_t n, const char *with) {
  return n >= strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

static ac_status check_name(const ac_pt *f, const aci_pt_entry *x, size_t root, uint64_t at,
                            ac_err *e) {
  static const char *const known[] = {"data.pkl",           "version",
                                      "byteorder",          ".format_version",
                                      ".storage_alignment", ".data/serialization_id"};
  const char *s = x->name, *whole = s - root;
  size_t n = x->name_len;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strlen(known[i]) == n && memcmp(known[i], s, n) == 0) return AC_OK;
  bool number = starts(s, n, "data/") && n > 5 && n <= 25;
  for (size_t i = 5; number && i < n; i++) number = s[i] >= '0' && s[i] <= '9';
  if (number) return AC_OK;
  if (starts(s, n, "code/") || starts(s, n, "constants") || starts(s, n, "attributes.pkl"))
    return REFUSE(
        at, "format",
        "entry '%s' belongs to TorchScript, a program: torch.save the module's state_dict() instead",
        SHOWN(whole, root + n));
  return REFUSE(at, "name", "entry '%s' is not written by torch.save", SHOWN(whole, root + n));
}

/* All names must be in one top folder. x->name becomes the part after the folder. */
static ac_status split_name(const ac_pt *f, aci_pt_entry *x, const char **root, size_t *n_root,
                            uint64_t at, ac_err *e) {
  const char *s = x->name, *slash = memchr(s, '/', x->name_len);
  const size_t n = x->name_len;
  const bool bad =
      slash == NULL || slash == s || memchr(s, 0, n) != NULL || memchr(s, '\\', n) != NULL;
  if (bad) return REFUSE(at, "name", "entry '%s' is not in the archive's folder", SHOWN(s, n));
  for (size_t i = 0; i < n; i++) {
    const bool begins = i == 0 || s[i - 1] == '/';
    if (begins && s[i] == '.' && i + 1 < n && s[i + 1] == '.' && (i + 2 == n || s[i + 2] == '/'))
      return REFUSE(at, "name", "entry '%s' leaves the archive's folder", SHOWN(s, n));
  }
  const size_t len = (size_t)(slash - s) + 1;
  if (*root == NULL) {
    *root = s;
    *n_root = len;
  }
  if (len != *n_root || memcmp(s, *root, len) != 0)
    return REFUSE(at, "name", "entry '%s' is in another folder than '%s'", SHOWN(s, n),
                  SHOWN(*root, *n_root - 1));
  x->name += len;
  x->name_len -= (uint32_t)len;
  return check_name(f, x, len, at, e);
}

/* ---- one entry ---- */

/* The zip64 field of an entry's extra data has the values that do not fit into the header, in this
 * order. False: too short. */
static bool widen(const unsigned char *extra, size_t n, uint64_t *const *wide, int n_wide) {
  const unsigned char *end = extra + n;
  for (const unsigned char *p = extra; end - p >= 4;) {
    const size_t len = (size_t)le(p + 2, 2);
    if ((size_t)(end - p - 4) < len) return false;
    if (le(p, 2) == 1) {
      const unsigned char *q = p + 4;
      for (int i = 0; i < n_wide; i++) {
        if (*wide[i] != UINT32_MAX) continue;
        if (q + 8 > p + 4 + len) return false;
        *wide[i] = le(q, 8);
        q += 8;
      }
      return true;
    }
    p += 4 + len;
  }
  for (int i = 0; i < n_wide; i++)
    if (*wide[i] == UINT32_MAX) return false;
  return true;
}

/* The local header and the bytes after the data must match the directory. The entry must end at
 * `next`. */
static ac_status check_local(const ac_pt *f, aci_pt_entry *x, uint64_t next, ac_err *e) {
  unsigned char h[LOCAL], *rest;
  const char *whole = x->name; /* still with its folder */
  const uint64_t at = x->header_at;
  const uint32_t flags = x->flags;
  if (next < LOCAL || at > next - LOCAL)
    return REFUSE(at, "size", "entry '%s' overlaps what follows", SHOWN(whole, x->name_len));
  AC_TRY(read_at(f, h, LOCAL, at, e));
  const size_t n_name = (size_t)le(h + 26, 2), n_extra = (size_t)le(h + 28, 2);
  if (!is_magic(h, 3, 4))
    return REFUSE(at, "name", "no entry '%s' begins here", SHOWN(whole, x->name_len));
  if (n_name + n_extra > next - at - LOCAL)
    return REFUSE(at, "size", "entry '%s' overlaps what follows", SHOWN(whole, x->name_len));
  if ((rest = malloc(n_name + n_extra + 1)) == NULL) return aci_pt_no_memory(e, f);
  ac_status st = read_at(f, rest, n_name + n_extra, at + LOCAL, e);
  if (st != AC_OK) goto done;
  if (n_name != x->name_len || memcmp(rest, whole, n_name) != 0) {
    st = REFUSE(at, "name", "entry '%s' is '%s' in the directory",
                SHOWN((const char *)rest, n_name), SHOWN(whole, x->name_len));
    goto done;
  }
  uint64_t packed = le(h + 18, 4), size = le(h + 22, 4), crc = le(h + 14, 4);
  uint64_t *const wide[] = {&size, &packed};
  const bool later = (flags & FLAG_DESCRIPTOR) && crc == 0 && packed == 0 && size == 0;
  if (le(h + 6, 2) != flags || le(h + 8, 2) != 0 || !widen(rest + n_name, n_extra, wide, 2) ||
      (!later && (crc != x->crc || packed != x->bytes || size != x->bytes))) {
    st = REFUSE(at, "size", "entry '%s' is described otherwise in the directory",
                SHOWN(whole, x->name_len));
    goto done;
  }
  x->at = at + LOCAL + n_name + n_extra;
  if (x->bytes > next - x->at) {
    st = REFUSE(at, "size", "entry '%s' has %llu bytes, %llu are there", SHOWN(whole, x->name_len),
                (unsigned long long)x->bytes, (unsigned long long)(next - x->at));
    goto done;
  }
  const uint64_t after = x->at + x->bytes, gap = next - after;
  unsigned char d[24];
  if (flags & FLAG_DESCRIPTOR) {
    const int w = gap == 16 ? 4 : 8;
    if (gap == 16 || gap == 24) AC_GOTO(done, st, read_at(f, d, (size_t)gap, after, e));
    if ((gap != 16 && gap != 24) || !is_magic(d, 7, 8) || le(d + 4, 4) != x->crc ||
        le(d + 8, w) != x->bytes || le(d + 8 + w, w) != x->bytes)
      st = REFUSE(after, "size", "what follows the data of entry '%s' does not describe it",
                  SHOWN(whole, x->name_len));
  } else if (gap != 0) {
    st = REFUSE(after, "size", "%llu bytes after entry '%s' belong to no entry",
                (unsigned long long)gap, SHOWN(whole, x->name_len));
  }
done:
  free(rest);
  return st;
}

static ac_status read_entry(ac_pt *f, aci_pt_entry *x, const unsigned char *p, size_t left,
                            uint64_t at, size_t *used, ac_err *e) {
  if (left < CENTRAL || !is_magic(p, 1, 2))
    return REFUSE(at, "size", "no entry of the directory is here");
  const size_t n_name = (size_t)le(p + 28, 2), n_extra = (size_t)le(p + 30, 2),
               n_comment = (size_t)le(p + 32, 2);
  if (n_name + n_extra > left - CENTRAL || n_comment != 0)
    return REFUSE(at, "size", "an entry leaves the directory");
  const char *name = (const char *)p + CENTRAL;
  const uint32_t flags = (uint32_t)le(p + 8, 2);
  if (le(p + 10, 2) != 0 || (flags & 1) != 0)
    return REFUSE(at, "compressed", "entry '%s' is %s, which torch.save never writes",
                  SHOWN(name, n_name), (flags & 1) ? "encrypted" : "compressed");
  if ((flags & ~(uint32_t)(FLAG_DESCRIPTOR | FLAG_UTF8)) != 0 || le(p + 34, 2) != 0)
    return REFUSE(at, "format", "entry '%s' has flags 0x%x or lies in another file",
                  SHOWN(name, n_name), flags);
  uint64_t packed = le(p + 20, 4), size = le(p + 24, 4), header = le(p + 42, 4);
  uint64_t *const wide[] = {&size, &packed, &header};
  if (!widen(p + CENTRAL + n_name, n_extra, wide, 3) || packed != size)
    return REFUSE(at, "size", "entry '%s' has contradictory sizes", SHOWN(name, n_name));
  *x = (aci_pt_entry){.name = name,
                      .name_len = (uint32_t)n_name,
                      .crc = (uint32_t)le(p + 16, 4),
                      .flags = flags,
                      .bytes = size,
                      .header_at = header};
  *used = CENTRAL + n_name + n_extra;
  return AC_OK;
}

/* ---- all of them ---- */

static int by_place(const void *a, const void *b) {
  const aci_pt_entry *x = a, *y = b;
  return (x->header_at > y->header_at) - (x->header_at < y->header_at);
}
static int by_name(const void *a, const void *b) {
  const aci_pt_entry *x = a, *y = b;
  const int c = memcmp(x->name, y->name, x->name_len < y->name_len ? x->name_len : y->name_len);
  return c != 0 ? c : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

const aci_pt_entry *aci_pt_zip_find(const ac_pt *f, const char *name, size_t n) {
  const aci_pt_entry key = {.name = name, .name_len = (uint32_t)n};
  return f->n_entries == 0 ? NULL : bsearch(&key, f->entry, f->n_entries, sizeof key, by_name);
}

ac_status aci_pt_zip_directory(ac_pt *f, ac_err *e) {
  place d = {0};
  AC_TRY(find_directory(f, &d, e));
  f->directory = malloc((size_t)d.bytes + 1);
  f->entry = calloc((size_t)d.n + 1, sizeof *f->entry);
  if (f->directory == NULL || f->entry == NULL) return aci_pt_no_memory(e, f);
  AC_TRY(read_at(f, f->directory, (size_t)d.bytes, d.at, e));
  size_t at = 0, used = 0, n_root = 0;
  const char *root = NULL;
  for (uint64_t i = 0; i < d.n; i++, at += used) {
    aci_pt_entry *x = &f->entry[i];
    AC_TRY(read_entry(f, x, f->directory + at, (size_t)d.bytes - at, d.at + at, &used, e));
  }
  if (at != d.bytes)
    return REFUSE(d.at + at, "size", "bytes after the last entry of the directory");
  f->n_entries = (uint32_t)d.n;
  if (d.n > 1) qsort(f->entry, (size_t)d.n, sizeof *f->entry, by_place);
  for (uint32_t i = 0; i < f->n_entries; i++) {
    aci_pt_entry *x = &f->entry[i];
    const uint64_t next = i + 1 < f->n_entries ? f->entry[i + 1].header_at : d.at;
    AC_TRY(split_name(f, x, &root, &n_root, x->header_at, e));
    x->name -= n_root;
    x->name_len += (uint32_t)n_root;
    if (i == 0 && x->header_at != 0) return REFUSE(0, "size", "bytes before the first entry");
    AC_TRY(check_local(f, x, next, e));
    x->name += n_root;
    x->name_len -= (uint32_t)n_root;
  }
  if (d.n > 1) qsort(f->entry, (size_t)d.n, sizeof *f->entry, by_name);
  for (uint32_t i = 1; i < f->n_entries; i++) {
    const aci_pt_entry *x = &f->entry[i - 1], *y = &f->entry[i];
    if (by_name(x, y) == 0)
      return REFUSE(x->header_at > y->header_at ? x->header_at : y->header_at, "name",
                    "duplicate entry '%s'", SHOWN(x->name, x->name_len));
  }
  return AC_OK;
}
