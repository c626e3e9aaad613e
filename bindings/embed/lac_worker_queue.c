/* Messages between a worker and its owner (worker.h): made on one thread, read and freed on
 * another. */
#include <stdlib.h>

#include "bindings/base/codec.h"
#include "bindings/core/gc.h"
#include "ops/core/ctx_impl.h"
#include "worker.h"

void lac_message_free(lac_message *m) {
  if (m == NULL) return;
  for (size_t i = 0; i < m->n_tensors; i++) ac_tensor_release(m->tensor[i]);
  free(m->bytes);
  free(m);
}

/* A head of its own for every tensor that the encoder holds. NULL: no memory. */
static lac_message *take(lac_encoder *w) {
  lac_message *m = calloc(1, sizeof *m + w->n_held * sizeof m->tensor[0]);
  if (m == NULL) return NULL;
  for (size_t i = 0; i < w->n_held; i++) {
    m->tensor[i] = aci_tensor_detach(w->held[i]);
    if (m->tensor[i] == NULL) {
      lac_message_free(m);
      return NULL;
    }
    m->n_tensors++;
  }
  m->bytes = aci_strbuf_take(&w->buf, &m->n_bytes);
  return m;
}

static int make(lua_State *L) {
  lac_state *S = lac_state_of(L);
  lac_message **out = lua_touserdata(L, 2);
  lac_encoder *w = lac_encoder_push(L, SIZE_MAX);
  lua_toclose(L, -1);
  w->by_reference = true;
  lac_encode(L, S, w, 1);
  *out = take(w);
  if (*out == NULL) lac_error(L, S, AC_OOM, "no memory for a message of %zu bytes", w->buf.len);
  return 0;
}

lac_message *lac_message_new(lua_State *L, lac_state *S, int idx) {
  lac_message *m = NULL;
  (void)S;
  luaL_checkstack(L, 4, "message");
  lua_pushvalue(L, idx);
  lua_pushcfunction(L, make);
  lua_insert(L, -2);
  lua_pushlightuserdata(L, &m);
  lua_call(L, 2, 0);
  return m;
}

void lac_message_push(lua_State *L, lac_state *S, const lac_message *m) {
  ac_err e;
  lac_gc_due(L, S);
  ac_device *cpu = S->ctx->device[0]; /* by reference, so that their bytes stay in place */
  if (lac_decode_shared(L, S, m->bytes, m->n_bytes, m->tensor, m->n_tensors, cpu, &e) != AC_OK)
    lac_raise(L, S, &e);
}

void lac_queue_init(lac_queue *q) { *q = (lac_queue){.end = &q->first}; }

void lac_queue_add(lac_queue *q, lac_message *m) {
  m->next = NULL;
  *q->end = m;
  q->end = &m->next;
  q->n++;
}

lac_message *lac_queue_take(lac_queue *q) {
  lac_message *m = q->first;
  if (m == NULL) return NULL;
  q->first = m->next;
  if (q->first == NULL) q->end = &q->first;
  q->n--;
  return m;
}

void lac_queue_clear(lac_queue *q) {
  for (lac_message *m; (m = lac_queue_take(q)) != NULL;) lac_message_free(m);
}
