/* The driver of maps on CUDA: finds the kernels of a formula and lays out a call's operands for
 * them. Called instead of the CPU's driver (map.c) through the context's table of drivers. */
#include "ops/map/map.cuh"

#include <atomic>
#include <mutex>
#include <string.h>

#include "ops/cuda/module.h"
#include "ops/index/range.cuh"
#include "ops/matmul/product.cuh"

aci_map_entry *&aci_map_entry::head() {
  static aci_map_entry *first;
  return first;
}

/* ---- loop -> kernels ---- */
/* Names are compared once per formula. After that its address finds it. Filled under the lock, read
 * without. */
enum { N_FOUND = 4096 };
static std::atomic<const aci_map_loop *> found_key[N_FOUND];
static const aci_map_entry *found[N_FOUND];
static std::mutex found_lock;

static const aci_map_entry *by_name(const aci_map_loop *l) {
  const char *slash = strrchr(l->file, '/'), *base = slash != NULL ? slash + 1 : l->file,
             *dot = strrchr(base, '.');
  const size_t n = dot != NULL ? (size_t)(dot - base) : strlen(base);
  for (const aci_map_entry *m = aci_map_entry::head(); m != NULL; m = m->next)
    if (strlen(m->stem) == n && strncmp(m->stem, base, n) == 0 && strcmp(m->name, l->name) == 0)
      return m;
  return NULL;
}

static const aci_map_entry *find(const aci_map_loop *l) {
  const size_t start = ((uintptr_t)l >> 3) * 0x9E3779B1u;
  size_t i = start % N_FOUND;
  const aci_map_loop *k;
  for (; (k = found_key[i].load(std::memory_order_acquire)) != NULL; i = (i + 1) % N_FOUND)
    if (k == l) return found[i];
  std::lock_guard<std::mutex> hold(found_lock);
  const aci_map_entry *m = by_name(l);
  size_t used = 0;
  for (i = start % N_FOUND; m != NULL && used < N_FOUND / 2; i = (i + 1) % N_FOUND, used++)
    if (found_key[i].load(std::memory_order_relaxed) == NULL) {
      found[i] = m;
      found_key[i].store(l, std::memory_order_release);
      break;
    }
  return m;
}

/* ---- packed: operands in vectors ---- */
/* Fills *a. False when operands have another layout, or differ in dtype. */
static bool pack(const aci_map_plan *p, aci_packed_args *a) {
  if (p->ct != ACI_C_F32 || p->ndim != 1) return false;
  ac_dtype d = p->out.dt;
  for (int k = 0; k < p->n_in && d == AC_BOOL; k++)
    if (!p->in[k].number && p->in[k].stride[0] != 0) d = p->in[k].dt;
  if (d != AC_F32 && d != AC_BF16 && d != AC_F16) return false;
  const auto fits = [&](const aci_map_operand &o) {
    const bool mask = o.dt == AC_BOOL;
    return o.stride[0] == 1 && (mask || o.dt == d) &&
           (uintptr_t)o.ptr % (mask ? ACI_PACKED : 16) == 0;
  };
  if (!fits(p->out)) return false;
  a->n = p->numel;
  a->dt = d;
  a->size = (int)aci_dsize(d);
  a->out = (void *)p->out.ptr;
  a->truth = p->out.dt == AC_BOOL;
  for (int k = 0; k < p->n_in; k++) {
    const aci_map_operand &o = p->in[k];
    a->in[k] = o.ptr;
    a->kind[k] = o.dt == AC_BOOL ? ACI_PACKED_MASK : ACI_PACKED_SAME;
    if (o.number || o.stride[0] == 0) {
      a->kind[k] = ACI_PACKED_ONE;
      if (o.number) a->one[k] = p->number[k].f32;
      else a->ones[k] = o.ptr, a->ones_dt[k] = o.dt;
    } else if (!fits(o)) {
      return false;
    }
  }
  memcpy(a->p, p->p.f32, sizeof a->p);
  return true;
}

/* ---- strided: positions of a launch fit 32 bits ---- */
#ifdef ACI_CUDA_EMULATED
const int64_t MOST_POSITIONS = 1000; /* so that small tests are cut */
#else
const int64_t MOST_POSITIONS = INT32_MAX;
#endif
static ac_status launch_strided(const ac_frame *f, const aci_map_entry *entry,
                                const aci_map_plan *p, ac_err *e) {
  if (p->numel <= MOST_POSITIONS)
    return aci_launch(f, "map (strided)", entry->strided, aci_blocks(f->device, p->numel), e, *p);
  int d = 0;
  while (p->shape[d] == 1) d++;
  const int64_t half = p->shape[d] / 2;
  aci_map_plan part = *p;
  part.shape[d] = half;
  part.numel = p->numel / p->shape[d] * half;
  AC_TRY(launch_strided(f, entry, &part, e));
  part.shape[d] = p->shape[d] - half;
  part.numel = p->numel - part.numel;
  for (int k = 0; k <= p->n_in; k++) {
    aci_map_operand *o = k < p->n_in ? &part.in[k] : &part.out;
    if (!o->number) o->ptr += half * o->stride[d] * (int64_t)aci_dsize(o->dt);
  }
  return launch_strided(f, entry, &part, e);
}

