/* tril and triu: one kernel. */
#ifndef ACI_OPS_TRIANGLE_H
#define ACI_OPS_TRIANGLE_H
#include "ops/index/index.h"

ac_status aci_triangle_shape(ac_frame *f, ac_err *e);
/* Keeps columns j <= i + diagonal of row i, or with upper j >= i + diagonal. */
ac_status aci_triangle(ac_frame *f, bool upper, ac_err *e);

#endif
