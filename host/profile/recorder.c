/* The recorder: spans in chunks that never move, and the callbacks that make them. Called by
 * bindings and C programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/profile_impl.h"

enum { STANDARD_SPANS = 4 << 20, SHAPES_TEXT = 512 };

const char *ac_span_kind_name(ac_span_kind k) {
  static const char *const names[] = {
#define AC_X(name, text) text,
      AC_SPAN_LIST(AC_X)
#undef AC_X
  };
  return k >= 0 && k < AC_SPAN_KINDS ? names[k] : "unknown";
}

/* ---- spans ---- */

/* Room for one more, zeroed. NULL: it is dropped. */
aci_span *aci_profile_append(ac_profile *p) {
  if (p->n >= (int64_t)p->o.max_spans) goto none;
  if (p->n == p->cap) {
    const int64_t n = p->cap / ACI_SPANS_PER_CHUNK;
    if (n % 16 == 0) { /* room for 16 more chunks at a time */
      aci_span **chunks = realloc(p->chunks, (size_t)(n + 16) * sizeof *chunks);
      if (chunks == NULL) goto none;
      p->chunks = chunks;
    }
    if ((p->chunks[n] = malloc(ACI_SPANS_PER_CHUNK * sizeof(aci_span))) == NULL) goto none;
    p->cap += ACI_SPANS_PER_CHUNK;
  }
  aci_span *s = aci_span_at(p, p->n++);
  memset(s, 0, sizeof *s);
  s->flops = -1;
  s->parent = -1;
  return s;
none:
  p->dropped++;
  return NULL;
}

/* The line of the script that runs: a look-up that goes up the stack of Lua. */
static uint32_t site_here(ac_profile *p) {
  const ac_sites *s = p->ctx->sites;
  if (!p->o.sites || s == NULL) return 0;
  const char *text = s->text(s->user, s->here(s->user));
  return text == NULL ? 0 : aci_texts_add(&p->texts, text, strlen(text));
}

static int64_t open_span(ac_profile *p, ac_span_kind kind, const char *name) {
  aci_span *s = aci_profile_append(p);
  if (s == NULL) return -1;
  s->kind = (uint8_t)kind;
  s->name = aci_texts_add(&p->texts, name, strlen(name));
  s->parent = (int32_t)p->current;
  /* backward has no line of its own: its calls come from that which began it */
  s->site =
      p->ctx->in_backward > 0 && p->current >= 0 ? aci_span_at(p, p->current)->site : site_here(p);
  p->current = p->n - 1;
  s->begin = aci_now_ns(); /* last: the time before this is not the span's */
  return p->current;
}

static void close_span(ac_profile *p, int64_t i, int64_t now) {
  aci_span_at(p, i)->end = now;
  p->current = aci_span_at(p, i)->parent;
}

int64_t ac_profile_begin(ac_profile *p, ac_span_kind kind, const char *name) {
  return p->running ? open_span(p, kind, name) : -1;
}

void ac_profile_end(ac_profile *p, int64_t span) {
  if (span < 0 || span >= p->n || !p->running || aci_span_at(p, span)->end != 0) return;
  const int64_t now = aci_now_ns();
  bool inside = false;
  for (int64_t i = p->current; i >= 0 && !inside; i = aci_span_at(p, i)->parent) inside = i == span;
  if (!inside) return;
  while (p->current != span) close_span(p, p->current, now);
  close_span(p, span, now);
}

/* ---- ops ---- */
static void put_shape(const ac_tensor *t, char *buf, size_t *n) {
  size_t at = *n;
  buf[at++] = '[';
  for (int i = 0; t != NULL && i < t->ndim && at < SHAPES_TEXT - 32; i++)
    at += (size_t)snprintf(buf + at, SHAPES_TEXT - at, i == 0 ? "%lld" : ", %lld",
                           (long long)t->shape[i]);
  buf[at++] = ']';
  *n = at;
}

static const char *type_of(const ac_value *v) {
  switch (v->kind) {
    case AC_T_TENSOR: return v->tensor == NULL ? "" : ac_dtype_name((ac_dtype)v->tensor->dtype);
    case AC_T_TENSORS: return "tensors";
    case AC_T_SCALAR: return "number";
    case AC_T_NONE: return "";
    case AC_T_FLOAT: return "float";
    case AC_T_BOOL: return "bool";
    default: return "int";
  }
}

