/* Autocast: which ops cast, against what PyTorch 2.15 gives under torch.autocast("cpu", torch.bfloat16);
 * regions that nest; the cast of a leaf made once and never stale; gradients in the dtype of the
 * parameter. */
#include "host/precision/autocast.h"

/* ---- the lists ---- */
typedef struct row {
  const char *op;
  ac_dtype f32, bf16; /* dtype of the first result under bf16 autocast, for inputs of f32 and of bf16 */
} row;
#define AS_IS(op) \
  { op, AC_F32, AC_BF16 }
/* clang-format off */
static const row rows[] = {
    {"addmm", AC_BF16, AC_BF16}, {"linear", AC_BF16, AC_BF16}, {"matmul", AC_BF16, AC_BF16},
    {"scaled_dot_product_attention", AC_BF16, AC_BF16}, {"cross_entropy", AC_F32, AC_F32},
    {"argmax", AC_I64, AC_I64}, {"argmin", AC_I64, AC_I64}, {"eq", AC_BOOL, AC_BOOL},
    {"ge", AC_BOOL, AC_BOOL}, {"gt", AC_BOOL, AC_BOOL}, {"le", AC_BOOL, AC_BOOL}, {"lt", AC_BOOL, AC_BOOL},
    {"ne", AC_BOOL, AC_BOOL}, AS_IS("abs"), AS_IS("add"), AS_IS("add_layer_norm"),
    AS_IS("add_rms_norm"), AS_IS("amax"), AS_IS("amin"), AS_IS("cat"),
    AS_IS("ceil"), AS_IS("chunk"), AS_IS("clamp"), AS_IS("clone"), AS_IS("contiguous"), AS_IS("cos"),
    AS_IS("div"), AS_IS("dropout"), AS_IS("embedding"), AS_IS("erf"), AS_IS("exp"), AS_IS("expand"),
    AS_IS("expm1"), AS_IS("flatten"), AS_IS("floor"), AS_IS("fmod"), AS_IS("full_like"), AS_IS("gather"),
    AS_IS("gelu"), AS_IS("index_add"), AS_IS("index_select"), AS_IS("layer_norm"), AS_IS("log"),
    AS_IS("log1p"), AS_IS("log_softmax"), AS_IS("masked_fill"), AS_IS("max"), AS_IS("maximum"),
    AS_IS("mean"), AS_IS("min"), AS_IS("minimum"), AS_IS("mul"), AS_IS("narrow"), AS_IS("neg"),
    AS_IS("ones_like"), AS_IS("permute"), AS_IS("pow"), AS_IS("reciprocal"), AS_IS("relu"),
    AS_IS("remainder"), AS_IS("reshape"), AS_IS("rms_norm"), AS_IS("round"), AS_IS("rsqrt"),
    AS_IS("scatter_add"), AS_IS("select"), AS_IS("sigmoid"), AS_IS("sign"), AS_IS("silu"), AS_IS("sin"),
    AS_IS("softmax"), AS_IS("split"), AS_IS("sqrt"), AS_IS("square"), AS_IS("squeeze"), AS_IS("stack"),
    AS_IS("sub"), AS_IS("sum"), AS_IS("t"), AS_IS("tanh"), AS_IS("transpose"), AS_IS("tril"), AS_IS("triu"),
    AS_IS("trunc"), AS_IS("unsqueeze"), AS_IS("view"), AS_IS("where"), AS_IS("zeros_like"),
};
/* clang-format on */
enum { N_ROWS = sizeof rows / sizeof *rows };

/* Arguments for any op of the table: tensors of 4 x 4, defaults where the signature has some. */
typedef struct call_args {
  ac_value v[AC_MAX_ARGS];
  ac_tensor *made[AC_MAX_ARGS + 1];
  int n_made;
} call_args;

