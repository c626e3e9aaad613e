/* Callbacks for the end of the outermost backward. Used by the engine. */
#include <stdlib.h>

#include "autograd/node.h"

typedef struct aci_final_callback {
  struct aci_final_callback *next;
  ac_end_hook fn;
  void *user;
  void (*free_fn)(void *);
} aci_final_callback;

ac_status ac_backward_queue(ac_ctx *c, ac_end_hook fn, void *user, void (*free_fn)(void *),
                            ac_err *e) {
  if (c->in_backward == 0) return AC_FAIL(e, STATE, "no backward is running");
  aci_final_callback *n = malloc(sizeof *n), **end = &c->final_callbacks;
  if (n == NULL) return AC_FAIL(e, OOM, "no memory for a callback");
  *n = (aci_final_callback){.fn = fn, .user = user, .free_fn = free_fn};
  while (*end != NULL) end = &(*end)->next;
  *end = n;
  return AC_OK;
}

ac_status aci_backward_leave(ac_ctx *c, ac_status st, ac_err *e) {
  const bool grad = c->grad_enabled, cast = c->autocast_on;
  while (c->in_backward == 1 && c->final_callbacks != NULL) {
    aci_final_callback *n = c->final_callbacks;
    c->final_callbacks = n->next;
    c->grad_enabled = c->autocast_on = false;
    if (st == AC_OK) st = n->fn(n->user, e);
    if (n->free_fn != NULL) n->free_fn(n->user);
    free(n);
  }
  c->grad_enabled = grad;
  c->autocast_on = cast;
  c->in_backward--;
  return st;
}
