/* Passes of maps on a device: a kernel whose every thread computes elements by all formulas, in
 * registers, from the text that the CPU's kernels are made of. Machine code is kept in the folder
 * of kernels, by text, chip and compiler. A pass that has none (not yet, or as its text was
 * refused) is computed map by map, each into the memory that its result has anyway. */
#include "ops/core/fuse_device.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/capture.h"
#include "ops/core/fuse_code_impl.h"
#include "ops/core/fuse_impl.h"

_Static_assert((int)ACI_FUSE_ARG_INPUTS == (int)ACI_FUSE_INPUTS &&
                   (int)ACI_FUSE_ARG_OUTPUTS == (int)ACI_FUSE_MOST &&
                   (int)ACI_FUSE_ARG_NUMBERS ==
                       (int)ACI_FUSE_MOST * (ACI_MAP_MAX_P + ACI_MAP_MAX_IN),
               "arguments of a kernel");

enum { MODULES = 4 };
static _Atomic(const aci_fuse_device *) driver_of[MODULES];
static _Atomic(const ac_device_vtable *) vtable_of[MODULES];

void aci_fuse_set_device(const ac_device_vtable *vt, const aci_fuse_device *d) {
  for (int i = 0; i < MODULES; i++) {
    const aci_fuse_device *none = NULL;
    if (atomic_load(&vtable_of[i]) == vt) return;
    if (!atomic_compare_exchange_strong(&driver_of[i], &none, d)) continue;
    atomic_store_explicit(&vtable_of[i], vt, memory_order_release);
    return;
  }
}

static const aci_fuse_device *find_driver(const ac_device *d) {
  for (int i = 0; i < MODULES; i++)
    if (atomic_load_explicit(&vtable_of[i], memory_order_acquire) == d->vt)
      return atomic_load(&driver_of[i]);
  return NULL;
}

const aci_fuse_device *aci_fuse_device_of(aci_fuse *z, const ac_device *d) {
  const aci_fuse_device *driver = find_driver(d);
  char why[200], target[sizeof z->target];
  if (driver == NULL || z->refused[d->kind]) return NULL;
  if (z->target_of == d) return driver;
  if (!driver->target(d, target, sizeof target, why, sizeof why)) {
    z->refused[d->kind] = true;
    ac_log_write(AC_LOG_WARN, "compile", "chains of maps run call by call on %s: %s", d->name, why);
    return NULL;
  }
  memcpy(z->target, target, sizeof target);
  z->target_of = d;
  return driver;
}

/* ---- the text ---- */
static const char HEAD[] =
    "#define AC_HOSTDEV __device__\n#define AC_INLINE AC_HOSTDEV __attribute__((always_inline))\n"
    "#define ACI_BY_INT(x, for_int, for_float) (for_float)\n"
    "#define ONE static __device__ __forceinline__ float\n"
    "typedef long long at_type;\n"
    "struct args { at_type n; const void *in[16]; void *out[32]; at_type at[16][3]; float num[320]; };\n";

/* Element i of input k. */
static void put_load(aci_strbuf *b, int k, const aci_fuse_operand *o) {
  const int lies = aci_fuse_lies(o);
  if (lies == ACI_FUSE_STRIDED)
    aci_strbuf_printf(
        b,
        "    const at_type r%d = i / a.at[%d][0], i%d = r%d * a.at[%d][1] + (i - r%d * a.at[%d][0]) * a.at[%d][2];\n",
        k, k, k, k, k, k, k, k);
  char at[16];
  snprintf(at, sizeof at, lies == ACI_FUSE_LINEAR ? "i" : lies == ACI_FUSE_ONE ? "0" : "i%d", k);
  aci_strbuf_printf(b, "    const float a%d = ", k);
  switch (o->dt) {
    case AC_F32: aci_strbuf_printf(b, "((const float *)a.in[%d])[%s];\n", k, at); break;
    case AC_BF16:
      aci_strbuf_printf(b, "aci_bf16_to_f32(((const uint16_t *)a.in[%d])[%s]);\n", k, at);
      break;
    case AC_F16:
      aci_strbuf_printf(b, "aci_f16_to_f32(((const uint16_t *)a.in[%d])[%s]);\n", k, at);
      break;
    default:
      aci_strbuf_printf(b, "(float)((const %s *)a.in[%d])[%s];\n",
                        o->dt == AC_I64   ? "int64_t"
                        : o->dt == AC_I32 ? "int32_t"
                        : o->dt == AC_I16 ? "int16_t"
                        : o->dt == AC_I8  ? "int8_t"
                                          : "uint8_t",
                        k, at);
  }
}

