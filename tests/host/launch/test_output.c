/* Lines on their way from a rank's pipe to the console and the log. */
#include "support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/launch_impl.h"

static aci_sink sink;
static aci_stream stream;
static int feed; /* the rank's end */
static char *shown, *logged;

static void open_all(const char *prefix) {
  int fd[2];
  shown = ac_test_tmp_path("shown");
  logged = ac_test_tmp_path("logged");
  assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
  fcntl(fd[0], F_SETFL, O_NONBLOCK);
  feed = fd[1];
  sink = (aci_sink){.fd = open(shown, O_CREAT | O_TRUNC | O_WRONLY, 0666)};
  stream = (aci_stream){.fd = fd[0], .show = &sink, .log = open(logged, O_CREAT | O_TRUNC | O_WRONLY, 0666)};
  stream.line = malloc(ACI_LINE_MAX + 1);
  strcpy(stream.prefix, prefix);
  assert_true(sink.fd >= 0 && stream.log >= 0 && stream.line != NULL);
}

static void say(const char *text, size_t n) {
  while (n > 0) {
    size_t k = n < 30000 ? n : 30000;
    assert_int_equal(write(feed, text, k), k);
    while (aci_stream_read(&stream)) continue;
    text += k;
    n -= k;
  }
}

/* What the console got; the caller frees. */
static char *close_all(size_t *n) {
  close(feed);
  while (aci_stream_read(&stream)) continue;
  assert_int_equal(stream.fd, -1);
  assert_null(stream.line);
  aci_sink_flush(&sink);
  assert_int_equal(aci_sink_waiting(&sink), 0);
  close(sink.fd);
  close(stream.log);
  aci_sink_free(&sink);
  char *text = ac_test_read(shown, n);
  free(shown);
  return text;
}

static void expect_log(const char *want, size_t n_want) {
  size_t n;
  char *text = ac_test_read(logged, &n);
  assert_int_equal(n, n_want);
  assert_memory_equal(text, want, n);
  free(text);
  free(logged);
}

static void test_lines(void **state) {
  (void)state;
  size_t n;
  open_all("[rank 1] ");
  say("one\ntwo ", 8);
  aci_sink_flush(&sink);
  say("and a half\n\nzero\0byte\n", 22);
  say("last", 4);
  char *text = close_all(&n);
  const char want[] = "[rank 1] one\n[rank 1] two and a half\n[rank 1] \n[rank 1] zero\0byte\n[rank 1] last\n";
  assert_int_equal(n, sizeof want - 1);
  assert_memory_equal(text, want, n);
  free(text);
  expect_log("one\ntwo and a half\n\nzero\0byte\nlast", 34);
}

/* Lines around the longest one: what is cut, and that nothing is lost or made up. */
static void test_long(void **state) {
  (void)state;
  static const int extra[] = {-1, 0, 1, 2, ACI_LINE_MAX, ACI_LINE_MAX + 1};
  for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
    const size_t len = (size_t)(ACI_LINE_MAX + extra[i]);
    char *line = malloc(len + 2);
    memset(line, 'x', len);
    memcpy(line + len, "\ny", 2);
    open_all("P ");
    say(line, len + 2);
    size_t n;
    char *text = close_all(&n);
    int lines = 0;
    size_t xs = 0, longest = 0, now = 0;
    for (size_t k = 0; k < n; k++) {
      xs += text[k] == 'x';
      now = text[k] == 'x' ? now + 1 : 0;
      longest = now > longest ? now : longest;
      lines += text[k] == '\n';
    }
    assert_int_equal(xs, len);
    assert_true(longest <= ACI_LINE_MAX);
    assert_int_equal(lines, (int)((len + ACI_LINE_MAX - 1) / ACI_LINE_MAX) + 1);
    assert_int_equal(n, len + 1 + (size_t)lines * 3); /* y, and of each line a prefix and an end */
    free(text);
    expect_log(line, len + 2);
    free(line);
  }
}

static void test_raw(void **state) {
  (void)state;
  size_t n;
  open_all("");
  say("50 %\r", 5);
  aci_sink_flush(&sink);
  say("100 %", 5);
  char *text = close_all(&n);
  assert_int_equal(n, 10);
  assert_memory_equal(text, "50 %\r100 %", 10);
  free(text);
  expect_log("50 %\r100 %", 10);
}

/* Without a prefix the start of a line waits for its end, or until the supervision finds that it is time (partial_at). */
static void test_pieces(void **state) {
  (void)state;
  size_t n;
  open_all("");
  const int64_t began = aci_now_ns();
  say("a", 1);
  const int64_t partial_at = stream.partial_at;
  assert_true(partial_at > began);
  assert_int_equal(aci_sink_waiting(&sink), 0);
  aci_sink_put(&sink, "another's\n", 10);
  say("b", 1);
  assert_int_equal(stream.partial_at, partial_at); /* more of it is no reason to wait for longer */
  assert_int_equal(aci_sink_waiting(&sink), 10);
  say("c\nname? ", 8);
  assert_int_equal(aci_sink_waiting(&sink), 14);
  assert_true(stream.partial_at != 0);
  aci_stream_flush_partial(&stream);
  assert_int_equal(aci_sink_waiting(&sink), 20);
  assert_int_equal(stream.partial_at, 0);
  say("me\n", 3);
  char *text = close_all(&n);
  assert_string_equal(text, "another's\nabc\nname? me\n");
  free(text);
  expect_log("abc\nname? me\n", 13);
}

/* A reader that does not come keeps nobody; one that went makes the sink drop what comes. */
static void test_stuck(void **state) {
  (void)state;
  int fd[2];
  static char big[200000];
  size_t got = 0;
  memset(big, 'b', sizeof big);
  assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
  aci_sink s = {.fd = fd[1]};
  aci_sink_put(&s, big, sizeof big);
  aci_sink_flush(&s); /* must return */
  assert_true(aci_sink_waiting(&s) > 0 && aci_sink_waiting(&s) < sizeof big);
  static char buf[200000];
  while (got < sizeof big) {
    ssize_t k = read(fd[0], buf + got, 5000);
    assert_true(k > 0);
    got += (size_t)k;
    aci_sink_flush(&s);
  }
  assert_memory_equal(buf, big, sizeof big);
  assert_int_equal(aci_sink_waiting(&s), 0);
  void (*was)(int) = signal(SIGPIPE, SIG_IGN);
  close(fd[0]);
  aci_sink_put(&s, big, 10);
  aci_sink_flush(&s);
  assert_true(s.dead && s.closed);
  aci_sink_put(&s, big, 10);
  assert_int_equal(aci_sink_waiting(&s), 0);
  signal(SIGPIPE, was);
  close(fd[1]);
  aci_sink_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines), cmocka_unit_test(test_long), cmocka_unit_test(test_raw),
                                     cmocka_unit_test(test_pieces),
                                     cmocka_unit_test(test_stuck)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
