/* randperm_: x := the numbers 0 .. n - 1 in random order, every order equally likely (Fisher and Yates).
   x (n)! -> x
   example: accel.empty(5, { dtype = "i64" }):randperm_():sum() --> 10 */
#include <stdlib.h>

#include "device/capture.h"
#include "ops/random/draw.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  char a[128];
  if (x->ndim != 1)
    return AC_FAIL(e, SHAPE, "needs one dim, got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  if (x->dtype != AC_I64)
    return AC_FAIL(e, DTYPE, "needs i64, got %s", ac_dtype_name((ac_dtype)x->dtype));
  return ac_frame_alias(f, 0, e);
}

static void shuffle(const ac_generator *rng_counter, int64_t *v, int64_t n, int64_t st) {
  aci_draw d = aci_draw_of(rng_counter);
  uint32_t w[ACI_DRAW_ROW];
  for (int64_t i = 0; i < n; i++) v[i * st] = i;
  for (int64_t b = 0; b < n;
       /* position i takes the value of a position not yet settled, from draw i */
       b += ACI_DRAW_ROW / 2) {
    int64_t m = n - b < ACI_DRAW_ROW / 2 ? n - b : ACI_DRAW_ROW / 2;
    aci_draw_words(&d, (uint64_t)(b / 2), (m + 1) / 2, w);
    for (int64_t i = b; i < b + m; i++) {
      int64_t j = i + (int64_t)aci_uniform_below(aci_u64_of(w[2 * (i - b)], w[2 * (i - b) + 1]),
                                                 (uint64_t)(n - i)),
              t = v[i * st];
      v[i * st] = v[j * st];
      v[j * st] = t;
    }
  }
}

/* Each exchange needs the one before it, so that other devices get the order from here: made in the
 * host's memory, copied in the order of their stream. */
static ac_status elsewhere(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->out[0];
  const size_t bytes = (size_t)x->numel * sizeof(int64_t);
  const bool direct = aci_is_contiguous(x);
  ac_block *block = NULL;
  int64_t *v = malloc(bytes);
  ac_status st = AC_OK;
  if (v == NULL) return AC_FAIL(e, OOM, "no memory for %lld numbers", (long long)x->numel);
  AC_GOTO(done, st, aci_capture_refuse(f->device, "randperm draws on the host", e));
  if (!direct)
    AC_GOTO(done, st, ac_block_alloc(f->device, bytes, AC_MEM_ACTIVATION, f->stream, &block, e));
  shuffle(&f->rng_counter, v, x->numel, 1);
  AC_GOTO(done, st,
          aci_device_upload(f->device, f->stream, direct ? aci_data(x) : ac_block_ptr(block), v,
                            bytes, e));
  if (!direct) {
    const aci_range from = {.ptr = ac_block_ptr(block), .dtype = AC_I64, .stride = {1}},
                    to = {.ptr = aci_data(x), .dtype = AC_I64, .stride = {x->stride[0]}};
    st = aci_range_copy(f, 1, x->shape, &to, &from, e);
  }
done:
  ac_block_free(block);
  free(v);
  return st;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->out[0];
  if (x->numel > 0 && f->device->kind != AC_DEV_CPU) return elsewhere(f, e);
  shuffle(&f->rng_counter, aci_data(x), x->numel, x->stride[0]);
  return AC_OK;
}

AC_OP(randperm_, .sig = "randperm_(x!: tensor, generator: generator?) -> tensor", .shape = shape,
      .cpu = cpu, .any_device = true, .nondiff = true);
