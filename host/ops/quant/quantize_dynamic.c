/* quantize_dynamic: x in 8 bits a value, as bitsandbytes' quantize_blockwise does it: blocks of blocksize values in row-major order share
   their largest magnitude, absmax, and each value is close to one of 256 numbers times it, which lie the denser the nearer to zero
   (Dettmers, "8-Bit Approximations for Parallelism in Deep Learning"). Without `signed` all numbers are positive. nested: absmax is
   quantised as well.
   x (any shape, f32, f16, bf16) -> y, a quantised tensor with values of this shape and dtype. No gradient.
   example: accel.quantize_dynamic(accel.tensor { 2.0, 0.2, 2 }):quant_part "absmax" --> { 2 }
   example: accel.quantize_dynamic(accel.zeros(10, 300), 64).quant_state.blocksize --> 64 */
#include "ops/core/on_host.h"
#include "ops/quant/codes.h"

enum { MAX_BLOCK = 4096 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_layout l = {.type = ARG_B(f, 2) ? AC_QUANT_DYNAMIC : AC_QUANT_UDYNAMIC,
                 .dtype = (ac_dtype)x->dtype,
                 .nested = ARG_B(f, 3),
                 .ndim = x->ndim,
                 .blocksize = ARG_I(f, 1)};
  AC_TRY(aci_quantizable(x, e));
  memcpy(l.shape, x->shape, (size_t)x->ndim * sizeof l.shape[0]);
  return aci_frame_out_quantized(f, &l, e);
}

typedef struct quantize_job {
  const ac_tensor *x;
  uint8_t *q;
  float *absmax;
  const ac_layout *l;
} quantize_job;

static void range(void *arg, int64_t begin, int64_t end) {
  const quantize_job *j = arg;
  _Alignas(64) float row[MAX_BLOCK];
  for (int64_t b = begin; b < end; b++) {
    const int64_t from = b * j->l->blocksize, left = j->x->numel - from,
                  n = left < j->l->blocksize ? left : j->l->blocksize;
    aci_elems_load(j->x, ACI_C_F32, from, n, row);
    aci_encode_dynamic(j->l->type, row, n, j->q + from, &j->absmax[b]);
  }
}

static ac_status run(ac_frame *f, ac_err *e) {
  ac_tensor *y = f->out[0];
  const ac_layout *l = ac_tensor_layout(y);
  const aci_part values = aci_layout_part(l, AC_PART_VALUES),
                 absmax = aci_layout_part(l, AC_PART_ABSMAX);
  ac_block *scratch = NULL;
  if (l->nested)
    AC_TRY(ac_block_alloc(f->device, (size_t)absmax.n * sizeof(float) + 1, AC_MEM_ACTIVATION,
                          f->stream, &scratch, e));
  quantize_job j = {ARG_T(f, 0), aci_part_data(y, &values),
                    l->nested ? scratch->ptr : aci_part_data(y, &absmax), l};
  ac_parallel_for(f->team, absmax.n, 1 + 16384 / l->blocksize, range, &j);
  if (l->nested) aci_nest_absmax(y, l, j.absmax);
  ac_block_free(scratch);
  return AC_OK;
}
ACI_ON_HOST(run)

AC_OP(
    quantize_dynamic,
    .sig =
        "quantize_dynamic(x: tensor, blocksize: int = 256, signed: bool = true, nested: bool = false) -> tensor",
    .shape = shape, .cpu = cpu, .by_vtable = true, .nondiff = true);
