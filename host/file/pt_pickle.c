/* The opcodes of a pickle as data: a stack, a memo, values. Nothing is called. Names go to
 * pt_global.c, which knows a short list of them. Called by pt_zip.c, pt_legacy.c and for .metadata
 * of torch.distributed.checkpoint. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "file/pt.h"

typedef struct machine {
  ac_pt *f;
  const unsigned char *p;
  size_t i, n, op; /* next byte, end, the opcode's byte */
  bool cut;
  uint32_t *stack, n_stack, cap_stack;
  uint32_t mark[ACI_PT_MAX_MARKS];
  int n_marks;
  uint32_t *memo, n_memo, cap_memo; /* id + 1. 0: never put */
  uint32_t none, yes, no;           /* their values */
} machine;

#define REFUSE(rule, ...) aci_pt_refuse(e, m->f, m->f->pickle_at + m->op, rule, __VA_ARGS__)

/* ---- bytes ---- */

static ac_status need(machine *m, uint64_t n, const char *what, ac_err *e) {
  if (n <= m->n - m->i) return AC_OK;
  m->cut = true;
  return REFUSE("truncated", "%s of %llu bytes, %llu are left", what, (unsigned long long)n,
                (unsigned long long)(m->n - m->i));
}

static ac_status number(machine *m, int bytes, uint64_t *v, ac_err *e) {
  AC_TRY(need(m, (uint64_t)bytes, "an argument", e));
  *v = 0;
  for (int k = bytes - 1; k >= 0; k--) *v = *v << 8 | m->p[m->i + (size_t)k];
  m->i += (size_t)bytes;
  return AC_OK;
}

static ac_status line(machine *m, const char **s, size_t *n, ac_err *e) {
  const unsigned char *from = m->p + m->i;
  const size_t left = m->n - m->i, most = left < 1024 ? left : 1024;
  const unsigned char *end = memchr(from, '\n', most);
  if (end == NULL) {
    m->cut = left < 1024;
    return m->cut ? REFUSE("truncated", "a name without its end")
                  : REFUSE("unknown_global", "a name longer than 1024 bytes");
  }
  *s = (const char *)from;
  *n = (size_t)(end - from);
  m->i += *n + 1;
  return AC_OK;
}

/* ---- stack ---- */

static uint32_t base(const machine *m) { return m->n_marks > 0 ? m->mark[m->n_marks - 1] : 0; }

static ac_status push(machine *m, uint32_t id, ac_err *e) {
  if (m->n_stack == ACI_PT_MAX_STACK)
    return REFUSE("stack", "more than %d values on the stack", (int)ACI_PT_MAX_STACK);
  AC_TRY(aci_pt_room(e, m->f, &m->stack, m->n_stack, &m->cap_stack, sizeof *m->stack));
  m->stack[m->n_stack++] = id;
  return AC_OK;
}

static ac_status pop(machine *m, uint32_t *id, ac_err *e) {
  if (m->n_stack == base(m)) return REFUSE("stack", "an opcode takes a value, but there is none");
  *id = m->stack[--m->n_stack];
  return AC_OK;
}

static ac_status top(machine *m, uint32_t *id, ac_err *e) {
  AC_TRY(pop(m, id, e));
  m->n_stack++;
  return AC_OK;
}

/* The values above the last mark, which goes. */
static ac_status to_mark(machine *m, uint32_t *from, uint32_t *n, ac_err *e) {
  if (m->n_marks == 0)
    return REFUSE("stack", "an opcode that takes values down to a mark, without one");
  *from = m->mark[--m->n_marks];
  *n = m->n_stack - *from;
  m->n_stack = *from;
  return AC_OK;
}

/* ---- values ---- */

static ac_status push_new(machine *m, int kind, uint32_t *id, ac_err *e) {
  AC_TRY(aci_pt_value(m->f, kind, m->op, id, e));
  return push(m, *id, e);
}

static ac_status push_int(machine *m, int64_t i, ac_err *e) {
  uint32_t id = 0;
  AC_TRY(push_new(m, AC_PT_INT, &id, e));
  m->f->value[id].i = i;
  return AC_OK;
}