/* Shapes as torch's record_shapes lists them: one entry per argument, a list of tensors as a list
 * of shapes. */
static void note_shapes(ac_profile *p, aci_span *s, const ac_frame *f) {
  char shapes[SHAPES_TEXT + 64], types[SHAPES_TEXT + 64];
  size_t n = 0, m = 0;
  shapes[n++] = '[';
  types[m++] = '[';
  for (int i = 0; i < f->n_args && n < SHAPES_TEXT - 64 && m < SHAPES_TEXT - 64; i++) {
    const ac_value *v = &f->args[i];
    if (i > 0) {
      memcpy(shapes + n, ", ", 2);
      memcpy(types + m, ", ", 2);
      n += 2;
      m += 2;
    }
    if (v->kind == AC_T_TENSORS) {
      shapes[n++] = '[';
      for (int j = 0; j < v->n && n < SHAPES_TEXT - 64; j++) {
        if (j > 0) {
          memcpy(shapes + n, ", ", 2);
          n += 2;
        }
        put_shape(v->tensors[j], shapes, &n);
      }
      shapes[n++] = ']';
    } else {
      put_shape(v->kind == AC_T_TENSOR ? v->tensor : NULL, shapes, &n);
    }
    const char *type = type_of(v);
    memcpy(types + m, type, strlen(type));
    m += strlen(type);
  }
  shapes[n++] = ']';
  types[m++] = ']';
  s->shapes = aci_texts_add(&p->texts, shapes, n);
  s->dtypes = aci_texts_add(&p->texts, types, m);
}

static void before(void *user, const ac_frame *f) {
  ac_profile *p = user;
  const int64_t i = open_span(p, AC_SPAN_OP, f->op->name);
  if (i < 0 || !p->o.shapes) return;
  aci_span *s = aci_span_at(p, i);
  note_shapes(p, s, f);
  s->begin = aci_now_ns();
}

static int64_t flops_of(const ac_frame *f) {
  const ac_op_desc *d = f->desc;
  if (d->flops != NULL) return d->flops(f);
  if (d->flops_per_element > 0 && f->n_out > 0)
    return (int64_t)(d->flops_per_element * (double)f->out[0]->numel);
  return f->op->is_view ? 0 : -1;
}

static uint64_t bytes_of(const ac_tensor *t) {
  return t == NULL ? 0 : (uint64_t)t->numel * ac_dtype_bytes((ac_dtype)t->dtype);
}

/* The minimum traffic to and from memory. An argument that is written counts twice. Results that
 * are views of the first argument, as the results of chunk, move nothing, and neither does the
 * memory they show. */
static uint64_t moved_by(const ac_frame *f) {
  uint64_t n = 0;
  if (f->op->is_view) return 0;
  if (f->n_out > 0 && f->op->mutates == 0 && f->n_args > 0 && f->args[0].kind == AC_T_TENSOR &&
      f->args[0].tensor != NULL && f->out[0] != NULL &&
      f->out[0]->storage == f->args[0].tensor->storage)
    return 0;
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *v = &f->args[i];
    const uint64_t times = (f->op->mutates >> i & 1) ? 2 : 1;
    if (v->kind == AC_T_TENSOR) n += times * bytes_of(v->tensor);
    for (int j = 0; v->kind == AC_T_TENSORS && j < v->n; j++) n += times * bytes_of(v->tensors[j]);
  }
  for (int i = 0; i < f->n_out; i++)
    if (!f->op->gives_self) n += bytes_of(f->out[i]);
  return n;
}

static void after(void *user, const ac_frame *f, ac_status st) {
  ac_profile *p = user;
  /* a kernel calls no other op's span open, so the innermost is this one's, unless it was left
   * out */
  if (p->current < 0) return;
  aci_span *s = aci_span_at(p, p->current);
  if (s->kind != AC_SPAN_OP) return;
  if (p->o.sync && aci_is_accelerator(f->device)) (void)ac_device_sync(f->device, NULL);
  const int64_t now = aci_now_ns();
  /* else it is another rank's */
  if (p->o.flops && st == AC_OK && (f->device->kind != AC_DEV_META || f->device->index == 0)) {
    s->flops = flops_of(f);
    s->moved = moved_by(f);
  }
  close_span(p, p->current, now);
}

