/* Signatures of ops, parsed. Used by the context (argument checks), the bindings and the generator
 * (accel-opgen): one parser for all.
 *
 *   name(param: type[?] [= literal], x!: type, ...) -> result        result: tensor | tensors |
 *   view(x) | dynamic | () |
 *                                                                     (a: tensor, b: tensor?) ,
 *                                                                     dynamic may follow: "->
 *                                                                     tensor dynamic"
 * ints|none: a list whose elements may be none. literals: true false none, integers, floats (1e-5,
 * inf, -inf), "text", enum words, lists [0, 1]. */
#ifndef ACI_OPS_SIG_H
#define ACI_OPS_SIG_H
#include "accel/op.h"

#define ACI_MAX_ENUM 8

typedef struct aci_param {
  char name[28];
  ac_type type;
  bool optional; /* `?`: may be none */
  bool mutates;  /* `!` */
  /* `ints|none`: elements of the list may be none, which C spells AC_INT_NONE and Lua false */
  bool holes;
  bool has_default; /* an optional without literal defaults to none */
  ac_value dflt;    /* ints/floats/str point into this struct */
  int64_t dflt_ints[4];
  double dflt_floats[4];
  char dflt_str[24];
  int n_enum;
  char enum_name[ACI_MAX_ENUM][24];
} aci_param;

typedef struct aci_result {
  char name[24]; /* "" when the only result is unnamed */
  ac_type type;  /* AC_T_TENSOR or AC_T_TENSORS */
  bool optional;
  int view_of; /* parameter it aliases, -1: none */
} aci_result;

typedef struct aci_sig {
  char name[40];
  int n_params, n_results;
  bool dynamic; /* a result's shape depends on data */
  aci_param param[AC_MAX_ARGS];
  aci_result result[AC_MAX_RESULTS];
} aci_sig;

/* PARSE with position and reason. */
ac_status aci_sig_parse(const char *text, aci_sig *out, ac_err *e);
/* "tensor", "dims", ... */
const char *aci_type_name(ac_type t);

#endif
