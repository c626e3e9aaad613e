/* Convolutions and their adjoints against the definition in double, over types, strides, dilations, groups
 * and sizes that reach every plan (few result channels, products before sums, tiles with columns of their
 * own, shared columns, parts of rows, 1 x 1 without a stage); every case again with other teams, where each
 * bit must be the same, and through oneDNN. Operands lie in blocks of their exact size, so that an address
 * sanitizer sees what reads or writes beyond them. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vmath.h"
#include "device/cpu/gemm_impl.h"
#include "device/cpu/kernels/conv_impl.h"
#include "device/cpu/onednn.h"

static uint64_t rng = 0x9e3779b97f4a7c15u;

static void put(aci_gemm_type t, void *p, int64_t i, double v) {
  switch (t) {
    case ACI_GEMM_F64: ((double *)p)[i] = v; break;
    case ACI_GEMM_F32: ((float *)p)[i] = (float)v; break;
    case ACI_GEMM_BF16: ((uint16_t *)p)[i] = aci_f32_to_bf16((float)v); break;
    default: ((uint16_t *)p)[i] = aci_f32_to_f16((float)v); break;
  }
}

static void *values(aci_gemm_type t, int64_t n) {
  void *p = malloc((size_t)(n * aci_gemm_type_bytes(t)) + (n == 0));
  assert_non_null(p);
  for (int64_t i = 0; i < n; i++) put(t, p, i, 2 * ac_test_uniform(&rng) - 1);
  return p;
}

static int64_t size3(const int64_t *e) { return e[0] * e[1] * e[2]; }

/* ---- the definition: value and sum of magnitudes of one element ---- */
typedef struct sum {
  double value, size;
} sum;

static void add(sum *s, double a, double b) {
  s->value += a * b;
  s->size += fabs(a * b);
}

typedef struct problem {
  aci_conv c;
  void *x, *w, *bias, *y; /* operands */
  void *back_bias;        /* of a transposed convolution, or NULL */
  int64_t n_x, n_w, n_b, n_y;
} problem;

static void coordinates(int64_t i, const int64_t *e, int64_t *at) {
  at[2] = i % e[2];
  at[1] = i / e[2] % e[1];
  at[0] = i / e[2] / e[1];
}

/* Place in x that tap k of place q reads, -1 outside. */
static int64_t reads(const aci_conv *c, const int64_t *q, const int64_t *k) {
  int64_t at = 0;
  for (int d = 0; d < ACI_CONV_DIMS; d++) {
    int64_t p = q[d] * c->stride[d] - c->pad[d] + k[d] * c->dil[d];
    if (p < 0 || p >= c->in[d]) return -1;
    at = at * c->in[d] + p;
  }
  return at;
}

static double x_at(const problem *p, int64_t n, int64_t channel, int64_t place) {
  return aci_gemm_load(p->c.type, p->x, (n * p->c.groups * p->c.ci + channel) * size3(p->c.in) + place);
}
static double y_at(const problem *p, int64_t n, int64_t channel, int64_t place) {
  return aci_gemm_load(p->c.type, p->y, (n * p->c.groups * p->c.co + channel) * size3(p->c.out) + place);
}

static sum forward_at(const problem *p, int64_t i) {
  const aci_conv *c = &p->c;
  const int64_t places = size3(c->out), taps = size3(c->k), channel = i / places % (c->groups * c->co);
  const int64_t n = i / places / (c->groups * c->co), g = channel / c->co;
  int64_t q[3], k[3];
  sum s = {0, 0};
  coordinates(i % places, c->out, q);
  for (int64_t ci = 0; ci < c->ci; ci++)
    for (int64_t t = 0; t < taps; t++) {
      coordinates(t, c->k, k);
      int64_t at = reads(c, q, k);
      if (at >= 0)
        add(&s, x_at(p, n, g * c->ci + ci, at),
            aci_gemm_load(c->type, p->w, (channel * c->ci + ci) * taps + t));
    }
  if (p->bias != NULL) add(&s, aci_gemm_load(c->type, p->bias, channel), 1);
  return s;
}

