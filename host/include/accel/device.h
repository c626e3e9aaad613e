/* accel/device.h - devices: memory pools, streams and the order of work.
 *
 * A device is opened per context. Its pool caches memory and never unmaps it except in
 * ac_pool_trim. A block keeps its pool alive, a pool keeps the vtable's private part alive, so
 * blocks may outlive the context that made them. Streams are in-order queues. The CPU and meta
 * devices run everything at once on the caller ("stream NULL"). */
#ifndef ACCEL_DEVICE_H
#define ACCEL_DEVICE_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kind of device is the place of its provider in the table of the process. The first two always
 * exist. The others are numbered as they register. */
typedef enum ac_device_kind { AC_DEV_CPU = 0, AC_DEV_META = 1, AC_DEV_KINDS = 8 } ac_device_kind;
typedef enum ac_mem_class {
  AC_MEM_ACTIVATION,
  AC_MEM_PARAMETER,
  AC_MEM_PINNED,
  AC_MEM_CLASSES
} ac_mem_class;

typedef struct ac_device ac_device;
typedef struct ac_stream ac_stream;
typedef struct ac_event ac_event;
typedef struct ac_pool ac_pool;
typedef struct ac_device_graph ac_device_graph; /* work that was recorded, to be run again */
typedef struct ac_block ac_block;

/* Memory and order of one kind of device. Slots marked (optional) may be NULL with the default
 * given. */
typedef struct ac_device_vtable {
  size_t struct_size;
  const char *name; /* its provider's */
  bool single;      /* only one exists, addressed by the bare name. Otherwise "<name>:<index>" */
  /* open: any thread. Fills dev->impl. May block. (optional: nothing to do) */
  ac_status (*open)(ac_device *dev, ac_err *e);
  void (*close)(ac_device *dev); /* (optional) last reference gone, no work in flight */
  /* mem_map/mem_unmap: memory from the system, page-granular. Called by the pool only, under its
   * lock. */
  ac_status (*mem_map)(ac_device *dev, ac_mem_class c, size_t bytes, void **out, ac_err *e);
  void (*mem_unmap)(ac_device *dev, ac_mem_class c, void *p, size_t bytes);
  /* pages inside a mapping go back to the system, and come anew, with any contents, when they are
   * touched. (optional: none ever does) */
  void (*mem_release)(ac_device *dev, ac_mem_class c, void *p, size_t bytes);
  /* copy: dst and src on this device or the host, enqueued on s. The buffers stay borrowed until
   * done. */
  ac_status (*copy)(ac_device *dev, ac_stream *s, void *dst, const void *src, size_t bytes,
                    ac_err *e);
  ac_status (*fill)(ac_device *dev, ac_stream *s, void *dst, int byte, size_t bytes, ac_err *e);
  /* (optional, all six together: everything is synchronous, events are always complete) */
  ac_status (*stream_new)(ac_device *dev, int priority, ac_stream **out, ac_err *e);
  void (*stream_free)(ac_device *dev, ac_stream *s);
  ac_status (*event_new)(ac_device *dev, ac_event **out, ac_err *e);
  void (*event_free)(ac_device *dev, ac_event *ev);
  ac_status (*event_record)(ac_device *dev, ac_event *ev, ac_stream *s, ac_err *e);
  ac_status (*event_query)(ac_device *dev, ac_event *ev, bool *done, ac_err *e);
  /* s waits, the host does not */
  ac_status (*stream_wait)(ac_device *dev, ac_stream *s, ac_event *ev, ac_err *e);
  /* the host waits. s NULL = whole device. (optional) */
  ac_status (*sync)(ac_device *dev, ac_stream *s, ac_err *e);
  /* as copy, from the host. src belongs to the caller again on return. The host does not wait for
   * work on s if it can avoid it. (optional: copy, then sync) */
  ac_status (*upload)(ac_device *dev, ac_stream *s, void *dst, const void *src, size_t bytes,
                      ac_err *e);
  /* the native stream handle of this kind of device (cudaStream_t). (optional, with identity: no
   * NCCL) */
  void *(*stream_handle)(ac_device *dev, ac_stream *s);
  /* a name that is unique among the devices of the machine: the PCI address. "" if unknown */
  void (*identity)(ac_device *dev, char *id, size_t n);
  /* (optional, all four together: no steps are recorded) Between begin and end, work for stream
   * NULL of this dev, and for streams that wait for its events, is recorded instead of run. end:
   * out NULL drops the recording. launch: runs the recording again, in the order of stream NULL. */
  ac_status (*capture_begin)(ac_device *dev, ac_err *e);
  ac_status (*capture_end)(ac_device *dev, ac_device_graph **out, ac_err *e);
  ac_status (*graph_launch)(ac_device *dev, ac_device_graph *g, ac_err *e);
  void (*graph_free)(ac_device *dev, ac_device_graph *g);
} ac_device_vtable;

