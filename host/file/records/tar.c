/* tar archives: tar.h. The forms are those of POSIX (pax, ustar) and of GNU tar's manual. */
#include "file/records/tar.h"

#include <string.h>

#include "base/open_read.h"

enum { BLOCK = 512, MOST_HEADER = 1 << 20, MOST_HEADERS = 64 };

/* What headers before a member say about it. */
typedef struct extra {
  aci_strbuf name;
  bool has_name, has_size;
  uint64_t size;
} extra;

static ac_status fault(const aci_tar *t, ac_err *e, const char *what) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, PARSE, "%s: byte %llu: %s", aci_path_shown(aci_content_path(t->content), shown),
                 (unsigned long long)aci_content_at(t->content), what);
}

ac_status aci_tar_open(const char *path, aci_tar *t, ac_err *e) {
  *t = (aci_tar){0};
  return aci_content_open(path, 0, &t->content, e);
}

void aci_tar_close(aci_tar *t) {
  aci_content_close(t->content);
  aci_strbuf_fini(&t->name);
  *t = (aci_tar){0};
}

static ac_status read_all(aci_tar *t, void *p, size_t n, ac_err *e) {
  size_t got;
  AC_TRY(aci_content_read(t->content, p, n, &got, e));
  return got == n ? AC_OK : fault(t, e, "the archive is cut off; copy the file again");
}

static ac_status skip_all(aci_tar *t, uint64_t n, ac_err *e) {
  uint64_t got;
  AC_TRY(aci_content_skip(t->content, n, &got, e));
  return got == n ? AC_OK : fault(t, e, "the archive is cut off; copy the file again");
}

/* Octal digits after blanks, or binary with the highest bit set. */
static bool number(const uint8_t *p, int n, uint64_t *out) {
  int i = 0;
  *out = 0;
  if (p[0] & 0x80) {
    if (p[0] & 0x40) return false; /* negative */
    for (; i < n; i++) {
      if (*out >> 55 != 0) return false;
      *out = *out << 8 | (i == 0 ? p[0] & 0x3F : p[i]);
    }
    return true;
  }
  while (i < n && p[i] == ' ') i++;
  for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) *out = *out << 3 | (uint64_t)(p[i] - '0');
  while (i < n && (p[i] == ' ' || p[i] == 0)) i++;
  return i == n;
}

static bool sum_is_right(const uint8_t *h) {
  uint64_t want;
  uint32_t sum = 0;
  int32_t old = 0; /* some writers add signed bytes */
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t c = i >= 148 && i < 156 ? ' ' : h[i];
    sum += c;
    old += (int8_t)c;
  }
  return number(h + 148, 8, &want) && (want == sum || (int64_t)want == old);
}

static bool is_zero(const uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (p[i] != 0) return false;
  return true;
}

/* After a block of zeros: only zeros may follow. */
static ac_status end(aci_tar *t, ac_err *e) {
  uint8_t p[BLOCK];
  for (size_t got = 1; got > 0;) {
    AC_TRY(aci_content_read(t->content, p, sizeof p, &got, e));
    if (!is_zero(p, got))
      return fault(t, e, "data follows the end of the archive; members after it would be lost");
  }
  t->ended = true;
  return AC_OK;
}

static ac_status set(aci_strbuf *b, const char *s, size_t n, ac_err *e) {
  b->len = 0;
  aci_strbuf_add(b, s, n);
  return b->failed ? AC_FAIL(e, OOM, "no memory for the name of a member") : AC_OK;
}

/* The content of a header of names: `size` bytes and their padding. */
static ac_status read_text(aci_tar *t, uint64_t size, aci_strbuf *out, ac_err *e) {
  if (size > MOST_HEADER) return fault(t, e, "a header of more than 1 MiB");
  out->len = 0;
  if (!aci_strbuf_reserve(out, (size_t)size + BLOCK)) return AC_FAIL(e, OOM, "no memory");
  AC_TRY(read_all(t, out->s, (size_t)((size + BLOCK - 1) / BLOCK * BLOCK), e));
  out->len = (size_t)size;
  out->s[size] = 0;
  return AC_OK;
}

static bool is_key(const char *key, size_t n, const char *want) {
  return strlen(want) == n && memcmp(key, want, n) == 0;
}

/* "27 path=name of the file\n": the length counts the whole record. */
static ac_status read_pax(aci_tar *t, const aci_strbuf *text, extra *x, ac_err *e) {
  const char *p = text->s, *stop = text->s + text->len;
  while (p < stop) {
    size_t len = 0;
    const char *q = p;
    for (; q < stop && *q >= '0' && *q <= '9' && len < MOST_HEADER; q++)
      len = len * 10 + (size_t)(*q - '0');
    if (q == p || q == stop || *q != ' ' || len > (size_t)(stop - p) || len < (size_t)(q - p) + 3 ||
        p[len - 1] != '\n')
      return fault(t, e, "a pax header has a record of a wrong length");
    const char *key = q + 1, *last = p + len - 1, *eq = memchr(key, '=', (size_t)(last - key));
    if (eq == NULL) return fault(t, e, "a pax header has a record without a value");
    const size_t n_key = (size_t)(eq - key), n = (size_t)(last - eq - 1);
    if (n_key > 10 && memcmp(key, "GNU.sparse", 10) == 0)
      return fault(t, e, "a sparse member, which accel does not read");
    if (x != NULL && is_key(key, n_key, "path")) {
      if (memchr(eq + 1, 0, n) != NULL || n == 0)
        return fault(t, e, "a pax header has an invalid name");
      AC_TRY(set(&x->name, eq + 1, n, e));
      x->has_name = true;
    } else if (x != NULL && is_key(key, n_key, "size")) {
      x->size = 0;
      x->has_size = true;
      for (size_t i = 0; i < n; i++) {
        if (eq[1 + i] < '0' || eq[1 + i] > '9' || x->size > INT64_MAX / 10 - 1)
          return fault(t, e, "a pax header has an invalid size");
        x->size = x->size * 10 + (uint64_t)(eq[1 + i] - '0');
      }
    }
    p += len;
  }
  return AC_OK;
}