static sum input_at(const problem *p, int64_t i) {
  const aci_conv *c = &p->c;
  const int64_t places = size3(c->in), taps = size3(c->k), channel = i / places % (c->groups * c->ci);
  const int64_t n = i / places / (c->groups * c->ci), g = channel / c->ci;
  int64_t at[3], k[3], q[3];
  sum s = {0, 0};
  coordinates(i % places, c->in, at);
  for (int64_t t = 0; t < taps; t++) {
    bool hit = true;
    coordinates(t, c->k, k);
    for (int d = 0; d < ACI_CONV_DIMS && hit; d++) {
      int64_t from = at[d] + c->pad[d] - k[d] * c->dil[d];
      q[d] = from / c->stride[d];
      hit = from >= 0 && from % c->stride[d] == 0 && q[d] < c->out[d];
    }
    for (int64_t co = 0; hit && co < c->co; co++)
      add(&s, y_at(p, n, g * c->co + co, (q[0] * c->out[1] + q[1]) * c->out[2] + q[2]),
          aci_gemm_load(c->type, p->w, ((g * c->co + co) * c->ci + channel % c->ci) * taps + t));
  }
  if (p->back_bias != NULL) add(&s, aci_gemm_load(c->type, p->back_bias, channel), 1);
  return s;
}

static sum weight_at(const problem *p, int64_t i) {
  const aci_conv *c = &p->c;
  const int64_t taps = size3(c->k), channel = i / taps / c->ci, ci = i / taps % c->ci, g = channel / c->co;
  int64_t q[3], k[3];
  sum s = {0, 0};
  coordinates(i % taps, c->k, k);
  for (int64_t n = 0; n < c->n; n++)
    for (int64_t place = 0; place < size3(c->out); place++) {
      coordinates(place, c->out, q);
      int64_t at = reads(c, q, k);
      if (at >= 0) add(&s, x_at(p, n, g * c->ci + ci, at), y_at(p, n, channel, place));
    }
  return s;
}

/* ---- comparison ---- */
/* got is rounded once from a sum in f32 or f64 of as many terms. */
static void compare(const problem *p, const void *got, int64_t n, sum (*want)(const problem *, int64_t),
                    const char *what) {
  const aci_gemm_type t = p->c.type;
  const double once = t == ACI_GEMM_F64    ? 1e-15
                      : t == ACI_GEMM_F32  ? 1e-7
                      : t == ACI_GEMM_BF16 ? 0x1p-8
                                           : 0x1p-11;
  const double each = t == ACI_GEMM_F64 ? 1e-15 : 1e-6;
  const int64_t step = 1 + n / 700; /* a sample of large ones */
  for (int64_t k = 0; k < n; k += step) {
    const int64_t i = k + step > n ? n - 1 : k + (int64_t)(ac_test_random(&rng) % (uint64_t)step);
    const sum s = want(p, i);
    const double v = aci_gemm_load(t, got, i);
    if (fabs(v - s.value) <= once * fabs(s.value) + each * s.size + (t == ACI_GEMM_F16 ? 1e-7 : 0)) continue;
    fail_msg("type %d, n %d groups %d ci %d co %d: %s[%d] is %.9g instead of %.9g", (int)t, (int)p->c.n,
             (int)p->c.groups, (int)p->c.ci, (int)p->c.co, what, (int)i, v, s.value);
  }
}

static ac_team *teams[4]; /* NULL, and teams of 1, 2 and 5 */

