/* Writer of safetensors: descending alignment, then name. The header is padded. The metadata has a
 * CRC-32C per tensor, computed while the bytes are written. Called by the bindings (one file,
 * replaced atomically) and by host/ckpt (many files in a new folder). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/json.h"
#include "file/disk.h"
#include "file/io.h"
#include "file/safetensors.h"
#include "file/set.h"
#include "tensor/host_read.h"

/* Every dtype of the format. -1: no tensors of it here. */
static const aci_st_dtype dtypes[] = {{"BOOL", 8, AC_BOOL},       {"F4", 4, -1},
                                      {"F6_E2M3", 6, -1},         {"F6_E3M2", 6, -1},
                                      {"U8", 8, AC_U8},           {"I8", 8, AC_I8},
                                      {"F8_E5M2", 8, AC_F8_E5M2}, {"F8_E4M3", 8, AC_F8_E4M3},
                                      {"F8_E8M0", 8, -1},         {"F8_E4M3FNUZ", 8, -1},
                                      {"F8_E5M2FNUZ", 8, -1},     {"I16", 16, AC_I16},
                                      {"U16", 16, AC_U16},        {"F16", 16, AC_F16},
                                      {"BF16", 16, AC_BF16},      {"I32", 32, AC_I32},
                                      {"U32", 32, AC_U32},        {"F32", 32, AC_F32},
                                      {"C64", 64, AC_C64},        {"F64", 64, AC_F64},
                                      {"I64", 64, AC_I64},        {"U64", 64, -1}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

const aci_st_dtype *aci_st_dtype_find(const char *name, size_t n) {
  for (int i = 0; i < N_DTYPES; i++)
    if (strlen(dtypes[i].name) == n && memcmp(dtypes[i].name, name, n) == 0) return &dtypes[i];
  return NULL;
}
const aci_st_dtype *aci_st_dtype_of(ac_dtype d) {
  for (int i = 0; i < N_DTYPES; i++)
    if (dtypes[i].dtype == (int)d) return &dtypes[i];
  return NULL;
}

static int by_alignment_then_name(const void *a, const void *b) {
  const aci_st_item *x = a, *y = b;
  size_t sx = aci_dsize((ac_dtype)x->tensor->dtype), sy = aci_dsize((ac_dtype)y->tensor->dtype);
  return sx != sy ? (sx > sy ? -1 : 1) : strcmp(x->name, y->name);
}

static ac_status check(const char *path, const aci_st_item *v, int n, ac_err *e) {
  for (int i = 0; i < n; i++) {
    char name[ACI_ST_SHOWN], shown[ACI_PATH_SHOWN], is[128];
    aci_st_shown(v[i].name, strlen(v[i].name), name);
    path = aci_path_shown(path, shown);
    if (!aci_is_contiguous(v[i].tensor) ||
        (v[i].tensor->numel > 0 && v[i].data == NULL && v[i].tensor->storage->provider == NULL))
      return AC_FAIL(
          e, INVALID,
          "%s: tensor '%s' is %s; only contiguous tensors that the host can read are written", path,
          name, aci_tensor_str(v[i].tensor, is, sizeof is));
    if (aci_st_dtype_of((ac_dtype)v[i].tensor->dtype) == NULL)
      return AC_FAIL(
          e, UNSUPPORTED,
          "%s: tensor '%s' is %s, which safetensors does not have; save view_as_real of it, or as .pt",
          path, name, ac_dtype_name((ac_dtype)v[i].tensor->dtype));
    if (strlen(v[i].name) > ACI_ST_MAX_NAME || strcmp(v[i].name, "__metadata__") == 0)
      return AC_FAIL(e, INVALID, "%s: '%s' cannot be a tensor's name: %s", path, name,
                     v[i].name[0] == '_' ? "the format uses it" : "longer than 1024 bytes");
  }
  return AC_OK;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ac_status check_unique(const char *path, const char *what, int n, const char *const *names,
                              ac_err *e) {
  char shown[ACI_PATH_SHOWN], name[ACI_ST_SHOWN];
  ac_status st = AC_OK;
  if (n < 2) return AC_OK;
  const char **s = malloc((size_t)n * sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "%s: no memory", aci_path_shown(path, shown));
  memcpy(s, names, (size_t)n * sizeof *s);
  qsort(s, (size_t)n, sizeof *s, by_name);
  for (int i = 1; i < n && st == AC_OK; i++)
    if (strcmp(s[i - 1], s[i]) == 0)
      st = AC_FAIL(e, INVALID, "%s: %s are named '%s'", aci_path_shown(path, shown), what,
                   aci_st_shown(s[i], strlen(s[i]), name));
  free(s);
  return st;
}

static void str(aci_json_writer *w, const char *s) { aci_json_string(w, s, strlen(s)); }
static void key(aci_json_writer *w, const char *s) { aci_json_key(w, s, strlen(s)); }

/* The head, padded with blanks. The checksums are one string of the metadata, a line of zeros per
 * tensor until they are known. */
static ac_status make_head(aci_st_plan *p, int n_meta, const char *const *keys,
                           const char *const *values, size_t align, ac_err *e) {
  aci_strbuf *out = &p->head;
  aci_json_writer w = {.out = out};
  aci_strbuf crc = {0};
  aci_strbuf_add(out, "\0\0\0\0\0\0\0", 8);
  aci_json_begin(&w, true);
  if (p->n > 0 || n_meta > 0) {
    key(&w, "__metadata__");
    aci_json_begin(&w, true);
  }
  for (int i = 0; i < n_meta; i++) {
    key(&w, keys[i]);
    str(&w, values[i]);
  }
  for (int i = 0; i < p->n; i++) aci_strbuf_puts(&crc, i > 0 ? "\n00000000" : "00000000");
  if (p->n > 0 && !crc.failed) {
    key(&w, ACI_ST_CRC_KEY);
    p->crc_at = out->len + 1;
    aci_json_string(&w, crc.s, crc.len);
  }
  const bool failed = crc.failed;
  aci_strbuf_fini(&crc);
  if (p->n > 0 || n_meta > 0) aci_json_end(&w);
  uint64_t at = 0;
  for (int i = 0; i < p->n; i++) {
    const ac_tensor *t = p->item[i].tensor;
    key(&w, p->item[i].name);
    aci_json_begin(&w, true);
    key(&w, "dtype");
    str(&w, aci_st_dtype_of((ac_dtype)t->dtype)->name);
    key(&w, "shape");
    aci_json_begin(&w, false);
    for (int d = 0; d < t->ndim; d++) aci_json_int(&w, t->shape[d]);
    aci_json_end(&w);
    key(&w, "data_offsets");
    aci_json_begin(&w, false);
    aci_json_int(&w, (int64_t)at);
    aci_json_int(&w, (int64_t)(at + p->item[i].bytes));
    aci_json_end(&w);
    aci_json_end(&w);
    at += p->item[i].bytes;
  }
  aci_json_end(&w);
  AC_TRY(aci_json_finish(&w, e));
  while (out->len % align != 0 && !out->failed) aci_strbuf_putc(out, ' ');
  if (failed || out->failed) return AC_FAIL(e, OOM, "no memory for a safetensors header");
  const uint64_t n = out->len - 8;
  for (int i = 0; i < 8; i++) out->s[i] = (char)(n >> (8 * i));
  return AC_OK;
}

ac_status aci_st_plan_make(aci_st_plan *p, const char *path, int n, const char *const *names,
                           ac_tensor *const *tensors, int n_meta, const char *const *keys,
                           const char *const *values, size_t align, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  AC_TRY(check_unique(path, "two tensors", n, names, e));
  AC_TRY(check_unique(path, "two metadata values", n_meta, keys, e));
  for (int i = 0; i < n_meta; i++)
    if (strcmp(keys[i], ACI_ST_CRC_KEY) == 0)
      return AC_FAIL(e, INVALID, "%s: the metadata key '%s' is reserved",
                     aci_path_shown(path, shown), keys[i]);
  p->item = malloc((size_t)(n > 0 ? n : 1) * sizeof *p->item);
  if (p->item == NULL) return AC_FAIL(e, OOM, "%s: no memory", aci_path_shown(path, shown));
  p->n = n;
  for (int i = 0; i < n; i++) {
    const ac_tensor *t = tensors[i];
    p->item[i] = (aci_st_item){.name = names[i],
                               .tensor = tensors[i],
                               /* fetched when it is written */
                               .data = t->storage->provider == NULL ? ac_tensor_data(t) : NULL,
                               .bytes = (uint64_t)t->numel * aci_dsize((ac_dtype)t->dtype)};
    p->data += p->item[i].bytes;
  }
  AC_TRY(check(path, p->item, n, e));
  qsort(p->item, (size_t)n, sizeof *p->item, by_alignment_then_name);
  AC_TRY(make_head(p, n_meta, keys, values, align, e));
  if (p->head.len - 8 > ACI_ST_MAX_HEADER)
    return AC_FAIL(e, INVALID, "%s: the header would have %zu bytes (limit %llu)",
                   aci_path_shown(path, shown), p->head.len - 8, ACI_ST_MAX_HEADER);
  return AC_OK;
}

/* Puts the checksums into their places in the head: a line is 8 digits, and a line end, escaped, 2
 * characters. */
static void seal(aci_st_plan *p) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < p->n; i++)
    for (int k = 0; k < 8; k++)
      p->head.s[p->crc_at + (size_t)i * 10 + (size_t)k] =
          digits[p->item[i].crc >> (28 - 4 * k) & 15];
}