static ac_tensor *argument(call_args *a, const char *op, const char *param, ac_dtype dt) {
  bool flat = strcmp(op, "index_select") == 0 || strcmp(op, "index_add") == 0 || strcmp(param, "target") == 0;
  ac_tensor *t;
  if (strcmp(param, "ids") == 0 || strcmp(param, "index") == 0 || strcmp(param, "target") == 0)
    t = flat ? MAKE(AC_I64, 4) : MAKE(AC_I64, 4, 4);
  else if (strcmp(param, "mask") == 0 || strcmp(param, "cond") == 0) t = MAKE(AC_BOOL, 4, 4);
  else if (strcmp(op, "scaled_dot_product_attention") == 0) t = MAKE(dt, 1, 2, 4, 4);
  else t = MAKE(dt, 4, 4);
  return a->made[a->n_made++] = t;
}

static ac_dtype result_dtype(const ac_op *op, ac_dtype dt) {
  static const int64_t four_four[] = {4, 4}, one_zero[] = {1, 0}, two[] = {2};
  call_args a = {.n_made = 0};
  ac_err e;
  assert_ok(aci_op_parse(op, &e), e);
  const aci_sig *sig = aci_op_sig(op);
  for (int i = 0; i < sig->n_params; i++) {
    const aci_param *p = &sig->param[i];
    ac_value *v = &a.v[i];
    if ((p->has_default || p->optional) &&
        strcmp(op->name, "clamp") != 0) { /* clamp asks for one of its two */
      *v = p->dflt;
      continue;
    }
    v->kind = p->type;
    switch (p->type) {
      case AC_T_TENSOR:
      case AC_T_OPERAND:
        if (strcmp(op->name, "masked_fill") == 0 && strcmp(p->name, "value") == 0) { /* a number, or a tensor of rank 0 */
          v->kind = AC_T_SCALAR;
          v->scalar = ac_operand_float(0.5).scalar;
          break;
        }
        v->kind = AC_T_TENSOR;
        v->tensor = argument(&a, op->name, p->name, dt);
        break;
      case AC_T_TENSORS:
        argument(&a, op->name, p->name, dt);
        argument(&a, op->name, p->name, dt);
        v->tensors = a.made;
        v->n = 2;
        break;
      case AC_T_INT:
      case AC_T_POS: v->i = 2; break;
      case AC_T_DIM: v->i = strcmp(p->name, "dim0") == 0 ? 0 : 1; break;
      case AC_T_DIMS:
        v->ints = one_zero;
        v->n = 2;
        break;
      case AC_T_INTS:
        v->ints = two;
        v->n = 1;
        break;
      case AC_T_SHAPE:
        v->ints = four_four;
        v->n = strcmp(p->name, "normalized_shape") == 0 ? 1 : 2;
        break;
      case AC_T_SCALAR: v->scalar = ac_operand_float(0.5).scalar; break;
      default: fail_msg("%s: no argument for %s", op->name, p->name);
    }
  }
  ac_value results[AC_MAX_RESULTS];
  int n = 0;
  if (ac_call(ctx, op, a.v, results, &n, &e) != AC_OK)
    fail_msg("%s of %s: %s", op->name, ac_dtype_name(dt), e.msg);
  ac_dtype got = ac_tensor_dtype(results[0].tensor);
  for (int i = 0; i < n; i++) ac_tensor_release(results[i].tensor);
  for (int i = 0; i < a.n_made; i++) ac_tensor_release(a.made[i]);
  return got;
}

