/* Complex tensors. An element is its real part and its imaginary part, two floats next to each
 * other, so a complex tensor is a float tensor with a last dim of 2 seen in another way
 * (view_as_real, view_as_complex). No kernel knows complex dtypes. Each op that takes complex
 * tensors names in its descriptor how it works on the floats, and ac_call refuses all others. The
 * gradient of a real loss follows from that of the floats, dL/dre + i dL/dim, which is PyTorch's
 * convention.
 *
 *   .on_complex = aci_complex_parts      once for the real parts, once for the imaginary ones
 *                 aci_complex_pairs      the same in one pass, for ops that go element by element
 *                 aci_complex_composed   .composed is right for complex tensors
 *                 aci_complex_in_place   lists of tensors that it writes, as floats: optimizer steps
 *                 a function of the op   its formula in ops on real tensors
 *   .complex_as = AC_COMPLEX_NATIVE   shape rule, kernel and gradient rule take complex tensors
 *                 AC_COMPLEX_PAIRS    the kernel alone does not: it gets the floats
 *
 * Used by call.c and by ops. */
#ifndef ACI_OPS_COMPLEX_H
#define ACI_OPS_COMPLEX_H
#include "accel/opdef.h"

/* ---- for call.c ---- */
bool aci_complex_among(const ac_value *args, int n);
/* Whether aci_complex_run runs a call with complex arguments, or refuses it. */
bool aci_complex_replaces(const ac_op *op);
ac_status aci_complex_run(ac_ctx *c, const ac_op *op, const ac_value *args, ac_value *results,
                          int *n_results, ac_err *e);
/* Of ops that write a complex first argument: the other tensors in its dtype. */
ac_status aci_complex_cast_args(ac_frame *f, ac_value *args, ac_expr *x, ac_err *e);
/* Runs a kernel on the floats of complex arguments and results. */
ac_status aci_complex_kernel(ac_frame *f, ac_kernel k, ac_err *e);

/* ---- for descriptors ---- */
int aci_complex_parts(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **out);
int aci_complex_pairs(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **out);
int aci_complex_composed(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **out);
int aci_complex_in_place(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **out);

/* ---- for formulas. As all expressions they take and give NULL after a failure ---- */
/* The parts of a complex tensor, views. Of a real one itself, and zeros. */
ac_tensor *aci_re(ac_expr *x, ac_tensor *t);
ac_tensor *aci_im(ac_expr *x, ac_tensor *t);
/* The same of operands. The imaginary part of a number is 0. */
ac_operand aci_re_of(ac_expr *x, ac_operand o);
ac_operand aci_im_of(ac_expr *x, ac_operand o);
bool aci_operand_is_complex(ac_operand o);
/* A complex tensor of two real ones of one shape and float dtype. */
ac_tensor *aci_join(ac_expr *x, ac_tensor *re, ac_tensor *im);
/* Pairs that nobody else holds as a complex tensor, which is not a view for scripts. */
ac_tensor *aci_complex_of(ac_expr *x, ac_tensor *pairs);
/* t, or a complex tensor of the same values if it is real. */
ac_tensor *aci_lift(ac_expr *x, ac_tensor *t);
/* op with another first argument. */
ac_tensor *aci_complex_again(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor *first);
/* Both as complex tensors of the dtype that they have in common. */
void aci_lift_both(ac_expr *x, ac_operand p, ac_operand q, ac_tensor **tp, ac_tensor **tq);
/* p q, or p / q with a complex q. p^q. */
ac_tensor *aci_complex_product(ac_expr *x, ac_operand p, ac_operand q, bool divide);
ac_tensor *aci_complex_power(ac_expr *x, ac_operand p, ac_operand q);

#endif
