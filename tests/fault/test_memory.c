/* Every call of malloc, calloc and realloc that a script's life makes fails once, and from then on always, from the opening of the host to
 * its end: opening, building a model, training, saving, loading. failing_calls.h states what must hold. SQLite tests its library in
 * this way. test_calls.c does it for maps, threads and files.
 * tier: sampled (one of several calls in a run of every change) */
#include "support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <stdio.h>
int main(void) {
  puts("skipped: the sanitizer has an allocator of its own");
  return 77;
}
#else
#include "fault/failing_calls.h"

static const char code[] =
    "local accel = require 'accel'\n"
    "local nn, path = accel.nn, ...\n"
    "accel.manual_seed(3)\n"
    "local net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))\n"
    "local opt = accel.optim.AdamW(net:parameters(), { lr = 0.01 })\n"
    "for _ = 1, 3 do net(accel.ones(2, 8)):pow(2):mean():backward() opt:step() opt:zero_grad() end\n"
    "assert(accel.save(path, net:state_dict()))\n"
    "assert(accel.load(path))\n"
    "collectgarbage()\n"; /* finalizers meet the fault as well */

static char path[4096];

static ac_status run(ac_host *h, ac_err *e) {
  const char *const args[] = {path};
  return ac_host_run_string(h, code, "script", 1, args, e);
}

static void each_allocation(void **state) {
  (void)state;
  failing_each(run, MEMORY, 307);
}

int main(void) {
  const char *tmp = getenv("ACCEL_TEST_TMP");
  snprintf(path, sizeof path, "%s/w.safetensors", tmp != NULL ? tmp : "/tmp");
  failing_set_up(1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