static void ops_give_pytorchs_dtypes(void **state) {
  int wrong = 0;
  for (int i = 0; i < N_ROWS; i++) {
    const ac_op *op = ac_op_find(ctx, rows[i].op);
    if (op == NULL) fail_msg("no op %s", rows[i].op);
    ac_autocast_state outer = LOWER();
    ac_dtype f32 = result_dtype(op, AC_F32), bf16 = result_dtype(op, AC_BF16);
    leave(outer);
    if (f32 != rows[i].f32 || bf16 != rows[i].bf16) {
      print_error("%s: f32 gives %s (PyTorch %s), bf16 gives %s (%s)\n", rows[i].op, ac_dtype_name(f32),
                  ac_dtype_name(rows[i].f32), ac_dtype_name(bf16), ac_dtype_name(rows[i].bf16));
      wrong++;
    }
    if (rows[i].f32 == AC_BF16)
      assert_int_equal(result_dtype(op, AC_F32), AC_F32); /* outside, nothing happens */
  }
  assert_int_equal(wrong, 0);
}

static ac_tensor *matmul(ac_tensor *a, ac_tensor *b) {
  ac_err e;
  ac_tensor *y = NULL;
  assert_ok(ac_matmul(ctx, a, b, &y, &e), e);
  return y;
}

static void mixed_dtypes(void **state) {
  ac_err e;
  ac_tensor *f32 = MAKE(AC_F32, 4, 4), *bf16 = MAKE(AC_BF16, 4, 4), *f64 = MAKE(AC_F64, 4, 4),
            *i64 = MAKE(AC_I64, 4, 4), *f16 = MAKE(AC_F16, 4, 4), *y = NULL;
  ac_autocast_state outer = LOWER();
  const struct {
    ac_tensor *a, *b;
    ac_dtype gives;
  } products[] = {{f32, bf16, AC_BF16}, {bf16, f32, AC_BF16}, {f16, f16, AC_BF16},
                  {f16, f32, AC_BF16},  {f64, f64, AC_F64},   {i64, i64, AC_I64}};
  for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
    y = matmul(products[i].a, products[i].b);
    assert_int_equal(ac_tensor_dtype(y), products[i].gives);
    ac_tensor_release(y);
  }
  assert_int_not_equal(ac_matmul(ctx, f64, f32, &y, &e),
                       AC_OK); /* f64 is never lowered: the two do not fit, as in PyTorch */
  assert_true(ac_autocast_enabled(ctx));
  /* promote takes the wider of f32 and 16 bits */
  ac_tensor *pair[] = {bf16, f32};
  assert_ok(ac_cat(ctx, pair, 2, 0, &y, &e), e);
  assert_int_equal(ac_tensor_dtype(y), AC_F32);
  ac_tensor_release(y);
  assert_ok(ac_stack(ctx, pair, 2, 0, &y, &e), e);
  assert_int_equal(ac_tensor_dtype(y), AC_F32);
  ac_tensor_release(y);
  ac_tensor *doubles[] = {f64, f32};
  assert_ok(ac_cat(ctx, doubles, 2, 0, &y, &e), e);
  assert_int_equal(ac_tensor_dtype(y), AC_F64);
  ac_tensor_release(y);
  /* arithmetic promotes as ever */
  assert_ok(ac_add(ctx, ac_operand_tensor(bf16), ac_operand_tensor(f32), ac_operand_int(1).scalar, &y, &e),
            e);
  assert_int_equal(ac_tensor_dtype(y), AC_F32);
  ac_tensor_release(y);
  /* 16-bit activations meet the f32 weights of a norm: what the way of a GPT needs */
  ac_tensor *w = MAKE(AC_F32, 4), *b = MAKE(AC_F32, 4);
  assert_ok(ac_layer_norm(ctx, bf16, (int64_t[]){4}, 1, w, b, 1e-5, &y, &e), e);
  assert_int_equal(ac_tensor_dtype(y), AC_BF16);
  ac_tensor_release(y);
  assert_ok(ac_rms_norm(ctx, bf16, (int64_t[]){4}, 1, w, NULL, &y, &e), e);
  assert_int_equal(ac_tensor_dtype(y), AC_BF16);
  ac_tensor_release(y);
  leave(outer);
  ac_tensor *all[] = {f32, bf16, f64, i64, f16, w, b};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) ac_tensor_release(all[i]);
}

