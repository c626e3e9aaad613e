/* Checks of a collective on this rank alone, and the messages for ranks that differ. Called by
 * group.c, work.c and the backends. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "comm/comm_impl.h"
#include "device/capture.h"

const char *ac_coll_name(ac_coll_kind k) {
  static const char *const names[] = {
#define AC_X(name, text) text,
      AC_COLL_LIST(AC_X)
#undef AC_X
  };
  return (unsigned)k < AC_COLL_KINDS ? names[k] : "?";
}

const char *ac_reduce_op_name(ac_reduce_op op) {
  static const char *const names[AC_REDUCE_OPS] = {"sum", "mean", "min", "max", "prod"};
  return (unsigned)op < AC_REDUCE_OPS ? names[op] : "?";
}

enum { REDUCES = 1, ROOTED = 2, PARTS = 4, PAIR = 8, ROOT_SENDS = 16, ROOT_GETS = 32 };
static const uint8_t traits[AC_COLL_KINDS] = {
    [AC_COLL_ALL_REDUCE] = REDUCES,
    [AC_COLL_REDUCE] = REDUCES | ROOTED | ROOT_GETS,
    [AC_COLL_BROADCAST] = ROOTED,
    [AC_COLL_ALL_GATHER] = PARTS,
    [AC_COLL_GATHER] = PARTS | ROOTED | ROOT_GETS,
    [AC_COLL_SCATTER] = PARTS | ROOTED | ROOT_SENDS,
    [AC_COLL_REDUCE_SCATTER] = PARTS | REDUCES,
    [AC_COLL_ALL_TO_ALL] = PARTS,
    [AC_COLL_SEND] = PAIR,
    [AC_COLL_RECV] = PAIR,
};

int64_t aci_part(const ac_coll *c, int r) { return c->counts != NULL ? c->counts[r] : c->count; }

int64_t aci_part_at(const ac_coll *c, int r) {
  if (c->counts == NULL) return c->count * r;
  int64_t at = 0;
  for (int i = 0; i < r; i++) at += c->counts[i];
  return at;
}

int64_t aci_total(const ac_group *g, const ac_coll *c) { return aci_part_at(c, g->size); }

static ac_status check_counts(const ac_group *g, const ac_coll *c, const int64_t *counts,
                              ac_err *e) {
  const int64_t most = INT64_MAX / 16;
  int64_t sum = 0;
  if (counts == NULL) {
    if (c->count < 0 || c->count > most / g->size)
      return AC_FAIL(e, INVALID, "%s: a count of %lld elements", ac_coll_name(c->kind),
                     (long long)c->count);
    return AC_OK;
  }
  for (int i = 0; i < g->size; i++) {
    if (counts[i] < 0 || counts[i] > most - sum)
      return AC_FAIL(e, INVALID, "%s: a part of %lld elements for rank %d", ac_coll_name(c->kind),
                     (long long)counts[i], i);
    sum += counts[i];
  }
  return AC_OK;
}

ac_status aci_coll_check(const ac_group *g, const ac_coll *c, ac_err *e) {
  if ((unsigned)c->kind >= AC_COLL_NEW_GROUP)
    return AC_FAIL(e, INVALID, "unknown collective %d", (int)c->kind);
  const char *name = ac_coll_name(c->kind);
  const unsigned t = traits[c->kind];
  if (g->rank < 0)
    return AC_FAIL(e, INVALID, "%s: rank %d is not in this group", name, g->world->place.rank);
  if (c->kind == AC_COLL_BARRIER) return AC_OK;
  if ((unsigned)c->dtype >= AC_DTYPE_COUNT)
    return AC_FAIL(e, DTYPE, "%s: unknown dtype %d", name, (int)c->dtype);
  if (t & (ROOTED | PAIR)) {
    if (c->root < 0 || c->root >= g->size)
      return AC_FAIL(e, INVALID, "%s: rank %d of a group of %d", name, c->root, g->size);
    if ((t & PAIR) && c->root == g->rank)
      return AC_FAIL(e, INVALID, "%s: rank %d sends to itself; copy instead", name, g->rank);
  }
  if (t & REDUCES) {
    if ((unsigned)c->op >= AC_REDUCE_OPS)
      return AC_FAIL(e, INVALID, "%s: unknown reduction %d", name, (int)c->op);
    const bool is_float = ac_dtype_is_float(c->dtype);
    if (c->op == AC_REDUCE_MEAN && !is_float)
      return AC_FAIL(e, DTYPE, "%s: the mean of %s is not %s; cast to a float dtype", name,
                     ac_dtype_name(c->dtype), ac_dtype_name(c->dtype));
    if (!is_float && !ac_dtype_is_int(c->dtype) && c->dtype != AC_BOOL)
      return AC_FAIL(e, DTYPE, "%s: %s is for storage only", name, ac_dtype_name(c->dtype));
  }
  AC_TRY(check_counts(g, c, t & PARTS ? c->counts : NULL, e));
  if (c->kind == AC_COLL_ALL_TO_ALL && c->counts != NULL) {
    if (c->recv_counts == NULL) return AC_FAIL(e, INVALID, "%s: counts without recv_counts", name);
    AC_TRY(check_counts(g, c, c->recv_counts, e));
    if (c->counts[g->rank] != c->recv_counts[g->rank])
      return AC_FAIL(e, INVALID, "%s: rank %d sends itself %lld elements and expects %lld", name,
                     g->rank, (long long)c->counts[g->rank], (long long)c->recv_counts[g->rank]);
  }
  /* ranks meet over the host first, which no recording does again */
  return c->device == NULL ? AC_OK : aci_capture_refuse(c->device, "ranks communicate", e);
}

