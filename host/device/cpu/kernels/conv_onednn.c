/* The library's side of convolutions through oneDNN. It chooses the convolutions that go there and
 * cuts the batch into single-threaded calls that our own threads run (oneDNN's threading would
 * change bits with the number of threads). Called by conv.c and conv_weight.c.
 *
 * With AVX-512 it takes results and gradients of inputs for kernels beyond 1 x 1: oneDNN's direct
 * kernels avoid packing columns (10 to 20 % faster than conv_product.c). It also takes bf16
 * products for AMX. Elsewhere our kernels are level or faster: 1 x 1 (no other layout of the
 * tensors is needed), gradients of weights, few channels, small batches, results of few positions
 * (the last layers of a ResNet on small images, up to 1.8 times as fast). */
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/isa.h"
#include "device/cpu/kernels/conv_impl.h"
#include "device/cpu/onednn.h"

enum {
  MIN_CALLS = 8, /* or threads would go short */
  MAX_CALLS = 64,
  MIN_CHANNELS = 32,
  MIN_POSITIONS = 32 /* of a result */
};
/* below, calls and layouts cost more than the multiplication gains */
static const double MIN_FLOPS = 100e6;
static const double CALL_FLOPS = 30e6; /* of a call, if the batch allows it */
/* of a call that sums up weights' gradients, per byte of them */
static const double SUM_FLOPS = 60;
static const int64_t PARTS_BYTES = 64 << 20;

typedef struct conv_onednn_job {
  const aci_conv *c;
  const aci_onednn_api *api;
  const aci_onednn_plan *plan[2]; /* of a call, and of the last */
  int64_t per_call, n_calls;
  const void *x, *w, *bias, *y;
  char *parts;                       /* gradients of the weights, one set per call */
  int64_t x_bytes, y_bytes, w_count; /* of an image. Weights */
  _Atomic bool failed;
} conv_onednn_job;

static double image_flops(const aci_conv *c) {
  return 2.0 * (double)(c->groups * c->co * c->ci) * (double)aci_conv_size(c->k) *
         (double)aci_conv_size(c->out);
}

/* Whether oneDNN multiplies bf16 correctly on AMX. With strides or dilation, and if a tap reads
 * only padding, version 2.6.3 returns wrong results, in some cases whatever was in memory before.
 * Later versions have not been tried on AMX, so the rule holds for them as well. */
static bool right_on_amx(const aci_conv *c) {
  for (int d = 0; d < ACI_CONV_DIMS; d++)
    if (c->stride[d] > 1 || c->dil[d] > 1 || c->pad[d] >= c->in[d] ||
        c->k[d] - c->pad[d] > c->in[d] || c->pad[d] >= c->out[d])
      return false;
  return true;
}

static bool wants(const aci_conv *c, aci_onednn_direction direction) {
  if (c->n < 1 || c->groups * c->co * c->ci < 1 || aci_conv_size(c->out) < 1 ||
      aci_conv_size(c->in) < 1)
    return false;
  if (c->type != ACI_GEMM_BF16 && c->type != ACI_GEMM_F32) return false;
  if (c->type == ACI_GEMM_BF16 && aci_onednn_amx() && !right_on_amx(c)) return false;
  if (aci_onednn_forced()) return true;
  if (c->groups != 1 || c->ci < MIN_CHANNELS || c->co < MIN_CHANNELS || c->n < MIN_CALLS ||
      image_flops(c) * (double)c->n < MIN_FLOPS || aci_cpu_isa() != ACI_ISA_AVX512)
    return false;
  if (c->type == ACI_GEMM_BF16 && aci_onednn_amx()) return true;
  if (aci_conv_staged_type(c->type) != c->type) return false; /* it would emulate */
  if (direction == ACI_ONEDNN_CONV_FORWARD && aci_conv_size(c->out) < MIN_POSITIONS) return false;
  const bool steps = aci_conv_size(c->stride) > 1;
  return direction != ACI_ONEDNN_CONV_WEIGHT &&
         (aci_conv_size(c->k) > 1 || (steps && direction == ACI_ONEDNN_CONV_INPUT));
}

/* Images of a call. */
static int64_t images(const aci_conv *c, aci_onednn_direction direction) {
  const double weights = 4.0 * (double)(c->groups * c->co * c->ci * aci_conv_size(c->k)),
               one = image_flops(c);
  double want = CALL_FLOPS / one;
  if (direction == ACI_ONEDNN_CONV_WEIGHT && SUM_FLOPS * weights / one > want)
    want = SUM_FLOPS * weights / one;
  int64_t n = want < 1 ? 1 : want > (double)c->n ? c->n : (int64_t)want;
  if (direction != ACI_ONEDNN_CONV_WEIGHT) n = aci_conv_min(n, aci_conv_ceil(c->n, MIN_CALLS));
  n = aci_conv_max(n, aci_conv_ceil(c->n, MAX_CALLS));
  if (direction == ACI_ONEDNN_CONV_WEIGHT)
    while (n < c->n && (double)aci_conv_ceil(c->n, n) * weights > (double)PARTS_BYTES) n *= 2;
  return aci_conv_min(n, c->n);
}