static void run_case(aci_gemm_type type, const aci_conv *shape) {
  problem p = {.c = *shape};
  aci_conv *c = &p.c;
  ac_err e;
  c->type = type;
  for (int d = 0; d < ACI_CONV_DIMS; d++)
    c->out[d] = (c->in[d] + 2 * c->pad[d] - c->dil[d] * (c->k[d] - 1) - 1) / c->stride[d] + 1;
  p.n_x = c->n * c->groups * c->ci * size3(c->in);
  p.n_w = c->groups * c->co * c->ci * size3(c->k);
  p.n_b = c->groups * c->co;
  p.n_y = c->n * c->groups * c->co * size3(c->out);
  p.x = values(type, p.n_x);
  p.w = values(type, p.n_w);
  p.bias = ac_test_random(&rng) % 2 ? values(type, p.n_b) : NULL;
  p.back_bias = ac_test_random(&rng) % 2 ? values(type, c->groups * c->ci) : NULL;
  p.y = values(type, p.n_y); /* the gradient of the result */
  void *y = values(type, p.n_y), *dx = values(type, p.n_x), *dw = values(type, p.n_w);
  void *y2 = values(type, p.n_y), *dx2 = values(type, p.n_x), *dw2 = values(type, p.n_w);
  const size_t es = (size_t)aci_gemm_type_bytes(type);
  assert_ok(aci_conv_forward(NULL, c, p.x, p.w, p.bias, y, &e), e);
  assert_ok(aci_conv_backward_input(NULL, c, p.y, p.w, p.back_bias, dx, &e), e);
  assert_ok(aci_conv_backward_weight(NULL, c, p.y, p.x, dw, &e), e);
  compare(&p, y, p.n_y, forward_at, "y");
  compare(&p, dx, p.n_x, input_at, "dx");
  compare(&p, dw, p.n_w, weight_at, "dw");
  for (int i = 1; i < 4; i++) {
    assert_ok(aci_conv_forward(teams[i], c, p.x, p.w, p.bias, y2, &e), e);
    assert_ok(aci_conv_backward_input(teams[i], c, p.y, p.w, p.back_bias, dx2, &e), e);
    assert_ok(aci_conv_backward_weight(teams[i], c, p.y, p.x, dw2, &e), e);
    assert_memory_equal(y, y2, (size_t)p.n_y * es);
    assert_memory_equal(dx, dx2, (size_t)p.n_x * es);
    assert_memory_equal(dw, dw2, (size_t)p.n_w * es);
  }
  void *all[] = {p.x, p.w, p.bias, p.back_bias, p.y, y, dx, dw, y2, dx2, dw2};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

#define D2(n, g, ci, co, h, w, kh, kw, s, p, d)                                                \
  {                                                                                            \
    ACI_GEMM_F32, n, g, ci, co, {1, h, w}, {1, kh, kw}, {0}, {1, s, s}, {0, p, p}, { 1, d, d } \
  }
static const aci_conv shapes[] = {
    D2(2, 1, 3, 8, 7, 9, 3, 3, 1, 1, 1),     D2(1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1),
    D2(3, 1, 20, 33, 13, 11, 3, 3, 1, 1, 1), D2(2, 1, 5, 17, 14, 15, 3, 3, 2, 1, 1),
    D2(2, 1, 9, 15, 12, 13, 1, 1, 1, 0, 1),  D2(5, 1, 40, 18, 6, 5, 1, 1, 2, 0, 1), /* gaps in dx */
    D2(2, 2, 6, 10, 9, 9, 3, 2, 1, 2, 2),    D2(2, 7, 1, 1, 12, 19, 3, 3, 1, 1, 1),
    D2(2, 5, 1, 2, 12, 40, 5, 5, 2, 2, 1),   D2(2, 1, 30, 1, 11, 12, 3, 3, 1, 1, 1),
    D2(1, 1, 2, 4, 10, 700, 3, 5, 1, 2, 1),  D2(1, 1, 4, 5, 40, 9, 2, 3, 3, 0, 1),
    D2(2, 1, 3, 6, 20, 20, 7, 7, 4, 3, 1),   D2(4, 1, 4, 40, 2, 2, 2, 2, 5, 3, 1),
    D2(2, 1, 2, 300, 6, 6, 3, 3, 1, 1, 1),   D2(0, 1, 2, 3, 5, 5, 3, 3, 1, 1, 1),
    D2(2, 1, 0, 3, 5, 5, 3, 3, 1, 1, 1),     D2(2, 1, 17, 9, 8, 8, 3, 3, 3, 1, 2),
    D2(3, 1, 2, 3, 9, 9, 3, 3, 2, 0, 3),     D2(9, 1, 3, 16, 20, 21, 3, 3, 2, 1, 1),
    D2(2, 1, 8, 9, 40, 33, 8, 8, 8, 0, 1),
};
static const aci_conv deep[] = {
    {ACI_GEMM_F32, 2, 1, 3, 5, {5, 6, 7}, {3, 2, 3}, {0}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
    {ACI_GEMM_F32, 2, 2, 2, 9, {6, 5, 8}, {2, 3, 1}, {0}, {2, 1, 3}, {1, 1, 0}, {2, 2, 1}},
    {ACI_GEMM_F32, 1, 4, 1, 1, {5, 6, 7}, {3, 3, 3}, {0}, {2, 2, 1}, {1, 1, 1}, {1, 1, 1}},
};
/* Large enough for several blocks of K, for shared columns, and for parts of the sums of weights. */
static const aci_conv large[] = {
    D2(3, 1, 60, 70, 30, 33, 3, 3, 1, 1, 1), D2(2, 1, 129, 300, 9, 10, 3, 3, 1, 1, 1),
    D2(2, 1, 200, 520, 7, 7, 1, 1, 1, 0, 1), D2(2, 1, 64, 48, 28, 30, 3, 3, 2, 1, 1),
    D2(8, 96, 1, 1, 30, 28, 3, 3, 1, 1, 1),
};
static const aci_gemm_type types[] = {ACI_GEMM_F64, ACI_GEMM_F32, ACI_GEMM_BF16, ACI_GEMM_F16};

static void small_shapes(void **state) {
  (void)state;
  for (size_t t = 0; t < 4; t++) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) run_case(types[t], &shapes[i]);
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) run_case(types[t], &deep[i]);
  }
}