static size_t text_length(const uint8_t *p, size_t n) {
  const uint8_t *zero = memchr(p, 0, n);
  return zero != NULL ? (size_t)(zero - p) : n;
}

/* The name in the header: with ustar's prefix in front. */
static ac_status name_of(aci_tar *t, const uint8_t *h, ac_err *e) {
  const bool ustar = memcmp(h + 257, "ustar\0", 6) == 0;
  const size_t n = text_length(h, 100), k = ustar ? text_length(h + 345, 155) : 0;
  t->name.len = 0;
  if (k > 0) {
    aci_strbuf_add(&t->name, (const char *)h + 345, k);
    aci_strbuf_putc(&t->name, '/');
  }
  aci_strbuf_add(&t->name, (const char *)h, n);
  return t->name.failed ? AC_FAIL(e, OOM, "no memory for the name of a member") : AC_OK;
}

static aci_tar_type type_of(uint8_t c, const aci_strbuf *name) {
  switch (c) {
    case '1': return ACI_TAR_LINK;
    case '2': return ACI_TAR_SYMLINK;
    case '3':
    case '4':
    case '6': return ACI_TAR_OTHER;
    case '5': return ACI_TAR_FOLDER;
    case 0: return name->len > 0 && name->s[name->len - 1] == '/' ? ACI_TAR_FOLDER : ACI_TAR_FILE;
    default: return ACI_TAR_FILE; /* POSIX: an unknown type is a file */
  }
}

static ac_status member(aci_tar *t, const uint8_t *h, uint64_t size, const extra *x, ac_err *e) {
  if (x->has_name) AC_TRY(set(&t->name, x->name.s, x->name.len, e));
  else AC_TRY(name_of(t, h, e));
  if (t->name.len == 0) return fault(t, e, "a member without a name");
  t->type = type_of(h[156], &t->name);
  if (x->has_size) size = x->size;
  if (t->type != ACI_TAR_FILE) size = 0; /* links and folders have no content */
  t->size = t->left = size;
  t->padding = (BLOCK - size % BLOCK) % BLOCK;
  t->at = aci_content_at(t->content);
  if (aci_content_codec(t->content) == NULL && size > aci_content_size(t->content) - t->at)
    return fault(t, e, "a member is larger than the rest of the archive; copy the file again");
  return AC_OK;
}

/* Headers up to the one of a member. */
static ac_status headers(aci_tar *t, extra *x, aci_strbuf *text, ac_err *e) {
  uint8_t h[BLOCK];
  uint64_t size;
  for (int n = 0;; n++) {
    size_t got;
    AC_TRY(aci_content_read(t->content, h, BLOCK, &got, e));
    if (got == 0)
      return fault(t, e,
                   t->begun ? "the end of the archive is missing; it is cut off, copy it again"
                            : "an empty file, not an archive");
    if (got < BLOCK) return fault(t, e, "the archive is cut off; copy the file again");
    t->begun = true;
    if (is_zero(h, BLOCK))
      return n == 0 ? end(t, e) : fault(t, e, "a header of names is followed by no member");
    if (!sum_is_right(h))
      return fault(t, e, "the checksum of a header is wrong: it is damaged, or no tar archive");
    if (!number(h + 124, 12, &size) || size > INT64_MAX / 2)
      return fault(t, e, "a header has an invalid size");
    if (n == MOST_HEADERS) return fault(t, e, "too many headers of names before a member");
    switch (h[156]) {
      case 'L':
        AC_TRY(read_text(t, size, text, e));
        AC_TRY(set(&x->name, text->s, strlen(text->s), e));
        x->has_name = true;
        break;
      case 'x':
        AC_TRY(read_text(t, size, text, e));
        AC_TRY(read_pax(t, text, x, e));
        break;
      case 'g':
        AC_TRY(read_text(t, size, text, e));
        AC_TRY(read_pax(t, text, NULL, e));
        n--; /* belongs to no member */
        break;
      case 'K': AC_TRY(read_text(t, size, text, e)); break;
      case 'S':
      case 'M':
      case 'D': return fault(t, e, "a sparse or split member, which accel does not read");
      default: return member(t, h, size, x, e);
    }
  }
}

ac_status aci_tar_next(aci_tar *t, ac_err *e) {
  extra x = {0};
  aci_strbuf text = {0};
  if (t->ended) return AC_OK;
  AC_TRY(skip_all(t, t->left + t->padding, e));
  t->left = t->padding = 0;
  const ac_status st = headers(t, &x, &text, e);
  aci_strbuf_fini(&x.name);
  aci_strbuf_fini(&text);
  return st;
}

ac_status aci_tar_read(aci_tar *t, void *p, size_t n, size_t *got, ac_err *e) {
  if (n > t->left) n = (size_t)t->left;
  *got = 0;
  AC_TRY(read_all(t, p, n, e));
  t->left -= n;
  *got = n;
  return AC_OK;
}
