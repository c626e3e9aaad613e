/* Declarations shared by fuse_code.c and fuse_device.c: the form of passes, and formulas as
 * text. */
#ifndef ACI_OPS_FUSE_CODE_IMPL_H
#define ACI_OPS_FUSE_CODE_IMPL_H
#include "base/strbuf.h"
#include "ops/core/fuse_code.h"
#include "ops/core/fuse_text.h"

enum { ACI_FUSE_KINDS = 256 };

/* The form of a pass: words of its nodes and operands. */
typedef struct aci_fuse_look {
  uint64_t word[ACI_FUSE_MOST * (ACI_MAP_MAX_IN + 2) + ACI_FUSE_INPUTS + 2];
  int n;
} aci_fuse_look;

typedef struct aci_fuse_entry {
  struct aci_fuse_entry *next;
  int seen;
  bool tried;
  aci_fuse_kernel fn;
  void *library;
  void *kernel; /* of a device */
  int scratch;  /* rows of it */
  int n;
  uint64_t word[];
} aci_fuse_entry;

struct aci_fuse_codes {
  const ac_params *params;
  int64_t made; /* kinds that were compiled, or tried: at most ACCEL_COMPILE_LIMIT */
  aci_fuse_entry *kind[ACI_FUSE_KINDS];
};

static inline bool aci_fuse_is_output(const aci_fuse_pass *p, int i) {
  return p->node[i]->write || p->node[i] == p->taken;
}

/* How an operand lies: as the elements do, one value, by rows and columns. */
enum { ACI_FUSE_LINEAR, ACI_FUSE_ONE, ACI_FUSE_STRIDED };
static inline int aci_fuse_lies(const aci_fuse_operand *o) {
  return o->linear                     ? ACI_FUSE_LINEAR
         : o->row == 0 && o->step == 0 ? ACI_FUSE_ONE
                                       : ACI_FUSE_STRIDED;
}

/* Fills in inputs, outputs and numbers, and the form. False: the pass does not suit a kernel.
 * device: dtypes and layouts are part of the form. */
bool aci_fuse_look_at(aci_fuse_pass *p, aci_fuse_look *l, bool device);
/* NULL without memory. */
aci_fuse_entry *aci_fuse_entry_of(aci_fuse_codes *c, const aci_fuse_look *l);
/* Counts uses. True once, when it must be compiled: after enough uses, or at once on request,
 * unless too many others were compiled. */
bool aci_fuse_entry_is_due(aci_fuse_codes *c, aci_fuse_entry *k, bool now);
/* Macros that make a function of a formula - ONE is the text before its name - and the text of p's
 * formulas. False: one has none. */
bool aci_fuse_put_formulas(aci_strbuf *b, const aci_fuse_pass *p);
extern const char aci_fuse_formulas[];

#endif
