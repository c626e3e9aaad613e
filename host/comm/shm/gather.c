/* all_gather, gather and broadcast: every giver has one run of bytes for all who take it. */
#include "comm/shm/shm.h"

static size_t part(const aci_shm_transfer *m, int s) {
  return (size_t)aci_part(m->c->c, s) * m->c->size;
}

static size_t part_place(const aci_shm_transfer *m, int s) {
  return (size_t)aci_part_at(m->c->c, s) * m->c->size;
}

static size_t part_sent(const aci_shm_transfer *m, int s, int r, size_t *at) {
  *at = 0;
  return m->c->c->kind == AC_COLL_GATHER && r != m->c->c->root ? 0 : part(m, s);
}

static size_t part_largest(const aci_shm_transfer *m, int s) {
  return m->c->n == 1 || (m->c->c->kind == AC_COLL_GATHER && s == m->c->c->root) ? 0 : part(m, s);
}

static size_t root_sent(const aci_shm_transfer *m, int s, int r, size_t *at) {
  *at = 0;
  return s == m->c->c->root && r != s ? (size_t)m->c->c->count * m->c->size : 0;
}

static size_t root_largest(const aci_shm_transfer *m, int s) {
  return m->c->n > 1 && s == m->c->c->root ? (size_t)m->c->c->count * m->c->size : 0;
}

static size_t start(const aci_shm_transfer *m, int s) { return 0; }

ac_status aci_shm_gather(aci_shm_call *c, ac_err *e) {
  aci_shm_transfer m = {.c = c, .to = c->c->recv};
  if (c->c->kind == AC_COLL_BROADCAST) {
    m.from = c->c->recv;
    m.from_bytes = (size_t)c->c->count * c->size;
    m.sent = root_sent;
    m.largest = root_largest;
    m.place = start;
  } else {
    m.from = c->c->send;
    m.from_bytes = (size_t)aci_part(c->c, c->me) * c->size;
    m.sent = part_sent;
    m.largest = part_largest;
    m.place = part_place;
  }
  return aci_shm_exchange(&m, e);
}
