/* Elementwise losses: a number for each pair (input[i], target[i]). The numbers are averaged,
 * summed or returned unreduced. Called by the files that name a loss. A loss is a map of (input,
 * target) whose further parameters begin with `reduction`. mean and sum are made in the pass that
 * computes the elements, in an order that follows from the shape alone.
 *
 * Map of the folder. One op, one file of its name. Shared files:
 *
 *   elementwise.[ch]        this frame. Composed ops use its checks and its reduction (aci_loss_*)
 *   cross_entropy.h         cross_entropy: cross_entropy_kernel.c on the CPU, cross_entropy.cu,
 *                           .cuh and _rows.cu on CUDA
 *   linear_cross_entropy.h  linear_cross_entropy, tile by tile of the vocabulary: _args.h
 *                           (arguments by name), _kernel.c and _tile.c on the CPU, .cu, .cuh and
 *                           _tile.cu on CUDA */
#ifndef ACI_OPS_ELEMENTWISE_LOSS_H
#define ACI_OPS_ELEMENTWISE_LOSS_H
#include "ops/map/map.h"

/* As in every signature's enum(none|mean|sum), kl_div's fourth word besides. */
enum { ACI_LOSS_NONE, ACI_LOSS_MEAN, ACI_LOSS_SUM, ACI_LOSS_BATCHMEAN };
enum { ACI_LOSS_INPUT, ACI_LOSS_TARGET, ACI_LOSS_REDUCTION };

/* input and target: floats of one shape -> () or that shape, in the promoted dtype. The map is in
 * .data. */
ac_status aci_elementwise_loss_shape(ac_frame *f, ac_err *e);
ac_status aci_elementwise_loss_cpu(ac_frame *f, ac_err *e);
/* The factor of an element's gradient besides dy. */
double aci_elementwise_loss_scale(const ac_grad *g);
/* Sets the gradients of a loss of input - target from dinput. */
void aci_elementwise_loss_grad(ac_grad *g, ac_tensor *dinput);

/* In composed rules: elements (any shape) reduced. n_batch: rows of BATCHMEAN. */
ac_tensor *aci_loss_reduce(ac_expr *x, ac_tensor *elements, int64_t reduction);
/* DTYPE / SHAPE unless arguments a and b are floats of one shape. */
ac_status aci_loss_same(ac_expr *x, const ac_value *a, const ac_value *b, const char *an,
                        const char *bn);

/* The loops of a loss and of its gradient by input: FWD(T, p, x, t), BWD(T, p, dy, x, t), with p[0]
 * the reduction. */
#define ACI_LOSS(op, FWD)         \
  ACI_LOOP2(op, float, f32, FWD)  \
  ACI_LOOP2(op, double, f64, FWD) \
  static const aci_map op##_map = {2, op##_f32, op##_f64, NULL};

#endif
