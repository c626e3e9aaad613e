/* The places of a gate. See gate.h. */
#include "base/gate.h"

#include <netinet/in.h>
#include <string.h>

void aci_gate_init(aci_gate *g, const char *area, const char *what, const aci_gate_limits *limits) {
  memset(g, 0, sizeof *g);
  g->area = area;
  g->what = what;
  g->limits = *limits;
  if (g->limits.most > ACI_GATE_MOST) g->limits.most = ACI_GATE_MOST;
}

uint64_t aci_gate_source(const struct sockaddr *a) {
  uint64_t source = 0;
  uint32_t four = 0;
  if (a->sa_family == AF_INET) {
    memcpy(&four, (const char *)a + offsetof(struct sockaddr_in, sin_addr), sizeof four);
  } else if (a->sa_family == AF_INET6) {
    struct in6_addr six;
    memcpy(&six, (const char *)a + offsetof(struct sockaddr_in6, sin6_addr), sizeof six);
    if (!IN6_IS_ADDR_V4MAPPED(&six)) {
      memcpy(&source, &six, sizeof source);
      return source;
    }
    memcpy(&four, &six.s6_addr[12], sizeof four);
  }
  return four;
}

int aci_gate_find(const aci_gate *g, uint64_t source, int64_t now, bool *displaces) {
  int empty = -1, least[2] = {-1, -1}, own = 0; /* least: of all, of this source */
  for (int i = 0; i < g->limits.most; i++) {
    const aci_gate_place *p = &g->place[i];
    if (!p->taken) {
      if (empty < 0) empty = i;
      continue;
    }
    if (p->trusted) continue;
    own += p->source == source;
    if (now < p->until - g->limits.ns + g->limits.grace_ns) continue;
    for (int k = 0; k < 2; k++) {
      const aci_gate_place *q = least[k] < 0 ? NULL : &g->place[least[k]];
      if (k == 1 && p->source != source) continue;
      if (q == NULL || p->bytes < q->bytes || (p->bytes == q->bytes && p->until < q->until))
        least[k] = i;
    }
  }
  const bool full = own >= g->limits.of_source;
  *displaces = full || empty < 0;
  if (full) return least[1];
  return empty >= 0 ? empty : least[0];
}

void aci_gate_enter(aci_gate *g, int place, uint64_t source, int64_t now) {
  g->place[place] = (aci_gate_place){.taken = true, .source = source, .until = now + g->limits.ns};
}

bool aci_gate_take(aci_gate *g, int place, size_t bytes) {
  aci_gate_place *p = &g->place[place];
  p->bytes += bytes;
  return p->trusted || p->bytes <= g->limits.bytes;
}

bool aci_gate_late(const aci_gate *g, int place, int64_t now) {
  return now > g->place[place].until;
}

void aci_gate_trust(aci_gate *g, int place) { g->place[place].trusted = true; }

void aci_gate_leave(aci_gate *g, int place) { g->place[place] = (aci_gate_place){0}; }

void aci_gate_refuse(aci_gate *g, int place, const char *from, const char *why,
                     const char *what_to_do) {
  aci_gate_leave(g, place);
  g->closed++;
  if (g->reported) return;
  g->reported = true;
  ac_log_write(AC_LOG_WARN, g->area,
               "%s closed a connection from %s: %s%s%s (more of them are only counted)", g->what,
               from[0] != 0 ? from : "an unknown address", why, what_to_do[0] != 0 ? "; " : "",
               what_to_do);
}
