/* Anomaly mode, private to the autograd stage. */
#ifndef ACI_AUTOGRAD_ANOMALY_H
#define ACI_AUTOGRAD_ANOMALY_H
#include "autograd/node.h"

/* Number of the current line. 0: unknown. */
uint32_t aci_site(const ac_ctx *c);
/* After n's backward: looks for NaN in its results (if st is OK) and adds the line of the forward
 * to every failure. */
ac_status aci_anomaly_after(ac_ctx *c, const ac_node *n, ac_tensor *const *din, ac_status st,
                            ac_err *e);
/* GRAD when a gradient that a backward was given has NaN already. */
ac_status aci_anomaly_seed(ac_ctx *c, ac_tensor *g, int output, ac_err *e);

#endif