/* ---- providers: the table of one kind of device ---- */
struct ac_ctx;      /* accel/op.h */
struct ac_frame;    /* accel/opdef.h */
struct aci_drivers; /* shared kernels of devices of this tree */

typedef struct ac_device_kernel {
  const char *op; /* an existing op. Its in-place form is included */
  ac_status (*run)(struct ac_frame *f, ac_err *e);
} ac_device_kernel;

/* One table per kind, for the life of the process. A device of this tree defines its table with
 * AC_DEVICE in provider.c of its folder, which the build finds. A module exports
 * ac_device_provider_get (ACCEL_DEVICE_MODULES names its file). A program calls ac_device_register.
 * Slots are called on any thread, and their texts live as long as the process. */
typedef struct ac_device_provider {
  size_t struct_size;
  /* at most 8 of a-z, 0-9 and _, a letter first: scripts write "<name>" or "<name>:<index>" */
  const char *name;
  bool single; /* as in the vtable */
  /* New tensors go to the kind with the highest preference that has a device here
   * (ACCEL_DEVICE=auto). 0: only if named. */
  int preference;
  /* Parameters ACCEL_<row name>, each beginning with the device's name in capitals and an
   * underscore. The first n_flags, of type BOOL, INT or SIZE, are flags: every context has values
   * of its own, which begin as the parameters say and may change (ac_ctx_set_device_flag). Kernels
   * read them by position (ac_frame_flag). */
  const ac_param_info *params;
  int n_params, n_flags;
  /* Devices that this process may use. 0: why gets a short text that names the missing part. May
   * load libraries. (optional: 1) */
  int (*probe)(const ac_params *p, char *why, size_t n);
  /* false: probe would find nothing. Loads nothing. (optional: true) */
  bool (*likely)(const ac_params *p);
  /* Versions of its libraries, for people, after a probe: "13.0". NULL without any. (optional) */
  const char *(*libraries)(void);
  /* One line about a device that there is: "NVIDIA H100 80GB HBM3, 79.2 GiB, compute 9.0".
   * (optional) */
  void (*describe)(int index, char *text, size_t n);
  /* Opens device `index` of those that probe counted, by ac_device_open with its own vtable. team:
   * the context's, borrowed as there. (optional: only cpu and meta, which every context opens
   * itself) */
  ac_status (*open)(const ac_params *p, int index, ac_team *team, ac_device **out, ac_err *e);
  /* After a probe that found a device: the kernels, ended by a row without an op. (optional:
   * none) */
  const ac_device_kernel *(*kernels)(void);
  /* Drivers for kernels that only choose a map or value. NULL outside this tree. (optional:
   * none) */
  const struct aci_drivers *(*drivers)(void);
  /* A context meets the kind for the first time: observers of calls, say. (optional) */
  void (*attach)(struct ac_ctx *c);
} ac_device_provider;

/* AC_DEVICE(cuda, .probe = ..., .open = ...) in host/<stage>/cuda/provider.c */
#define AC_DEVICE(device_name, ...)                     \
  const ac_device_provider aci_device_##device_name = { \
      .struct_size = sizeof(ac_device_provider), .name = #device_name, __VA_ARGS__}
/* The function that a module exports: const ac_device_provider *ac_device_provider_get(void) */
#define AC_DEVICE_SYMBOL "ac_device_provider_get"

/* Adds a kind to the table. The provider is borrowed for the life of the process. A second call
 * returns the same kind. INVALID names the fault in the table. STATE: the name is taken, or the
 * table is full. */
