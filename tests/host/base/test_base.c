/* The small parts of base: errors, log, nearest names, numbers as text, text buffers, the machine. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/base.h"
#include "base/base_impl.h"
#include "base/fault.h"
#include "base/number.h"
#include "base/strbuf.h"

static ac_status fails(ac_err *e, int n) { return AC_FAIL(e, SHAPE, "%d is wrong", n); }

static ac_status passes_on(ac_err *e) {
  AC_TRY(fails(e, 3));
  return AC_OK;
}

static void errors_tell_their_story(void **state) {
  (void)state;
  ac_err e;
  memset(&e, 0xAA, sizeof e); /* callers do not initialise it */
  errno = 17;
  assert_int_equal(passes_on(&e), AC_SHAPE);
  assert_int_equal(errno, 17);
  assert_int_equal(e.code, AC_SHAPE);
  assert_string_equal(e.msg, "3 is wrong");
  assert_string_equal(e.op, "");
  assert_string_equal(e.device, "");
  assert_int_equal(e.rank, -1);
  assert_non_null(strstr(e.file, "test_base.c"));
  assert_true(e.line > 0);
  assert_int_equal(fails(NULL, 1), AC_SHAPE);
  assert_int_equal(AC_FAIL(&e, IO, "while reading: %s", e.msg),
                   AC_IO); /* adding to the message that is there */
  assert_string_equal(e.msg, "while reading: 3 is wrong");
  char big[2000];
  memset(big, 'x', sizeof big);
  big[sizeof big - 1] = '\0';
  AC_FAIL(&e, IO, "%s", big);
  assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
  assert_string_equal(ac_status_name(AC_OOM), "out_of_memory");
  assert_string_equal(ac_status_name(AC_OK), "ok");
  assert_string_equal(ac_status_name((ac_status)999), "unknown");
}

typedef struct line {
  int n;
  ac_log_level level;
  char subsystem[16], msg[1100];
} line;

static void keep(void *user, ac_log_level level, const char *subsystem, const char *msg) {
  line *l = user;
  l->n++;
  l->level = level;
  snprintf(l->subsystem, sizeof l->subsystem, "%s", subsystem);
  snprintf(l->msg, sizeof l->msg, "%s", msg);
}

static void the_log_has_a_level(void **state) {
  (void)state;
  line l = {0};
  ac_log_write(AC_LOG_ERROR, "test", "nobody listens");
  ac_log_set(keep, &l, AC_LOG_INFO);
  ac_log_write(AC_LOG_DEBUG, "test", "below");
  assert_int_equal(l.n, 0);
  ac_log_write(AC_LOG_INFO, "test", "%d of %s", 3, "x");
  assert_int_equal(l.n, 1);
  assert_int_equal(l.level, AC_LOG_INFO);
  assert_string_equal(l.msg, "3 of x");
  assert_string_equal(l.subsystem, "test");
  ac_log_set(keep, &l, AC_LOG_OFF);
  ac_log_write(AC_LOG_ERROR, "test", "off");
  ac_log_set(NULL, NULL, AC_LOG_TRACE);
  ac_log_write(AC_LOG_ERROR, "test", "nobody");
  assert_int_equal(l.n, 1);
}

static void to_pipe(void *user, ac_log_level level, const char *subsystem, const char *msg) {
  (void)level, (void)subsystem;
  if (write(*(int *)user, msg, strlen(msg)) < 0) _exit(9);
}

static ac_status checked(int n, ac_err *e) {
  AC_CHECK(n == 2, e);
  return AC_OK;
}

