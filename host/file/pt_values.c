/* The values that a pickle makes: their table, lists of items, and the check of the finished tree.
 * Called by pt_pickle.c and pt_global.c. */
#include <stdlib.h>
#include <string.h>

#include "file/pt.h"

ac_status aci_pt_room(ac_err *e, const ac_pt *f, void *list, uint32_t n, uint32_t *cap,
                      size_t size) {
  void *old;
  if (n < *cap) return AC_OK;
  const uint32_t more = *cap ? *cap * 2 : 64;
  memcpy(&old, list, sizeof old);
  void *new = realloc(old, more * size);
  if (new == NULL) return aci_pt_no_memory(e, f);
  memcpy(list, &new, sizeof new);
  *cap = more;
  return AC_OK;
}

ac_status aci_pt_value(ac_pt *f, int kind, size_t at, uint32_t *id, ac_err *e) {
  if (f->n_values == ACI_PT_MAX_VALUES)
    return aci_pt_refuse(e, f, f->pickle_at + at, "size", "more than %d values",
                         (int)ACI_PT_MAX_VALUES);
  AC_TRY(aci_pt_room(e, f, &f->value, f->n_values, &f->cap_values, sizeof *f->value));
  f->value[f->n_values] = (ac_pt_value){.kind = (uint8_t)kind, .at = (uint32_t)at};
  *id = f->n_values++;
  return AC_OK;
}

/* Capacities of lists are powers of two from 4 on, so n determines them. */
static uint32_t room_of(uint32_t n) {
  uint32_t cap = 4;
  while (cap < n) cap *= 2;
  return cap;
}

ac_status aci_pt_append(ac_pt *f, uint32_t list, const uint32_t *items, uint32_t n, ac_err *e) {
  ac_pt_value *v = &f->value[list];
  uint32_t *item = (uint32_t *)(uintptr_t)v->item; /* ours: made here */
  if (n == 0) return AC_OK;
  if (n > (uint32_t)1 << 30 || v->n > (uint32_t)1 << 30) return aci_pt_no_memory(e, f);
  if (item == NULL || room_of(v->n + n) > room_of(v->n)) {
    uint32_t *more = realloc(item, room_of(v->n + n) * sizeof *more);
    if (more == NULL) return aci_pt_no_memory(e, f);
    v->item = item = more;
  }
  memcpy(item + v->n, items, n * sizeof *items);
  v->n += n;
  return AC_OK;
}

static bool has_items(int kind) {
  return kind == AC_PT_LIST || kind == AC_PT_TUPLE || kind == AC_PT_SET || kind == AC_PT_DICT ||
         kind == AC_PT_COMPLEX || kind == AC_PT_OBJECT;
}

void aci_pt_clear(ac_pt *f) {
  for (uint32_t i = 0; i < f->n_values; i++)
    if (has_items(f->value[i].kind)) free((void *)(uintptr_t)f->value[i].item);
  for (uint32_t i = 0; i < f->n_text; i++) free(f->text[i]);
  free(f->key_hash);
  f->key_hash = NULL;
  f->n_values = f->n_text = f->n_tensors = f->n_storages = f->n_views = f->key_mask = 0;
  f->copied = 0;
}

const char *aci_pt_kind_name(int kind) {
  static const char *const names[] = {"None",
                                      "a bool",
                                      "an int",
                                      "an int",
                                      "a float",
                                      "a complex",
                                      "a str",
                                      "bytes",
                                      "a list",
                                      "a tuple",
                                      "a set",
                                      "a dict",
                                      "a dtype",
                                      "a tensor",
                                      "an object",
                                      "a name",
                                      "a storage",
                                      "a NumPy dtype",
                                      "an unfinished array"};
  _Static_assert((int)ACI_PT_TAG == 15 && (int)ACI_PT_ARRAY == 18, "names of kinds");
  return kind >= 0 && kind <= ACI_PT_ARRAY ? names[kind] : "no kind";
}

