/* What functions that make tensors share, all of lac_factory.c: the options at the end of their arguments, and the
 * tensor these ask for. Used by lac_random.c and lac_bytes.c too. */
#ifndef LAC_FACTORY_H
#define LAC_FACTORY_H
#include <string.h>

#include "core/lac.h"

/* What the options of a factory say. */
typedef struct lac_spec {
  ac_dtype dtype;
  bool dtype_given;
  ac_device *device;
  bool requires_grad;
} lac_spec;

/* The options at idx; dtype: when none is given. g NULL: there is no option `generator`; *g NULL: it is not given. */
lac_spec lac_spec_read(lua_State *L, lac_state *S, int idx, ac_dtype dtype, ac_generator **g);
/* The same where t gives dtype and device. */
lac_spec lac_spec_like(lua_State *L, lac_state *S, const ac_tensor *t, int idx, ac_generator **g);
/* Both push the new tensor: of undefined contents, or with values from host memory. */
ac_tensor *lac_spec_new(lua_State *L, lac_state *S, const lac_spec *s, int ndim, const int64_t *shape);
ac_tensor *lac_spec_from_host(lua_State *L, lac_state *S, const lac_spec *s, int ndim, const int64_t *shape,
                              const void *data);
/* The tensor on top, filled, becomes the one result; it requires grad from here on when that was asked for. */
int lac_spec_finish(lua_State *L, lac_state *S, const lac_spec *s);
/* The shape of a tensor that may be gone once a box was made; returns its ndim. */
static inline int lac_shape_of(const ac_tensor *t, int64_t *shape) {
  memcpy(shape, t->shape, (size_t)t->ndim * sizeof *shape);
  return t->ndim;
}

#endif
