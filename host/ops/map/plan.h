/* A map and a call of it laid out, for the drivers of the CPU (map.c) and of device modules. */
#ifndef ACI_OPS_MAP_PLAN_H
#define ACI_OPS_MAP_PLAN_H
#include "accel/opdef.h"
#include "ops/map/convert.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ACI_MAP_MAX_IN = 4, ACI_MAP_MAX_P = 6 };

typedef void (*aci_map_fn)(int64_t n, void *out, const void *const *in, const void *p);

/* A formula in one compute type: the CPU's loop, and its source file and name, by which device
 * modules find their own. */
typedef struct aci_map_loop {
  aci_map_fn run;
  const char *file, *name; /* "/.../host/ops/map/exp.c", "exp_f32" */
} aci_map_loop;

typedef struct aci_map {
  int n_in;
  const aci_map_loop *f32, *f64, *i64; /* i64 NULL: integers are computed in f32 */
} aci_map;

/* A call of a map laid out: operands walked with the strides of the output's dims, which are joined
 * as far as all of them allow. */
typedef struct aci_map_operand {
  const char *ptr;
  ac_dtype dt;
  bool number; /* one value of the compute type, in number[] of the plan itself */
  int64_t stride[AC_MAX_DIMS];
} aci_map_operand;
typedef struct aci_map_plan {
  aci_ctype ct;
  int n_in, ndim; /* ndim is at least 1 */
  int64_t numel, shape[AC_MAX_DIMS];
  aci_map_operand in[ACI_MAP_MAX_IN], out;
  union {
    float f32[ACI_MAP_MAX_P];
    double f64[ACI_MAP_MAX_P];
    int64_t i64[ACI_MAP_MAX_P];
  } p;
  union {
    float f32;
    double f64;
    int64_t i64;
  } number[ACI_MAP_MAX_IN];
} aci_map_plan;
/* The loop that computes it. Operands that are numbers point into *plan, so a copy of it has to
 * correct those pointers. */
ACI_MODULE_API const aci_map_loop *aci_map_plan_make(const ac_frame *f, const aci_map *m,
                                                     aci_map_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