AC_API ac_status ac_device_register(const ac_device_provider *p, ac_device_kind *kind, ac_err *e);
/* Registers the providers of the modules in ACCEL_DEVICE_MODULES. Modules that are registered
 * already are skipped. */
AC_API ac_status ac_device_modules_load(const ac_params *p, ac_err *e);
AC_API int ac_device_n_providers(void);
AC_API const ac_device_provider *ac_device_provider_at(int kind); /* NULL: there is none */
/* The number of devices of a kind, and one line for people: "13.0; cuda:0 NVIDIA H100 ..." or the
 * missing part. */
AC_API int ac_device_state(int kind, const ac_params *p, char *text, size_t n);

/* Opens device `index` of a kind that is registered with the given memory limit in bytes (0 =
 * none). One reference. team is borrowed and must outlive the use of kernels on the device (blocks
 * may outlive it). */
AC_API ac_status ac_device_open(const ac_device_vtable *vt, int index, size_t limit_bytes,
                                ac_team *team, ac_device **out, ac_err *e);
AC_API void ac_device_retain(ac_device *d);
AC_API void ac_device_release(ac_device *d);
AC_API ac_device_kind ac_device_kind_of(const ac_device *d);
AC_API int ac_device_index(const ac_device *d);
AC_API const char *ac_device_name(const ac_device *d); /* "cpu", "meta", "cuda:0" */
AC_API const ac_device_vtable *ac_device_cpu_vtable(void);
AC_API const ac_device_vtable *ac_device_meta_vtable(void);
/* Further meta devices, "meta:1" and so on, each with a pool of its own. A dry run gives each
 * simulated rank one of them, as a real rank has its device. */
AC_API const ac_device_vtable *ac_device_phantom_vtable(void);
AC_API ac_status ac_device_sync(ac_device *d, ac_err *e);

/* ---- pool ---- */
typedef struct ac_mem_stats {
  size_t live_bytes; /* handed out now, as requested rounded up to 64 */
  size_t live_blocks;
  size_t peak_bytes;         /* maximum of live_bytes since the last reset */
  size_t reserved_bytes;     /* mapped from the system */
  size_t born_bytes;         /* sum of all allocations ever: the collector's clock */
  size_t limit_bytes;        /* 0: none */
  size_t largest_free_bytes; /* the largest block that needs no new memory */
  uint64_t n_allocs, n_maps;
} ac_mem_stats;
/* Block of at least `bytes` (0 gives a valid block with ptr NULL), 64-byte aligned, contents
 * undefined. OOM reports the requested bytes, the live bytes and the limit. On the meta device ptr
 * is NULL and only the statistics move. */
AC_API ac_status ac_block_alloc(ac_device *d, size_t bytes, ac_mem_class c, ac_stream *s,
                                ac_block **out, ac_err *e);
AC_API void ac_block_free(ac_block *b); /* any thread. NULL is fine */
AC_API void *ac_block_ptr(const ac_block *b);
AC_API size_t ac_block_bytes(const ac_block *b);
AC_API void ac_mem_stats_get(const ac_device *d, ac_mem_stats *out);
AC_API void ac_mem_peak_reset(ac_device *d);
AC_API void ac_pool_trim(ac_device *d); /* gives wholly free segments back to the system */

/* Memory of one class from a source other than the device's own mem_map, for example a file that
 * other processes map as well. */
typedef struct ac_mem_source {
  size_t struct_size;
  /* map, unmap: page-granular. Called under the pool's lock, on any thread. */
  ac_status (*map)(void *user, size_t bytes, void **out, ac_err *e);
  void (*unmap)(void *user, void *p, size_t bytes);
  /* (optional) called once, when the source has been replaced and none of its memory is mapped any
   * more */
  void (*free)(void *user);
  void *user;
} ac_mem_source;
/* From now on the pool maps memory of class c through s (copied). NULL: through the device itself
 * again. Memory mapped before stays and is returned to its source, even after the device has been
 * closed. Resident devices only. */
AC_API ac_status ac_device_set_source(ac_device *d, ac_mem_class c, const ac_mem_source *s,
                                      ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
