/* accel-opgen as the build runs it: what it reads out of files, what it refuses and where it points, and that it leaves
 * unchanged files alone. That its output compiles and works is shown by the build and by check/dropin_op.sh. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Runs the tool on files of this test's folder; its output goes to out. Returns the exit status. */
static int run(const char *args, char *out, size_t n) {
  char command[2000];
  snprintf(command, sizeof command, "cd '%s' && '%s/tools/accel-opgen' %s 2>&1", getenv("ACCEL_TEST_TMP"),
           getenv("ACCEL_TEST_BUILD"), args);
  FILE *p = popen(command, "r");
  assert_non_null(p);
  size_t got = fread(out, 1, n - 1, p);
  out[got] = '\0';
  int status = pclose(p);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void put_file(const char *name, const char *text) {
  char *path = ac_test_tmp_path(name);
  ac_test_write(path, text, strlen(text));
  free(path);
}

static char *take_file(const char *name) {
  char *path = ac_test_tmp_path(name);
  size_t n = 0;
  char *text = ac_test_read(path, &n);
  free(path);
  return text;
}

static void expect_in(const char *name, const char *part) {
  char *text = take_file(name);
  ac_test_contains(text, part, __FILE__, __LINE__);
  free(text);
}

static int make_folders(void **state) {
  static const char *const names[] = {"src", "src/map", "src/gen", "bad", "maps", "maps/map", "calls", "calls/include",
                                      "calls/include/accel", "calls/ops", "calls/gen"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char *path = ac_test_tmp_path(names[i]);
    mkdir(path, 0777);
    free(path);
  }
  return 0;
}

static const char twice_c[] =
    "/* twice: y = 2x, for tests.     x (any shape) -> y (same shape)\n"
    " * example: accel.tensor { 3, \"a\\n\" }:twice() --> { 6, 7 }\n"
    " * gradient: dx = 2 dy.\n"
    "     example: accel.twice(\n"
    "       2) --> 4 */\n"
    "#define AC_MAP1(x) /* AC_OP(not_this, .sig = \"not_this() -> ()\") */\n"
    "static const char *s = \"AC_OP(nor_this)\"; // AC_OP(nor_that)\n"
    "  AC_OP(nor_indented, .sig = \"nor_indented() -> ()\");\n"
    "AC_MAP1(twice, FWD(1, {2, 3}, ')'), .sig = \"twice(x: tensor, dim: dim = 0, \" /* here */\n"
    "        \"mode: enum(slow|fast) = fast, lo: float = -inf, out: int?) -> tensor\",\n"
    "        .grad = grad, .inplace = true, .autocast = AC_CAST_F32);\n"
    "AC_OP(twice_backward, .sig = \"twice_backward(dy: tensor) -> (dx: tensor, w: tensor?)\", .cpu = NULL, "
    ".hidden = true,\n"
    "      .composed = made);\n"
    "AC_REDUCE_X2 (also, .sig = \"also(x: tensors) -> tensors\", .nondiff = true);\n"
    "AC_OP(turned, .sig = \"turned(x: tensor) -> view(x)\", .inplace = true, .alias = \"rotated repeat\");\n";

static void reads_definitions(void **state) {
  char out[4000];
  put_file("src/map/twice.c", twice_c);
  put_file("src/map/notes.txt", "AC_OP(broken");
  put_file("src/gen/skip.c", "AC_OP(broken");
  if (run("--src src --out gen", out, sizeof out) != 0) fail_msg("%s", out);
  assert_string_equal(out, "");

  expect_in("gen/accel/ops.h", "/* y = 2x, for tests.\n * twice(x: tensor,");
  expect_in("gen/accel/ops.h", "enum { AC_TWICE_MODE_SLOW = 0, AC_TWICE_MODE_FAST = 1 };");
  expect_in(
      "gen/accel/ops.h",
      "ac_status ac_twice(ac_ctx *c, ac_tensor *x, int64_t dim, int mode, double lo, const int64_t *out_,");
  expect_in("gen/accel/ops.h", "ac_status ac_twice_(");
  expect_in(
      "gen/accel/ops.h",
      "ac_status ac_also(ac_ctx *c, ac_tensor *const *x, int n_x, ac_tensor **out, int *n_out, ac_err *e);");
  expect_in("gen/ops_x.h", "ac_tensor *x_twice_backward(ac_expr *ex, ac_tensor *dy, ac_tensor **out_w);");
  expect_in("gen/ops_table.c", "    &aci_op_also,\n    &aci_op_turned,\n    &aci_op_twice,\n    &aci_op_twice_backward,\n");
  expect_in("gen/ops_table.c", "aci_n_builtin_ops = 4;");
  expect_in("gen/ops_table.c", "    2, /* twice_ */");
  expect_in("gen/ops_api.c", "return call(c, 2, v, outs, 1, e);"); /* twice */
  expect_in("gen/ops_api.c", "return call(c, 4, v, outs, 1, e);"); /* twice_, behind the plain ops */
  expect_in("gen/lua/meta/ops.lua", "---@param dim? integer default 1\n");
  expect_in("gen/lua/meta/ops.lua", "---@param lo? number default -math.huge\n");
  expect_in("gen/lua/meta/ops.lua", "function Tensor:twice_(dim, mode, lo, out) end");
  /* the in-place form of a view is a method of scripts, and no function of C */
  expect_in("gen/lua/meta/ops.lua", "function Tensor:turned_() end");
  expect_in("gen/lua/meta/ops.lua", "---Another name of turned.\n");
  expect_in("gen/lua/meta/ops.lua", "function Tensor:rotated_() end");
  expect_in("gen/ops.md", "Other names: `rotated`, `repeat`.\n");
  expect_in("gen/ops.md", "### rotated\n\nAnother name of `turned`.\n");
  expect_in("gen/ops.json", "\"alias\": \"rotated repeat\"");
  expect_in("gen/ops.md", "x:twice(dim = 1, mode = \"fast\", lo = -math.huge, out = nil) -> tensor");
  expect_in("gen/ops.md", "Gradient: yes. Autocast: f32. File: `host/ops/map/twice.c`.");
  expect_in("gen/ops.json", "\"mutates\": false, \"enum\": [\"slow\", \"fast\"], \"default\": \"fast\"}");
  expect_in("gen/ops.json", "\"default\": \"-inf\"");
  expect_in("gen/ops.json", "\"examples\": [\"accel.tensor { 3, \\\"a\\\\n\\\" }:twice() --> { 6, 7 }\",\n     "
                            "\"accel.twice( 2) --> 4\"]");
  expect_in("gen/ops.json", "\"examples\": []"); /* of the other ops of the file */
  expect_in("gen/ops.md", "```text\ntwice: y = 2x, for tests.     x (any shape) -> y (same shape)\n"
                          "gradient: dx = 2 dy.\n```\n\n```lua\naccel.tensor { 3, \"a\\n\" }:twice() --> { 6, 7 }\n"
                          "accel.twice( 2) --> 4\n```\n");

  char *header = take_file("gen/accel/ops.h"), *stubs = take_file("gen/lua/meta/ops.lua"),
       *page = take_file("gen/ops.md");
  assert_null(strstr(header, "backward")); /* hidden */
  assert_null(strstr(stubs, "backward"));
  assert_null(strstr(page, "backward"));
  assert_null(strstr(header, "_this"));
  assert_null(strstr(header, "nor_"));
  assert_null(strstr(header, "turned_"));
  assert_null(strstr(header, "rotated"));
  assert_null(strstr(stubs, ":repeat"));
  free(header);
  free(stubs);
  free(page);
}

static void leaves_unchanged_files_alone(void **state) {
  char out[4000];
  struct stat before, after;
  put_file("src/map/twice.c", twice_c);
  assert_int_equal(run("--src src --out gen", out, sizeof out), 0);
  char *header = ac_test_tmp_path("gen/accel/ops.h"), *page = ac_test_tmp_path("gen/ops.md");
  assert_int_equal(stat(header, &before), 0);
  char *text = strdup(twice_c); /* a word of the head comment that only the reference page shows */
  memcpy(strstr(text, "same shape"), "very shape", 10);
  put_file("src/map/twice.c", text);
  assert_int_equal(run("--src src --out gen", out, sizeof out), 0);
  assert_int_equal(stat(header, &after), 0);
  assert_int_equal(before.st_ino, after.st_ino); /* a rewritten file would be another one */
  assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
  expect_in("gen/ops.md", "very shape");
  free(text);
  free(header);
  free(page);
}

static void refuses(void **state) {
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"\n\nAC_OP(bad, .sig = \"bad(x: tenser) -> tensor\");\n",
       "bad/bad.c:3: signature \"bad(x: tenser) -> tensor\", column 8: unknown type"},
      {"AC_OP(bad, .sig = \"good(x: tensor) -> tensor\");\n",
       "bad/bad.c:1: AC_OP(bad) has the signature of 'good'"},
      {"AC_OP(good, .sig = \"good() -> ()\");\n", "bad/bad.c:1: no op of this file is called 'bad'"},
      {"AC_OP(bad, .cpu = cpu);\n", "bad/bad.c:1: AC_OP(bad) has no .sig"},
      {"AC_OP(bad, .sig = SIG);\n", "bad/bad.c:1: .sig must be written as string literals"},
      {"AC_OP(bad, .sig = \"bad() -> ()\" SUFFIX);\n",
       "bad/bad.c:1: .sig must be written as string literals"},
      {"AC_OP(bad,\n .sig = \"bad\\n() -> ()\");\n", "bad/bad.c:2: escape '\\n'"},
      {"AC_OP(bad, .sig = \"bad() -> ()\", .x = (1\n", "bad/bad.c:1: AC_OP(bad: no closing parenthesis"},
      {"AC_OP(bad, .sig = \"bad() -> ()\",\n.hidden = HIDE);\n",
       "bad/bad.c:2: .hidden must be true or false"},
      {"AC_OP(bad, .sig = \"bad() -> ()\", .autocast = AC_CAST_LOW);\n",
       "bad/bad.c:1: .autocast must be one of"},
      {"AC_OP(bad, .sig = \"bad(n: int) -> tensor\", .inplace = true);\n",
       "bad/bad.c:1: 'bad' cannot be in place"},
      {"AC_OP(bad, .sig = \"bad() -> ()\");\nAC_OP(bad, .sig = \"bad() -> ()\");\n",
       "bad/bad.c:2: op 'bad' is also defined at bad/bad.c:1"},
      {"AC_OP(bad, .sig = \"bad(x: tensor) -> tensor\", .inplace = true);\nAC_OP(bad_, .sig = \"bad_() -> "
       "()\");\n",
       "bad/bad.c:2: op 'bad_' is also the in-place form of 'bad'"},
      {"AC_OP(bad, .sig = \"bad() -> ()\", .alias = NAMES);\n",
       "bad/bad.c:1: .alias must be written as string literals"},
      {"AC_OP(bad, .sig = \"bad() -> ()\", .alias = \"ill\");\nAC_OP(ill, .sig = \"ill() -> ()\");\n",
       "bad/bad.c:1: the alias 'ill' is also a name of op 'ill'"},
      {"AC_OP(bad, .sig = \"bad() -> ()\", .alias = \"ill\");\nAC_OP(evil, .sig = \"evil() -> ()\", .alias = "
       "\"ill\");\n",
       "bad/bad.c:2: the alias 'ill' is also a name of op 'bad'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char out[4000];
    put_file("bad/bad.c", cases[i].text);
    int status = run("--out unwritten bad/bad.c", out, sizeof out);
    if (strstr(out, cases[i].message) == NULL || status != 1)
      fail_msg("case %zu: exit %d, \"%s\" instead of \"%s\"", i, status, out, cases[i].message);
  }
  char *path = ac_test_tmp_path("unwritten");
  struct stat st;
  assert_int_not_equal(stat(path, &st), 0); /* nothing is written after a mistake */
  free(path);
}
/* Of a map's file the formulas go to CUDA, and nothing that is host code. */
static void takes_formulas(void **state) {
  char out[4000], *text = NULL;
  put_file("maps/map/thrice.c",
           "/* thrice: y = 3x, as { ; here.     x -> y */\n#include \"ops/map/map.h\"\n"
           "enum { TIMES = 3 };\n#define HELP(T, sfx) \\\n  static inline AC_INLINE T help_##sfx(T x) { return x; }\nHELP(float, f32)\n"
           "static inline AC_INLINE float three(float x) { return x * (float)TIMES; }\n"
           "static inline void touches(const float *x) { (void)x; }\n"
           "#define FWD(T, p, x) three(x)\nstatic void grad(ac_grad *g) { if (g != NULL) { char c = '}'; (void)c; } }\n"
           "static const char *const words[] = {\"a;\", \"}\"};\n#define ROWS(T) AC_ISA_FN(rows, (T x), (x)) { (void)x; }\nROWS(float)\n"
           "AC_MAP1(thrice, FWD, .sig = \"thrice(x: tensor) -> tensor\", .grad = grad);\n");
  assert_int_equal(run("--src maps --out maps/gen", out, sizeof out), 0);
  text = take_file("maps/gen/cuda/map_0.cu");
  ac_test_contains(text, "#define ACI_STEM \"thrice\"\nnamespace aci_map_thrice {\nenum { TIMES = 3 };\n", __FILE__, __LINE__);
  ac_test_contains(text, "HELP(float, f32)\nstatic inline AC_INLINE float three(float x) { return x * (float)TIMES; }\n", __FILE__, __LINE__);
  ac_test_contains(text, "AC_MAP1(thrice, FWD,", __FILE__, __LINE__);
  ac_test_contains(text, "#undef FWD\n", __FILE__, __LINE__);
  assert_null(strstr(text, "touches")); /* formulas take values */
  assert_null(strstr(text, "ac_grad"));
  assert_null(strstr(text, "\nROWS(float)"));
  assert_null(strstr(text, "words"));
  free(text);
  /* and of an optimizer's file what its elements share */
  put_file("maps/map/vary_.c",
           "/* vary_: p -= g */\n#include \"ops/optim/step.h\"\ntypedef struct factors {\n  double lr;\n} factors;\n"
           "#define FORMULA(T) for (int64_t i = 0; i < n; i++) p[i] -= g[i];\nACI_STEP2(vary, FORMULA, p, g)\n"
           "ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) { k->lr = a->x[2]; }\n"
           "ACI_STEP_KERNEL(vary_, vary, prepare)\nstatic ac_status shape(ac_frame *f, ac_err *e) { return AC_OK; }\n"
           "AC_OP(vary_, .sig = \"vary_(p!: tensors, g: tensors, lr: tensor) -> ()\", .shape = shape, .cpu = aci_cpu_vary_);\n");
  assert_int_equal(run("--src maps --out maps/gen", out, sizeof out), 0);
  text = take_file("maps/gen/cuda/map_1.cu");
  ac_test_contains(text, "typedef struct factors {\n  double lr;\n} factors;\n", __FILE__, __LINE__);
  ac_test_contains(text, "ACI_STEP2(vary, FORMULA, p, g)\nACI_STEP_FACTORS void prepare(", __FILE__, __LINE__);
  ac_test_contains(text, "k->lr = a->x[2]; }\nACI_STEP_KERNEL(vary_, vary, prepare)\n", __FILE__, __LINE__);
  assert_null(strstr(text, "shape"));
  free(text);
}

