/* A small checkpoint is damaged at random: a bit turned, a file cut, grown, emptied, removed, exchanged with another of this checkpoint or
 * with the same file of its neighbour. Opening or verifying finds each, names the file, and the tensor where it is one's bytes.
 *
 * tier: sampled, memory (500 cases in a run of every change, 10,000 in all) */
#include "host/ckpt/ckpt_case.h"

static ac_device *cpu;
static int open_device(void **state) {
  ac_err e;
  return ac_device_open(ac_device_cpu_vtable(), 0, 1 << 26, NULL, &cpu, &e) != AC_OK;
}
static int close_device(void **state) {
  ac_device_release(cpu);
  return 0;
}

enum { FILES = 3, ROWS = 40 };
static const char *const files[FILES] = {"model/shard-00001-model-00001-of-00001.safetensors", "random_states_0.bin", "MANIFEST.json"};

typedef struct copy {
  char *bytes;
  size_t n;
} copy;

static ac_status look(const char *path, ac_err *e) {
  ac_ckpt *c = NULL;
  uint64_t done = 0;
  ac_status st = ac_ckpt_open(path, &c, e);
  do {
    if (st == AC_OK) st = ac_ckpt_verify(c, NULL, &done, e);
  } while (st == AC_OK && done < ac_ckpt_bytes(c));
  ac_ckpt_close(c);
  return st;
}

/* As load_state does: all tensors are read whole, and what that did not compare is verified. */
static ac_status read_then_look(const char *path, ac_err *e) {
  ac_ckpt *c = NULL;
  uint64_t done = 0;
  ac_status st = ac_ckpt_open(path, &c, e);
  for (int o = 0; st == AC_OK && o < ac_ckpt_n_objects(c); o++) {
    const char *object = ac_ckpt_object_at(c, o);
    int n = 0;
    st = ac_ckpt_object(c, object, &n, e);
    for (int i = 0; i < n && st == AC_OK; i++) {
      ac_ckpt_tensor t;
      ac_tensor *x = NULL;
      st = ac_ckpt_tensor_at(c, object, i, &t, e);
      if (st == AC_OK && !t.has_dtype) continue;
      if (st == AC_OK) st = ac_tensor_new(cpu, t.dtype, t.ndim, t.shape, &x, e);
      if (st == AC_OK) st = ac_ckpt_read(c, object, t.name, NULL, x, e);
      ac_tensor_release(x);
    }
  }
  do {
    if (st == AC_OK) st = ac_ckpt_verify(c, NULL, &done, e);
  } while (st == AC_OK && done < ac_ckpt_bytes(c));
  ac_ckpt_close(c);
  return st;
}

static void damages(void **state) {
  const case_size z = {ROWS, 0, 1};
  char first[512], second[512], file[700], what[160];
  copy is[FILES], other[FILES];
  ac_err e;
  uint64_t seed = case_seed();
  char *parent = case_folder("damage");
  case_path(first, sizeof first, parent, 1);
  case_path(second, sizeof second, parent, 2);
  assert_ok(case_save(cpu, parent, 1, &z, NULL, NULL, NULL, NULL, &e), e);
  assert_ok(case_save(cpu, parent, 2, &z, NULL, NULL, NULL, NULL, &e), e);
  for (int i = 0; i < FILES; i++) {
    snprintf(file, sizeof file, "%s/%s", first, files[i]);
    is[i].bytes = ac_test_read(file, &is[i].n);
    snprintf(file, sizeof file, "%s/%s", second, files[i]);
    other[i].bytes = ac_test_read(file, &other[i].n);
  }
  uint64_t head = 8;
  for (int i = 7; i >= 0; i--) head += (uint64_t)(unsigned char)is[0].bytes[i] << (8 * i);
  int found = 0, tensors = 0, run = 0;
  for (int i = 0; i < 10000; i++) {
    const uint64_t r = ac_test_random(&seed), bit = ac_test_random(&seed), kind = ac_test_random(&seed) % 100;
    if (!ac_test_sampled(20)) continue;
    const int f = (int)(r % FILES);
    const char *tensor = NULL;
    char *p = malloc(is[f].n + 1);
    size_t n = is[f].n;
    memcpy(p, is[f].bytes, n);
    bool gone = false, mixed = false;
    if (kind < 60) {
      const size_t at = (size_t)(bit / 8 % n);
      p[at] = (char)(p[at] ^ (1 << bit % 8));
      snprintf(what, sizeof what, "bit %d of byte %zu of %s", (int)(bit % 8), at, files[f]);
      /* equal alignment: by name */
      if (f == 0 && at >= head) tensor = at < head + 3 * 64 ? "tensor 'small'" : "tensor 'w'";
    } else if (kind < 80) {
      n = (size_t)(bit % n);
      snprintf(what, sizeof what, "%s cut to %zu bytes", files[f], n);
    } else if (kind < 85) {
      p[n++] = (char)bit;
      snprintf(what, sizeof what, "%s with one byte more", files[f]);
    } else if (kind < 90) {
      gone = true;
      snprintf(what, sizeof what, "%s removed", files[f]);
    } else {
      /* another checkpoint's manifest is whole by itself: it is what it names that differs */
      mixed = f == 2;
      const copy *c = kind < 95 || mixed ? &other[f] : &is[(f + 1) % FILES];
      free(p);
      p = malloc(c->n + 1);
      memcpy(p, c->bytes, n = c->n);
      snprintf(what, sizeof what, "%s exchanged", files[f]);
    }
    snprintf(file, sizeof file, "%s/%s", first, files[f]);
    if (gone) assert_int_equal(unlink(file), 0);
    else ac_test_write(file, p, n);
    free(p);
    e.msg[0] = 0;
    const ac_status st = look(first, &e);
    run++;
    if (st == AC_OK) fail_msg("case %d: %s: not detected", i, what);
    if (st != AC_PARSE && !(gone && f == 2 && st == AC_NOT_FOUND) && !(f == 2 && st == AC_UNSUPPORTED))
      fail_msg("case %d: %s: %s, %s", i, what, ac_status_name(st), e.msg);
    if (!mixed && strstr(e.msg, files[f]) == NULL) fail_msg("case %d: %s: the error does not name the file: %s", i, what, e.msg);
    if (tensor != NULL && strstr(e.msg, tensor) == NULL) fail_msg("case %d: %s: the error does not say %s: %s", i, what, tensor, e.msg);
    if (read_then_look(first, &e) == AC_OK) fail_msg("case %d: %s: not detected behind reading", i, what);
    found++;
    tensors += tensor != NULL;
    ac_test_write(file, is[f].bytes, is[f].n);
  }
  assert_ok(look(first, &e), e);
  assert_ok(read_then_look(first, &e), e);
  printf("%d of %d found, %d of them in a tensor's bytes\n", found, run, tensors);
  assert_true(run >= 400 && tensors > 20);
  for (int i = 0; i < FILES; i++) {
    free(is[i].bytes);
    free(other[i].bytes);
  }
  assert_ok(aci_ckpt_remove_tree(parent, &e), e);
  free(parent);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(damages)};
  return cmocka_run_group_tests(tests, open_device, close_device);
}
