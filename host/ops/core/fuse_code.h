/* Kernels that are made while a program runs, for passes of fuse.c that come again and again: the
 * formulas of a chain in C, compiled by the system's compiler, kept in a folder. Without a
 * compiler, and until a pass has come some times, chains run as fuse_pass.c does.
 *
 * A kernel has the bits of the chain: the same formulas (gen/map_text.c), the same rules for
 * roundings. Formulas of many operations, such as erf, each end a loop of their own over the 1024
 * elements of a block: together with others they run out of registers (measured: 0.76x of the
 * chain, while short formulas in one loop are 1.8x of it). */
#ifndef ACI_OPS_FUSE_CODE_H
#define ACI_OPS_FUSE_CODE_H
#include "ops/core/fuse_pass.h"

typedef struct aci_fuse_codes aci_fuse_codes; /* of a context: kernels by the form of a pass */

/* NULL without memory, or if it is switched off */
aci_fuse_codes *aci_fuse_codes_new(const ac_params *p);
void aci_fuse_codes_free(aci_fuse_codes *c);
/* Gives a laid-out pass its kernel, if there is one: p->code and its arguments. May compile, once
 * for each kind of pass. */
void aci_fuse_codes_find(aci_fuse_codes *c, aci_fuse_pass *p);

/* ---- fuse_cc.c ---- */
/* The function `kernel` of a C text, from the folder of kernels or compiled now. NULL: there is
 * none, and will not be. *library is for dlclose. */
aci_fuse_kernel aci_fuse_compile(const ac_params *p, const char *source, size_t n, void **library);
/* The file in the folder of kernels with the machine code of a text for `target`. False: there is
 * no folder. */
bool aci_fuse_cache_path(const ac_params *p, const char *source, size_t n, const char *target,
                         char *path, size_t room);
/* malloc'ed. False: it is missing, or others may write to it. */
bool aci_fuse_cache_read(const char *path, void **code, size_t *bytes);
void aci_fuse_cache_write(const char *path, const void *code, size_t bytes);

#endif