static void large_shapes(void **state) {
  (void)state;
  for (size_t t = 0; t < 4; t++)
    for (size_t i = t % (size_t)ac_test_every(3); i < sizeof large / sizeof *large; i += (size_t)ac_test_every(3))
      run_case(types[t], &large[i]);
}

/* A transposed convolution's bias, and positions that no window reaches. */
static void bias_of_the_transposed(void **state) {
  (void)state;
  const aci_conv c = {ACI_GEMM_F32, 1,         1,         2,         1,        {1, 1, 4},
                      {1, 1, 1},    {1, 1, 2}, {1, 1, 2}, {0, 0, 0}, {1, 1, 1}};
  const float dy[] = {3, 5}, w[] = {2, 10}, bias[] = {1, -1};
  const float want[] = {7, 1, 11, 1, 29, -1, 49, -1};
  float dx[8];
  ac_err e;
  assert_ok(aci_conv_backward_input(NULL, &c, dy, w, bias, dx, &e), e);
  for (int i = 0; i < 8; i++) assert_true(dx[i] == want[i]);
  assert_ok(aci_conv_backward_input(NULL, &c, dy, w, NULL, dx, &e), e);
  for (int i = 0; i < 8; i++) assert_true(dx[i] == want[i] - bias[i / 4]);
}

/* What lies beside the windows is not read as part of them: 0 times infinity would show. */
static void infinities_stay_where_they_are(void **state) {
  (void)state;
  const aci_conv c = {ACI_GEMM_F32, 1,          1,         1,         1,        {1, 6, 20},
                      {1, 3, 3},    {1, 6, 20}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}};
  float x[120], y[120], dy[120], dw[9];
  const float w[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  ac_err e;
  for (int i = 0; i < 120; i++) x[i] = dy[i] = 1;
  x[2 * 20 + 19] = INFINITY;
  dy[3 * 20 + 19] = 0;
  assert_ok(aci_conv_forward(NULL, &c, x, w, NULL, y, &e), e);
  for (int i = 0; i < 120; i++) {
    int row = i / 20, col = i % 20;
    assert_int_equal(isinf(y[i]) != 0, row >= 1 && row <= 3 && col >= 18);
    assert_false(isnan(y[i]));
  }
  x[2 * 20 + 19] = 1;
  x[5 * 20] = INFINITY; /* the first of its row, after the end of the row above */
  assert_ok(aci_conv_backward_weight(NULL, &c, dy, x, dw, &e), e);
  for (int i = 0; i < 9; i++) { /* tap (i, j) reads row 5, column 0 wherever a place has it */
    assert_false(isnan(dw[i]));
    assert_int_equal(isinf(dw[i]) != 0, i / 3 != 0 ? i % 3 != 2 : false);
  }
}

