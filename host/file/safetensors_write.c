/* Writer of safetensors: descending alignment, then name; header padded to 8 bytes; a CRC-32C per tensor
 * in the metadata; atomic. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/json.h"
#include "file/io.h"
#include "file/safetensors.h"
#include "tensor/tensor_impl.h"

/* Every dtype of the format; -1: no tensors of it here. */
static const aci_st_dtype dtypes[] = {{"BOOL", 8, AC_BOOL},
                                      {"F4", 4, -1},
                                      {"F6_E2M3", 6, -1},
                                      {"F6_E3M2", 6, -1},
                                      {"U8", 8, AC_U8},
                                      {"I8", 8, AC_I8},
                                      {"F8_E5M2", 8, AC_F8_E5M2},
                                      {"F8_E4M3", 8, AC_F8_E4M3},
                                      {"F8_E8M0", 8, -1},
                                      {"F8_E4M3FNUZ", 8, -1},
                                      {"F8_E5M2FNUZ", 8, -1},
                                      {"I16", 16, AC_I16},
                                      {"U16", 16, AC_U16},
                                      {"F16", 16, AC_F16},
                                      {"BF16", 16, AC_BF16},
                                      {"I32", 32, AC_I32},
                                      {"U32", 32, AC_U32},
                                      {"F32", 32, AC_F32},
                                      {"C64", 64, -1},
                                      {"F64", 64, AC_F64},
                                      {"I64", 64, AC_I64},
                                      {"U64", 64, -1}};
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

typedef struct item {
  const char *name;
  ac_tensor *t;
  size_t bytes;
} item;

static int by_alignment_then_name(const void *a, const void *b) {
  const item *x = a, *y = b;
  size_t sx = aci_dsize((ac_dtype)x->t->dtype), sy = aci_dsize((ac_dtype)y->t->dtype);
  return sx != sy ? (sx > sy ? -1 : 1) : strcmp(x->name, y->name);
}

static ac_status check(const char *path, const item *v, int n, ac_err *e) {
  for (int i = 0; i < n; i++) {
    char name[ACI_ST_SHOWN], shown[ACI_PATH_SHOWN], is[128];
    aci_st_shown(v[i].name, strlen(v[i].name), name);
    path = aci_path_shown(path, shown);
    if (!aci_is_contiguous(v[i].t) || (v[i].t->numel > 0 && ac_tensor_data(v[i].t) == NULL))
      return AC_FAIL(e, INVALID,
                     "%s: tensor '%s' is %s; only contiguous tensors that the host can read are written",
                     path, name, aci_tensor_str(v[i].t, is, sizeof is));
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

/* The header of tensors v, which are in the order of their bytes in the file, padded with blanks to 8 bytes. The checksums are one
 * string of the metadata, a line per tensor. */
static ac_status header(const item *v, int n, int n_meta, const char *const *keys, const char *const *values,
                        aci_strbuf *out, ac_err *e) {
  aci_json_writer w = {.out = out};
  aci_strbuf crc = {0};
  aci_json_begin(&w, true);
  if (n > 0 || n_meta > 0) {
    key(&w, "__metadata__");
    aci_json_begin(&w, true);
  }
  for (int i = 0; i < n_meta; i++) {
    key(&w, keys[i]);
    str(&w, values[i]);
  }
  for (int i = 0; i < n; i++)
    aci_strbuf_printf(&crc, "%s%08x", i ? "\n" : "",
                      v[i].bytes ? aci_crc32c(0, ac_tensor_data(v[i].t), v[i].bytes) : 0);
  if (n > 0 && !crc.failed) {
    key(&w, ACI_ST_CRC_KEY);
    aci_json_string(&w, crc.s, crc.len);
  }
  bool failed = crc.failed;
  aci_strbuf_fini(&crc);
  if (n > 0 || n_meta > 0) aci_json_end(&w);
  uint64_t at = 0;
  for (int i = 0; i < n; i++) {
    key(&w, v[i].name);
    aci_json_begin(&w, true);
    key(&w, "dtype");
    str(&w, aci_st_dtype_of((ac_dtype)v[i].t->dtype)->name);
    key(&w, "shape");
    aci_json_begin(&w, false);
    for (int d = 0; d < v[i].t->ndim; d++) aci_json_int(&w, v[i].t->shape[d]);
    aci_json_end(&w);
    key(&w, "data_offsets");
    aci_json_begin(&w, false);
    aci_json_int(&w, (int64_t)at);
    aci_json_int(&w, (int64_t)(at + v[i].bytes));
    aci_json_end(&w);
    aci_json_end(&w);
    at += v[i].bytes;
  }
  aci_json_end(&w);
  AC_TRY(aci_json_finish(&w, e));
  while (out->len % 8 != 0) aci_strbuf_putc(out, ' ');
  return failed || out->failed ? AC_FAIL(e, OOM, "no memory for a safetensors header") : AC_OK;
}

ac_status ac_safetensors_write(const char *path, int n, const char *const *names, ac_tensor *const *tensors,
                               int n_meta, const char *const *keys, const char *const *values, ac_err *e) {
  ac_status st;
  aci_strbuf head = {0};
  aci_atomic_file f = {.fd = -1};
  uint64_t data = 0;
  AC_TRY(check_unique(path, "two tensors", n, names, e));
  AC_TRY(check_unique(path, "two metadata values", n_meta, keys, e));
  for (int i = 0; i < n_meta; i++)
    if (strcmp(keys[i], ACI_ST_CRC_KEY) == 0)
      return AC_FAIL(e, INVALID, "%s: the metadata key '%s' is the writer's own", path, keys[i]);
  item *v = malloc((size_t)(n > 0 ? n : 1) * sizeof *v);
  if (v == NULL) return AC_FAIL(e, OOM, "%s: no memory", path);
  for (int i = 0; i < n; i++)
    v[i] = (item){names[i], tensors[i], (size_t)tensors[i]->numel * aci_dsize((ac_dtype)tensors[i]->dtype)};
  for (int i = 0; i < n; i++) data += v[i].bytes;
  AC_GOTO(done, st, check(path, v, n, e));
  qsort(v, (size_t)n, sizeof *v, by_alignment_then_name);
  AC_GOTO(done, st, header(v, n, n_meta, keys, values, &head, e));
  if (head.len > ACI_ST_MAX_HEADER) {
    st = AC_FAIL(e, INVALID, "%s: the header would have %zu bytes (limit %llu)", path, head.len,
                 ACI_ST_MAX_HEADER);
    goto done;
  }
  AC_GOTO(done, st, aci_atomic_open(&f, path, 8 + head.len + data, e));
  unsigned char len[8];
  for (int i = 0; i < 8; i++) len[i] = (unsigned char)((uint64_t)head.len >> (8 * i));
  AC_GOTO(done, st, aci_atomic_write(&f, len, 8, e));
  AC_GOTO(done, st, aci_atomic_write(&f, head.s, head.len, e));
  for (int i = 0; i < n; i++)
    if (v[i].bytes > 0) AC_GOTO(done, st, aci_atomic_write(&f, ac_tensor_data(v[i].t), v[i].bytes, e));
  st = aci_atomic_commit(&f, e);
done:
  aci_atomic_abort(&f);
  aci_strbuf_fini(&head);
  free(v);
  return st;
}
