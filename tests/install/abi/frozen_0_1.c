/* A program that was built with the headers of accel 0.1: the declarations below are a copy of the part that it uses, and never change.
 * abi.sh links it with the library of today. It opens a host with the options of 0.1, runs a script, registers a function and calls
 * one. It prints "frozen" when all of it works. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct ac_host ac_host;
typedef struct ac_ctx ac_ctx;
typedef struct ac_tensor ac_tensor;
typedef struct ac_device ac_device;
typedef struct ac_err {
  int code, line;
  const char *file;
  int rank;
  char op[40], device[16], msg[600];
} ac_err;
typedef struct ac_host_options {
  size_t struct_size;
  int n_threads;
  size_t memory_limit;
  uint64_t seed;
  const char *lua_dir;
  bool strict, sorted_pairs, keep_gc, join;
  const char *script, *device;
} ac_host_options;
typedef struct ac_host_value {
  int type; /* 0 nil, 1 bool, 2 int, 3 number, 4 string, 5 tensor */
  size_t len;
  union {
    bool b;
    int64_t i;
    double n;
    const char *s;
    ac_tensor *t;
  };
} ac_host_value;
typedef int (*ac_host_fn)(void *, ac_ctx *, int, const ac_host_value *, int, ac_host_value *, int *, ac_err *);

int ac_host_open(const ac_host_options *, ac_host **, ac_err *);
void ac_host_close(ac_host *);
int ac_host_run_string(ac_host *, const char *, const char *, int, const char *const *, ac_err *);
int ac_host_call(ac_host *, const char *, int, const ac_host_value *, int, ac_host_value *, int *, ac_err *);
int ac_host_register(ac_host *, const char *, ac_host_fn, void *, ac_err *);
ac_ctx *ac_host_ctx(ac_host *);
ac_device *ac_ctx_default_device(ac_ctx *);
int ac_tensor_wrap(ac_device *, int, int, const int64_t *, void *, void (*)(void *), void *, ac_tensor **, ac_err *);
void ac_tensor_release(ac_tensor *);

static int twice(void *user, ac_ctx *c, int n, const ac_host_value *a, int most, ac_host_value *r, int *n_results, ac_err *e) {
  (void)user, (void)c, (void)e;
  if (n != 1 || most < 1 || a[0].type != 3) return 1;
  r[0] = (ac_host_value){.type = 3, .n = 2 * a[0].n};
  *n_results = 1;
  return 0;
}

int main(int argc, char **argv) {
  enum { F32 = 1 }; /* ac_dtype */
  ac_host *h = NULL;
  ac_err e;
  ac_host_options o = {sizeof o, 1, 0, 7, argc > 1 ? argv[1] : NULL, true, true, false, false, NULL, NULL};
  memset(&e, 0, sizeof e);
  if (ac_host_open(&o, &h, &e) != 0 || ac_host_register(h, "app.twice", twice, NULL, &e) != 0 ||
      ac_host_run_string(h, "function total(t) return app.twice(t:sum():item()), t.dtype end", "frozen", 0, NULL, &e) != 0) {
    fprintf(stderr, "code %d: %s\n", e.code, e.msg);
    return 1;
  }
  float data[3] = {1, 2, 3.5f};
  int64_t shape = 3;
  ac_host_value t = {.type = 5}, r[2];
  int n = 0;
  if (ac_tensor_wrap(ac_ctx_default_device(ac_host_ctx(h)), F32, 1, &shape, data, NULL, NULL, &t.t, &e) != 0 ||
      ac_host_call(h, "total", 1, &t, 2, r, &n, &e) != 0) {
    fprintf(stderr, "code %d: %s\n", e.code, e.msg);
    return 1;
  }
  ac_tensor_release(t.t);
  const bool right = n == 2 && r[0].type == 3 && r[0].n == 13 && r[1].type == 4 && strcmp(r[1].s, "f32") == 0;
  const bool failed = ac_host_run_string(h, "require('accel').ones(2, 3):matmul(require('accel').ones(2, 3))", "frozen", 0, NULL, &e) == 2;
  ac_host_close(h);
  if (!right || !failed) {
    fprintf(stderr, "results %d, %g, %s; code of the shape error: %d\n", n, r[0].n, r[1].type == 4 ? r[1].s : "?", e.code);
    return 1;
  }
  puts("frozen");
  return 0;
}
