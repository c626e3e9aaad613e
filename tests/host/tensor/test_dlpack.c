/* DLPack out and in: layout, strides, lifetime, what is refused and to whom the foreign tensor belongs then. */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "accel/accel.h"
#include "tensor/dlpack.h"

static ac_device *cpu;

static int setup(void **state) {
  ac_err e;
  (void)state;
  return ac_device_open(ac_device_cpu_vtable(), 0, 1 << 24, NULL, &cpu, &e) == AC_OK ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  ac_device_release(cpu);
  return 0;
}

static ac_tensor *matrix(void) {
  ac_err e;
  ac_tensor *t = NULL;
  const int64_t shape[2] = {2, 3};
  const float data[6] = {0, 1, 2, 3, 4, 5};
  assert_ok(ac_tensor_from_host(cpu, AC_F32, 2, shape, data, &t, &e), e);
  return t;
}

static void test_round_trip(void **state) {
  (void)state;
  ac_err e;
  ac_tensor *t = matrix(), *v = NULL, *back = NULL;
  const int64_t shape[2] = {3, 2}, stride[2] = {1, 3};
  assert_ok(ac_tensor_view(ac_tensor_storage(t), AC_F32, 1, shape + 1, stride + 1, 1, &v, &e), e); /* column 1 */
  struct DLManagedTensor *m = NULL;
  assert_ok(ac_tensor_to_dlpack(v, &m, &e), e);
  const aci_dl_tensor *d = &m->dl_tensor;
  assert_ptr_equal(d->data, (float *)ac_tensor_data(t) + 1);
  assert_true(d->device.type == 1 && d->device.id == 0 && d->ndim == 1 && d->byte_offset == 0);
  assert_true(d->dtype.code == 2 && d->dtype.bits == 32 && d->dtype.lanes == 1);
  assert_true(d->shape[0] == 2 && d->strides[0] == 3);
  ac_tensor_release(t);
  ac_tensor_release(v);
  assert_int_equal(ac_tensor_live(), 1); /* the capsule keeps it */
  assert_ok(ac_tensor_from_dlpack(cpu, m, &back, &e), e);
  assert_int_equal(ac_tensor_stride(back)[0], 3);
  ac_scalar s;
  assert_ok(ac_tensor_item(back, 1, &s, &e), e);
  assert_true(s.f == 4);
  ac_tensor_release(back);
  assert_int_equal(ac_tensor_live(), 0);

  t = matrix();
  struct DLManagedTensorVersioned *w = NULL;
  assert_ok(ac_tensor_to_dlpack_versioned(t, &w, &e), e);
  assert_true(w->version.major == 1 && w->flags == 0 && w->dl_tensor.ndim == 2);
  assert_ok(ac_tensor_from_dlpack_versioned(cpu, w, &back, &e), e);
  ac_tensor_release(t);
  assert_ok(ac_tensor_item(back, 5, &s, &e), e);
  assert_true(s.f == 5);
  ac_tensor_release(back);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_every_dtype(void **state) {
  (void)state;
  ac_err e;
  const int64_t shape[1] = {3};
  for (int dt = 0; dt < AC_DTYPE_COUNT; dt++) {
    ac_tensor *t = NULL, *back = NULL;
    struct DLManagedTensor *m = NULL;
    assert_ok(ac_tensor_new(cpu, (ac_dtype)dt, 1, shape, &t, &e), e);
    assert_ok(ac_tensor_to_dlpack(t, &m, &e), e);
    assert_int_equal(m->dl_tensor.dtype.bits, 8 * ac_dtype_bytes((ac_dtype)dt));
    assert_ok(ac_tensor_from_dlpack(cpu, m, &back, &e), e);
    assert_int_equal(ac_tensor_dtype(back), dt);
    ac_tensor_release(back);
    ac_tensor_release(t);
  }
  assert_int_equal(ac_tensor_live(), 0);
}

/* ---- what others give ---- */

static int n_deleted;
static void deleted(struct DLManagedTensor *m) {
  (void)m;
  n_deleted++;
}
static void deleted_versioned(struct DLManagedTensorVersioned *m) {
  (void)m;
  n_deleted++;
}

static double numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static int64_t shape22[2] = {2, 2}, stride_far[2] = {4, 1};

static struct DLManagedTensor foreign(void) {
  struct DLManagedTensor m;
  memset(&m, 0, sizeof m);
  m.dl_tensor.data = numbers;
  m.dl_tensor.device.type = 1;
  m.dl_tensor.ndim = 2;
  m.dl_tensor.dtype.code = 2;
  m.dl_tensor.dtype.bits = 64;
  m.dl_tensor.dtype.lanes = 1;
  m.dl_tensor.shape = shape22;
  m.deleter = deleted;
  return m;
}

static void test_foreign(void **state) {
  (void)state;
  ac_err e;
  ac_tensor *t = NULL;
  ac_scalar s;
  n_deleted = 0;
  struct DLManagedTensor m = foreign();
  m.dl_tensor.byte_offset = 8;
  m.dl_tensor.strides = stride_far;
  assert_ok(ac_tensor_from_dlpack(cpu, &m, &t, &e), e);
  assert_ok(ac_tensor_item(t, 3, &s, &e), e);
  assert_true(s.f == 6 && ac_tensor_data(t) == numbers + 1);
  ac_tensor_retain(t);
  ac_tensor_release(t);
  assert_int_equal(n_deleted, 0);
  ac_tensor_release(t);
  assert_int_equal(n_deleted, 1);

  m = foreign(); /* row-major, nobody to tell */
  m.deleter = NULL;
  assert_ok(ac_tensor_from_dlpack(cpu, &m, &t, &e), e);
  assert_int_equal(ac_tensor_stride(t)[0], 2);
  ac_tensor_release(t);
  m = foreign(); /* no elements, no address */
  int64_t empty[2] = {0, 3};
  m.dl_tensor.shape = empty;
  m.dl_tensor.data = NULL;
  assert_ok(ac_tensor_from_dlpack(cpu, &m, &t, &e), e);
  assert_int_equal(ac_tensor_numel(t), 0);
  ac_tensor_release(t);
  m = foreign(); /* rank 0 */
  m.dl_tensor.ndim = 0;
  m.dl_tensor.shape = NULL;
  assert_ok(ac_tensor_from_dlpack(cpu, &m, &t, &e), e);
  assert_int_equal(ac_tensor_numel(t), 1);
  ac_tensor_release(t);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_refused(void **state) {
  (void)state;
  ac_err e;
  ac_tensor *t = NULL;
  n_deleted = 0;
  struct DLManagedTensor m = foreign();
#define REFUSED(code, text)                                              \
  do {                                                                   \
    assert_fails(ac_tensor_from_dlpack(cpu, &m, &t, &e), code, text, e); \
    assert_null(t);                                                      \
    m = foreign();                                                       \
  } while (0)
  m.dl_tensor.device.type = 2;
  REFUSED(DEVICE, "device of type 2");
  m.dl_tensor.dtype.code = 3;
  REFUSED(DTYPE, "type code 3 with 64 bits");
  m.dl_tensor.dtype.lanes = 4;
  REFUSED(DTYPE, "4 lanes");
  m.dl_tensor.ndim = -1;
  REFUSED(INVALID, "-1 dims");
  m.dl_tensor.ndim = AC_MAX_DIMS + 1;
  int64_t many[AC_MAX_DIMS + 1];
  for (int i = 0; i <= AC_MAX_DIMS; i++) many[i] = 1;
  m.dl_tensor.shape = many;
  REFUSED(SHAPE, "17");
  int64_t negative[2] = {-2, 1}, huge[2] = {INT64_MAX, 3}, far[2] = {INT64_MAX / 2, INT64_MAX / 2};
  m.dl_tensor.strides = negative;
  REFUSED(UNSUPPORTED, "negative");
  m.dl_tensor.shape = negative;
  REFUSED(SHAPE, "-2");
  m.dl_tensor.shape = huge;
  REFUSED(SHAPE, "more elements");
  m.dl_tensor.strides = far;
  REFUSED(SHAPE, "strides");
  m.dl_tensor.byte_offset = 4;
  REFUSED(INVALID, "multiple of 8");
  m.dl_tensor.data = NULL;
  REFUSED(INVALID, "no address");
  m.dl_tensor.shape = NULL;
  REFUSED(INVALID, "no shape");
  struct DLManagedTensorVersioned v;
  memset(&v, 0, sizeof v);
  v.version.major = 2;
  v.dl_tensor = m.dl_tensor;
  v.deleter = deleted_versioned;
  assert_fails(ac_tensor_from_dlpack_versioned(cpu, &v, &t, &e), UNSUPPORTED, "DLPack 2.0", e);
  v.version.major = 1;
  v.flags = 1;
  assert_fails(ac_tensor_from_dlpack_versioned(cpu, &v, &t, &e), UNSUPPORTED, "read only", e);
  assert_int_equal(n_deleted, 0); /* what was refused stays its owner's */
  v.flags = 0;
  assert_ok(ac_tensor_from_dlpack_versioned(cpu, &v, &t, &e), e);
  ac_tensor_release(t);
  assert_int_equal(n_deleted, 1);

  ac_device *meta = NULL;
  const int64_t shape[1] = {4};
  struct DLManagedTensor *out = NULL;
  assert_ok(ac_device_open(ac_device_meta_vtable(), 0, 0, NULL, &meta, &e), e);
  assert_fails(ac_tensor_from_dlpack(meta, &m, &t, &e), DEVICE, "meta", e);
  assert_ok(ac_tensor_new(meta, AC_F32, 1, shape, &t, &e), e);
  assert_fails(ac_tensor_to_dlpack(t, &out, &e), UNSUPPORTED, "move it to the CPU", e);
  assert_null(out);
  ac_tensor_release(t);
  ac_device_release(meta);
  t = matrix();
  ac_tensor_set_requires_grad(t, true, NULL);
  assert_fails(ac_tensor_to_dlpack(t, &out, &e), GRAD, "detach", e);
  ac_tensor_release(t);
  assert_int_equal(ac_tensor_live(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_every_dtype),
                                     cmocka_unit_test(test_foreign), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
