/* poisson: independent numbers from the Poisson distributions of these rates.
   rates (floating point, not negative, any shape) -> y (same shape, dtype)
   Each element draws as many uniform numbers as it needs from a sequence of its own (distributions.h).
   gradient: 0.
   example: accel.zeros(3):poisson() --> { 0, 0, 0 }
   example: local y = accel.full({ 10000 }, 25.0):poisson() return math.abs(y:var():item() - 25) < 2 --> true */
#include "ops/map/map.h"
#include "ops/random/distributions.h"
#include "ops/random/draw.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs float rates, got %s; cast them",
                   ac_dtype_name((ac_dtype)x->dtype));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

typedef struct poisson_job {
  const ac_tensor *x, *y;
  aci_draw draw;
} poisson_job;

static void range(void *arg, int64_t begin, int64_t end) {
  const poisson_job *j = arg;
  double row[256];
  for (int64_t b = begin; b < end; b += 256) {
    const int64_t n = end - b < 256 ? end - b : 256;
    aci_elems_load(j->x, ACI_C_F64, b, n, row);
    for (int64_t i = 0; i < n; i++)
      row[i] = aci_poisson(j->draw.key, j->draw.call, (uint64_t)(b + i), row[i]);
    aci_elems_store(j->y, ACI_C_F64, b, n, row);
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  poisson_job j = {ARG_T(f, 0), f->out[0], aci_draw_of(&f->rng_counter)};
  (void)e;
  if (j.x->numel > 0) ac_parallel_for(f->team, j.x->numel, 1024, range, &j);
  return AC_OK;
}

static void grad(ac_grad *g) { aci_grad_zero(g, 0); }

AC_OP(poisson, .sig = "poisson(rates: tensor, generator: generator?) -> tensor", .shape = shape,
      .cpu = cpu, .grad = grad);