static ac_status push_long(machine *m, uint64_t n, ac_err *e) {
  uint32_t id = 0;
  AC_TRY(need(m, n, "an integer", e));
  if (n > ACI_PT_MAX_LONG)
    return REFUSE("size", "an integer of %llu bytes, more than %d", (unsigned long long)n,
                  ACI_PT_MAX_LONG);
  const unsigned char *p = m->p + m->i;
  m->i += n;
  while (n > 8 && (p[n - 1] == 0 || p[n - 1] == 255) && p[n - 1] >> 7 == p[n - 2] >> 7) n--;
  if (n > 8) {
    AC_TRY(push_new(m, AC_PT_WIDE_INT, &id, e));
    m->f->value[id].s = (const char *)p;
    m->f->value[id].n = (uint32_t)n;
    return AC_OK;
  }
  uint64_t v = n > 0 && p[n - 1] >> 7 ? UINT64_MAX : 0;
  for (size_t k = n; k-- > 0;) v = v << 8 | p[k];
  return push_int(m, (int64_t)v, e);
}

static bool is_utf8(const unsigned char *p, size_t n) {
  for (size_t i = 0; i < n;) {
    const int len = p[i] < 0x80 ? 1 : aci_utf8_length(p + i, n - i);
    if (len == 0) return false;
    i += (size_t)len;
  }
  return true;
}

/* text: 0 bytes, 1 a str, 2 one of Python 2, which may be either */
static ac_status push_string(machine *m, uint64_t n, int text, ac_err *e) {
  uint32_t id = 0;
  AC_TRY(need(m, n, "a string", e));
  const unsigned char *p = m->p + m->i;
  m->i += n;
  const bool utf8 = text != 0 && is_utf8(p, n);
  if (text == 1 && !utf8) return REFUSE("utf8", "a string that is not UTF-8");
  AC_TRY(push_new(m, utf8 ? AC_PT_STR : AC_PT_BYTES, &id, e));
  m->f->value[id].s = (const char *)p;
  m->f->value[id].n = (uint32_t)n;
  return AC_OK;
}

static ac_status push_float(machine *m, ac_err *e) {
  uint32_t id = 0;
  uint64_t bits = 0;
  AC_TRY(need(m, 8, "a float", e));
  for (int k = 0; k < 8; k++) bits = bits << 8 | m->p[m->i++];
  AC_TRY(push_new(m, AC_PT_FLOAT, &id, e));
  memcpy(&m->f->value[id].f, &bits, 8);
  return AC_OK;
}

/* A tuple, set or whatever of the n values that were at stack[from]. */
static ac_status push_list(machine *m, int kind, uint32_t from, uint32_t n, ac_err *e) {
  uint32_t id = 0;
  AC_TRY(aci_pt_value(m->f, kind, m->op, &id, e));
  AC_TRY(aci_pt_append(m->f, id, m->stack + from, n, e));
  return push(m, id, e);
}

static ac_status push_tuple(machine *m, uint32_t n, ac_err *e) {
  if (m->n_stack - base(m) < n)
    return REFUSE("stack", "a tuple of %u values, but there are fewer", n);
  m->n_stack -= n;
  return push_list(m, AC_PT_TUPLE, m->n_stack, n, e);
}

static ac_status append(machine *m, int kind, const char *what, uint32_t from, uint32_t n,
                        ac_err *e) {
  uint32_t list = 0;
  AC_TRY(top(m, &list, e));
  const int is = m->f->value[list].kind;
  if (is != kind) return REFUSE("arguments", "%s into %s", what, aci_pt_kind_name(is));
  if (kind == AC_PT_DICT) {
    if (n % 2 != 0) return REFUSE("stack", "a key without its value");
    for (uint32_t i = 0; i < n; i += 2) {
      const ac_pt_value *k = &m->f->value[m->stack[from + i]];
      if (k->kind == AC_PT_LIST || k->kind == AC_PT_DICT || k->kind == AC_PT_SET ||
          k->kind == AC_PT_TENSOR || (k->kind == AC_PT_FLOAT && isnan(k->f)))
        return REFUSE("arguments", "%s as the key of a dict",
                      k->kind == AC_PT_FLOAT ? "nan" : aci_pt_kind_name(k->kind));
    }
  }
  return aci_pt_append(m->f, list, m->stack + from, n, e);
}

static ac_status append_marked(machine *m, int kind, const char *what, ac_err *e) {
  uint32_t from = 0, n = 0;
  AC_TRY(to_mark(m, &from, &n, e));
  return append(m, kind, what, from, n, e);
}