/* The same through oneDNN, on any CPU that has it; skipped where the module is absent. */
static void through_onednn(void **state) {
  (void)state;
  aci_onednn_force(true);
  if (aci_onednn_api_get() == NULL) {
    aci_onednn_force(false);
    skip();
  }
  for (size_t t = 1; t < 3; t++) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) run_case(types[t], &shapes[i]);
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) run_case(types[t], &deep[i]);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) run_case(types[t], &large[i]);
  }
  aci_onednn_force(false);
}

/* Random shapes of bf16 on AMX, those that oneDNN multiplies and those that it would get wrong (strides, dilation, taps in the padding). */
static void random_shapes_on_amx(void **state) {
  (void)state;
  if (!aci_onednn_amx() || aci_onednn_api_get() == NULL) skip();
  const char *given = getenv("ACCEL_TEST_SEED");
  uint64_t draws = given == NULL ? 1 : strtoull(given, NULL, 10);
  print_message("ACCEL_TEST_SEED=%llu\n", (unsigned long long)draws);
  aci_onednn_force(true);
  for (int i = 0; i < 400 / ac_test_every(10); i++) {
    aci_conv c = {ACI_GEMM_BF16, 2, 1, 1 + (int64_t)(ac_test_random(&draws) % 70), 1 + (int64_t)(ac_test_random(&draws) % 70),
                  {1, 1, 1}, {1, 1, 1}, {0}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
    const int first = (int)(ac_test_random(&draws) % 3);
    const bool plain = ac_test_random(&draws) % 2;
    for (int d = first; d < 3; d++) {
      c.k[d] = 1 + (int64_t)(ac_test_random(&draws) % 4);
      c.stride[d] = plain ? 1 : 1 + (int64_t)(ac_test_random(&draws) % 3);
      c.dil[d] = plain || ac_test_random(&draws) % 2 ? 1 : 1 + (int64_t)(ac_test_random(&draws) % 3);
      c.pad[d] = (int64_t)(ac_test_random(&draws) % 3);
      c.in[d] = c.dil[d] * (c.k[d] - 1) + 1 + (int64_t)(ac_test_random(&draws) % (first == 0 ? 8 : 30));
    }
    run_case(ACI_GEMM_BF16, &c);
  }
  aci_onednn_force(false);
}

/* ... and where a shape asks for it by itself. */
static void chosen_by_shape(void **state) {
  (void)state;
  const aci_conv c = D2(9, 1, 32, 40, 27, 26, 3, 3, 1, 1, 1), steps = D2(9, 1, 32, 40, 27, 26, 3, 3, 2, 1, 1);
  run_case(ACI_GEMM_BF16, &c);
  run_case(ACI_GEMM_F32, &steps);
}

/* 16-bit floats through copies in f32, of all images and of some at a time; what multiplies bf16 keeps to that. */
static void through_copies(void **state) {
  (void)state;
  static const aci_conv some[] = {
      D2(5, 1, 32, 33, 100, 130, 3, 3, 1, 1, 1), D2(9, 1, 40, 34, 90, 75, 3, 3, 2, 1, 1), D2(80, 1, 45, 33, 14, 15, 1, 3, 1, 0, 1),
      D2(9, 1, 36, 32, 40, 41, 2, 2, 1, 0, 3)};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    aci_conv c = some[i];
    c.type = ACI_GEMM_F16;
    for (int d = 0; d < ACI_CONV_DIMS; d++) c.out[d] = (c.in[d] + 2 * c.pad[d] - c.dil[d] * (c.k[d] - 1) - 1) / c.stride[d] + 1;
    if (i == 0 && !aci_conv_wants_upcast(&c)) skip(); /* base instructions */
    assert_true(aci_conv_wants_upcast(&c));
    c.type = ACI_GEMM_BF16;
    assert_int_equal(aci_conv_wants_upcast(&c), aci_gemm_kernel_for(c.type)->pair == 1 && !aci_onednn_amx());
    if (i % (size_t)ac_test_every(2) == 0) run_case(ACI_GEMM_F16, &some[i]);
    if ((i + 1) % (size_t)ac_test_every(2) == 0) run_case(ACI_GEMM_BF16, &some[i]);
  }
  /* an image whose copies would take 200 MB is left to the other ways */
  aci_conv huge = D2(1, 1, 64, 64, 640, 640, 3, 3, 1, 1, 1), photo = D2(1, 1, 64, 64, 224, 224, 3, 3, 1, 1, 1);
  huge.type = photo.type = ACI_GEMM_F16;
  memcpy(huge.out, huge.in, sizeof huge.out);
  memcpy(photo.out, photo.in, sizeof photo.out);
  assert_false(aci_conv_wants_upcast(&huge));
  assert_true(aci_conv_wants_upcast(&photo));
}

