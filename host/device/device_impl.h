/* The private face of a device: fields that kernels and the dispatcher read directly. */
#ifndef ACI_DEVICE_IMPL_H
#define ACI_DEVICE_IMPL_H
#include "accel/device.h"
#include "base/hostdev.h"
#ifdef __cplusplus
extern "C" {
#else
#include <stdatomic.h>
#endif

struct ac_device {
  AC_ATOMIC(int32_t) ref;
  ac_device_kind kind;
  int index;
  char name[16];
  const ac_device_vtable *vt;
  ac_pool *pool; /* retained. Blocks retain it as well */
  ac_team *team; /* borrowed. NULL runs kernels on the caller alone */
  void *impl;    /* the vtable's own */
  /* borrowed (capture.h). NULL: nothing is recorded or watched */
  struct aci_device_capture *capture;
};

/* Contexts open the same device each for themselves. */
static inline bool aci_same_device(const ac_device *a, const ac_device *b) {
  return a == b || (a->kind == b->kind && a->index == b->index);
}

/* A device with memory of its own: the host reads its bytes through copies. Not the CPU, and not
 * meta, which has no bytes. */
static inline bool aci_is_accelerator(const ac_device *d) {
  return d->kind != AC_DEV_CPU && d->kind != AC_DEV_META;
}

/* Accelerators of different kinds: copies between them go through the host's memory. */
static inline bool aci_accelerators_differ(const ac_device *a, const ac_device *b) {
  return a->kind != b->kind && aci_is_accelerator(a) && aci_is_accelerator(b);
}

/* Flags of meta, in the order of its provider's table. */
enum { ACI_META_ACCELERATOR };

/* The kind of a provider by its name (n characters), -1: there is none. */
int aci_device_kind_named(const char *name, size_t n);

/* "tf32" of CUDA_TF32: how contexts and scripts call flag i. */
void aci_device_flag_name(const ac_device_provider *p, int i, char *name, size_t n);

/* As ac_device_retain, unless the last reference is gone: then nothing but blocks keeps the struct,
 * and it is false. */
bool aci_device_hold(ac_device *d);

/* Bytes of the host to a device: the vtable's upload, or its default. */
ac_status aci_device_upload(ac_device *d, ac_stream *s, void *dst, const void *src, size_t bytes,
                            ac_err *e);

/* cpu.c: a copy whose stores go around the caches. The ranges do not overlap. */
void aci_copy_streamed(void *dst, const void *src, size_t n);

/* A block's head. ptr is NULL on phantom devices and for zero bytes. */
struct ac_block {
  void *ptr;
  size_t bytes; /* requested, rounded up to 64 */
  ac_pool *pool;
  /* the remaining fields belong to pool.c */
};

#ifdef __cplusplus
}
#endif

#endif