static ac_status put(aci_st_item *x, aci_disk *d, ac_err *e) {
  if (x->data != NULL || x->bytes == 0)
    return aci_disk_put(d, x->data, (size_t)x->bytes, &x->crc, e);
  aci_host_read r;
  AC_TRY(aci_host_read_open(x->tensor, false, &r, e));
  const size_t skip = (size_t)x->tensor->offset * aci_dsize((ac_dtype)x->tensor->dtype);
  const ac_status st = aci_disk_put(d, r.base + skip, (size_t)x->bytes, &x->crc, e);
  aci_host_read_close(&r);
  return st;
}

ac_status aci_st_plan_write(aci_st_plan *p, aci_disk *d, int fd, const char *path, uint32_t *crc,
                            ac_err *e) {
  AC_TRY(aci_disk_begin(d, fd, path, p->head.len, aci_st_plan_bytes(p), e));
  for (int i = 0; i < p->n; i++) {
    p->item[i].crc = 0;
    AC_TRY(put(&p->item[i], d, e));
  }
  seal(p);
  AC_TRY(aci_disk_end(d, p->head.s, e));
  if (crc == NULL) return AC_OK;
  *crc = aci_crc32c(0, p->head.s, p->head.len);
  for (int i = 0; i < p->n; i++) *crc = aci_crc32c_combine(*crc, p->item[i].crc, p->item[i].bytes);
  return AC_OK;
}