/* Winograd's way: even and odd extents, every padding, blocks of many images, of one, and of part of a row's panel;
 * channels that leave panels half full. */
static const aci_conv tiled[] = {
    D2(9, 1, 32, 40, 27, 26, 3, 3, 1, 1, 1),  D2(30, 1, 45, 33, 14, 15, 3, 3, 1, 0, 1),
    D2(20, 1, 33, 64, 11, 13, 3, 3, 1, 2, 1), D2(100, 1, 64, 65, 4, 4, 3, 3, 1, 1, 1),
    D2(200, 1, 48, 70, 3, 3, 3, 3, 1, 1, 1),  D2(1, 1, 32, 33, 23, 500, 3, 3, 1, 1, 1),
    D2(2, 1, 40, 34, 64, 66, 3, 3, 1, 1, 1),  D2(5, 1, 110, 130, 16, 32, 3, 3, 1, 1, 1),
};
static void winograd(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof tiled / sizeof *tiled; i++) {
    aci_conv c = tiled[i];
    for (int d = 0; d < ACI_CONV_DIMS; d++) c.out[d] = c.in[d] + 2 * c.pad[d] - c.k[d] + 1;
    if (i == 0 && !aci_conv_wants_winograd(&c)) skip(); /* base instructions, or switched off */
    assert_true(aci_conv_wants_winograd(&c));
    run_case(ACI_GEMM_F32, &c);
  }
}

/* Whatever the values: a rounding of the largest in reach, here of one that is 1e8 times the others. */
static void winograd_near_a_large_value(void **state) {
  (void)state;
  aci_conv c = D2(16, 1, 64, 64, 16, 16, 3, 3, 1, 1, 1);
  ac_err e;
  for (int d = 0; d < ACI_CONV_DIMS; d++) c.out[d] = c.in[d];
  if (!aci_conv_wants_winograd(&c)) skip();
  const int64_t n = c.n * 64 * 256;
  float *x = values(ACI_GEMM_F32, n), *y = values(ACI_GEMM_F32, n), *w = values(ACI_GEMM_F32, 64 * 64 * 9);
  for (int i = 0; i < 64 * 64 * 9; i++) w[i] = i / 9 / 64 == i / 9 % 64 && i % 9 == 4;
  x[5 * 256 + 7 * 16 + 9] = 1e8F;
  assert_ok(aci_conv_forward(NULL, &c, x, w, NULL, y, &e), e);
  for (int64_t i = 0; i < n; i++) {
    const int row = (int)(i / 16 % 16), col = (int)(i % 16);
    const bool near = i / 256 == 5 && row >= 4 && row <= 9 && col >= 6 && col <= 11;
    if (!(fabs(y[i] - x[i]) <= (near ? 4 * 1e8 * 0x1p-24 : 4 * 0x1p-24)))
      fail_msg("[%d] is %.9g instead of %.9g", (int)i, y[i], x[i]);
  }
  free(x);
  free(y);
  free(w);
}

