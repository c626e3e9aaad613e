/* Storage whose bytes are another storage's while a unit is gathered, and none in between: the seam
 * between ops, which acquire storages at dispatch, and the engine, which gathers and frees. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base_impl.h"
#include "ops/core/ctx_impl.h"
#include "shard/shard.h"

typedef struct gathered {
  ac_ctx *ctx;
  ac_storage *bytes; /* retained. NULL: sharded */
  aci_gather_fn gather;
  void *user;
  void (*free_fn)(void *);
  bool written, anywhere;
  int users; /* ops that have acquired it and not released it */
  char unit[96];
} gathered;

static ac_status acquire(ac_storage *s, void **ptr, ac_err *e) {
  gathered *g = s->impl;
  if (__builtin_expect(g->bytes == NULL, 0)) {
    if (g->ctx->in_backward == 0 && !g->anywhere)
      return AC_FAIL(
          e, STATE,
          "a parameter of the sharded unit '%s' is used outside the unit's forward and backward, where no rank has "
          "all of it; use it inside summon_full_params, or wrap the module that uses it",
          g->unit);
    AC_TRY(g->gather(g->user, e));
    if (g->bytes == NULL)
      return AC_FAIL(e, INTERNAL, "the sharded unit '%s' was not gathered", g->unit);
  }
  *ptr = g->bytes->ptr;
  g->users++;
  return AC_OK;
}

static void release(ac_storage *s, bool written) {
  gathered *g = s->impl;
  g->users--;
  if (written) g->written = true;
}

static void free_gathered(ac_storage *s) {
  gathered *g = s->impl;
  ac_storage_release(g->bytes);
  if (g->free_fn != NULL) g->free_fn(g->user);
  free(g);
}

static const ac_provider provider = {sizeof provider, "sharded", acquire, release, free_gathered};

ac_status aci_gathered_new(ac_ctx *c, ac_device *d, size_t bytes, const char *unit, bool anywhere,
                           aci_gather_fn gather, void *user, void (*free_fn)(void *),
                           ac_storage **out, ac_err *e) {
  gathered *g = calloc(1, sizeof *g);
  if (g == NULL) return AC_FAIL(e, OOM, "no memory for a sharded unit");
  *g = (gathered){
      .ctx = c, .anywhere = anywhere, .gather = gather, .user = user, .free_fn = free_fn};
  snprintf(g->unit, sizeof g->unit, "%s", unit);
  const ac_status st = ac_storage_provided(d, bytes, &provider, g, out, e);
  if (st != AC_OK) free(g);
  return st;
}

ac_status aci_gathered_set(ac_storage *s, ac_storage *bytes, ac_err *e) {
  gathered *g = s->impl;
  if (bytes != NULL &&
      (bytes->bytes < s->bytes || bytes->device != s->device || bytes->provider != NULL))
    return AC_FAIL(e, INVALID, "memory for the sharded unit '%s' does not fit it", g->unit);
  if (bytes != NULL) ac_storage_retain(bytes);
  ac_storage_release(g->bytes);
  g->bytes = bytes;
  g->written = false;
  s->ptr = bytes != NULL ? bytes->ptr : NULL;
  return AC_OK;
}

bool aci_gathered_is(const ac_storage *s) { return s->provider == &provider; }
bool aci_gathered_there(const ac_storage *s) { return ((const gathered *)s->impl)->bytes != NULL; }
bool aci_gathered_used(const ac_storage *s) { return ((const gathered *)s->impl)->users > 0; }
bool aci_gathered_written(const ac_storage *s) { return ((const gathered *)s->impl)->written; }