void aci_desc_fill(const ac_group *g, const ac_coll *c, uint32_t seq, aci_desc *d) {
  const unsigned t = (unsigned)c->kind < AC_COLL_KINDS ? traits[c->kind] : 0;
  memset(d, 0, offsetof(aci_desc, site));
  d->seq = seq;
  d->kind = (uint8_t)c->kind;
  d->group = g->id;
  if (c->kind != AC_COLL_BARRIER) d->dtype = (uint8_t)c->dtype;
  if (t & REDUCES) d->op = (uint8_t)c->op;
  d->device = c->device != NULL;
  if (t & (ROOTED | PAIR)) d->root = c->root;
  if (t & PAIR) d->tag = c->tag;
  if (c->kind != AC_COLL_BARRIER && !((t & PARTS) && c->counts != NULL)) d->count = c->count;
  if ((t & PARTS) && c->counts != NULL && c->kind != AC_COLL_ALL_TO_ALL) {
    /* no key: the same on all ranks */
    d->counts_hash = aci_hash_bytes(0, c->counts, (size_t)g->size * sizeof *c->counts) | 1;
    d->count = aci_total(g, c);
  }
  size_t n = c->site == NULL ? 0 : strnlen(c->site, ACI_SITE - 1);
  if (n > 0) memcpy(d->site, c->site, n);
  d->site[n] = 0;
}

