/* Signatures: what the parser reads out of good ones, and where it points in bad ones. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/core/sig.h"

static const aci_sig *parse(const char *text) {
  static aci_sig sig; /* defaults point into it */
  ac_err e;
  assert_ok(aci_sig_parse(text, &sig, &e), e);
  return &sig;
}

static void reads_parameters(void **state) {
  const aci_sig *s =
      parse("max(x: tensor, dim: dim, keepdim: bool = false) -> (values: tensor, indices: tensor)");
  assert_string_equal(s->name, "max");
  assert_int_equal(s->n_params, 3);
  assert_string_equal(s->param[0].name, "x");
  assert_int_equal(s->param[0].type, AC_T_TENSOR);
  assert_false(s->param[0].has_default);
  assert_int_equal(s->param[1].type, AC_T_DIM);
  assert_true(s->param[2].has_default);
  assert_false(s->param[2].optional);
  assert_int_equal(s->param[2].dflt.kind, AC_T_BOOL);
  assert_false(s->param[2].dflt.b);
  assert_int_equal(s->n_results, 2);
  assert_string_equal(s->result[1].name, "indices");
  assert_int_equal(s->result[1].view_of, -1);
  assert_false(s->dynamic);
}

static void reads_every_type(void **state) {
  static const char *const names[] = {"tensor", "tensors", "operand",   "scalar", "int",    "ints",
                                      "float",  "floats",  "bool",      "string", "pos",    "dim",
                                      "dims",   "shape",   "enum(a|b)", "dtype",  "device", "generator"};
  for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
    char text[64];
    snprintf(text, sizeof text, "op(a: %s?) -> ()", names[i]);
    const aci_sig *s = parse(text);
    assert_int_equal(s->param[0].type, AC_T_TENSOR + i);
    assert_true(s->param[0].optional && s->param[0].has_default);
    assert_int_equal(s->param[0].dflt.kind, AC_T_NONE);
    assert_int_equal(
        strncmp(aci_type_name(s->param[0].type), names[i], strlen(aci_type_name(s->param[0].type))), 0);
    assert_int_equal(s->n_results, 0);
  }
}

static void reads_defaults(void **state) {
  const aci_sig *s = parse(
      "op(a: float = 1e-5, b: float = -inf, c: float = 30, d: scalar = 2, e: scalar = .5, f: scalar = true,"
      " g: operand = -1, h: int = -9223372036854775808, i: dim = -1, j: dims = [0, -1], k: floats = [.9, 1],"
      " l: shape = [], m: string = \"a b\", n: enum(none|tanh) = none, o: dtype = bf16, p: dtype? = none)"
      " -> tensor");
  const aci_param *p = s->param;
  assert_true(p[0].dflt.f == 1e-5 && p[1].dflt.f == -HUGE_VAL && p[2].dflt.f == 30);
  assert_int_equal(p[2].dflt.kind, AC_T_FLOAT);
  assert_true(p[3].dflt.scalar.kind == AC_SCALAR_INT && p[3].dflt.scalar.i == 2);
  assert_true(p[4].dflt.scalar.kind == AC_SCALAR_FLOAT && p[4].dflt.scalar.f == 0.5);
  assert_true(p[5].dflt.scalar.kind == AC_SCALAR_BOOL && p[5].dflt.scalar.i == 1);
  assert_int_equal(p[6].dflt.kind, AC_T_SCALAR); /* OPERAND is never the kind of a value */
  assert_true(p[7].dflt.i == INT64_MIN);
  assert_int_equal(p[8].dflt.i, -1);
  assert_true(p[9].dflt.kind == AC_T_DIMS && p[9].dflt.n == 2 && p[9].dflt.ints[0] == 0 &&
              p[9].dflt.ints[1] == -1);
  assert_true(p[10].dflt.n == 2 && p[10].dflt.floats[0] == 0.9 && p[10].dflt.floats[1] == 1);
  assert_true(p[11].dflt.kind == AC_T_SHAPE && p[11].dflt.n == 0);
  assert_string_equal(p[12].dflt.str, "a b");
  assert_true(p[13].dflt.kind == AC_T_ENUM && p[13].dflt.i == 0 && p[13].n_enum == 2);
  assert_string_equal(p[13].enum_name[1], "tanh");
  assert_int_equal(p[14].dflt.dtype, AC_BF16);
  assert_int_equal(p[15].dflt.kind, AC_T_NONE);
}

static void reads_results(void **state) {
  assert_int_equal(parse("op(y: tensor, x: tensor) -> view(x)")->result[0].view_of, 1);
  assert_int_equal(parse("op(x: tensor) -> tensors")->result[0].type, AC_T_TENSORS);
  assert_true(parse("op(x: tensor) -> tensor?")->result[0].optional);
  const aci_sig *s = parse("op ( x ! : tensors ) -> dynamic ");
  assert_true(s->dynamic && s->n_results == 1 && s->param[0].mutates);
  s = parse("op()->(a:tensor,b:tensor?)dynamic");
  assert_true(s->dynamic && s->n_params == 0 && s->n_results == 2 && s->result[1].optional &&
              !s->result[0].optional);
}