static ac_status append_top(machine *m, int kind, const char *what, uint32_t n, ac_err *e) {
  if (m->n_stack - base(m) < n + 1) return REFUSE("stack", "%s with too few values", what);
  m->n_stack -= n;
  return append(m, kind, what, m->n_stack, n, e);
}

/* ---- memo ---- */

static ac_status put(machine *m, uint64_t slot, ac_err *e) {
  uint32_t id = 0;
  AC_TRY(top(m, &id, e));
  if (slot > (uint64_t)m->n_memo + 1 || slot >= ACI_PT_MAX_MEMO) /* Python 2 begins at 1 */
    return REFUSE("size", "memo slot %llu after %u", (unsigned long long)slot, m->n_memo);
  while (m->n_memo <= slot) {
    AC_TRY(aci_pt_room(e, m->f, &m->memo, m->n_memo, &m->cap_memo, sizeof *m->memo));
    m->memo[m->n_memo++] = 0;
  }
  m->memo[slot] = id + 1;
  return AC_OK;
}

static ac_status get(machine *m, uint64_t slot, ac_err *e) {
  if (slot >= m->n_memo || m->memo[slot] == 0)
    return REFUSE("memo", "slot %llu was never put", (unsigned long long)slot);
  return push(m, m->memo[slot] - 1, e);
}

/* ---- names ---- */

static ac_status stack_global(machine *m, ac_err *e) {
  uint32_t module = 0, name = 0, id = 0;
  AC_TRY(pop(m, &name, e));
  AC_TRY(pop(m, &module, e));
  const ac_pt_value *x = &m->f->value[module], *y = &m->f->value[name];
  if (x->kind != AC_PT_STR || y->kind != AC_PT_STR)
    return REFUSE("arguments", "STACK_GLOBAL of no strings");
  AC_TRY(aci_pt_global(m->f, m->op, x->s, x->n, y->s, y->n, &id, e));
  return push(m, id, e);
}

static ac_status global(machine *m, ac_err *e) {
  const char *module, *name;
  size_t n_module, n_name;
  uint32_t id = 0;
  AC_TRY(line(m, &module, &n_module, e));
  AC_TRY(line(m, &name, &n_name, e));
  AC_TRY(aci_pt_global(m->f, m->op, module, n_module, name, n_name, &id, e));
  return push(m, id, e);
}

static ac_status call(machine *m, int op, ac_err *e) {
  uint32_t a = 0, b = 0, id = 0;
  AC_TRY(pop(m, &b, e));
  if (op == 'Q') {
    AC_TRY(aci_pt_persistent(m->f, m->op, b, &id, e));
    return push(m, id, e);
  }
  AC_TRY(pop(m, &a, e));
  if (op == 'b') {
    AC_TRY(aci_pt_build(m->f, m->op, a, b, e));
    return push(m, a, e);
  }
  if (op == 'R') AC_TRY(aci_pt_reduce(m->f, m->op, a, b, &id, e));
  else AC_TRY(aci_pt_newobj(m->f, m->op, a, b, &id, e));
  return push(m, id, e);
}

/* ---- opcodes ---- */