const char *aci_desc_text(const aci_desc *d, char *buf, size_t n) {
  const unsigned t = d->kind < AC_COLL_KINDS ? traits[d->kind] : 0;
  char what[96] = "";
  size_t k = 0;
  const char *const dtype = d->dtype < AC_DTYPE_COUNT ? ac_dtype_name((ac_dtype)d->dtype) : "?";
  if (d->kind == AC_COLL_NEW_GROUP || d->kind == AC_COLL_COMM_INIT)
    k = (size_t)snprintf(what, sizeof what, " of %lld ranks", (long long)d->count);
  else if (d->kind != AC_COLL_BARRIER && d->kind != AC_COLL_PROMPT)
    k = (size_t)snprintf(what, sizeof what, " %s (%lld)%s", dtype, (long long)d->count,
                         d->counts_hash != 0 ? " in uneven parts" : "");
  if (t & REDUCES)
    k += (size_t)snprintf(what + k, sizeof what - k, " %s", ac_reduce_op_name((ac_reduce_op)d->op));
  if (t & (ROOTED | PAIR))
    k += (size_t)snprintf(what + k, sizeof what - k, " %s %d",
                          d->kind == AC_COLL_RECV || d->kind == AC_COLL_BROADCAST ||
                                  d->kind == AC_COLL_SCATTER
                              ? "from"
                              : "to",
                          d->root);
  if ((t & PAIR) && d->tag != 0) snprintf(what + k, sizeof what - k, " tag %d", d->tag);
  if (d->device != 0) snprintf(what + k, sizeof what - k, " on a device");
  snprintf(buf, n, "%s%s%s%s", ac_coll_name((ac_coll_kind)d->kind), what,
           d->site[0] != 0 ? " at " : "", d->site);
  return buf;
}

/* The field in which the two differ, most telling first. */
static const char *difference(const aci_desc *a, const aci_desc *b) {
  if (a->group != b->group) return "group";
  if (a->kind != b->kind) return "operation";
  if (a->device != b->device) return "device";
  if (a->dtype != b->dtype) return "dtype";
  if (a->kind == AC_COLL_NEW_GROUP) return "members";
  if (a->counts_hash != b->counts_hash || a->count != b->count) return "count";
  if (a->op != b->op) return "reduction";
  if (a->root != b->root) return "root";
  if (a->tag != b->tag) return "tag";
  return "order of calls";
}

/* "rank 3" or "ranks 0, 2, 5 and 9 more": the ranks of the group whose descriptor is like `d`. */
static void who(const ac_group *g, const aci_desc *const *descs, const aci_desc *d, char *buf,
                size_t n) {
  int total = 0, shown = 0;
  for (int i = 0; i < g->size; i++) total += descs[i] != NULL && aci_desc_same(descs[i], d);
  size_t k = (size_t)snprintf(buf, n, "rank%s ", total > 1 ? "s" : "");
  for (int i = 0; i < g->size && shown < 6 && k < n; i++) {
    if (descs[i] == NULL || !aci_desc_same(descs[i], d)) continue;
    k += (size_t)snprintf(buf + k, n - k, "%s%d", shown++ > 0 ? ", " : "", g->ranks[i]);
  }
  if (total > shown && k < n) snprintf(buf + k, n - k, " and %d more", total - shown);
}

ac_status aci_mismatch(ac_group *g, const aci_desc *const *descs, ac_err *e) {
  const aci_desc *a = NULL, *b = NULL;
  for (int i = 0; i < g->size; i++) {
    if (descs[i] == NULL) continue;
    if (a == NULL) a = descs[i];
    else if (b == NULL && !aci_desc_same(a, descs[i])) b = descs[i];
  }
  if (b == NULL) b = a;
  char at[160], bt[160], ranks_a[64], ranks_b[64], text[512];
  who(g, descs, a, ranks_a, sizeof ranks_a);
  who(g, descs, b, ranks_b, sizeof ranks_b);
  snprintf(
      text, sizeof text,
      "ranks differ in %s at call %u of %s: %s in %s, %s in %s; all must make the same calls in the same order",
      difference(a, b), (unsigned)a->seq, g->id == 0 ? "the world" : "their group", ranks_a,
      aci_desc_text(a, at, sizeof at), ranks_b, aci_desc_text(b, bt, sizeof bt));
  aci_abort(g->world, AC_MISMATCH, -1, text);
  ac_err why;
  const ac_status st = aci_aborted(g->world, &why);
  /* an end that was there before: the mismatch may be its consequence */
  if (st != AC_OK && st != AC_MISMATCH) {
    if (e != NULL) *e = why;
    return st;
  }
  return AC_FAIL(e, MISMATCH, "%s", text);
}
