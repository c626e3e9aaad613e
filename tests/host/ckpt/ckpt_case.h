/* What the tests of checkpoints share: a small checkpoint whose contents follow from its number, its check, folders of the run. */
#ifndef ACCEL_TESTS_CKPT_CASE_H
#define ACCEL_TESTS_CKPT_CASE_H
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"
#include "file/io.h"
#include "tensor/tensor_impl.h"

/* "<folder of the run>/<name>", empty and new. The caller frees. */
static inline char *case_folder(const char *name) {
  ac_err e;
  char *p = ac_test_tmp_path(name);
  assert_ok(aci_ckpt_remove_tree(p, &e), e);
  assert_int_equal(mkdir(p, 0777), 0);
  return p;
}

static inline void case_path(char *out, size_t n, const char *parent, int step) { snprintf(out, n, "%s/step-%d", parent, step); }

/* Values of a tensor of checkpoint `step`: no two agree. */
static inline void case_fill(float *v, int64_t n, int step, int seed) {
  uint64_t s = (uint64_t)step * 1000003u + (uint64_t)seed + 1;
  for (int64_t i = 0; i < n; i++) v[i] = (float)ac_test_uniform(&s);
}

typedef struct case_size {
  int64_t rows;  /* of two tensors of 16 columns; a part writes its share of the first */
  int part, parts;
} case_size;

static inline ac_tensor *case_tensor(ac_device *d, int64_t rows, int step, int seed) {
  ac_err e;
  ac_tensor *t = NULL;
  assert_ok(ac_tensor_new(d, AC_F32, 2, (int64_t[]){rows, 16}, &t, &e), e);
  case_fill(ac_tensor_data(t), rows * 16, step, seed);
  return t;
}

/* Creates, fills, starts and waits for a checkpoint. Its parts hold equal numbers of rows. */
static inline ac_status case_save(ac_device *d, const char *parent, int step, const case_size *z, const char *folder, ac_ckpt_arena *arena,
                                  void (*created)(void *user, const ac_ckpt_save *s), void *user, ac_err *e) {
  char path[512], file[128], state[64];
  ac_ckpt_options o = AC_CKPT_OPTIONS_INIT;
  ac_ckpt_save *s = NULL;
  case_path(path, sizeof path, parent, step);
  o.part = z->part;
  o.parts = z->parts;
  o.folder = folder;
  ac_status st = ac_ckpt_create(path, &o, &s, e);
  if (st != AC_OK) return st;
  if (created != NULL) created(user, s);
  const int64_t mine = z->rows / z->parts, at = mine * z->part;
  ac_tensor *whole = case_tensor(d, z->rows, step, 0), *small = case_tensor(d, 3, step, 1), *rows = NULL;
  assert_ok(ac_tensor_view(ac_tensor_storage(whole), AC_F32, 2, (int64_t[]){mine, 16}, NULL, at * 16, &rows, e), *e);
  const ac_ckpt_item items[2] = {{.name = "w", .tensor = rows, .shape = (int64_t[]){z->rows, 16}, .offsets = (int64_t[]){at, 0}},
                                 {.name = "small", .tensor = small}};
  snprintf(file, sizeof file, "model/shard-%05d-model-00001-of-00001.safetensors", z->part + 1);
  st = ac_ckpt_add_tensors(s, file, z->part == 0 ? 2 : 1, items, 0, NULL, NULL, e);
  snprintf(file, sizeof file, "random_states_%d.bin", z->part);
  snprintf(state, sizeof state, "{\"step\": %d}", step);
  if (st == AC_OK) st = ac_ckpt_add_bytes(s, file, state, strlen(state), e);
  if (st == AC_OK) st = ac_ckpt_start(s, z->part == 0 ? state : NULL, strlen(state), arena, NULL, e);
  if (st == AC_OK) st = ac_ckpt_wait(s, -1, e);
  ac_ckpt_save_free(s);
  ac_tensor_release(rows);
  ac_tensor_release(whole);
  ac_tensor_release(small);
  return st;
}

/* Opens, verifies and reads all of it. Values that differ from what was saved fail the test: errors may be returned, wrong values
 * never. */
static inline ac_status case_load(ac_device *d, const char *path, int step, int64_t rows, ac_err *e) {
  ac_ckpt *c = NULL;
  uint64_t done = 0;
  char *text = NULL, want[64];
  size_t n;
  ac_tensor *w = NULL, *small = NULL;
  assert_ok(ac_tensor_new(d, AC_F32, 2, (int64_t[]){rows, 16}, &w, e), *e);
  assert_ok(ac_tensor_new(d, AC_F32, 2, (int64_t[]){3, 16}, &small, e), *e);
  ac_status st = ac_ckpt_open(path, &c, e);
  do {
    if (st == AC_OK) st = ac_ckpt_verify(c, NULL, &done, e);
  } while (st == AC_OK && done < ac_ckpt_bytes(c));
  if (st == AC_OK) st = ac_ckpt_read(c, "model", "w", NULL, w, e);
  if (st == AC_OK) st = ac_ckpt_read(c, "model", "small", NULL, small, e);
  if (st == AC_OK) st = ac_ckpt_read_bytes(c, "random_states_0.bin", &text, &n, e);
  if (st == AC_OK) {
    float *v = malloc((size_t)rows * 16 * sizeof *v);
    case_fill(v, rows * 16, step, 0);
    assert_memory_equal(ac_tensor_data(w), v, (size_t)rows * 16 * sizeof *v);
    case_fill(v, 48, step, 1);
    assert_memory_equal(ac_tensor_data(small), v, 48 * sizeof *v);
    snprintf(want, sizeof want, "{\"step\": %d}", step);
    assert_string_equal(text, want);
    free(v);
  }
  free(text);
  ac_ckpt_close(c);
  ac_tensor_release(w);
  ac_tensor_release(small);
  return st;
}

static inline uint64_t case_seed(void) {
  const char *s = getenv("ACCEL_TEST_SEED");
  const uint64_t seed = s != NULL && s[0] != 0 ? strtoull(s, NULL, 10) : (uint64_t)getpid() * 7919u;
  printf("ACCEL_TEST_SEED=%llu\n", (unsigned long long)seed);
  return seed * 2654435761u + 1;
}

#endif
