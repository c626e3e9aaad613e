/* The algorithms of link/ over a link on which much of what is received has come before it is asked for, as it has
 * on a rank that is late: nothing may be left out, and what came is passed on before anything is waited for. */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "comm/link/link.h"

enum { MOST = 24 };

/* What goes around: element i of rank r's part. */
static int32_t element(int r, int64_t i) { return (int32_t)(r * 1000003 + i); }

static const ac_coll *call;
static int sender;      /* of what is received: the ranks whose parts come, one after the other */
static int64_t offset;  /* elements of its part that have come */
static int64_t n_sent;  /* elements */
static int64_t n_asked, n_here, own, most_sent; /* receives; elements that came in order; of this rank; to be sent */
static int period;      /* of receives, one in so many has not come when it is asked for; 0: all have */
static aci_request *late[8];
static int64_t behind[8]; /* elements that came after it in the order */
static int n_late;

static ac_status start(ac_world *w, aci_request *m, ac_err *e) {
  const int size = w->place.size;
  int32_t *p = m->ptr;
  const int64_t n = (int64_t)(m->bytes / sizeof *p);
  (void)e;
  m->over = m->sends || period == 0 || ++n_asked % period != 0;
  if (m->sends) {
    n_sent += n;
    return AC_OK;
  }
  if (!m->over) {
    assert_true(n_late < 8);
    late[n_late] = m;
    behind[n_late++] = 0;
  } else if (n_late > 0) {
    behind[n_late - 1] += n;
  } else {
    n_here += n;
  }
  assert_int_equal(m->peer, (w->place.rank + size - 1) % size);
  while (offset == aci_part(call, sender)) {
    sender = (sender + size - 1) % size;
    offset = 0;
  }
  for (int64_t i = 0; i < n; i++) p[i] = element(sender, offset + i);
  offset += n;
  assert_true(offset <= aci_part(call, sender));
  return AC_OK;
}

static ac_status progress(ac_world *w, aci_request *const *m, int n, int wait_ms, ac_err *e) {
  (void)w, (void)m, (void)wait_ms, (void)e;
  assert_int_equal(n, n_late);
  const int64_t can = own + n_here < most_sent ? own + n_here : most_sent;
  if (n_sent != can) fail_msg("waits with %d elements that could be sent", (int)(can - n_sent));
  late[0]->over = true;
  n_here += (int64_t)(late[0]->bytes / sizeof(int32_t)) + behind[0];
  n_late--;
  memmove(late, late + 1, (size_t)n_late * sizeof *late);
  memmove(behind, behind + 1, (size_t)n_late * sizeof *behind);
  return AC_OK;
}

static void cancel(ac_world *w, aci_request *m) {
  (void)w, (void)m;
  fail_msg("nothing is under way");
}

static ac_status exchange_descs(ac_group *g, const aci_desc *d, aci_desc *all, ac_err *e) {
  (void)e;
  for (int r = 0; r < g->size; r++) all[r] = *d;
  return AC_OK;
}

static const aci_link link_of_late_ranks = {
    .start = start, .progress = progress, .cancel = cancel, .exchange_descs = exchange_descs};

/* Parts of `count` elements, none of ranks r with r % 3 == empty; as rank `me` sees it. */
static void all_gather(int size, int me, int64_t count, int empty, int late_ones) {
  int ranks[MOST];
  int64_t counts[MOST], total = 0, at = 0;
  for (int r = 0; r < size; r++) {
    ranks[r] = r;
    total += counts[r] = r % 3 == empty ? 0 : count + r;
    if (r < me) at += counts[r];
  }
  ac_world w;
  memset(&w, 0, sizeof w);
  w.place = (aci_place){.rank = me, .size = size};
  ac_group g = {.world = &w, .slot = -1, .rank = me, .size = size, .ranks = ranks};
  int32_t *all = malloc((size_t)(total + 1) * sizeof *all);
  assert_non_null(all);
  memset(all, 0xA5, (size_t)(total + 1) * sizeof *all);
  for (int64_t i = 0; i < counts[me]; i++) all[at + i] = element(me, i);
  const ac_coll c = {
      .kind = AC_COLL_ALL_GATHER, .dtype = AC_I32, .counts = counts, .send = all + at, .recv = all, .site = "x.lua:1"};
  aci_desc d;
  aci_desc_fill(&g, &c, 1, &d);
  call = &c;
  sender = (me + size - 1) % size;
  offset = n_sent = n_asked = n_here = n_late = 0;
  own = counts[me];
  most_sent = total - counts[(me + 1) % size]; /* all but what the next rank has itself */
  period = late_ones;
  ac_err e;
  assert_ok(aci_link_run(&link_of_late_ranks, &g, &c, &d, &e), e);
  const int32_t *p = all;
  for (int r = 0; r < size; r++)
    for (int64_t i = 0; i < counts[r]; i++)
      if (*p++ != element(r, i)) fail_msg("%d ranks, rank %d: element %d of part %d", size, me, (int)i, r);
  assert_int_equal(n_sent, most_sent);
  free(all);
}

static void parts_that_came_before(void **state) {
  (void)state;
  static const int64_t counts[] = {2500, 270000}; /* beyond what goes straight to everyone */
  for (int size = 16; size <= MOST; size += 4)
    for (int me = 0; me < size; me += 3 * ac_test_every(5))
      for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
        for (int empty = 0; empty <= 3; empty++)
          for (int late_ones = 0; late_ones < 6; late_ones++) all_gather(size, me, counts[k], empty, late_ones);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_that_came_before)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