static void put_node(aci_strbuf *b, const aci_fuse_pass *p, int i, const uint64_t *word,
                     int output) {
  const aci_fuse_node *n = p->node[i];
  const int at = i * (ACI_MAP_MAX_P + ACI_MAP_MAX_IN);
  aci_strbuf_printf(b, "    const float p%d[6] = {", i);
  for (int k = 0; k < ACI_MAP_MAX_P; k++)
    aci_strbuf_printf(b, "%sa.num[%d]", k > 0 ? ", " : "", at + k);
  aci_strbuf_printf(b, "};\n    %sfloat v%d = %s(p%d", n->dt == AC_F32 ? "const " : "", i,
                    n->which->name, i);
  for (int k = 0; k < n->n_in; k++) {
    if ((word[k] & 3) == 1) aci_strbuf_printf(b, ", a.num[%d]", at + ACI_MAP_MAX_P + k);
    else if (p->from[i][k] != NULL) aci_strbuf_printf(b, ", v%d", p->from[i][k]->at);
    else aci_strbuf_printf(b, ", a%d", (int)(word[k] >> 2));
  }
  aci_strbuf_puts(b, ");\n");
  const char *half = n->dt == AC_BF16 ? "bf16" : "f16";
  if (n->dt != AC_F32) /* readers get the value rounded to 16 bits */
    aci_strbuf_printf(
        b, "    const uint16_t h%d = aci_f32_to_%s(v%d);\n    v%d = aci_%s_to_f32(h%d);\n", i, half,
        i, i, half, i);
  if (!n->write) return;
  if (n->dt == AC_F32) aci_strbuf_printf(b, "    ((float *)a.out[%d])[i] = v%d;\n", output, i);
  else aci_strbuf_printf(b, "    ((uint16_t *)a.out[%d])[i] = h%d;\n", output, i);
}

static bool put_text(aci_strbuf *b, const aci_fuse_pass *p, const aci_fuse_look *l) {
  aci_strbuf_puts(b, HEAD);
  if (!aci_fuse_put_formulas(b, p)) return false;
  aci_strbuf_puts(
      b,
      "extern \"C\" __global__ void __launch_bounds__(256) fused(const __grid_constant__ args a) {\n"
      "  for (at_type i = (at_type)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (at_type)gridDim.x * blockDim.x) {\n");
  for (int k = 0; k < p->n_inputs; k++) put_load(b, k, p->input[k]);
  int output = 0;
  for (int i = 0, w = 0; i < p->n; i++) {
    put_node(b, p, i, &l->word[w + 2], output);
    output += p->node[i]->write;
    w += 2 + p->node[i]->n_in;
  }
  aci_strbuf_puts(b, "  }\n}\n");
  return !b->failed;
}

/* ---- running ---- */
static void *make_kernel(const aci_fuse *z, const aci_fuse_device *driver, const ac_device *d,
                         const aci_fuse_pass *p, const aci_fuse_look *l) {
  aci_strbuf b = {0};
  void *kernel = NULL, *code = NULL;
  size_t bytes = 0;
  char why[400], path[1200] = "";
  ac_err e;
  if (put_text(&b, p, l)) {
    const ac_params *params = z->ctx->params;
    const bool kept = aci_fuse_cache_path(params, b.s, b.len, z->target, path, sizeof path) &&
                      aci_fuse_cache_read(path, &code, &bytes);
    char *made = NULL;
    if (!kept && driver->compile(d, b.s, &made, &bytes, why, sizeof why)) {
      code = made;
      if (path[0] != '\0') aci_fuse_cache_write(path, code, bytes);
    } else if (!kept) {
      ac_log_write(AC_LOG_WARN, "compile", "a chain of %d maps runs call by call on %s: %s", p->n,
                   d->name, why);
    }
    if (code != NULL && driver->load(d, code, bytes, &kernel, &e) != AC_OK) {
      ac_log_write(AC_LOG_WARN, "compile", "a chain of %d maps runs call by call on %s: %s", p->n,
                   d->name, e.msg);
      if (kept) remove(path); /* the present memory serves nobody */
      kernel = NULL;
    }
  }
  free(code);
  aci_strbuf_fini(&b);
  return kernel;
}

