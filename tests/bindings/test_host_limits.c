/* What a program takes over from a host: output, log, memory, rights, modules, paths, instructions, seed. */
#include "support/test.h"

#include "host_case.h"

#include <stdatomic.h>
#include <sys/stat.h>

/* ---- output and log ---- */

static char heard[3][4000], logged[4000];
static const ac_host *speaker;

static void output(void *user, ac_host *h, ac_host_stream stream, const char *text, size_t len) {
  assert_ptr_equal(user, heard);
  assert_int_equal(text[len], 0);
  speaker = h;
  const size_t n = strlen(heard[stream]);
  snprintf(heard[stream] + n, sizeof heard[0] - n, "%s|", text);
}

static void log_line(void *user, ac_host *h, ac_log_level level, const char *subsystem, const char *msg) {
  (void)user;
  speaker = h;
  const size_t n = strlen(logged);
  snprintf(logged + n, sizeof logged - n, "%d %s %s|", (int)level, subsystem, msg);
}

static int common;
static void common_sink(void *user, ac_log_level level, const char *subsystem, const char *msg) {
  (void)user, (void)level, (void)subsystem, (void)msg;
  common++;
}

static void test_output(void **state) {
  (void)state;
  ac_host_options o = host_options();
  o.output = output;
  o.user = heard;
  ac_host *h = host_open(&o);
  memset(heard, 0, sizeof heard);
  host_run(h, "print('hi', 1, nil, require('accel').ones(2)) io.write('a', 2, '\\nhalf') io.stdout:write(' line') "
              "io.stderr:write('to err\\n') warn('care', 'ful') io.output():write('\\0') print()");
  assert_string_equal(heard[AC_HOST_OUT], "hi\t1\tnil\ttensor([1., 1.])\n|a2\n|half line|");
  memset(heard, 0, sizeof heard);
  host_run(h, "io.write('no end')");
  assert_string_equal(heard[AC_HOST_OUT], "no end|");
  host_run(h, "assert(io.type(io.stdout) == 'file' and not io.stdout:close()) io.stdout:write('open'):flush()");
  assert_string_equal(heard[AC_HOST_OUT], "no end|open|");
  assert_string_equal(heard[AC_HOST_ERR], "");
  host_run(h, "warn('care', 'ful') warn('@off') warn('not heard') warn('@on') io.stderr:write('x\\n')");
  assert_string_equal(heard[AC_HOST_WARNING], "careful|");
  assert_string_equal(heard[AC_HOST_ERR], "x\n|");
  assert_ptr_equal(speaker, h);
  host_run(h, "setmetatable({}, { __gc = function() print('last') end })");
  ac_host_close(h);
  assert_string_equal(heard[AC_HOST_OUT], "no end|open|last\n|");
}

static void test_log(void **state) {
  (void)state;
  ac_host_options o = host_options();
  o.log = log_line;
  ac_log_set(common_sink, NULL, AC_LOG_WARN);
  ac_host *h = host_open(&o), *other = host_open(NULL);
  logged[0] = 0;
  common = 0;
  host_run(h, "warn('to me')");
  assert_string_equal(logged, "3 lua to me|");
  assert_ptr_equal(speaker, h);
  assert_int_equal(common, 0);
  host_run(other, "warn('to all')");
  assert_string_equal(logged, "3 lua to me|");
  assert_int_equal(common, 1);
  ac_host_close(h);
  ac_host_close(other);
  ac_log_set(NULL, NULL, AC_LOG_OFF);
}

/* ---- memory ---- */

static _Atomic size_t bytes;
static void *allocate(void *user, void *p, size_t old, size_t n) {
  (void)user;
  bytes += n - (p != NULL ? old : 0);
  if (n == 0) {
    free(p);
    return NULL;
  }
  return realloc(p, n);
}

static void test_memory(void **state) {
  (void)state;
  ac_host_options o = host_options();
  o.lua_memory = 8 << 20;
  o.alloc = allocate;
  bytes = 0;
  ac_host *h = host_open(&o);
  assert_in_range(bytes, 100000, 8 << 20);
  host_fails(h, "local t = {} for i = 1, 1e9 do t[i] = { i } end", OOM, "reached its limit of 8388608 bytes");
  assert_true(bytes <= 8 << 20);
  host_run(h, "collectgarbage() local ok, why = pcall(string.rep, 'x', 16 << 20) assert(not ok and why == 'not enough memory', why) "
              "assert(require('accel').ones(4):sum():item() == 4)");
  ac_host_close(h);
  assert_int_equal(bytes, 0);
  o.lua_memory = 10000;
  ac_err e;
  assert_fails(ac_host_open(&o, &h, &e), OOM, "memory", e);
  assert_int_equal(bytes, 0);
}

