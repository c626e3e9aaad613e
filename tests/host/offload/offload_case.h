/* What the tests of host/offload share: a device, an I/O thread, storages in both tiers that are used as the dispatcher does. */
#pragma once
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "offload/offload.h"
#include "tensor/tensor_impl.h"

static ac_device *cpu;
static aci_io_queue *queue;

static int case_open(void **state) {
  (void)state;
  ac_err e;
  assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, 0, NULL, &cpu, &e), e);
  assert_ok(aci_io_queue_new(&queue, &e), e);
  return 0;
}

static int case_close(void **state) {
  (void)state;
  ac_mem_stats m;
  aci_io_queue_release(queue);
  ac_mem_stats_get(cpu, &m);
  assert_int_equal(m.live_bytes, 0); /* windows left nothing */
  ac_device_release(cpu);
  return 0;
}

static unsigned char byte_at(int tag, size_t i) { return (unsigned char)(i * 7 + (i >> 8) * 13 + (size_t)tag * 31 + 1); }

/* Writes storage s as an op would. */
static ac_status case_fill(ac_storage *s, int tag, ac_err *e) {
  void *p;
  const ac_status st = s->provider->acquire(s, &p, e);
  if (st != AC_OK) return st;
  for (size_t i = 0; i < s->bytes; i++) ((unsigned char *)p)[i] = byte_at(tag, i);
  s->provider->release(s, true);
  return AC_OK;
}

/* Reads it as an op would; fails the test where a byte is wrong. */
static ac_status case_check(ac_storage *s, int tag, ac_err *e) {
  void *p;
  const ac_status st = s->provider->acquire(s, &p, e);
  if (st != AC_OK) return st;
  assert_int_equal((uintptr_t)p % 64, 0);
  for (size_t i = 0; i < s->bytes; i++)
    if (((unsigned char *)p)[i] != byte_at(tag, i)) fail_msg("storage %d: byte %zu of %zu is wrong", tag, i, s->bytes);
  s->provider->release(s, false);
  return AC_OK;
}
