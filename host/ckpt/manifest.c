/* Manifests: MANIFEST.json of a checkpoint, part-<r>.json with the files of one part. JSON that
 * ends with the CRC-32C of all text before the checksum's digits, so that any changed byte is
 * detected. Called by commit.c, open.c and scan.c. The text may be hostile.
 *
 *   {"format": "accel.checkpoint", "version": "1.1", "accel": "0.1.0", "id": "...", "created":
 *   "...",
 *    "run": "...", "sequence": 1780000000000000, "continues": [], "parts": 1, "files": [{"name":
 *    "model.safetensors", "bytes": 1234, "crc32c": "0123abcd"}], "state": {...}, "crc32c":
 *    "89ab4567"}
 *
 * Run, sequence and continues came with 1.1 (accel/ckpt.h defines age).
 *
 * Rules: a later major version is refused by its number, members of a later minor one are skipped.
 * Names are relative and unique. A manifest's own length bounds the memory it can ask for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/crc32c.h"
#include "ckpt/ckpt_impl.h"
#include "file/io.h"

enum { MAJOR = 1, MINOR = 1, N_TAIL = 12 }; /* 8 digits and the end of the text */
static const char tail[] = "\"\n}\n", crc_key[] = "\"crc32c\": \"";
static const char whole[] = "accel.checkpoint", of_part[] = "accel.checkpoint.part";

void aci_manifest_fini(aci_manifest *m) {
  for (int i = 0; i < m->n; i++) free((char *)(uintptr_t)m->file[i].name);
  free(m->file);
  free(m->text);
  aci_json_free(m->doc);
  *m = (aci_manifest){.part = -1};
}

ac_status aci_manifest_add(aci_manifest *m, const char *name, uint64_t bytes, uint32_t crc,
                           ac_err *e) {
  if (m->n == m->cap) {
    const int cap = m->cap > 0 ? 2 * m->cap : 16;
    ac_ckpt_file *v = realloc(m->file, (size_t)cap * sizeof *v);
    if (v == NULL) return AC_FAIL(e, OOM, "no memory for a manifest");
    m->file = v;
    m->cap = cap;
  }
  char *copy = strdup(name);
  if (copy == NULL) return AC_FAIL(e, OOM, "no memory for a manifest");
  m->file[m->n++] = (ac_ckpt_file){copy, bytes, crc};
  m->bytes += bytes;
  return AC_OK;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const ac_ckpt_file *)a)->name, ((const ac_ckpt_file *)b)->name);
}

ac_status aci_manifest_sort(aci_manifest *m, const char *path, ac_err *e) {
  char shown[ACI_PATH_SHOWN], name[ACI_ST_SHOWN];
  if (m->n > 0) qsort(m->file, (size_t)m->n, sizeof *m->file, by_name);
  for (int i = 1; i < m->n; i++)
    if (strcmp(m->file[i - 1].name, m->file[i].name) == 0)
      return AC_FAIL(e, INVALID, "%s: two files are named '%s'", aci_path_shown(path, shown),
                     aci_st_shown(m->file[i].name, strlen(m->file[i].name), name));
  return AC_OK;
}

/* ---- names ---- */

const char *aci_ckpt_name_fault(const char *s, size_t n) {
  if (n == 0) return "it is empty";
  if (n > ACI_CKPT_MAX_NAME) return "it has more than 1024 bytes";
  if (s[0] == '/') return "it is not relative";
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f || s[i] == '\\')
      return "it holds a control character or a backslash";
  bool top = true;
  for (size_t i = 0, from = 0; i <= n; i++) {
    if (i < n && s[i] != '/') continue;
    const size_t k = i - from;
    const char *c = s + from;
    if (k == 0) return "a component of it is empty";
    if (k > 255) return "a component of it has more than 255 bytes";
    if ((k == 1 && c[0] == '.') || (k == 2 && c[0] == '.' && c[1] == '.'))
      return "it has a component '.' or '..'";
    if (top && i == n &&
        ((k == 13 && memcmp(c, ACI_CKPT_MANIFEST, 13) == 0) ||
         (k > 5 && memcmp(c, "part-", 5) == 0) || (k > 6 && memcmp(c, "owner-", 6) == 0)))
      return "checkpoints use it themselves";
    top = false;
    from = i + 1;
  }
  return NULL;
}