/* In a child, since the fault would wait for the next context of this program. */
static void a_failed_check_is_an_error(void **state) {
  (void)state;
  int fd[2];
  assert_int_equal(pipe(fd), 0);
  pid_t pid = fork();
  if (pid == 0) {
    ac_err e;
    aci_fault f;
    ac_log_set(to_pipe, &fd[1], AC_LOG_ERROR);
    bool ok = checked(2, &e) == AC_OK && !aci_fault_claim(&f);
    ok = ok && checked(3, &e) == AC_INTERNAL && e.code == AC_INTERNAL && strstr(e.msg, "n == 2") != NULL && strstr(e.msg, "test_base.c:") != NULL;
    ok = ok && checked(3, NULL) == AC_INTERNAL && !AC_HOLDS(fd[0] < 0);
    ok = ok && aci_fault_claim(&f) && strcmp(f.expr, "fd[0] < 0") == 0 && !aci_fault_claim(&f);
    _exit(ok ? 0 : 1);
  }
  close(fd[1]);
  char logged[600] = "";
  size_t got = 0;
  for (ssize_t n; got < sizeof logged - 1 && (n = read(fd[0], logged + got, sizeof logged - 1 - got)) > 0;)
    got += (size_t)n;
  close(fd[0]);
  int status;
  waitpid(pid, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_non_null(strstr(logged, "internal check failed: n == 2"));
}

static void nearest_names(void **state) {
  (void)state;
  static const char *const names[] = {"betas",        "keepdim", "lr",  "momentum",
                                      "weight_decay", "dim",     "eps", "requires_grad"};
  static const struct {
    const char *word, *best;
  } cases[] = {
      {"beta", "betas"},
      {"btas", "betas"},
      {"ebtas", "betas"},
      {"keep_dim", "keepdim"},
      {"keep", "keepdim"},
      {"momentun", "momentum"},
      {"mometnum", "momentum"},
      {"weightdecay", "weight_decay"},
      {"weight-decay", "weight_decay"},
      {"WEIGHT_DECAY", "weight_decay"},
      {"dims", "dim"},
      {"requires_gard", "requires_grad"},
      {"Lr", "lr"},
      {"epsilon", "eps"},
      {"zzz", NULL},
      {"", NULL},
      {"x", NULL},
      {"nesterov", NULL},
      {"learning_rate", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *got = ac_nearest(cases[i].word, names, 8);
    if (got != cases[i].best && (got == NULL || cases[i].best == NULL || strcmp(got, cases[i].best) != 0))
      fail_msg("%s: %s", cases[i].word, got == NULL ? "none" : got);
  }
  char longest[500];
  memset(longest, 'a', sizeof longest);
  longest[sizeof longest - 1] = '\0';
  assert_null(ac_nearest(longest, names, 8));
  assert_null(ac_nearest("lr", names, 0));
}

static void numbers_as_text(void **state) {
  (void)state;
  static const struct {
    double v;
    const char *text;
  } cases[] = {{0.1, "0.1"},
               {1, "1"},
               {-0.0, "-0"},
               {1e300, "1e+300"},
               {1.0 / 3, "0.3333333333333333"},
               {5e-324, "4.94065645841247e-324"},
               {123456789012345680.0, "1.2345678901234568e+17"},
               {INFINITY, "inf"},
               {-INFINITY, "-inf"},
               {NAN, "nan"}};
  /* a locale with a decimal comma changes nothing; where none is installed, the C locale is tested twice */
  static const char *const locales[] = {"C", "de_DE.UTF-8"};
  for (int l = 0; l < 2; l++) {
    setlocale(LC_NUMERIC, locales[l]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
      char buf[32];
      assert_int_equal(aci_f64_text(buf, cases[i].v), strlen(cases[i].text));
      assert_string_equal(buf, cases[i].text);
    }
    char *end;
    assert_true(aci_strtod("1.5,", &end) == 1.5 && *end == ',');
  }
  setlocale(LC_NUMERIC, "C");
  char b[24];
  assert_string_equal(aci_bytes_text(b, sizeof b, 0), "0 B");
  assert_string_equal(aci_bytes_text(b, sizeof b, 1023), "1023 B");
  assert_string_equal(aci_bytes_text(b, sizeof b, 1024), "1 KiB");
  assert_string_equal(aci_bytes_text(b, sizeof b, 1536), "1.5 KiB");
  assert_string_equal(aci_bytes_text(b, sizeof b, ((uint64_t)1 << 20) - 1), "1 MiB");
  assert_string_equal(aci_bytes_text(b, sizeof b, (uint64_t)100 << 30), "100 GiB");
  assert_string_equal(aci_bytes_text(b, sizeof b, UINT64_MAX), "16 EiB");
}

static void text_buffers_grow(void **state) {
  (void)state;
  aci_strbuf b = {0};
  for (int i = 0; i < 1000; i++) aci_strbuf_printf(&b, "%d,", i);
  assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4);
  assert_int_equal(strlen(b.s), b.len);
  assert_non_null(strstr(b.s, ",500,501,"));
  size_t len;
  char *s = aci_strbuf_take(&b, &len);
  assert_int_equal(len, strlen(s));
  assert_null(b.s);
  free(s);
  s = aci_strbuf_take(&b, NULL);
  assert_string_equal(s, "");
  free(s);
  aci_strbuf_add(&b, "a\0b", 3);
  assert_int_equal(b.len, 3);
  assert_false(aci_strbuf_reserve(&b, SIZE_MAX / 2)); /* sticks */
  aci_strbuf_putc(&b, 'x');
  assert_int_equal(b.len, 3);
  assert_null(aci_strbuf_take(&b, NULL));
  aci_strbuf_fini(&b);
}

static void the_machine(void **state) {
  (void)state;
  uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  assert_true(aci_host_memory() > 1 << 20 && aci_host_memory() <= physical);
  assert_true(aci_host_cpus() >= 1 && aci_host_cpus() <= sysconf(_SC_NPROCESSORS_CONF));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_tell_their_story),
      cmocka_unit_test(the_log_has_a_level),
      cmocka_unit_test(a_failed_check_is_an_error),
      cmocka_unit_test(nearest_names),
      cmocka_unit_test(numbers_as_text),
      cmocka_unit_test(text_buffers_grow),
      cmocka_unit_test(the_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
