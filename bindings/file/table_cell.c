/* Values of table columns as Lua values and tensors: table.h. */
#include "bindings/file/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/base/json.h"
#include "bindings/core/op.h"

static const int64_t MOST_OF_LIST = (int64_t)1 << 26;

static void push_nothing(lua_State *L, bool keep) {
  if (keep) lua_pushlightuserdata(L, NULL); /* accel.json.null */
  else lua_pushnil(L);
}

static double half(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  const double sign = h >> 15 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25));
}

static void push_int(lua_State *L, const aci_column *c, int64_t i) {
  const int64_t v = aci_load_int(c->values, i, c->type->width, c->type->is_unsigned);
  if (c->type->is_unsigned && c->type->width == 8 && v < 0) {
    char buf[24];
    snprintf(buf, sizeof buf, "%llu", (unsigned long long)v);
    lua_pushstring(L, buf);
    return;
  }
  lua_pushinteger(L, v);
}

static void push_float(lua_State *L, const aci_column *c, int64_t i) {
  const uint8_t *p = c->values + i * c->type->width;
  if (c->type->width == 2) {
    lua_pushnumber(L, half(aci_load_u16(p)));
  } else if (c->type->width == 4) {
    const uint32_t bits = aci_load_u32(p);
    float f;
    memcpy(&f, &bits, sizeof f);
    lua_pushnumber(L, f);
  } else {
    const uint64_t bits = aci_load_u64(p);
    double f;
    memcpy(&f, &bits, sizeof f);
    lua_pushnumber(L, f);
  }
}

/* A signed integer of up to 32 bytes, with the point where the scale says. */
static void push_decimal(lua_State *L, const aci_type *t, const uint8_t *p) {
  uint32_t limb[8] = {0};
  char digits[96], out[280];
  int n = 0, k = 0;
  const bool negative = p[t->width - 1] >> 7;
  memcpy(limb, p, (size_t)t->width);
  const int limbs = t->width / 4;
  if (negative) { /* two's complement */
    uint64_t carry = 1;
    for (int i = 0; i < limbs; i++) {
      carry += (uint32_t)~limb[i];
      limb[i] = (uint32_t)carry;
      carry >>= 32;
    }
  }
  for (bool more = true; more && n < 90;) { /* by 10, from the last digit */
    uint64_t rest = 0;
    more = false;
    for (int i = limbs - 1; i >= 0; i--) {
      rest = rest << 32 | limb[i];
      limb[i] = (uint32_t)(rest / 10);
      rest %= 10;
      more |= limb[i] != 0;
    }
    digits[n++] = (char)('0' + rest);
  }
  if (negative) out[k++] = '-';
  const int scale = t->scale > 0 ? t->scale : 0;
  for (int i = n > scale ? n - 1 : scale; i >= 0; i--) {
    out[k++] = i < n ? digits[i] : '0';
    if (i == scale && i > 0) out[k++] = '.';
  }
  for (int i = t->scale; i < 0 && !(n == 1 && digits[0] == '0'); i++) out[k++] = '0';
  lua_pushlstring(L, out, (size_t)k);
}

static void push_bytes(lua_State *L, const aci_column *c, int64_t i) {
  if (c->type->kind == ACI_FIXED) {
    lua_pushlstring(L, (const char *)c->values + i * c->type->width, (size_t)c->type->width);
    return;
  }
  if (c->type->kind == ACI_STRINGS) {
    const int64_t at = aci_offset_at(c, i);
    lua_pushlstring(L, (const char *)c->data + at, (size_t)(aci_offset_at(c, i + 1) - at));
    return;
  }
  const uint8_t *v = c->values + 16 * i, *p = v + 4;
  const int32_t n = aci_load_i32(v);
  if (n > 12) p = c->buffers[aci_load_i32(v + 8)] + aci_load_i32(v + 12);
  lua_pushlstring(L, (const char *)p, (size_t)n);
}

static void push_list(lua_State *L, lac_state *S, const aci_column *c, int64_t at, int64_t end,
                      bool nulls) {
  if (end - at > MOST_OF_LIST)
    lac_error(L, S, AC_PARSE, "a list of %lld values is too long for a table of Lua",
              (long long)(end - at));
  lua_createtable(L, (int)(end - at), 0);
  for (int64_t i = at; i < end; i++) {
    lac_push_cell(L, S, c, i, true, nulls);
    lua_rawseti(L, -2, i - at + 1);
  }
  lac_push_json_array(L);
  lua_setmetatable(L, -2);
}

/* Pairs of a key and a value, in the order of the file. */
static void push_map(lua_State *L, lac_state *S, const aci_column *c, int64_t i, bool nulls) {
  const int64_t at = aci_offset_at(c, i), end = aci_offset_at(c, i + 1);
  const aci_column *pair = &c->child[0];
  if (end - at > MOST_OF_LIST) lac_error(L, S, AC_PARSE, "a map is too long for a table of Lua");
  lua_createtable(L, (int)(end - at), 0);
  for (int64_t k = at; k < end; k++) {
    lua_createtable(L, 2, 0);
    lac_push_cell(L, S, &pair->child[0], k, true, nulls);
    lua_rawseti(L, -2, 1);
    lac_push_cell(L, S, &pair->child[1], k, true, nulls);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, k - at + 1);
  }
  lac_push_json_array(L);
  lua_setmetatable(L, -2);
}

