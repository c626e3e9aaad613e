/* The arguments of linear_cross_entropy's two kernels, by name, for the CPU and device modules. */
#ifndef ACI_OPS_LINEAR_CROSS_ENTROPY_ARGS_H
#define ACI_OPS_LINEAR_CROSS_ENTROPY_ARGS_H

/* Arguments of linear_cross_entropy_tiles. linear_cross_entropy_backward has them as well, after
 * its own. */
enum {
  ACI_LCE_INPUT,  /* (n, k) */
  ACI_LCE_LINEAR, /* (v, k) */
  ACI_LCE_TARGET, /* (n) */
  ACI_LCE_BIAS,
  ACI_LCE_WEIGHT,
  ACI_LCE_REDUCTION,
  ACI_LCE_IGNORE,
  ACI_LCE_SMOOTHING,
  ACI_LCE_PRODUCT, /* dtype in which the products multiply */
  ACI_LCE_RESULT,  /* dtype of the loss, forward only */
  ACI_LCE_KEEP,    /* forward only */
  /* backward only: the leading arguments, and the gradients that are wanted */
  ACI_LCE_DY = 0,
  ACI_LCE_LSE,
  ACI_LCE_KEPT,
  ACI_LCE_SHIFTS,
  ACI_LCE_BACK,
  ACI_LCE_NEEDS = ACI_LCE_BACK + ACI_LCE_RESULT
};

#endif