/* ---- rights ---- */

static void test_rights(void **state) {
  (void)state;
  static const struct {
    uint32_t right;
    const char *code;
  } refused[] = {
      {AC_HOST_NO_IO, "io.open('/etc/passwd')"},
      {AC_HOST_NO_IO, "for line in io.lines('/etc/passwd') do end"},
      {AC_HOST_NO_IO, "io.output('/tmp/x')"},
      {AC_HOST_NO_IO, "io.popen('true')"},
      {AC_HOST_NO_IO, "os.remove('x')"},
      {AC_HOST_NO_IO, "os.tmpname()"},
      {AC_HOST_NO_IO, "require('lfs').dir('/')"},
      {AC_HOST_NO_IO, "require('accel').load('/etc/passwd')"},
      {AC_HOST_NO_IO, "require('accel').save('/tmp/x', {})"},
      {AC_HOST_NO_IO, "require('accel').makedirs('/tmp/x')"},
      {AC_HOST_NO_IO, "require('accel').data.CSV('/etc/passwd')"},
      {AC_HOST_NO_OS, "os.execute('true')"},
      {AC_HOST_NO_OS, "os.getenv('HOME')"},
      {AC_HOST_NO_OS, "io.popen('true')"},
      {AC_HOST_NO_OS, "require('accel').process.spawn('/bin/true', {})"},
      {AC_HOST_NO_LOAD, "load('return 1')"},
      {AC_HOST_NO_LOAD, "loadfile('x.lua')"},
      {AC_HOST_NO_LOAD, "dofile('x.lua')"},
      {AC_HOST_NO_LOAD, "require('socket')"},
      {AC_HOST_NO_LOAD, "package.loadlib('x.so', '*')"},
      {AC_HOST_NO_LOAD, "require('accel').host_chunk('repl/session')"},
      {AC_HOST_NO_LOAD, "require('accel').repl()"},
      /* a script cannot talk the checks over by functions of its own */
      {AC_HOST_NO_LOAD, "local f = string.sub string.sub = function() return 'accel.' end local _, e = pcall(require, 'evil') "
                        "string.sub = f error(e, 0)"},
      {AC_HOST_NO_LOAD, "local f = type type = function() return 'x' end local _, e = pcall(require, 'evil') type = f error(e, 0)"},
  };
  for (uint32_t right = AC_HOST_NO_IO; right <= AC_HOST_NO_LOAD; right *= 2) {
    ac_host_options o = host_options();
    o.rights = right;
    ac_host *h = host_open(&o);
    ac_err e;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
      if (refused[i].right != right) continue;
      const ac_status st = ac_host_run_string(h, refused[i].code, "t", 0, NULL, &e);
      if (st == AC_OK || (strstr(e.msg, "this host does not") == NULL && strstr(e.msg, "(AC_HOST_NO_") == NULL))
        fail_msg("%s: %s: %s", refused[i].code, ac_status_name(st), st != AC_OK ? e.msg : "");
      ac_test_contains(e.msg, right == AC_HOST_NO_IO ? "AC_HOST_NO_IO" : right == AC_HOST_NO_OS ? "AC_HOST_NO_OS" : "", __FILE__, __LINE__);
    }
    /* the library itself works, with errors and their tracebacks */
    host_run(h, "local a = require 'accel' local m = a.nn.Linear(3, 2) local o = a.optim.AdamW(m:parameters(), { lr = 0.1 }) "
                "m(a.ones(4, 3)):sum():backward() o:step() assert(os.time() > 0 and math.floor(1.5) == 1)");
    host_fails(h, "local a = require 'accel' local t_in = a.ones(2, 3) t_in:matmul(t_in)", SHAPE, "t:1: matmul");
    ac_test_contains(ac_host_error_text(h), "t_in: f32 (2, 3)", __FILE__, __LINE__);
    /* and what scripts lost cannot be reached over debug */
    host_fails(h, "debug.getupvalue(require, 1)", CALLBACK, "does not give scripts the right");
    host_fails(h, "debug.getregistry()", CALLBACK, "does not give scripts the right");
    host_run(h, "assert(debug.getinfo(1, 'l').currentline == 1 and debug.getinfo(require, 'f').func == nil)");
    host_run(h, "local x = 7 local function f() return debug.getlocal(2, 1) end local n, v = f() assert(n == 'x' and v == 7)");
    host_run(h, "xpcall(os.date, function() assert(not pcall(debug.getlocal, 3, 1)) end, {})");
    host_run(h, "local up = 7 local function f() return up end assert(select(2, debug.getupvalue(f, 1)) == 7)");
    ac_host_close(h);
  }
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_modules(void **state) {
  (void)state;
  static const char *const modules[] = {"accel", "mine", NULL};
  ac_host_options o = host_options();
  o.modules = modules;
  ac_host *h = host_open(&o);
  host_run(h, "package.preload.mine = function() return 5 end package.preload['mine.sub'] = function() return 6 end "
              "package.preload.minefield = function() return 7 end assert(require('mine') == 5 and require('mine.sub') == 6) "
              "assert(require('accel').nn and require 'accel.optim')");
  host_fails(h, "require('minefield')", CALLBACK, "it is not in the program's list");
  host_fails(h, "require('lfs')", CALLBACK, "does not let scripts load the module 'lfs'");
  ac_host_close(h);
}