/* ---- writing ---- */

static void str(aci_json_writer *w, const char *key, const char *s) {
  aci_json_key(w, key, strlen(key));
  aci_json_string(w, s, strlen(s));
}
static void num(aci_json_writer *w, const char *key, uint64_t v) {
  aci_json_key(w, key, strlen(key));
  aci_json_int(w, (int64_t)v);
}
static void hex8(char out[9], uint32_t v) { snprintf(out, 9, "%08x", (unsigned)v); }

ac_status aci_manifest_text(const aci_manifest *m, const aci_json *state, aci_strbuf *out,
                            ac_err *e) {
  aci_json_writer w = {.out = out, .pretty = true};
  char text[40];
  time_t now = time(NULL);
  struct tm t;
  aci_json_begin(&w, true);
  str(&w, "format", m->part < 0 ? whole : of_part);
  snprintf(text, sizeof text, "%d.%d", (int)MAJOR, (int)MINOR);
  str(&w, "version", text);
  str(&w, "accel", ACCEL_VERSION);
  str(&w, "id", m->id);
  if (gmtime_r(&now, &t) != NULL && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t) > 0)
    str(&w, "created", text);
  if (m->part < 0) {
    str(&w, "run", m->run);
    num(&w, "sequence", (uint64_t)m->sequence);
    aci_json_key(&w, "continues", 9);
    if (m->continues != NULL) {
      aci_json_value(&w, m->continues);
    } else {
      aci_json_begin(&w, false);
      aci_json_end(&w);
    }
  }
  if (m->part >= 0) num(&w, "part", (uint64_t)m->part);
  num(&w, "parts", (uint64_t)m->parts);
  aci_json_key(&w, "files", 5);
  aci_json_begin(&w, false);
  for (int i = 0; i < m->n; i++) {
    aci_json_begin(&w, true);
    str(&w, "name", m->file[i].name);
    num(&w, "bytes", m->file[i].bytes);
    hex8(text, m->file[i].crc32c);
    str(&w, "crc32c", text);
    aci_json_end(&w);
  }
  aci_json_end(&w);
  if (m->part < 0) {
    aci_json_key(&w, "state", 5);
    if (state != NULL) {
      aci_json_value(&w, state);
    } else {
      aci_json_begin(&w, true);
      aci_json_end(&w);
    }
  }
  aci_json_end(&w);
  AC_TRY(aci_json_finish(&w, e));
  if (out->failed || out->len < 2) return AC_FAIL(e, OOM, "no memory for a manifest");
  out->len -= 2; /* "\n}" */
  aci_strbuf_printf(out, ",\n  %s", crc_key);
  if (out->failed) return AC_FAIL(e, OOM, "no memory for a manifest");
  hex8(text, aci_crc32c(0, out->s, out->len));
  aci_strbuf_puts(out, text);
  aci_strbuf_puts(out, tail);
  return out->failed ? AC_FAIL(e, OOM, "no memory for a manifest") : AC_OK;
}

/* ---- reading ---- */

static ac_status damaged(ac_err *e, const char *path, const char *what) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, PARSE, "%s: damaged: %s", aci_path_shown(path, shown), what);
}

