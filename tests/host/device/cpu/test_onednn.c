/* The cache of oneDNN's plans: one shape, one plan, whichever kind; what is held stays while thousands of others come, and works. */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/onednn.h"

static aci_onednn_shape product(int64_t m, int64_t n, int64_t k) {
  return (aci_onednn_shape){.m = m, .n = n, .k = k, .a_rs = k, .a_cs = 1, .b_rs = n, .b_cs = 1, .c_rs = n,
                            .in_type = ACI_GEMM_F32, .out_type = ACI_GEMM_F32, .bias_type = -1};
}

static aci_onednn_conv_shape convolution(int64_t n) {
  aci_onednn_conv_shape s = {.n = n, .groups = 1, .ci = 2, .co = 3, .type = ACI_GEMM_F32, .direction = ACI_ONEDNN_CONV_FORWARD};
  for (int d = 0; d < 3; d++) s.in[d] = s.out[d] = s.k[d] = s.stride[d] = s.dil[d] = 1;
  s.in[2] = s.out[2] = 5;
  return s;
}

static void held_plans_stay(void **state) {
  (void)state;
  enum { M = 3, N = 16, K = 8, OTHERS = 1100, ALIGN = 64 };
  const aci_onednn_api *api = aci_onednn_api_get();
  if (api == NULL) skip();
  const aci_onednn_shape s = product(M, N, K);
  const aci_onednn_conv_shape c = convolution(2);
  const aci_onednn_plan *p = api->get(&s), *q = api->conv_get(&c);
  assert_non_null(p);
  assert_non_null(q);
  assert_ptr_equal(api->get(&s), p);
  assert_ptr_equal(api->conv_get(&c), q);
  api->put(p);
  api->put(q);
  for (int i = 0; i < OTHERS; i++) { /* more than the cache keeps, of both kinds */
    const aci_onednn_shape other = product(1 + i, N, K);
    const aci_onednn_conv_shape conv = convolution(3 + i);
    const aci_onednn_plan *o = i % 8 == 0 ? api->conv_get(&conv) : api->get(&other);
    assert_non_null(o);
    api->put(o);
  }
  assert_ptr_equal(api->get(&s), p);
  assert_ptr_equal(api->conv_get(&c), q);
  api->put(p);
  api->put(q);

  float *a = aligned_alloc(ALIGN, 64 * sizeof *a), *b = aligned_alloc(ALIGN, N * K * sizeof *b), *y = aligned_alloc(ALIGN, 64 * sizeof *y);
  void *packed = aligned_alloc(ALIGN, (p->packed_bytes + ALIGN) / ALIGN * ALIGN);
  void *scratch = aligned_alloc(ALIGN, (p->scratch_bytes + ALIGN) / ALIGN * ALIGN);
  for (int i = 0; i < M * K; i++) a[i] = (float)(i % 5);
  for (int i = 0; i < N * K; i++) b[i] = (float)(i % 7) - 3;
  if (p->packed_bytes > 0) assert_true(api->pack_b(p, b, packed, scratch));
  assert_true(api->run(p, a, p->packed_bytes > 0 ? packed : b, NULL, y, scratch));
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      float want = 0;
      for (int k = 0; k < K; k++) want += a[i * K + k] * b[k * N + j];
      assert_true(y[i * N + j] == want);
    }
  free(a), free(b), free(y), free(packed), free(scratch);
  api->put(p);
  api->put(q);
}

/* A shape that there is no primitive of is so each time. */
static void no_plan(void **state) {
  (void)state;
  const aci_onednn_api *api = aci_onednn_api_get();
  if (api == NULL) skip();
  aci_onednn_shape s = product(4, 4, 4);
  s.in_type = 99;
  for (int i = 0; i < 3; i++) assert_null(api->get(&s));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(held_plans_stay), cmocka_unit_test(no_plan)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
