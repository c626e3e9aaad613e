/* The count of prod_parts on every device, in one f64: 1 for an element that is 0, ACI_PROD_ODD for
 * one that is not finite. The number of zeros stays exact up to 2^32. Used by prod.c and
 * reductions.cu. */
#ifndef ACI_OPS_REDUCE_PROD_H
#define ACI_OPS_REDUCE_PROD_H

#define ACI_PROD_ODD 4294967296.0
#define ACI_PROD_COUNT(v) ((v) == 0 ? 1.0 : (v) - (v) == 0 ? 0.0 : ACI_PROD_ODD)

#endif