/* Functions that modules of devices take from the library: declarations of headers, in all the forms that they have. */
static void takes_declarations(void **state) {
  (void)state;
  char out[4000], *text, *other;
  static const char tail[] = "AC_API const char *ac_word(int *list[], const long at[4]); /* AC_API int ac_not_this(void); */\n"
                             "AC_API inline int ac_nor_this(void) { return 1; }\n";
  char header[1000];
  snprintf(header, sizeof header, "/* a header */\n#define ACI_MODULE_API\nACI_MODULE_API int aci_two(int a,\n   const char *b); // two\n"
           "ACI_MODULE_API void aci_none(void);\nint aci_private(int a);\n"
           "AC_API void ac_hook(void (*fn)(void *user, int n), void *user);\n"
           "AC_API int ac_say(int level, const char *fmt, ...) AC_PRINTF(2, 3);\n%s", tail);
  put_file("calls/include/accel/all.h", header);
  put_file("calls/ops/none.h", "int aci_private_too(void);\n");
  const char *const command = "--out calls/gen --calls calls calls/include/accel/all.h calls/ops/none.h";
  assert_int_equal(run(command, out, sizeof out), 0);
  text = take_file("calls/gen/module_calls.h");
  ac_test_contains(text, "#include \"accel/all.h\"\n#define", __FILE__, __LINE__);
  ac_test_contains(text, "int (*aci_two)(int a, const char *b);\n", __FILE__, __LINE__);
  ac_test_contains(text, "int (*ac_say)(int level, const char *fmt, ...);\n", __FILE__, __LINE__);
  assert_null(strstr(text, "_this"));
  assert_null(strstr(text, "private"));
  expect_in("calls/gen/module_table.c", "    ACI_MODULE_HASH,\n    ac_hook,\n    ac_say,\n    ac_word,\n    aci_two,\n    aci_none,\n};");
  expect_in("calls/gen/module_stubs.c", "int aci_two(int a, const char *b) {\n  return library.aci_two(a, b);\n}");
  expect_in("calls/gen/module_stubs.c", "{\n  library.aci_none();\n}");
  expect_in("calls/gen/module_stubs.c", "{\n  library.ac_hook(fn, user);\n}");
  expect_in("calls/gen/module_stubs.c", "{\n  return library.ac_word(list, at);\n}");
  expect_in("calls/gen/module_stubs.c", "  va_start(ap, fmt);\n  vsnprintf(text, sizeof text, fmt, ap);\n  va_end(ap);\n"
                                        "  return library.ac_say(level, \"%s\", text);\n");
  /* a header that only has a struct in it changes the hash, a comment does not */
  put_file("calls/ops/none.h", "int aci_private_too(void); /* of no module */\n");
  assert_int_equal(run(command, out, sizeof out), 0);
  other = take_file("calls/gen/module_calls.h");
  assert_string_equal(text, other);
  free(other);
  put_file("calls/ops/none.h", "struct aci_s { int a; };\n");
  assert_int_equal(run(command, out, sizeof out), 0);
  other = take_file("calls/gen/module_calls.h");
  assert_string_not_equal(text, other);
  free(other);
  free(text);
  put_file("calls/ops/none.h", "AC_API int aci_variable;\n");
  assert_int_equal(run(command, out, sizeof out), 1);
  ac_test_contains(out, "calls/ops/none.h: a declaration for modules that is not a function's: int aci_variable", __FILE__, __LINE__);
}

static void refuses_bad_calls(void **state) {
  char out[4000];
  assert_int_equal(run("", out, sizeof out), 1);
  ac_test_contains(out, "usage:", __FILE__, __LINE__);
  assert_int_equal(run("--src nowhere --out gen", out, sizeof out), 1);
  ac_test_contains(out, "nowhere", __FILE__, __LINE__);
  assert_int_equal(run("--out gen missing.c", out, sizeof out), 1);
  ac_test_contains(out, "missing.c:1: cannot be read", __FILE__, __LINE__);
  put_file("src/map/twice.c", twice_c);
  assert_int_equal(run("--src src --out /dev/null/gen", out, sizeof out), 1);
  ac_test_contains(out, "cannot write", __FILE__, __LINE__);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads_definitions),
                                     cmocka_unit_test(leaves_unchanged_files_alone),
                                     cmocka_unit_test(refuses), cmocka_unit_test(takes_formulas),
                                     cmocka_unit_test(takes_declarations),
                                     cmocka_unit_test(refuses_bad_calls)};
  return cmocka_run_group_tests(tests, make_folders, NULL);
}