/* ---- backward ---- */
static void on_backward(void *user, bool begins) {
  ac_profile *p = user;
  if (!begins) {
    for (int64_t i = p->current; i >= 0; i = aci_span_at(p, i)->parent) {
      const aci_span *s = aci_span_at(p, i);
      if (s->kind != AC_SPAN_BACKWARD || s->parent < 0 ||
          aci_span_at(p, s->parent)->kind != AC_SPAN_BACKWARD) {
        if (s->kind == AC_SPAN_BACKWARD) ac_profile_end(p, i);
        return;
      }
    }
    return;
  }
  p->backwards++;
  const int64_t i = open_span(p, AC_SPAN_BACKWARD, "backward");
  if (i >= 0) aci_span_at(p, i)->site = site_here(p);
}

static void on_node(void *user, const char *name, bool begins) {
  ac_profile *p = user;
  if (begins) {
    char text[96];
    snprintf(text, sizeof text, "autograd::%s", name);
    open_span(p, AC_SPAN_BACKWARD, text);
    return;
  }
  /* the innermost backward span is the node's: spans that a hook left open inside end with it */
  for (int64_t i = p->current; i >= 0; i = aci_span_at(p, i)->parent)
    if (aci_span_at(p, i)->kind == AC_SPAN_BACKWARD) {
      ac_profile_end(p, i);
      return;
    }
}

static void on_leaf(void *user, const ac_tensor *leaf) {
  ac_profile *p = user;
  ac_profile_mark(p, leaf, AC_MEMORY_PARAMETER);
  const ac_tensor *g = ac_tensor_grad(leaf);
  if (g != NULL) ac_profile_mark(p, g, AC_MEMORY_GRADIENT);
}

/* ---- collectives ---- */
static void on_collective(void *user, const ac_comm_record *row) {
  ac_profile *p = user;
  const bool other = !pthread_equal(pthread_self(), p->owner);
  pthread_mutex_lock(&p->coll_lock);
  if (p->n_colls == p->cap_colls) {
    const int64_t cap = p->cap_colls == 0 ? 256 : p->cap_colls * 2;
    void *more = realloc(p->colls, (size_t)cap * sizeof *p->colls);
    if (more != NULL) {
      p->colls = more;
      p->cap_colls = cap;
    }
  }
  if (p->n_colls < p->cap_colls) {
    struct aci_coll_row *r = &p->colls[p->n_colls++];
    r->row = *row;
    r->group = row->ranks;
    r->parent = other ? -1 : (int32_t)p->current;
    r->other_thread = other;
  }
  pthread_mutex_unlock(&p->coll_lock);
}

/* Once nothing comes any more: collectives become spans like the others. */
static void take_collectives(ac_profile *p) {
  for (int64_t i = 0; i < p->n_colls; i++) {
    const struct aci_coll_row *r = &p->colls[i];
    aci_span *s = aci_profile_append(p);
    if (s == NULL) continue;
    const char *name = ac_coll_name(r->row.kind);
    s->kind = AC_SPAN_COLLECTIVE;
    s->name = aci_texts_add(&p->texts, name, strlen(name));
    s->begin = r->row.began;
    s->end = r->row.ended;
    s->parent = r->parent;
    s->thread = r->other_thread;
    s->bytes = r->row.payload;
    s->sent = r->row.bytes;
    s->group = r->group;
    s->remote = r->row.remote;
    s->site = aci_texts_add(&p->texts, r->row.site, strlen(r->row.site));
    if (p->o.shapes) {
      char text[64];
      const int n = snprintf(text, sizeof text, "[[%lld]]", (long long)r->row.count);
      s->shapes = aci_texts_add(&p->texts, text, (size_t)n);
      const int m = snprintf(text, sizeof text, "[%s]", ac_dtype_name(r->row.dtype));
      s->dtypes = aci_texts_add(&p->texts, text, (size_t)m);
    }
  }
  p->n_colls = 0;
}