ac_status aci_pt_latin1(ac_pt *f, size_t at, const ac_pt_value *s, uint32_t *id, ac_err *e) {
  const unsigned char *p = (const unsigned char *)s->s;
  const uint32_t n = s->n;
  f->copied += n;
  if (f->copied > f->pickle_bytes)
    return aci_pt_refuse(e, f, f->pickle_at + at, "size",
                         "one string is made into bytes again and again");
  AC_TRY(aci_pt_room(e, f, &f->text, f->n_text, &f->cap_text, sizeof *f->text));
  char *out = malloc((size_t)n + 1);
  if (out == NULL) return aci_pt_no_memory(e, f);
  f->text[f->n_text++] = out;
  uint32_t len = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (p[i] >= 0xC4) /* above U+00FF */
      return aci_pt_refuse(e, f, f->pickle_at + at, "arguments",
                           "_codecs.encode of a character above U+00FF");
    if (p[i] < 0x80) {
      out[len++] = (char)p[i];
    } else {
      out[len++] =
          /* UTF-8, checked: 0xC2 or 0xC3 and one more */
          (char)((p[i] & 3) << 6 | (p[i + 1] & 0x3F));
      i++;
    }
  }
  out[len] = 0;
  AC_TRY(aci_pt_value(f, AC_PT_BYTES, at, id, e));
  f->value[*id].s = out;
  f->value[*id].n = len;
  return AC_OK;
}

/* ---- the finished tree ---- */

typedef struct visit {
  uint32_t id, next;
} visit;
enum { NEW, OPEN, DONE };

static ac_status enter(ac_pt *f, visit *stack, int *depth, uint32_t id, ac_err *e) {
  ac_pt_value *v = &f->value[id];
  if (v->kind == ACI_PT_NPDTYPE && v->i % ACI_PT_BIG != ACI_PT_NO_DTYPE) {
    const char *name = aci_pt_dtype_at((int)(v->i % ACI_PT_BIG))->name;
    *v = (ac_pt_value){.kind = AC_PT_DTYPE, .at = v->at, .n = (uint32_t)strlen(name), .s = name};
  }
  if (v->kind >= AC_PT_KINDS)
    return aci_pt_refuse(e, f, f->pickle_at + v->at, "arguments", "%s instead of a value; %s",
                         aci_pt_kind_name(v->kind),
                         v->kind == ACI_PT_STORAGE ? "save a tensor of it"
                                                   : "save plain values and tensors");
  if (v->mark == OPEN)
    return aci_pt_refuse(e, f, f->pickle_at + v->at, "cycle", "%s contains itself",
                         aci_pt_kind_name(v->kind));
  if (*depth + v->height >= ACI_PT_MAX_DEPTH)
    return aci_pt_refuse(e, f, f->pickle_at + v->at, "depth",
                         "more than %d values inside each other", ACI_PT_MAX_DEPTH);
  if (v->mark == DONE) return AC_OK;
  if (!has_items(v->kind)) {
    v->mark = DONE;
    return AC_OK;
  }
  v->mark = OPEN;
  stack[(*depth)++] = (visit){.id = id};
  return AC_OK;
}

ac_status aci_pt_check_tree(ac_pt *f, uint32_t root, ac_err *e) {
  visit stack[ACI_PT_MAX_DEPTH + 1];
  int depth = 0;
  AC_TRY(enter(f, stack, &depth, root, e));
  while (depth > 0) {
    visit *top = &stack[depth - 1];
    ac_pt_value *v = &f->value[top->id];
    if (top->next < v->n) {
      AC_TRY(enter(f, stack, &depth, v->item[top->next++], e));
      continue;
    }
    uint16_t height = 0;
    for (uint32_t i = 0; i < v->n; i++) {
      const uint16_t h = (uint16_t)(f->value[v->item[i]].height + 1);
      if (h > height) height = h;
    }
    v->height = height;
    v->mark = DONE;
    depth--;
  }
  return AC_OK;
}