/* Its sums are as exact as plain ones where values are of like size: root mean square of the errors, relative to the sum
 * of magnitudes. */
static void winograd_is_as_exact(void **state) {
  (void)state;
  aci_conv c = D2(16, 1, 64, 64, 16, 16, 3, 3, 1, 1, 1), plain;
  problem p = {.c = c};
  double error[2][3] = {{0}};
  ac_err e;
  for (int d = 0; d < ACI_CONV_DIMS; d++) p.c.out[d] = c.in[d];
  if (!aci_conv_wants_winograd(&p.c)) skip();
  const int64_t n = c.n * 64 * 256, n_w = 64 * 64 * 9;
  p.x = values(ACI_GEMM_F32, n);
  p.w = values(ACI_GEMM_F32, n_w);
  p.y = values(ACI_GEMM_F32, n);
  float *got = values(ACI_GEMM_F32, n);
  for (int way = 0; way < 2; way++) {
    plain = p.c;
    if (way == 1) plain.n = 1; /* image by image is below what goes Winograd's way */
    assert_int_equal(aci_conv_wants_winograd(&plain), way == 0);
    for (int what = 0; what < 3; what++) {
      const bool weight = what == 2;
      if (weight && way == 1) continue;
      const int64_t each = weight ? n_w : n / c.n * plain.n;
      for (int64_t i = 0; i < (weight ? 1 : c.n / plain.n); i++) {
        const float *x = (const float *)p.x + i * each, *y = (const float *)p.y + i * each;
        assert_ok(what == 0   ? aci_conv_forward(NULL, &plain, x, p.w, NULL, got + i * each, &e)
                  : what == 1 ? aci_conv_backward_input(NULL, &plain, y, p.w, NULL, got + i * each, &e)
                              : aci_conv_backward_weight(NULL, &plain, y, x, got, &e),
                  e);
      }
      const int64_t all = weight ? n_w : n;
      for (int64_t i = 0; i < all; i += 37) {
        const sum s = what == 0 ? forward_at(&p, i) : what == 1 ? input_at(&p, i) : weight_at(&p, i);
        error[way][what] += pow((got[i] - s.value) / s.size, 2) / (double)((all + 36) / 37);
      }
    }
  }
  for (int what = 0; what < 3; what++) {
    const double bar = what < 2 ? 2 * sqrt(error[1][what]) : 3e-8; /* half a unit in the last place */
    if (sqrt(error[0][what]) > bar)
      fail_msg("gradient %d: error %.2g, at most %.2g", what, sqrt(error[0][what]), bar);
  }
  free(p.x);
  free(p.w);
  free(p.y);
  free(got);
}

static int setup(void **state) {
  const int size[] = {1, 2, 5};
  ac_err e;
  (void)state;
  for (int i = 0; i < 3; i++)
    if (ac_team_new(size[i], &teams[i + 1], &e) != AC_OK) return -1;
  return 0;
}
static int teardown(void **state) {
  (void)state;
  for (int i = 1; i < 4; i++) ac_team_free(teams[i]);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_shapes),
      cmocka_unit_test(large_shapes),
      cmocka_unit_test(bias_of_the_transposed),
      cmocka_unit_test(infinities_stay_where_they_are),
      cmocka_unit_test(through_onednn),
      cmocka_unit_test(random_shapes_on_amx),
      cmocka_unit_test(chosen_by_shape),
      cmocka_unit_test(through_copies),
      cmocka_unit_test(winograd),
      cmocka_unit_test(winograd_is_as_exact),
      cmocka_unit_test(winograd_near_a_large_value),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
