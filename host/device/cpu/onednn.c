/* The module accel_onednn.so: matrix products through oneDNN 2.x or 3.x, one tile per call,
 * single-threaded. Convolutions are in onednn_conv.c. Loaded by onednn_load.c, which cuts products
 * into tiles and gives every thread its own scratch.
 *
 * A plan is a matmul primitive for one tile shape, strides included, and a reorder that brings B
 * into the layout the primitive wants, so that a product with many row tiles lays B out once.
 * onednn_cache.c keeps them. */
#include "device/cpu/onednn.h"

#include <pthread.h>
#include <stdio.h>

#include "device/cpu/onednn_module.h"

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
  return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}
static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const desc *a,
                                 const desc *b, const desc *bias, const desc *c,
                                 dnnl_primitive_attr_t attr) {
  return dnnl_matmul_primitive_desc_create(pd, engine, *a, *b, bias == NULL ? NULL : *bias, *c,
                                           attr);
}
#else
static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f); }
static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const desc *a,
                                 const desc *b, const desc *bias, const desc *c,
                                 dnnl_primitive_attr_t attr) {
  dnnl_matmul_desc_t d;
  dnnl_status_t st = dnnl_matmul_desc_init(&d, a, b, bias, c);
  return st != dnnl_success ? st : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
}
#endif

/* ---- the engine, and execution ---- */
dnnl_engine_t aci_dnnl_engine;
static dnnl_stream_t stream; /* CPU streams hold no state of a call */

extern void omp_set_num_threads(int n) __attribute__((weak));
extern int omp_get_max_threads(void) __attribute__((weak));

int aci_dnnl_alone_begin(void) {
  int threads =
      omp_get_max_threads != NULL && omp_set_num_threads != NULL ? omp_get_max_threads() : 1;
  if (threads != 1) omp_set_num_threads(1);
  return threads;
}
void aci_dnnl_alone_end(int threads) {
  if (threads != 1) omp_set_num_threads(threads);
}

bool aci_dnnl_execute(dnnl_primitive_t prim, const arg *args, int n) {
  dnnl_exec_arg_t list[ACI_DNNL_MAX_ARGS] = {{0, NULL}};
  int made = 0;
  dnnl_status_t st = dnnl_success;
  while (made < n && st == dnnl_success) {
    list[made].arg = args[made].index;
    st = dnnl_memory_create(&list[made].memory, desc_of(args[made].d), aci_dnnl_engine,
                            (void *)(uintptr_t)args[made].p);
    made += st == dnnl_success;
  }
  int threads = aci_dnnl_alone_begin();
  if (st == dnnl_success) st = dnnl_primitive_execute(prim, stream, made, list);
  aci_dnnl_alone_end(threads);
  for (int i = 0; i < made; i++) dnnl_memory_destroy(list[i].memory);
  return st == dnnl_success;
}

bool aci_dnnl_reorder(const desc *from, const desc *to, dnnl_primitive_t *prim, desc *scratch) {
  dnnl_primitive_desc_t pd = NULL;
  dnnl_primitive_attr_t attr = NULL;
  bool ok = false;
  TRY(dnnl_primitive_attr_create(&attr));
  TRY(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
  TRY(dnnl_reorder_primitive_desc_create(&pd, desc_of(from), aci_dnnl_engine, desc_of(to),
                                         aci_dnnl_engine, attr));
  TRY(desc_query(scratch, pd, dnnl_query_scratchpad_md));
  TRY(dnnl_primitive_create(prim, pd));
  ok = true;
done:
  if (pd != NULL) dnnl_primitive_desc_destroy(pd);
  if (attr != NULL) dnnl_primitive_attr_destroy(attr);
  return ok;
}

/* ---- plans ---- */
typedef struct plan {
  aci_dnnl_plan base; /* first */
  aci_onednn_shape shape;
  dnnl_primitive_t matmul, reorder;
  desc a, b, b_packed, bias, c, scratch, reorder_scratch;
} plan;

static void plan_free(void *of) {
  plan *p = of;
  if (p->matmul != NULL) dnnl_primitive_destroy(p->matmul);
  if (p->reorder != NULL) dnnl_primitive_destroy(p->reorder);
  desc *all[] = {&p->a, &p->b, &p->b_packed, &p->bias, &p->c, &p->scratch, &p->reorder_scratch};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) desc_free(all[i]);
}

/* The layout B should have, by asking for a primitive that may choose. */
static bool make_matmul(plan *p, dnnl_primitive_attr_t attr, bool choose_b) {
  const aci_onednn_shape *s = &p->shape;
  dnnl_dims_t kn = {s->k, s->n};
  dnnl_primitive_desc_t pd = NULL;
  desc any = p->b;
  bool ok = false;
  if (choose_b) TRY(desc_init(&any, 2, kn, type_of(s->in_type), NULL));
  TRY(matmul_desc(&pd, aci_dnnl_engine, &p->a, &any, s->bias_type < 0 ? NULL : &p->bias, &p->c,
                  attr));
  TRY(desc_query(&p->b_packed, pd, dnnl_query_weights_md));
  TRY(desc_query(&p->scratch, pd, dnnl_query_scratchpad_md));
  TRY(dnnl_primitive_create(&p->matmul, pd));
  ok = true;
done:
  if (choose_b) desc_free(&any);
  if (pd != NULL) dnnl_primitive_desc_destroy(pd);
  return ok;
}