void aci_st_plan_fini(aci_st_plan *p) {
  aci_strbuf_fini(&p->head);
  free(p->item);
  *p = (aci_st_plan){0};
}

ac_status aci_st_write(struct aci_set *set, const char *path, int n, const char *const *names,
                       ac_tensor *const *tensors, int n_meta, const char *const *keys,
                       const char *const *values, ac_err *e) {
  ac_status st;
  aci_st_plan p = {0};
  aci_atomic_file f = {.fd = -1};
  aci_disk d = {0};
  aci_disk_params(&d);
  AC_GOTO(done, st, aci_st_plan_make(&p, path, n, names, tensors, n_meta, keys, values, 8, e));
  const uint64_t bytes = aci_st_plan_bytes(&p);
  AC_GOTO(done, st,
          set != NULL ? aci_set_add(set, path, bytes, &f, e) : aci_atomic_open(&f, path, bytes, e));
  AC_GOTO(done, st, aci_st_plan_write(&p, &d, f.fd, f.path, NULL, e));
  st = aci_atomic_commit(&f, e);
done:
  aci_disk_fini(&d);
  aci_atomic_abort(&f);
  aci_st_plan_fini(&p);
  return st;
}

ac_status ac_safetensors_write(const char *path, int n, const char *const *names,
                               ac_tensor *const *tensors, int n_meta, const char *const *keys,
                               const char *const *values, ac_err *e) {
  return aci_st_write(NULL, path, n, names, tensors, n_meta, keys, values, e);
}