static void refuses(void **state) {
  static const struct {
    const char *text, *why;
    int column;
  } cases[] = {
      {"", "the op's name", 1},
      {"1op() -> ()", "the op's name", 1},
      {"repeat(x: tensor) -> tensor", "keyword of Lua", 1},
      {"op(end: int) -> tensor", "keyword of Lua", 4},
      {"op(x tensor) -> tensor", "expected ':'", 6},
      {"op(x: tenser) -> tensor", "unknown type 'tenser'", 7},
      {"op(x: tensor, x: int) -> tensor", "'x' is there twice", 16},
      {"op(x: tensor,) -> tensor", "a parameter's name", 14},
      {"op(x: tensor -> tensor", "expected ')'", 14},
      {"op(x: tensor) tensor", "expected '->'", 15},
      {"op(n!: int) -> ()", "only tensors can be mutated", 11},
      {"op(n: int = 1.5) -> ()", "expected an integer", 13},
      {"op(n: int = 99999999999999999999) -> ()", "out of range", 13},
      {"op(n: int = 0x10) -> ()", "malformed number", 13},
      {"op(n: float = nan) -> ()", "expected a number", 15},
      {"op(n: float = 1e) -> ()", "empty exponent", 15},
      {"op(n: bool = 1) -> ()", "true or false", 14},
      {"op(n: int = none) -> ()", "only a parameter with '?'", 13},
      {"op(n: dims = [1, 2, 3, 4, 5]) -> ()", "at most 4 elements", 27},
      {"op(n: ints = [1, 2) -> ()", "expected ']'", 19},
      {"op(n: string = \"abc) -> ()", "string without end", 17},
      {"op(n: enum(a|a)) -> ()", "has 'a' twice", 15},
      {"op(n: enum(a|b) = c) -> ()", "not a word of the enum", 19},
      {"op(n: dtype = f31) -> ()", "not a dtype", 15},
      {"op(x: tensor = 1) -> ()", "cannot have this default", 16},
      {"op(x: tensor) -> view(y)", "not a parameter of type tensor", 23},
      {"op(n: int) -> view(n)", "not a parameter of type tensor", 20},
      {"op(x: tensor) -> (a: tensor, a: tensor)", "'a' is there twice", 31},
      {"op(x: tensor) -> (a: tensors)", "single result", 29},
      {"op(x: tensor) -> number", "expected tensor, tensors", 18},
      {"op(x: tensor) -> tensor extra", "unexpected text", 25},
      {"op(a_name_that_is_much_too_long_for_it: int) -> ()", "longer than 27", 4},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    aci_sig sig;
    ac_err e;
    char column[32];
    snprintf(column, sizeof column, "column %d:", cases[i].column);
    assert_fails(aci_sig_parse(cases[i].text, &sig, &e), PARSE, cases[i].why, e);
    ac_test_contains(e.msg, column, __FILE__, __LINE__);
  }
}

/* `n` times `item`, with numbers, between head and tail; the caller frees. */
static char *repeated(const char *head, const char *item, int n, const char *tail) {
  size_t bytes = 100 + (size_t)n * 40, at = 0;
  char *text = malloc(bytes);
  at += (size_t)snprintf(text, bytes, "%s", head);
  for (int i = 0; i < n; i++)
    at += (size_t)snprintf(text + at, bytes - at, "%sp%d: %s", i > 0 ? ", " : "", i, item);
  snprintf(text + at, bytes - at, "%s", tail);
  return text;
}

static void refuses_too_many(void **state) {
  ac_err e;
  aci_sig *sig = malloc(sizeof *sig);
  for (int more = 0; more <= 1; more++) {
    char *params = repeated("op(", "int", AC_MAX_ARGS + more, ") -> ()");
    char *results = repeated("op() -> (", "tensor", AC_MAX_RESULTS + more, ")");
    if (more) {
      assert_fails(aci_sig_parse(params, sig, &e), PARSE, "an op has at most", e);
      assert_fails(aci_sig_parse(results, sig, &e), PARSE, "an op has at most", e);
    } else {
      assert_ok(aci_sig_parse(params, sig, &e), e);
      assert_int_equal(sig->n_params, AC_MAX_ARGS);
      assert_ok(aci_sig_parse(results, sig, &e), e);
      assert_int_equal(sig->n_results, AC_MAX_RESULTS);
    }
    free(params);
    free(results);
  }
  free(sig);
}

/* No prefix, and no signature with one byte changed, may read outside the text (under ASan) or be taken for what it is not. */
static void survives_damage(void **state) {
  static const char good[] = "op(x!: tensor, m: enum(a|b)? = b, d: dims = [0, -1], s: string = \"q\", f: "
                             "float = 1e-5) -> (v: view(x))";
  uint64_t seed = 7;
  for (size_t n = 0; n + 1 < sizeof good; n++) {
    char *cut = malloc(n + 1);
    memcpy(cut, good, n);
    cut[n] = '\0';
    aci_sig sig;
    ac_err e;
    assert_int_equal(aci_sig_parse(cut, &sig, &e), AC_PARSE);
    free(cut);
  }
  for (int i = 0; i < 20000; i++) {
    char *text = malloc(sizeof good);
    memcpy(text, good, sizeof good);
    text[ac_test_random(&seed) % (sizeof good - 1)] = (char)(1 + ac_test_random(&seed) % 127);
    aci_sig sig;
    ac_err e;
    ac_status st = aci_sig_parse(text, &sig, &e);
    assert_true(st == AC_OK || st == AC_PARSE);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads_parameters), cmocka_unit_test(reads_every_type),
                                     cmocka_unit_test(reads_defaults),   cmocka_unit_test(reads_results),
                                     cmocka_unit_test(refuses),          cmocka_unit_test(refuses_too_many),
                                     cmocka_unit_test(survives_damage)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