ac_status aci_cuda_run_plan(const ac_frame *f, const aci_map_loop *loop, const aci_map_plan *plan,
                            ac_err *e) {
  const aci_map_plan &p = *plan;
  const aci_map_entry *entry = find(loop);
  aci_packed_args a = {};
  if (entry == NULL)
    return AC_FAIL(e, UNSUPPORTED, "unsupported on device %s: %s has no kernel", f->device->name,
                   loop->name);
  if (entry->packed != NULL && pack(&p, &a))
    return aci_launch(f, "map", entry->packed,
                      aci_blocks(f->device, (p.numel + ACI_PACKED - 1) / ACI_PACKED), e, a);
  return launch_strided(f, entry, &p, e);
}

static ac_status run_map(ac_frame *f, const aci_map *m, ac_err *e) {
  aci_map_plan p;
  const aci_map_loop *loop = aci_map_plan_make(f, m, &p);
  return aci_cuda_run_plan(f, loop, &p, e);
}

/* ---- one value everywhere ---- */
struct fill_args {
  char *out;
  int64_t n, shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  int ndim; /* 0: contiguous */
  uint64_t bits;
};
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    fill_kernel(const __grid_constant__ fill_args a) {
  const S v = (S)a.bits;
  S *out = (S *)a.out;
  for (int64_t i = aci_first(); i < a.n; i += aci_step())
    out[a.ndim == 0 ? i : aci_element_offset(i, a.ndim, a.shape, a.stride)] = v;
}

static ac_status fill(ac_frame *f, const ac_tensor *t, const void *bytes, ac_err *e) {
  fill_args a = {};
  const size_t size = aci_dsize((ac_dtype)t->dtype);
  memcpy(&a.bits, bytes, size); /* little endian, as everything here */
  a.out = (char *)aci_data(t);
  a.n = t->numel;
  if (a.bits == 0 && aci_is_contiguous(t))
    return f->device->vt->fill(f->device, f->stream, a.out, 0, (size_t)a.n * size, e);
  if (!aci_is_contiguous(t)) {
    a.ndim = t->ndim;
    memcpy(a.shape, t->shape, sizeof *a.shape * t->ndim);
    memcpy(a.stride, t->stride, sizeof *a.stride * t->ndim);
  }
  const unsigned blocks = aci_blocks(f->device, a.n);
  switch (size) {
    case 1: return aci_launch(f, "fill", fill_kernel<uint8_t>, blocks, e, a);
    case 2: return aci_launch(f, "fill", fill_kernel<uint16_t>, blocks, e, a);
    case 4: return aci_launch(f, "fill", fill_kernel<uint32_t>, blocks, e, a);
    default: return aci_launch(f, "fill", fill_kernel<uint64_t>, blocks, e, a);
  }
}

extern const aci_drivers aci_cuda_drivers = {run_map, fill, aci_cuda_copy_range, aci_cuda_product,
                                             aci_cuda_remap};

/* ---- to another device. The gpu copies, in the order of its own work ---- */
static ac_status copy_to(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  const size_t bytes = (size_t)x->numel * aci_dsize((ac_dtype)x->dtype);
  if (bytes == 0) return AC_OK;
  if (x->device->kind == AC_DEV_CPU) {
    AC_TRY(aci_capture_refuse(f->device, ACI_CAPTURE_FROM_CPU, e));
    return f->device->vt->upload(f->device, f->stream, aci_data(y), aci_data(x), bytes, e);
  }
  /* the work that x waits for is on its own device */
  if (x->device->kind == y->device->kind && x->device != y->device)
    AC_TRY(x->device->vt->sync(x->device, NULL, e));
  AC_TRY(f->device->vt->copy(f->device, f->stream, aci_data(y), aci_data(x), bytes, e));
  /* x is the caller's again */
  return aci_cuda_check(f->device, cudaStreamSynchronize(aci_cuda_stream(f->device, f->stream)),
                        "copy", e);
}
AC_KERNEL(cuda, copy_to, copy_to)