/* 8 lower-case hex digits. */
static bool read_hex(const char *s, uint32_t *out) {
  uint32_t v = 0;
  for (int i = 0; i < 8; i++) {
    const char c = s[i];
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  *out = v;
  return true;
}

/* Whether the text ends with the checksum of the text before it. */
static bool sum_holds(const char *text, size_t n) {
  const size_t k = sizeof crc_key - 1;
  uint32_t crc;
  if (n < N_TAIL + k || memcmp(text + n - 4, tail, 4) != 0 ||
      memcmp(text + n - N_TAIL - k, crc_key, k) != 0)
    return false;
  return read_hex(text + n - N_TAIL, &crc) && crc == aci_crc32c(0, text, n - N_TAIL);
}

static const char *string_of(const aci_json_doc *d, const aci_json *o, const char *key) {
  const aci_json *v = aci_json_get(d, o, key);
  return v != NULL && v->type == ACI_JSON_STRING && strlen(v->u.s) == v->len ? v->u.s : NULL;
}
/* -1: none, or not in 0 .. most */
static int64_t int_of(const aci_json_doc *d, const aci_json *o, const char *key, int64_t most) {
  const aci_json *v = aci_json_get(d, o, key);
  return v != NULL && v->type == ACI_JSON_INT && v->u.i >= 0 && v->u.i <= most ? v->u.i : -1;
}

static ac_status check_version(const char *path, const char *version, int *minor, ac_err *e) {
  char shown[ACI_PATH_SHOWN], name[ACI_ST_SHOWN];
  int major = -1, used = 0;
  *minor = -1;
  if (version == NULL || sscanf(version, "%4d.%4d%n", &major, minor, &used) != 2 ||
      version[used] != 0 || major < 0 || *minor < 0)
    return damaged(e, path, "it has no version");
  if (major == MAJOR) return AC_OK;
  return AC_FAIL(
      e, UNSUPPORTED,
      "%s: a checkpoint of format version %s; this is accel %s, which reads version %d.x: use %s release",
      aci_path_shown(path, shown), aci_st_shown(version, strlen(version), name), ACCEL_VERSION,
      (int)MAJOR, major > MAJOR ? "a later" : "an earlier");
}

static ac_status read_file(aci_manifest *m, const char *path, const aci_json *v, ac_err *e) {
  char shown[ACI_PATH_SHOWN], name[ACI_ST_SHOWN];
  const aci_json *f = aci_json_get(m->doc, v, "name");
  const int64_t bytes = int_of(m->doc, v, "bytes", (int64_t)1 << 60);
  const char *sum = string_of(m->doc, v, "crc32c");
  uint32_t crc;
  if (v->type != ACI_JSON_OBJECT || v->len != 3 || f == NULL || f->type != ACI_JSON_STRING)
    return damaged(e, path, "an entry of 'files' is not {name, bytes, crc32c}");
  const char *fault = aci_ckpt_name_fault(f->u.s, f->len);
  if (fault != NULL)
    return AC_FAIL(e, PARSE, "%s: damaged: '%s' cannot be a file's name: %s",
                   aci_path_shown(path, shown), aci_st_shown(f->u.s, f->len, name), fault);
  if (bytes < 0 || sum == NULL || strlen(sum) != 8 || !read_hex(sum, &crc))
    return AC_FAIL(e, PARSE, "%s: damaged: file '%s' has no valid size or checksum",
                   aci_path_shown(path, shown), aci_st_shown(f->u.s, f->len, name));
  if (m->bytes + (uint64_t)bytes > (uint64_t)1 << 62)
    return damaged(e, path, "sizes that add up to more than any disk has");
  return aci_manifest_add(m, f->u.s, (uint64_t)bytes, crc, e);
}

/* The second that "created" names, in microseconds. 0: it names none. */
static int64_t time_of(const char *created) {
  struct tm t = {0};
  int used = 0;
  if (created == NULL ||
      sscanf(created, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
             &t.tm_min, &t.tm_sec, &used) != 6 ||
      used == 0)
    return 0;
  t.tm_year -= 1900;
  t.tm_mon--;
  const time_t seconds = timegm(&t);
  return seconds > 0 ? (int64_t)seconds * 1000000 : 0;
}

const char *aci_ckpt_run_fault(const char *s, size_t n) {
  if (n >= ACI_CKPT_RUN) return "it has more than 64 bytes";
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) return "it holds a control character";
  return NULL;
}

/* The run that wrote it, and the time: they determine its age. */
static ac_status read_age(aci_manifest *m, const char *path, const aci_json *root, ac_err *e) {
  const aci_json *run = aci_json_get(m->doc, root, "run"),
                 *list = aci_json_get(m->doc, root, "continues");
  const bool has = aci_json_get(m->doc, root, "sequence") != NULL;
  if (run != NULL) {
    if (run->type != ACI_JSON_STRING || strlen(run->u.s) != run->len ||
        aci_ckpt_run_fault(run->u.s, run->len) != NULL)
      return damaged(e, path, "it names no run");
    memcpy(m->run, run->u.s, run->len + 1);
  }
  m->sequence = has ? int_of(m->doc, root, "sequence", ACI_CKPT_MAX_SEQUENCE)
                    : time_of(string_of(m->doc, root, "created"));
  if (m->sequence < 0) return damaged(e, path, "its sequence is not an integer above 0");
  if (list == NULL) return AC_OK;
  if (list->type != ACI_JSON_ARRAY) return damaged(e, path, "'continues' is not a list");
  for (const aci_json *v = aci_json_first(list), *end = aci_json_after(list); v != end;
       v = aci_json_after(v))
    if (v->type != ACI_JSON_STRING || aci_ckpt_run_fault(v->u.s, v->len) != NULL)
      return damaged(e, path, "'continues' holds something other than names");
  m->continues = list;
  return AC_OK;
}