/* ---- regions ---- */
static void regions_nest(void **state) {
  ac_tensor *x = MAKE(AC_F32, 4, 4), *y;
#define GIVES(dt)                             \
  y = matmul(x, x);                           \
  assert_int_equal(ac_tensor_dtype(y), (dt)); \
  ac_tensor_release(y)
  assert_false(ac_autocast_enabled(ctx));
  GIVES(AC_F32);
  ac_autocast_state a = LOWER();
  assert_true(ac_autocast_enabled(ctx));
  assert_int_equal(ac_autocast_dtype(ctx), AC_BF16);
  GIVES(AC_BF16);
  ac_autocast_state hole = enter(false, AC_F32, true); /* the dtype of a hole does not matter */
  assert_false(ac_autocast_enabled(ctx));
  GIVES(AC_F32);
  ac_autocast_state inner = LOWER();
  GIVES(AC_BF16);
  leave(inner);
  GIVES(AC_F32);
  leave(hole);
  GIVES(AC_BF16);
  ac_autocast_state half = enter(true, AC_F16, true);
  assert_int_equal(ac_autocast_dtype(ctx), AC_F16);
  leave(half);
  assert_int_equal(ac_autocast_dtype(ctx), AC_BF16);
  GIVES(AC_BF16);
  leave(a);
  assert_false(ac_autocast_enabled(ctx));
  GIVES(AC_F32);
  ac_tensor_release(x);
}

static void only_16_bits(void **state) {
  ac_autocast_state outer;
  ac_err e;
  assert_fails(ac_autocast_begin(ctx, true, AC_F32, true, &outer, &e), DTYPE, "bf16 or f16, not f32", e);
  assert_fails(ac_autocast_begin(ctx, true, AC_I64, true, &outer, &e), DTYPE, "not i64", e);
  assert_false(ac_autocast_enabled(ctx));
}

static void a_failed_call_changes_nothing(void **state) {
  ac_err e;
  ac_tensor *x = MAKE(AC_F32, 4, 4), *bad = leaf(MAKE(AC_F32, 3, 3)), *y = NULL;
  ac_autocast_state outer = LOWER();
  for (int i = 0; i < 3; i++) assert_fails(ac_matmul(ctx, x, bad, &y, &e), SHAPE, "", e);
  assert_null(y);
  assert_true(ac_autocast_enabled(ctx));
  GIVES(AC_BF16);
  leave(outer);
  ac_tensor_release(x);
  ac_tensor_release(bad);
}

/* ---- the cache ---- */
static void leaves_are_cast_once(void **state) {
  ac_tensor *x = MAKE(AC_F32, 2, 4), *w = leaf(MAKE(AC_F32, 3, 4)), *b = leaf(MAKE(AC_F32, 3)),
            *frozen = MAKE(AC_F32, 3, 4), *y;
  int64_t before = ac_tensor_live();
  ac_autocast_state outer = LOWER();
  CASTS(3, linear(x, w, b));
  CASTS(1, linear(x, w, b)); /* x, which is not a parameter */
  CASTS(2, linear(x, frozen, b));
  CASTS(2, linear(x, frozen, b));
  ac_autocast_state inner = LOWER();
  CASTS(1, linear(x, w, b));
  leave(inner); /* not the outermost: nothing is dropped */
  ac_autocast_state hole = enter(false, AC_BF16, true);
  CASTS(0, linear(x, w, b));
  leave(hole);
  CASTS(1, linear(x, w, b));
  ac_autocast_state uncached = enter(true, AC_BF16, false);
  CASTS(3, linear(x, w, b));
  leave(uncached);
  CASTS(1, linear(x, w, b));
  assert_true(ac_tensor_live() > before);
  leave(outer);
  assert_int_equal(ac_tensor_live(), before); /* dropped */
  outer = LOWER();
  CASTS(3, linear(x, w, b));
  leave(outer);
  ac_tensor *all[] = {x, w, b, frozen};
  for (int i = 0; i < 4; i++) ac_tensor_release(all[i]);
}

