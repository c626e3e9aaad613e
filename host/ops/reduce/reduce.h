/* Reductions over any set of dims. The cut into pieces and the order of additions follow from shape
 * and strides alone, never from the number of threads.
 *
 * A tensor is seen as kept dims times reduced dims. Output o (row-major over the kept dims) owns
 * the list of elements under its reduced dims, also in row-major order. Kernels that need the
 * elements of one output at a time fetch that list in blocks of the compute type. Sums have a
 * second way for reduced dims outside contiguous kept ones.
 *
 * Map of the folder. One op, one file of its name. Shared files:
 *
 *   reduce.[ch], plan.h     shape and gradient rules. Kept times reduced dims, for the CPU and for
 *                           device modules
 *   sum_kernel.c            sums: sum, mean, sum_to (which undoes broadcasting)
 *   reduction.[ch]          reductions with a state of up to three words per output: prod norm
 *                           logsumexp, and through count.[ch] any all count_nonzero, through
 *                           moments.[ch] var std
 *   minmax.[ch]             max min amax amin argmax argmin. minmax_short.c for short lists of
 *                           floats
 *   scan.[ch]               cumsum, cumprod. cumminmax.[ch] cummax, cummin
 *   softmax_kernel.c        softmax, log_softmax (softmax.h: their rows, which cross_entropy uses
 *                           too)
 *   composed.h              dims as arguments of ops that are made of others (nansum, mode, cov, ...).
 *                           quantile.h, trapezoid.h: their shared parts. moments_args.h the
 *                           correction of var and std
 *   lanes.h                 one list of elements into one value, as vector code
 *   slots.h                 scratch buffers of a parallel loop
 *   *.cu, *.cuh             the same on CUDA: reduction.cuh is the frame of reductions
 *                           (reductions.cu: the ops), scan.cuh of scans, lines.cuh and rows.cuh of
 *                           kernels that hold a row (softmax, norms) */
#ifndef ACI_OPS_REDUCE_H
#define ACI_OPS_REDUCE_H
#include "ops/map/convert.h"
#include "ops/core/op.h"
#include "ops/reduce/plan.h"

enum { ACI_RED_BLOCK = 1024 };
#define ACI_ALL_DIMS 0xffffffffu

/* Output shape of reducing the dims in mask. Returns its rank. */
int aci_reduce_shape(const ac_tensor *x, uint32_t mask, bool keepdim, int64_t *shape);
/* Reads dims (at dims_arg: dims, one dim or NONE. None and the empty list mean all) and keepdim
 * (one argument later) and pushes the output with dtype dt. */
ac_status aci_reduce_out(ac_frame *f, int dims_arg, int keepdim_arg, ac_dtype dt, ac_err *e);
/* Gradient rules: t (a result of reducing these dims) with extents of 1 in x's reduced dims, and
 * the same expanded to the shape of argument 0. */
ac_tensor *aci_reduce_unsqueeze(ac_grad *g, const ac_value *dims, ac_tensor *t);
ac_tensor *aci_reduce_spread(ac_grad *g, const ac_value *dims, ac_tensor *t);

/* Offset in elements of output o's first element. */
int64_t aci_reduce_base(const aci_reduce_plan *p, int64_t o);
/* Offset of element i of a list from its first. */
int64_t aci_reduce_offset(const aci_reduce_plan *p, int64_t i);
/* Copies elements [begin, begin+n) of the list that starts at base into dst (compute type). */
void aci_reduce_fetch(const aci_reduce_plan *p, int64_t base, int64_t begin, int64_t n, void *dst);
/* The same, but returns their address in place if possible: contiguous and of the compute type.
 * Lists of a plan with a source are contiguous. */
const void *aci_reduce_block(const aci_reduce_plan *p, int64_t base, int64_t begin, int64_t n,
                             void *buf);
/* How many outputs a piece of work takes. */
int64_t aci_reduce_grain(const aci_reduce_plan *p);

/* out (contiguous) := sum of the elements under each output / divisor. Added in f32 lanes and
 * double between blocks for f16 bf16 f32, in double for f64, wrapping in i64 for integers. */
ac_status aci_reduce_sum(ac_frame *f, const ac_tensor *x, uint32_t mask, double divisor,
                         ac_tensor *out, ac_err *e);

/* Sums of short contiguous runs in a fixed order, for kernels of rows. */
double aci_sum_f32(const float *x, int64_t n);
double aci_sum_f64(const double *x, int64_t n);

#endif