static ac_status read_members(aci_manifest *m, const char *path, int part, ac_err *e) {
  static const char *const known[] = {"format", "version",  "accel",    "id",    "created",
                                      "part",   "parts",    "files",    "state", "crc32c",
                                      "run",    "sequence", "continues"};
  const aci_json *root = aci_json_root(m->doc), *files;
  const char *format = string_of(m->doc, root, "format"), *id = string_of(m->doc, root, "id");
  int minor;
  if (root->type != ACI_JSON_OBJECT || format == NULL ||
      strcmp(format, part < 0 ? whole : of_part) != 0)
    return damaged(e, path, "it is not the manifest of a checkpoint (member 'format')");
  AC_TRY(check_version(path, string_of(m->doc, root, "version"), &minor, e));
  if (!sum_holds(m->text, m->text_bytes))
    return damaged(e, path, "its text does not match its checksum");
  for (const aci_json *k = aci_json_first(root), *end = aci_json_after(root);
       k != end && minor <= MINOR;) {
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      found = found || strcmp(k->u.s, known[i]) == 0;
    if (!found) return damaged(e, path, "it has a member that the format does not know");
    k = aci_json_after(k + 1);
  }
  if (id == NULL || strlen(id) != ACI_CKPT_ID - 1) return damaged(e, path, "it has no id");
  memcpy(m->id, id, ACI_CKPT_ID);
  const int64_t parts = int_of(m->doc, root, "parts", ACI_CKPT_MAX_PARTS);
  if (parts < 1) return damaged(e, path, "its number of parts is none");
  m->parts = (int)parts;
  if (part >= 0 && int_of(m->doc, root, "part", ACI_CKPT_MAX_PARTS) != part)
    return damaged(e, path, "it is another part's");
  m->part = part;
  if ((files = aci_json_get(m->doc, root, "files")) == NULL || files->type != ACI_JSON_ARRAY)
    return damaged(e, path, "it has no list of files");
  for (const aci_json *v = aci_json_first(files), *end = aci_json_after(files); v != end;
       v = aci_json_after(v))
    AC_TRY(read_file(m, path, v, e));
  if (aci_manifest_sort(m, path, e) != AC_OK)
    return damaged(e, path, "two of its files have one name");
  AC_TRY(read_age(m, path, root, e));
  m->state = aci_json_get(m->doc, root, "state");
  if (part < 0 && (m->state == NULL || m->state->type != ACI_JSON_OBJECT))
    return damaged(e, path, "it has no state");
  return AC_OK;
}

ac_status aci_manifest_parse_take(aci_manifest *m, const char *path, char *text, size_t n, int part,
                                  ac_err *e) {
  const aci_json_opts opts = ACI_JSON_CONFIG;
  ac_err inner;
  char shown[ACI_PATH_SHOWN];
  m->text = text;
  m->text_bytes = n;
  const ac_status st = aci_json_parse(text, n, &opts, &m->doc, &inner);
  if (st == AC_PARSE)
    return AC_FAIL(e, PARSE, "%s: damaged: %s", aci_path_shown(path, shown), inner.msg);
  if (st != AC_OK) return AC_FAIL(e, OOM, "%s: %s", aci_path_shown(path, shown), inner.msg);
  return read_members(m, path, part, e);
}

ac_status aci_manifest_read(aci_manifest *m, const char *path, int part, ac_err *e) {
  char *text;
  size_t n;
  AC_TRY(aci_read_whole(path, ACI_CKPT_MAX_MANIFEST, &text, &n, e));
  return aci_manifest_parse_take(m, path, text, n, part, e);
}
