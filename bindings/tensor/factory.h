/* Helpers shared by functions that make tensors, all of lac_factory.c: the options at the end of
 * their arguments, and the tensor these ask for. lac_random.c and lac_bytes.c use them as well. */
#ifndef LAC_FACTORY_H
#define LAC_FACTORY_H
#include <string.h>

#include "bindings/core/lac.h"

/* The options of a factory. */
typedef struct lac_spec {
  ac_dtype dtype;
  bool dtype_given;
  ac_device *device;
  bool requires_grad;
} lac_spec;

/* The options at idx. dtype: the default. g NULL: there is no option `generator`. *g NULL: it is
 * not given. */
lac_spec lac_spec_read(lua_State *L, lac_state *S, int idx, ac_dtype dtype, ac_generator **g);
/* The same with dtype and device of t as defaults. */
lac_spec lac_spec_like(lua_State *L, lac_state *S, const ac_tensor *t, int idx, ac_generator **g);
/* Both push the new tensor: of undefined contents, or with values from host memory. */
ac_tensor *lac_spec_new(lua_State *L, lac_state *S, const lac_spec *s, int ndim,
                        const int64_t *shape);
ac_tensor *lac_spec_from_host(lua_State *L, lac_state *S, const lac_spec *s, int ndim,
                              const int64_t *shape, const void *data);
/* The tensor on top, filled, becomes the one result. It requires grad from here on if that option
 * is set. */
int lac_spec_finish(lua_State *L, lac_state *S, const lac_spec *s);
/* The shape of a tensor that may be gone once a box was made. Returns its ndim. */
static inline int lac_shape_of(const ac_tensor *t, int64_t *shape) {
  memcpy(shape, t->shape, (size_t)t->ndim * sizeof *shape);
  return t->ndim;
}

#endif