static ac_status step(machine *m, int op, ac_err *e) {
  uint64_t v;
  uint32_t id, from = 0, n = 0;
  switch (op) {
    case 0x80: /* PROTO */
      AC_TRY(number(m, 1, &v, e));
      return v <= 5 ? AC_OK : REFUSE("opcode", "pickle protocol %d, later than 5", (int)v);
    case 0x95: /* FRAME */ AC_TRY(number(m, 8, &v, e)); return need(m, v, "a frame", e);
    case '(':
      if (m->n_marks == ACI_PT_MAX_MARKS)
        return REFUSE("depth", "more than %d open marks", ACI_PT_MAX_MARKS);
      m->mark[m->n_marks++] = m->n_stack;
      return AC_OK;
    case 'N': return push(m, m->none, e);
    case 0x88: return push(m, m->yes, e);
    case 0x89: return push(m, m->no, e);
    case 'K':
    case 'M': AC_TRY(number(m, op == 'K' ? 1 : 2, &v, e)); return push_int(m, (int64_t)v, e);
    case 'J': AC_TRY(number(m, 4, &v, e)); return push_int(m, (int32_t)(uint32_t)v, e);
    case 0x8a: /* LONG1, LONG4 */
    case 0x8b: AC_TRY(number(m, op == 0x8a ? 1 : 4, &v, e)); return push_long(m, v, e);
    case 'G': return push_float(m, e);
    case 0x8c: /* SHORT_BINUNICODE, BINUNICODE, BINUNICODE8 */
    case 'X':
    case 0x8d:
      AC_TRY(number(m, op == 0x8c ? 1 : op == 'X' ? 4 : 8, &v, e));
      return push_string(m, v, 1, e);
    case 'U': /* SHORT_BINSTRING, BINSTRING */
    case 'T': AC_TRY(number(m, op == 'U' ? 1 : 4, &v, e)); return push_string(m, v, 2, e);
    case 'C': /* SHORT_BINBYTES, BINBYTES, BINBYTES8, BYTEARRAY8 */
    case 'B':
    case 0x8e:
    case 0x96:
      AC_TRY(number(m, op == 'C' ? 1 : op == 'B' ? 4 : 8, &v, e));
      return push_string(m, v, 0, e);
    case ']': return push_new(m, AC_PT_LIST, &id, e);
    case '}': return push_new(m, AC_PT_DICT, &id, e);
    case ')': return push_new(m, AC_PT_TUPLE, &id, e);
    case 0x8f: return push_new(m, AC_PT_SET, &id, e);
    case 't': /* TUPLE, FROZENSET */
    case 0x91:
      AC_TRY(to_mark(m, &from, &n, e));
      return push_list(m, op == 't' ? AC_PT_TUPLE : AC_PT_SET, from, n, e);
    case 0x85:
    case 0x86:
    case 0x87: return push_tuple(m, (uint32_t)op - 0x84, e);
    case 'a': return append_top(m, AC_PT_LIST, "APPEND", 1, e);
    case 'e': return append_marked(m, AC_PT_LIST, "APPENDS", e);
    case 0x90: return append_marked(m, AC_PT_SET, "ADDITEMS", e);
    case 's': return append_top(m, AC_PT_DICT, "SETITEM", 2, e);
    case 'u': return append_marked(m, AC_PT_DICT, "SETITEMS", e);
    case 'q': /* BINPUT, LONG_BINPUT */
    case 'r': AC_TRY(number(m, op == 'q' ? 1 : 4, &v, e)); return put(m, v, e);
    case 0x94: return put(m, m->n_memo, e);
    case 'h': /* BINGET, LONG_BINGET */
    case 'j': AC_TRY(number(m, op == 'h' ? 1 : 4, &v, e)); return get(m, v, e);
    case 'c': return global(m, e);
    case 0x93: return stack_global(m, e);
    case 'R': /* REDUCE, NEWOBJ, BUILD, BINPERSID */
    case 0x81:
    case 'b':
    case 'Q': return call(m, op, e);
    default:
      return REFUSE("opcode", "opcode 0x%02x, which torch.save has no use for", (unsigned)op);
  }
}

static ac_status run(machine *m, uint32_t *root, ac_err *e) {
  m->op = m->i;
  AC_TRY(aci_pt_room(e, m->f, &m->stack, 0, &m->cap_stack, sizeof *m->stack)); /* never NULL */
  AC_TRY(aci_pt_value(m->f, AC_PT_NONE, m->op, &m->none, e));
  AC_TRY(aci_pt_value(m->f, AC_PT_BOOL, m->op, &m->yes, e));
  AC_TRY(aci_pt_value(m->f, AC_PT_BOOL, m->op, &m->no, e));
  m->f->value[m->yes].i = 1;
  for (;;) {
    m->op = m->i;
    if (m->i == m->n) {
      m->cut = true;
      return REFUSE("truncated", "the pickle ends without STOP");
    }
    const int op = m->p[m->i++];
    if (op != '.') {
      AC_TRY(step(m, op, e));
      continue;
    }
    AC_TRY(pop(m, root, e));
    if (m->n_stack != 0 || m->n_marks != 0) return REFUSE("stack", "STOP with more than one value");
    return AC_OK;
  }
}

ac_status aci_pt_pickle(ac_pt *f, size_t from, size_t n, size_t *used, uint32_t *root, bool *cut,
                        ac_err *e) {
  machine *m = calloc(1, sizeof *m);
  if (m == NULL) return aci_pt_no_memory(e, f);
  m->f = f;
  m->p = f->pickle;
  m->i = from;
  m->n = n;
  ac_status st = run(m, root, e);
  *used = m->i;
  if (cut != NULL) *cut = m->cut;
  free(m->stack);
  free(m->memo);
  free(m);
  return st;
}