static void a_changed_leaf_is_cast_again(void **state) {
  ac_err e;
  ac_tensor *x = MAKE(AC_F32, 1, 4), *w = leaf(MAKE(AC_F32, 1, 4)), *y, *out = NULL;
  ac_autocast_state outer = LOWER();
  y = linear(x, w, NULL);
  double first = at(y, 0);
  ac_tensor_release(y);
  bool grad = ac_ctx_set_grad_enabled(ctx, false);
  assert_ok(ac_mul_(ctx, w, ac_operand_float(4), &out, &e), e);
  ac_tensor_release(out);
  ac_ctx_set_grad_enabled(ctx, grad);
  CASTS(2, linear(x, w, NULL));
  y = linear(x, w, NULL);
  assert_true(first != 0 && at(y, 0) == 4 * first);
  ac_tensor_release(y);
  CASTS(1, linear(x, w, NULL));
  leave(outer);
  ac_tensor_release(x);
  ac_tensor_release(w);
}

static void views_and_results_are_not_kept(void **state) {
  ac_err e;
  ac_tensor *x = MAKE(AC_F32, 4, 4), *w = leaf(MAKE(AC_F32, 4, 4)), *v = NULL, *r = NULL, *y;
  ac_autocast_state outer = LOWER();
  assert_ok(ac_t(ctx, w, &v, &e), e);
  assert_ok(ac_mul(ctx, ac_operand_tensor(w), ac_operand_float(2), &r, &e), e);
  CASTS(2, matmul(x, v));
  CASTS(2, matmul(x, v));
  CASTS(2, matmul(x, r));
  CASTS(2, matmul(x, r));
  leave(outer);
  ac_tensor *all[] = {x, w, v, r};
  for (int i = 0; i < 4; i++) ac_tensor_release(all[i]);
}

/* A cast made under no_grad is used there again, but never where gradients are recorded. */
static void no_grad_does_not_poison(void **state) {
  ac_tensor *x = MAKE(AC_F32, 2, 4), *w = leaf(MAKE(AC_F32, 3, 4)), *y;
  ac_autocast_state outer = LOWER();
  bool grad = ac_ctx_set_grad_enabled(ctx, false);
  CASTS(2, linear(x, w, NULL));
  CASTS(1, linear(x, w, NULL));
  ac_ctx_set_grad_enabled(ctx, grad);
  n_casts = 0;
  y = linear(x, w, NULL);
  assert_int_equal(n_casts, 2);
  assert_true(ac_tensor_requires_grad(y));
  backward(y);
  ac_tensor_release(y);
  assert_non_null(ac_tensor_grad(w));
  ac_ctx_set_grad_enabled(ctx, false);
  CASTS(1, linear(x, w, NULL)); /* the recorded one will do */
  ac_ctx_set_grad_enabled(ctx, grad);
  leave(outer);
  ac_tensor_release(x);
  ac_tensor_release(w);
}

static void a_thousand_leaves(void **state) {
  enum { N = 1000 };
  static ac_tensor *w[N];
  ac_tensor *x = MAKE(AC_F32, 1, 2), *y;
  for (int i = 0; i < N; i++) w[i] = leaf(MAKE(AC_F32, 1, 2));
  ac_autocast_state outer = LOWER();
  for (int round = 0; round < 2; round++) {
    n_casts = 0;
    for (int i = 0; i < N; i++) {
      y = linear(x, w[i], NULL);
      ac_tensor_release(y);
    }
    assert_int_equal(n_casts, round == 0 ? 2 * N : N);
  }
  for (int i = 0; i < N; i++) ac_tensor_release(w[i]); /* the region holds them a little longer */
  leave(outer);
  ac_tensor_release(x);
}

