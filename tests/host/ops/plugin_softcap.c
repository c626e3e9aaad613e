/* A third-party library: an op file and one function that registers it. Loaded by test_plugin.c. */
#include "dropin/softcap.c"

AC_API ac_status softcap_register(ac_ctx *c, ac_err *e);
ac_status softcap_register(ac_ctx *c, ac_err *e) { return ac_op_register(c, &aci_op_softcap, e); }