/* ---- life ---- */
ac_status ac_profile_new(ac_ctx *c, const ac_profile_options *o, ac_profile **out, ac_err *e) {
  static const ac_profile_options standard = AC_PROFILE_OPTIONS_INIT;
  ac_profile *p = calloc(1, sizeof *p);
  *out = NULL;
  if (p == NULL) return AC_FAIL(e, OOM, "no memory for a profile");
  p->ctx = c;
  p->o = o != NULL ? *o : standard;
  if (p->o.max_spans == 0) p->o.max_spans = STANDARD_SPANS;
  if (p->o.max_spans > INT32_MAX) p->o.max_spans = INT32_MAX;
  p->current = -1;
  pthread_mutex_init(&p->coll_lock, NULL);
  p->tracer = (aci_tracer){on_backward, on_node, on_leaf, p};
  p->coll_watch = (aci_coll_watch){on_collective, p};
  aci_profile_io_init(p);
  *out = p;
  return AC_OK;
}

ac_status ac_profile_start(ac_profile *p, ac_world *w, ac_err *e) {
  ac_ctx *c = p->ctx;
  if (p->running || p->started != 0)
    return AC_FAIL(e, STATE, "this profile has been started already");
  if (c->tracer != NULL) return AC_FAIL(e, STATE, "another profile records already; stop it first");
  if (p->o.memory) AC_TRY(aci_memory_start(p, e));
  const ac_status st = aci_ctx_add_observer(c, (aci_observer){before, after, p}, e);
  if (st != AC_OK) {
    aci_memory_stop(p);
    return st;
  }
  c->tracer = &p->tracer;
  p->owner = pthread_self();
  p->world = w;
  p->running = true;
  p->started = aci_now_ns();
  if (w != NULL) aci_coll_watch_set(w, &p->coll_watch);
  return AC_OK;
}

void ac_profile_stop(ac_profile *p) {
  if (!p->running) return;
  const int64_t now = aci_now_ns();
  if (p->world != NULL) aci_coll_watch_set(p->world, NULL);
  p->ctx->tracer = NULL;
  aci_ctx_remove_observer(p->ctx, p);
  aci_memory_stop(p);
  while (p->current >= 0) close_span(p, p->current, now);
  take_collectives(p);
  aci_profile_take_io(p);
  p->world = NULL;
  p->stopped = now;
  p->running = false;
}

void ac_profile_world_closed(ac_profile *p) { p->world = NULL; }

void ac_profile_free(ac_profile *p) {
  if (p == NULL) return;
  ac_profile_stop(p);
  for (int64_t i = 0; i < p->cap / ACI_SPANS_PER_CHUNK; i++) free(p->chunks[i]);
  free(p->chunks);
  free(p->colls);
  free(p->ios);
  aci_memory_free(p);
  aci_texts_fini(&p->texts);
  pthread_mutex_destroy(&p->coll_lock);
  free(p);
}

bool ac_profile_running(const ac_profile *p) { return p->running; }
int64_t ac_profile_n_spans(const ac_profile *p) { return p->n; }
int64_t ac_profile_dropped(const ac_profile *p) { return p->dropped; }
int64_t ac_profile_start_ns(const ac_profile *p) { return p->started; }
int64_t ac_profile_stop_ns(const ac_profile *p) { return p->running ? 0 : p->stopped; }

void ac_profile_span(const ac_profile *p, int64_t i, ac_span *out) {
  const aci_span *s = aci_span_at(p, i);
  *out = (ac_span){.begin = s->begin,
                   .end = s->end,
                   .name = aci_texts_get(&p->texts, s->name),
                   .shapes = aci_texts_get(&p->texts, s->shapes),
                   .dtypes = aci_texts_get(&p->texts, s->dtypes),
                   .site = aci_texts_get(&p->texts, s->site),
                   .parent = s->parent,
                   .kind = (ac_span_kind)s->kind,
                   .thread = s->thread,
                   .flops = s->flops,
                   .moved = s->moved,
                   .memory = s->memory,
                   .bytes = s->bytes,
                   .sent = s->sent,
                   .group = s->group,
                   .remote = s->remote};
  if (out->name == NULL) out->name = "";
}