/* As map.c lays a call out, from the node's data. */
static void plan_of(const aci_fuse_node *n, aci_map_plan *plan) {
  *plan = (aci_map_plan){.ct = ACI_C_F32, .n_in = n->n_in, .ndim = 1, .numel = n->numel};
  for (int k = 0; k < n->n_in; k++)
    if (n->in[k].storage != NULL && !n->in[k].linear && n->inner != n->numel) plan->ndim = 2;
  plan->shape[0] = plan->ndim == 2 ? n->numel / n->inner : n->numel;
  plan->shape[1] = n->inner;
  plan->out = (aci_map_operand){
      .ptr = n->out->ptr, .dt = n->dt, .stride = {plan->ndim == 2 ? n->inner : 1, 1}};
  for (int k = 0; k < n->n_in; k++) {
    const aci_fuse_operand *o = &n->in[k];
    aci_map_operand *to = &plan->in[k];
    plan->number[k].f32 = o->number;
    *to = (aci_map_operand){
        .ptr = (const char *)&plan->number[k], .dt = AC_F32, .number = o->storage == NULL};
    if (o->storage == NULL) continue;
    to->ptr = o->ptr;
    to->dt = o->dt;
    to->stride[0] = plan->ndim == 2 ? (o->linear ? n->inner : o->row) : o->linear ? 1 : o->step;
    to->stride[1] = o->linear ? 1 : o->step;
  }
  memcpy(plan->p.f32, n->p, sizeof plan->p.f32);
}

ac_status aci_fuse_device_run(aci_fuse *z, const aci_fuse_device *driver, aci_fuse_pass *p,
                              ac_frame *f, bool *generated, ac_err *e) {
  aci_fuse_look l;
  aci_fuse_entry *k = NULL;
  *generated = false;
  if (z->codes != NULL && p->n > 1 && aci_fuse_look_at(p, &l, true)) {
    l.word[l.n++] = (uint64_t)f->device->kind << 32 | (uint32_t)f->device->index;
    k = aci_fuse_entry_of(z->codes, &l);
  }
  /* nothing is compiled while a step is recorded, but at once in the run before that, whose chains
   * come in every replay */
  const aci_device_capture *capture = f->device->capture;
  if (k != NULL && (capture == NULL || !capture->recording) &&
      aci_fuse_entry_is_due(z->codes, k, capture != NULL))
    k->kernel = make_kernel(z, driver, f->device, p, &l);
  const bool one = k != NULL && k->kernel != NULL;
  AC_TRY(aci_fuse_allocate_pass(p, !one, one, e));
  if (!one) {
    for (int i = 0; i < p->n; i++) {
      aci_map_plan plan;
      plan_of(p->node[i], &plan);
      AC_TRY(driver->run_map(f, p->node[i]->which, &plan, e));
    }
    return AC_OK;
  }
  aci_fuse_args a = {.n = p->numel};
  for (int i = 0; i < p->n_inputs; i++) {
    const aci_fuse_operand *o = p->input[i];
    a.in[i] = o->ptr;
    a.at[i][0] = p->input_of[i]->inner;
    a.at[i][1] = o->row;
    a.at[i][2] = o->step;
  }
  for (int i = 0, n = 0; i < p->n; i++)
    if (p->node[i]->write) a.out[n++] = p->node[i]->out->ptr;
  memcpy(a.num, p->numbers, sizeof a.num);
  *generated = true;
  const ac_status st = driver->launch(f, k->kernel, &a, e);
  if (st != AC_OK) aci_fuse_give_back(p);
  return st;
}