/* Plans for calls of the batch. False: there are none. */
static bool job_open(conv_onednn_job *j, aci_onednn_direction direction, bool bias) {
  const aci_conv *c = j->c;
  const int64_t es = aci_gemm_type_bytes(c->type);
  if (!wants(c, direction)) return false;
  j->w_count = c->groups * c->co * c->ci * aci_conv_size(c->k);
  j->per_call = images(c, direction);
  j->n_calls = aci_conv_ceil(c->n, j->per_call);
  if (j->n_calls < MIN_CALLS / 2 && !aci_onednn_forced()) return false;
  j->api = aci_onednn_api_get();
  if (j->api == NULL) return false;
  j->x_bytes = c->groups * c->ci * aci_conv_size(c->in) * es;
  j->y_bytes = c->groups * c->co * aci_conv_size(c->out) * es;
  aci_onednn_conv_shape s = {.n = j->per_call, .groups = c->groups, .ci = c->ci, .co = c->co};
  for (int d = 0; d < ACI_CONV_DIMS; d++) {
    s.in[d] = c->in[d];
    s.k[d] = c->k[d];
    s.out[d] = c->out[d];
    s.stride[d] = c->stride[d];
    s.pad[d] = c->pad[d];
    s.dil[d] = c->dil[d];
  }
  s.direction = (int32_t)direction;
  s.type = (int32_t)c->type;
  s.bias = bias;
  j->plan[0] = j->api->conv_get(&s);
  if (j->plan[0] == NULL) return false;
  s.n = c->n - (j->n_calls - 1) * j->per_call;
  j->plan[1] = j->api->conv_get(&s);
  if (j->plan[1] != NULL && j->plan[1]->packed_bytes == j->plan[0]->packed_bytes) return true;
  j->api->put(j->plan[0]); /* one set of weights serves all calls */
  if (j->plan[1] != NULL) j->api->put(j->plan[1]);
  return false;
}

static void call_piece(void *arg, int64_t begin, int64_t end) {
  conv_onednn_job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    const aci_onednn_plan *plan = j->plan[i == j->n_calls - 1];
    const int64_t first = i * j->per_call;
    void *scratch = aci_scratch(ACI_SCRATCH_TILE, plan->scratch_bytes + 64);
    const void *w = j->parts == NULL ? j->w : j->parts + i * j->w_count * 4;
    if (scratch == NULL ||
        !j->api->conv_run(plan, (const char *)j->x + first * j->x_bytes, w, j->bias,
                          (const char *)j->y + first * j->y_bytes, scratch))
      j->failed = true;
  }
}

/* Lays the weights out and runs the calls. */
static bool job_run(ac_team *team, conv_onednn_job *j) {
  bool ok = true;
  if (j->parts == NULL && j->plan[0]->packed_bytes > 0) {
    char *packed = aci_scratch(ACI_SCRATCH_SHARED, j->plan[0]->packed_bytes + 64);
    void *scratch = aci_scratch(ACI_SCRATCH_TILE, j->plan[0]->scratch_bytes + 64);
    ok = packed != NULL && scratch != NULL && j->api->conv_pack(j->plan[0], j->w, packed, scratch);
    j->w = packed;
  }
  if (ok) ac_parallel_for(team, j->n_calls, 1, call_piece, j);
  j->api->put(j->plan[0]);
  j->api->put(j->plan[1]);
  return ok && !j->failed;
}

bool aci_conv_onednn_forward(ac_team *team, const aci_conv *c, const void *x, const void *w,
                             const void *bias, void *y) {
  conv_onednn_job j = {.c = c, .x = x, .w = w, .bias = bias, .y = y};
  return job_open(&j, ACI_ONEDNN_CONV_FORWARD, bias != NULL) && job_run(team, &j);
}

bool aci_conv_onednn_input(ac_team *team, const aci_conv *c, const void *dy, const void *w,
                           void *dx) {
  conv_onednn_job j = {.c = c, .x = dx, .w = w, .y = dy};
  return job_open(&j, ACI_ONEDNN_CONV_INPUT, false) && job_run(team, &j);
}

bool aci_conv_onednn_weight(ac_team *team, const aci_conv *c, const void *dy, const void *x,
                            void *dw) {
  conv_onednn_job j = {.c = c, .x = x, .y = dy};
  if (!job_open(&j, ACI_ONEDNN_CONV_WEIGHT, false)) return false;
  j.parts = aci_scratch(ACI_SCRATCH_SHARED, (size_t)(j.n_calls * j.w_count * 4));
  if (j.parts == NULL) {
    j.api->put(j.plan[0]);
    j.api->put(j.plan[1]);
    return false;
  }
  if (!job_run(team, &j)) return false;
  aci_conv_sum_parts(team, j.parts, j.n_calls, j.w_count, c->type, dw);
  return true;
}