/* ---- gradients ---- */
static void gradients_come_in_the_parameters_dtype(void **state) {
  static const ac_dtype dts[] = {AC_F32, AC_BF16, AC_F16};
  for (size_t d = 0; d < 3; d++) {
    ac_tensor *x = leaf(MAKE(dts[d], 2, 4)), *w = leaf(MAKE(dts[d], 3, 4)), *b = leaf(MAKE(dts[d], 3));
    /* two forwards and backwards in one region share the casts: accumulation goes on */
    ac_autocast_state outer = LOWER();
    for (int round = 1; round <= 2; round++) {
      ac_tensor *y = linear(x, w, b);
      assert_int_equal(ac_tensor_dtype(y), AC_BF16);
      backward(y);
      ac_tensor_release(y);
      ac_tensor *const all[] = {x, w, b};
      for (int i = 0; i < 3; i++) assert_int_equal(ac_tensor_dtype(ac_tensor_grad(all[i])), dts[d]);
      /* of sum(x w^T + b): exact, for the values are small multiples of 1/4 */
      for (int64_t i = 0; i < 3; i++) {
        assert_true(at(ac_tensor_grad(b), i) == 2.0 * round);
        for (int64_t j = 0; j < 4; j++)
          assert_true(at(ac_tensor_grad(w), 4 * i + j) == round * (at(x, j) + at(x, 4 + j)));
      }
      for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < 4; j++)
          assert_true(at(ac_tensor_grad(x), 4 * i + j) == round * (at(w, j) + at(w, 4 + j) + at(w, 8 + j)));
    }
    leave(outer);
    ac_tensor_release(x);
    ac_tensor_release(w);
    ac_tensor_release(b);
  }
}

/* A leaf used twice through one cast collects both parts; backward after the region works as well. */
static void backward_after_the_region(void **state) {
  ac_tensor *x = MAKE(AC_F32, 1, 4), *w = leaf(MAKE(AC_F32, 4, 4));
  ac_autocast_state outer = LOWER();
  ac_tensor *h = linear(x, w, NULL), *y = linear(h, w, NULL);
  leave(outer);
  backward(y);
  const ac_tensor *g = ac_tensor_grad(w);
  assert_int_equal(ac_tensor_dtype(g), AC_F32);
  /* d/dw[i][j] of sum_k (w w x)_k = h[j] + (column sum of w at i) x[j], in exact quarters and sixteenths */
  for (int64_t i = 0; i < 4; i++)
    for (int64_t j = 0; j < 4; j++) {
      double column = 0, hj = 0;
      for (int64_t k = 0; k < 4; k++) {
        column += at(w, 4 * k + i);
        hj += at(w, 4 * j + k) * at(x, k);
      }
      assert_true(at(g, 4 * i + j) == hj + column * at(x, j));
    }
  ac_tensor *all[] = {x, w, h, y};
  for (int i = 0; i < 4; i++) ac_tensor_release(all[i]);
}

/* Closing a context inside a region gives the cached casts back (close_ctx of every test counts). */
static void context_may_end_inside(void **state) {
  ac_tensor *x = MAKE(AC_F32, 1, 4), *w = leaf(MAKE(AC_F32, 4, 4)), *y;
  LOWER();
  y = linear(x, w, NULL);
  ac_tensor_release(x);
  ac_tensor_release(w);
  ac_tensor_release(y);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(ops_give_pytorchs_dtypes),
      TEST(mixed_dtypes),
      TEST(regions_nest),
      TEST(only_16_bits),
      TEST(a_failed_call_changes_nothing),
      TEST(leaves_are_cast_once),
      TEST(a_changed_leaf_is_cast_again),
      TEST(views_and_results_are_not_kept),
      TEST(no_grad_does_not_poison),
      TEST(a_thousand_leaves),
      TEST(gradients_come_in_the_parameters_dtype),
      TEST(backward_after_the_region),
      TEST(context_may_end_inside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