/* ---- paths ---- */

static char seen_paths[4000];
static const char *map(void *user, ac_host *h, const char *path) {
  static char to[4096];
  (void)h;
  const size_t n = strlen(seen_paths);
  snprintf(seen_paths + n, sizeof seen_paths - n, "%s|", path);
  if (path[0] == '/' || strstr(path, "..") != NULL) return NULL;
  snprintf(to, sizeof to, "%s/%s", (const char *)user, path);
  return to;
}

static void test_paths(void **state) {
  (void)state;
  char *dir = ac_test_tmp_path("jail"), *file = ac_test_tmp_path("jail/x.txt"), *module = ac_test_tmp_path("jail/one.lua");
  mkdir(dir, 0755);
  remove(file);
  ac_test_write(module, "return 42", 9);
  ac_host_options o = host_options();
  o.path = map;
  o.user = dir;
  ac_host *h = host_open(&o);
  host_run(
      h, "local f = assert(io.open('x.txt', 'w')) f:write('in') f:close() for l in io.lines('x.txt') do assert(l == 'in') end "
         "local a = require 'accel' assert(a.save('t.safetensors', { t = a.ones(2) })) assert(a.load('t.safetensors').t:sum():item() == 2) "
         "assert(require('lfs').attributes('t.safetensors').size > 0 and dofile('one.lua') == 42) assert(os.remove('t.safetensors'))");
  struct stat sb;
  assert_int_equal(stat(file, &sb), 0);
  host_fails(h, "io.open('/etc/passwd')", UNSUPPORTED, "the program refuses this path");
  host_fails(h, "require('accel').load('../x')", UNSUPPORTED, "the program refuses this path");
  host_fails(h, "require('lfs').chdir('/')", CALLBACK, "the path function of the program");
  host_fails(h, "type = function() return 'nil' end io.lines('/etc/passwd')", UNSUPPORTED, "the program refuses this path");
  seen_paths[0] = 0;
  host_run(h, "pcall(io.lines, 7)"); /* a number is a path, too */
  ac_test_contains(seen_paths, "7|", __FILE__, __LINE__);
  ac_host_close(h);
  free(dir);
  free(file);
  free(module);
}

/* ---- instructions and seed ---- */

static void test_instructions(void **state) {
  (void)state;
  ac_host_options o = host_options();
  o.instructions = 200000;
  ac_host *h = host_open(&o);
  host_run(h, "local n = 0 for i = 1, 20000 do n = n + i end");
  host_fails(h, "while true do end", INTERRUPTED, "the script used its 200000 instructions");
  host_fails(h, "while true do pcall(function() while true do end end) end", INTERRUPTED, "t:1: interrupted: the script used");
  host_fails(h, "while true do coroutine.wrap(function() end)() end", INTERRUPTED, "instructions");
  for (int i = 0; i < 5; i++) host_run(h, "local n = 0 for i = 1, 20000 do n = n + i end"); /* each run has its own */
  ac_host_interrupt_now(h);
  host_fails(h, "return 1", INTERRUPTED, "t:1: interrupted");
  host_fails(h, "while true do end", INTERRUPTED, "instructions");
  ac_host_close(h);
}

static void test_seed(void **state) {
  (void)state;
  char text[3][200];
  for (int i = 0; i < 3; i++) {
    ac_host_options o = host_options();
    o.seed = i < 2 ? 1234 : 99;
    ac_host *h = host_open(&o);
    host_run(h, "local a = require 'accel' function draw() return ('%s %s'):format(math.random(1 << 40), a.rand(1):item()) end");
    ac_host_value v;
    ac_err e;
    assert_ok(ac_host_call(h, "draw", 0, NULL, 1, &v, NULL, &e), e);
    snprintf(text[i], sizeof text[i], "%s", v.s);
    ac_host_close(h);
  }
  assert_string_equal(text[0], text[1]);
  assert_string_not_equal(text[0], text[2]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_output),       cmocka_unit_test(test_log),     cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_rights),       cmocka_unit_test(test_modules), cmocka_unit_test(test_paths),
                                     cmocka_unit_test(test_instructions), cmocka_unit_test(test_seed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
