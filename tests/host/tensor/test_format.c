/* Printing against PyTorch's own text (reference/tensor/cases.py wrote it), and what PyTorch has no word for: our names of
 * devices, gradients, unreadable bytes, other locales. */
#include "support/test.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/convert.h"
#include "tensor/format.h"
#include "tensor/tensor_impl.h"

typedef struct format_case {
  ac_dtype dtype;
  int ndim;
  int64_t shape[4], stride[4], offset;
  int n;       /* elements of the storage */
  double step; /* not 0: element i is i * step */
  double value[60];
  const char *text;
} format_case;

#include "reference/tensor/format_cases.h"

static ac_device *cpu, *meta;

static int open_devices(void **state) {
  ac_err e;
  return ac_device_open(ac_device_cpu_vtable(), 0, 0, NULL, &cpu, &e) != AC_OK ||
         ac_device_open(ac_device_meta_vtable(), 0, 0, NULL, &meta, &e) != AC_OK;
}
static int close_devices(void **state) {
  ac_device_release(cpu);
  ac_device_release(meta);
  return 0;
}

static void check_text(const ac_tensor *t, const char *want) {
  char *text = ac_tensor_format(t);
  assert_non_null(text);
  assert_string_equal(text, want);
  free(text);
}

static void prints_like_pytorch(void **state) {
  for (size_t k = 0; k < sizeof format_cases / sizeof format_cases[0]; k++) {
    const format_case *c = &format_cases[k];
    size_t size = ac_dtype_bytes(c->dtype);
    char *data = malloc((size_t)c->n * size + 1);
    for (int i = 0; i < c->n; i++)
      aci_item_store_f64(c->dtype, data + (size_t)i * size, c->step != 0 ? i * c->step : c->value[i]);
    ac_err e;
    ac_storage *s = NULL;
    ac_tensor *t = NULL;
    assert_ok(ac_storage_wrap(cpu, data, (size_t)c->n * size, free, data, &s, &e), e);
    assert_ok(ac_tensor_view(s, c->dtype, c->ndim, c->shape, c->stride, c->offset, &t, &e), e);
    ac_storage_release(s);
    check_text(t, c->text);
    ac_tensor_release(t);
  }
}

static void prints_meta(void **state) {
  ac_err e;
  ac_tensor *t = NULL;
  assert_ok(ac_tensor_new(meta, AC_F32, 2, (int64_t[]){2, 3}, &t, &e), e);
  check_text(t, "tensor(..., device='meta', size=(2, 3))");
  ac_tensor_release(t);
  assert_ok(ac_tensor_new(meta, AC_BF16, 1, (int64_t[]){0}, &t, &e), e);
  check_text(t, "tensor(..., device='meta', size=(0,), dtype=bf16)");
  ac_tensor_release(t);
  assert_ok(ac_tensor_new(meta, AC_I64, 0, NULL, &t, &e), e);
  check_text(t, "tensor(..., device='meta', size=(), dtype=i64)");
  ac_tensor_release(t);
}

static const char *a_name(const ac_tensor *t) { return "mul"; }
static void forget(ac_tensor *t) { t->grad_fn = NULL; }

static void prints_gradient_state(void **state) {
  ac_err e;
  ac_tensor *t = NULL;
  assert_ok(ac_tensor_from_host(cpu, AC_F64, 1, (int64_t[]){2}, (double[]){1, 2.5}, &t, &e), e);
  t->flags |= ACI_T_REQUIRES_GRAD;
  check_text(t, "tensor([1.0000, 2.5000], dtype=f64, requires_grad=True)");
  const char *(*name)(const ac_tensor *) = aci_tensor_grad_name;
  void (*drop)(ac_tensor *) = aci_tensor_drop_autograd;
  aci_tensor_grad_name = a_name;
  aci_tensor_drop_autograd = forget;
  t->grad_fn = (struct ac_node *)t; /* only its presence is looked at */
  check_text(t, "tensor([1.0000, 2.5000], dtype=f64, grad_fn=<mul>)");
  ac_tensor_release(t);
  aci_tensor_grad_name = name;
  aci_tensor_drop_autograd = drop;
}

static ac_status fail_acquire(ac_storage *s, void **ptr, ac_err *e) { return AC_FAIL(e, IO, "gone"); }

static void prints_what_cannot_be_read(void **state) {
  static const ac_provider gone = {.struct_size = sizeof gone, .name = "gone", .acquire = fail_acquire};
  ac_err e;
  ac_storage *s = NULL;
  ac_tensor *t = NULL;
  assert_ok(ac_storage_provided(cpu, 24, &gone, NULL, &s, &e), e);
  assert_ok(ac_tensor_view(s, AC_F64, 1, (int64_t[]){3}, NULL, 0, &t, &e), e);
  check_text(t, "tensor(..., size=(3,), dtype=f64)");
  ac_tensor_release(t);
  ac_storage_release(s);
  t = aci_tensor_shell(cpu, AC_F32, 1, (int64_t[]){2}); /* an output that has no bytes yet */
  check_text(t, "tensor(..., size=(2,))");
  ac_tensor_release(t);
}

static void ignores_the_locale(void **state) {
  static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ps_AF", "C.UTF-8"};
  char *before = strdup(setlocale(LC_NUMERIC, NULL));
  ac_err e;
  ac_tensor *t = NULL;
  assert_ok(ac_tensor_from_host(cpu, AC_F64, 1, (int64_t[]){2}, (double[]){-0.5, 1e-9}, &t, &e), e);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (setlocale(LC_NUMERIC, names[i]) != NULL)
      check_text(t, "tensor([-5.0000e-01,  1.0000e-09], dtype=f64)");
  setlocale(LC_NUMERIC, before);
  free(before);
  ac_tensor_release(t);
}

static void leaves_nothing(void **state) { assert_int_equal(ac_tensor_live(), 0); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(prints_like_pytorch),   cmocka_unit_test(prints_meta),
      cmocka_unit_test(prints_gradient_state), cmocka_unit_test(prints_what_cannot_be_read),
      cmocka_unit_test(ignores_the_locale),    cmocka_unit_test(leaves_nothing)};
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}
