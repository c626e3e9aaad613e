/* The I/O thread and a device whose copies take their time: a write whose bytes have not come keeps nobody waiting, can be taken back, and is carried
 * out when they have; of two, the one whose bytes come first; a device that fails is the write's own error; the queue ends with all of them done.
 * tier: every change, memory */
#include "support/test.h"

#include <string.h>

#include "device/device_impl.h"
#include "offload/offload.h"

enum { BYTES = 4096 };
enum { COPIES, THROUGH, LOST };
typedef _Atomic int flag;

static aci_io_queue *queue;

static ac_status query(ac_device *d, ac_event *ev, bool *done, ac_err *e) {
  (void)d;
  const int now = atomic_load((flag *)ev);
  *done = now == THROUGH;
  return now == LOST ? AC_FAIL(e, DEVICE, "the device is lost") : AC_OK;
}

static const ac_device_vtable vt = {.struct_size = sizeof vt, .name = "slow", .event_query = query};
static ac_device slow = {.vt = &vt};

typedef struct leaving {
  aci_home home;
  aci_lane lane;
  aci_transfer transfer;
  flag copy;
  unsigned char bytes[BYTES];
} leaving;

static void prepare(leaving *x, aci_store *s, int tag) {
  ac_err e;
  assert_ok(aci_home_new(s, BYTES, &x->home, &e), e);
  memset(ac_block_ptr(x->home.block), 0, BYTES);
  for (size_t i = 0; i < BYTES; i++) x->bytes[i] = (unsigned char)(i * 7 + (size_t)tag);
  x->lane = (aci_lane){.device = &slow, .after = (ac_event *)&x->copy, .under_way = true};
  x->transfer = (aci_transfer){.home = &x->home, .p = x->bytes, .bytes = BYTES, .write = true, .lane = &x->lane};
  atomic_store(&x->copy, COPIES);
}

static void send(aci_transfer *t) {
  pthread_mutex_lock(&queue->lock);
  aci_io_queue_send(queue, t, false);
  pthread_mutex_unlock(&queue->lock);
}

static void wait_for(aci_transfer *t) {
  pthread_mutex_lock(&queue->lock);
  aci_io_queue_wait(queue, t);
  pthread_mutex_unlock(&queue->lock);
}

static bool is_home(const leaving *x) { return memcmp(ac_block_ptr(x->home.block), x->bytes, BYTES) == 0; }

static void slow_device(void **state) {
  (void)state;
  ac_err e;
  aci_store *s;
  leaving first, second;
  unsigned char got[BYTES];
  assert_ok(aci_io_queue_new(&queue, &e), e);
  assert_ok(aci_store_host(0, &s, &e), e);
  prepare(&first, s, 1);
  prepare(&second, s, 2);
  send(&first.transfer);
  aci_transfer read = {.home = &second.home, .p = got, .bytes = BYTES};
  send(&read);
  wait_for(&read); /* though the write was sent before it */
  assert_int_equal(read.st, AC_OK);

  send(&second.transfer);
  atomic_store(&second.copy, THROUGH);
  wait_for(&second.transfer);
  assert_true(second.transfer.st == AC_OK && is_home(&second) && !second.lane.under_way);

  pthread_mutex_lock(&queue->lock);
  assert_true(first.transfer.state == ACI_SENT && first.lane.under_way && !is_home(&first));
  assert_true(aci_io_queue_cancel(queue, &first.transfer));
  pthread_mutex_unlock(&queue->lock);
  send(&first.transfer);
  atomic_store(&first.copy, THROUGH);
  wait_for(&first.transfer);
  assert_true(first.transfer.st == AC_OK && is_home(&first) && !first.lane.under_way);

  first.lane.under_way = true;
  atomic_store(&first.copy, LOST);
  send(&first.transfer);
  wait_for(&first.transfer);
  assert_fails(first.transfer.st, DEVICE, "lost", first.transfer.err);
  assert_true(first.lane.under_way); /* nothing has told that it is through */

  second.lane.under_way = true;
  atomic_store(&second.copy, COPIES);
  send(&second.transfer);
  atomic_store(&second.copy, THROUGH);
  aci_io_queue_release(queue); /* ends with it done */
  assert_int_equal(second.transfer.state, ACI_DONE);
  aci_home_free(&first.home);
  aci_home_free(&second.home);
  aci_store_release(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(slow_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