static void push_run(lua_State *L, lac_state *S, const aci_column *c, int64_t i, bool keep,
                     bool nulls) {
  const aci_column *ends = &c->child[0];
  int64_t low = 0, high = ends->n - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (aci_load_int(ends->values, middle, ends->type->width, ends->type->is_unsigned) > i)
      high = middle;
    else low = middle + 1;
  }
  lac_push_cell(L, S, &c->child[1], low, keep, nulls);
}

static void push_entry(lua_State *L, lac_state *S, const aci_column *c, int64_t i, bool keep,
                       bool nulls) {
  int64_t k = aci_load_int(c->values, i, c->type->width, c->type->is_unsigned);
  const aci_column *d = c->dict;
  for (; k >= d->n; d = d->next) k -= d->n;
  lac_push_cell(L, S, d, k, keep, nulls);
}

void lac_push_cell(lua_State *L, lac_state *S, const aci_column *c, int64_t i, bool keep,
                   bool nulls) {
  luaL_checkstack(L, 8, "table");
  if (!aci_is_valid(c, i)) {
    push_nothing(L, keep);
    return;
  }
  switch (c->type->kind) {
    case ACI_NULLS: push_nothing(L, keep); break;
    case ACI_BOOLS: lua_pushboolean(L, aci_bit(c->values, i)); break;
    case ACI_INTS:
    case ACI_DATES:
    case ACI_TIMES:
    case ACI_TIMESTAMPS:
    case ACI_DURATIONS: push_int(L, c, i); break;
    case ACI_FLOATS: push_float(L, c, i); break;
    case ACI_DECIMALS: push_decimal(L, c->type, c->values + i * c->type->width); break;
    case ACI_STRINGS:
    case ACI_VIEWS:
    case ACI_FIXED: push_bytes(L, c, i); break;
    case ACI_LISTS:
      push_list(L, S, &c->child[0], aci_offset_at(c, i), aci_offset_at(c, i + 1), nulls);
      break;
    case ACI_FIXED_LISTS:
      push_list(L, S, &c->child[0], i * c->type->list_size, (i + 1) * c->type->list_size, nulls);
      break;
    case ACI_MAPS: push_map(L, S, c, i, nulls); break;
    case ACI_RUN_ENDS: push_run(L, S, c, i, keep, nulls); break;
    case ACI_DICTS: push_entry(L, S, c, i, keep, nulls); break;
    case ACI_STRUCTS:
      lua_createtable(L, 0, c->n_children);
      for (int k = 0; k < c->n_children; k++) {
        lua_pushstring(L, c->type->child[k].name);
        lac_push_cell(L, S, &c->child[k], i, nulls, nulls);
        lua_rawset(L, -3);
      }
      break;
  }
}

/* ---- tensors ---- */

static void release_batch(void *user) { aci_batch_release(user); }

static ac_device *cpu_of(lua_State *L, lac_state *S) {
  ac_device *cpu;
  ac_err e;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) lac_raise(L, S, &e);
  return cpu;
}

int lac_column_tensor(lua_State *L, lac_state *S, aci_batch *b, const aci_column *c) {
  const aci_column *x = c;
  int64_t at = 0, end = c->n, shape[2] = {0};
  int ndim = 1;
  ac_dtype dt;
  if (c->type->kind == ACI_LISTS && c->valid == NULL) {
    x = &c->child[0];
    at = c->n > 0 ? aci_offset_at(c, 0) : 0;
    end = c->n > 0 ? aci_offset_at(c, c->n) : 0;
  } else if (c->type->kind == ACI_FIXED_LISTS && c->valid == NULL) {
    x = &c->child[0];
    end = c->n * c->type->list_size;
    ndim = 2;
    shape[1] = c->type->list_size;
  }
  if (!aci_type_dtype(x->type, &dt))
    return lac_error(L, S, AC_DTYPE, "column '%s' has no numbers for a tensor", c->type->name);
  if (x->valid != NULL)
    return lac_error(L, S, AC_INVALID, "column '%s' has nulls, which a tensor lacks",
                     c->type->name);
  shape[0] = ndim == 2 ? c->n : end - at;
  const size_t bytes = (size_t)(end - at) * ac_dtype_bytes(dt);
  uint8_t *p = (uint8_t *)x->values + at * (int64_t)ac_dtype_bytes(dt);
  if ((uintptr_t)p % ac_dtype_bytes(dt) != 0 || bytes == 0) { /* not aligned: a copy */
    ac_tensor *out = lac_new_cpu(L, S, dt, ndim, shape);
    if (bytes > 0) memcpy(ac_tensor_data(out), p, bytes);
    return 1;
  }
  ac_device *cpu = cpu_of(L, S);
  lac_box *box = lac_box_new(L, S);
  ac_tensor *out;
  ac_err e;
  atomic_fetch_add_explicit(&b->ref, 1, memory_order_relaxed);
  if (ac_tensor_wrap(cpu, dt, ndim, shape, p, release_batch, b, &out, &e) != AC_OK) {
    aci_batch_release(b);
    return lac_raise(L, S, &e);
  }
  lac_box_fill(S, box, out);
  return 1;
}

int lac_column_offsets(lua_State *L, lac_state *S, aci_batch *b, const aci_column *c) {
  if (c->type->kind != ACI_LISTS)
    return lac_error(L, S, AC_DTYPE, "column '%s' has no lists", c->type->name);
  const int64_t n = c->n + 1, first = c->n > 0 ? aci_offset_at(c, 0) : 0;
  ac_tensor *out = lac_new_cpu(L, S, AC_I64, 1, &n);
  int64_t *to = ac_tensor_data(out);
  to[0] = 0;
  for (int64_t i = 1; i < n; i++) to[i] = aci_offset_at(c, i) - first;
  return 1;
}