static bool plan_make(void *of) {
  plan *p = of;
  const aci_onednn_shape *s = &p->shape;
  dnnl_primitive_attr_t attr = NULL;
  dnnl_post_ops_t ops = NULL;
  bool ok = false;
  dnnl_dims_t mk = {s->m, s->k}, kn = {s->k, s->n}, mn = {s->m, s->n}, one_n = {1, s->n};
  dnnl_dims_t as = {s->a_rs, s->a_cs}, bs = {s->b_rs, s->b_cs}, cs = {s->c_rs, 1},
              bias_s = {s->n, 1};
  TRY(dnnl_primitive_attr_create(&attr));
  TRY(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
  TRY(desc_init(&p->a, 2, mk, type_of(s->in_type), as));
  TRY(desc_init(&p->b, 2, kn, type_of(s->in_type), bs));
  TRY(desc_init(&p->c, 2, mn, type_of(s->out_type), cs));
  if (s->bias_type >= 0) TRY(desc_init(&p->bias, 2, one_n, type_of(s->bias_type), bias_s));
  if (s->add) {
    TRY(dnnl_post_ops_create(&ops));
    TRY(append_sum(ops));
    TRY(dnnl_primitive_attr_set_post_ops(attr, ops));
  }
  ok = make_matmul(p, attr, s->in_type != ACI_GEMM_I8);
  if (ok && !desc_equal(&p->b, &p->b_packed)) {
    ok = aci_dnnl_reorder(&p->b, &p->b_packed, &p->reorder, &p->reorder_scratch);
    if (ok) p->base.pub.packed_bytes = dnnl_memory_desc_get_size(desc_of(&p->b_packed));
  }
  size_t s1 = ok ? dnnl_memory_desc_get_size(desc_of(&p->scratch)) : 0;
  size_t s2 = p->reorder != NULL ? dnnl_memory_desc_get_size(desc_of(&p->reorder_scratch)) : 0;
  p->base.pub.scratch_bytes = s1 > s2 ? s1 : s2;
done:
  if (ops != NULL) dnnl_post_ops_destroy(ops);
  if (attr != NULL) dnnl_primitive_attr_destroy(attr);
  return ok;
}

static const aci_onednn_plan *get(const aci_onednn_shape *s) {
  static const aci_dnnl_kind kind = {sizeof(plan), offsetof(plan, shape), sizeof(aci_onednn_shape),
                                     plan_make, plan_free};
  return aci_dnnl_get(&kind, s);
}

/* ---- execution ---- */
static bool pack_b(const aci_onednn_plan *pub, const void *b, void *packed, void *scratch) {
  const plan *p = (const plan *)(const void *)pub;
  const arg args[] = {{DNNL_ARG_FROM, &p->b, b},
                      {DNNL_ARG_TO, &p->b_packed, packed},
                      {DNNL_ARG_SCRATCHPAD, &p->reorder_scratch, scratch}};
  return aci_dnnl_execute(p->reorder, args, 3);
}

static bool run(const aci_onednn_plan *pub, const void *a, const void *b, const void *bias, void *c,
                void *scratch) {
  const plan *p = (const plan *)(const void *)pub;
  const arg args[] = {{DNNL_ARG_SRC, &p->a, a},
                      {DNNL_ARG_WEIGHTS, &p->b_packed, b},
                      {DNNL_ARG_DST, &p->c, c},
                      {DNNL_ARG_SCRATCHPAD, &p->scratch, scratch},
                      {DNNL_ARG_BIAS, &p->bias, bias}};
  return aci_dnnl_execute(p->matmul, args, p->shape.bias_type < 0 ? 4 : 5);
}

/* The instructions that oneDNN uses: those of the CPU, lowered by its own environment variable
 * DNNL_MAX_CPU_ISA. */
static bool has_isa(dnnl_cpu_isa_t isa) {
  return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
}

__attribute__((visibility("default"))) const aci_onednn_api *accel_onednn_open(void);
const aci_onednn_api *accel_onednn_open(void) {
  static char version[32];
  static aci_onednn_api api = {ACI_ONEDNN_API_VERSION,
                               false,
                               version,
                               get,
                               aci_dnnl_conv_get,
                               aci_dnnl_put,
                               pack_b,
                               run,
                               aci_dnnl_conv_pack,
                               aci_dnnl_conv_run};
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  const dnnl_version_t *v = dnnl_version();
  snprintf(version, sizeof version, "%d.%d.%d", v->major, v->minor, v->patch);
  pthread_mutex_lock(&lock);
  api.exact_int8 = has_isa(dnnl_cpu_isa_avx512_core_vnni) || has_isa(dnnl_cpu_isa_avx2_vnni);
  bool ok =
      aci_dnnl_engine != NULL || dnnl_engine_create(&aci_dnnl_engine, dnnl_cpu, 0) == dnnl_success;
  ok = ok && (stream != NULL || dnnl_stream_create(&stream, aci_dnnl_engine,
                                                   dnnl_stream_default_flags) == dnnl_success);
  pthread_mutex_unlock(&lock);
  return ok ? &api : NULL;
}
