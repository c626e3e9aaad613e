/* The addresses at which the agents of an elastic job meet (--rendezvous), and the one at which this
 * agent listens. Which agents are of the same job. Called by net.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "comm/tcp/rendezvous.h"
#include "launch/agent/net_impl.h"

enum { PORT = 29400 /* of an address without one */ };

typedef aci_net_peer peer;

/* One of "HOST[:PORT]", "[ADDRESS]:PORT". */
static bool parse_seed(const char *text, size_t bytes, peer *p) {
  const char *end = text + bytes, *host = text, *colon = NULL;
  size_t n = bytes;
  p->port = PORT;
  if (bytes > 0 && *text == '[') {
    const char *close = memchr(text, ']', bytes);
    if (close == NULL) return false;
    host = text + 1;
    n = (size_t)(close - host);
    if (close + 1 < end) colon = close + 1;
    if (colon != NULL && *colon != ':') return false;
  } else {
    colon = memchr(text, ':', bytes);
    if (colon != NULL) n = (size_t)(colon - text);
  }
  if (colon != NULL) {
    char *after;
    const long port = strtol(colon + 1, &after, 10);
    if (after != end || after == colon + 1 || port < 1 || port > 65535) return false;
    p->port = (int)port;
  }
  if (n == 0 || n >= sizeof p->host) return false;
  memcpy(p->host, host, n);
  p->host[n] = 0;
  return true;
}

/* One address twice: the job would wait for an agent at each. */
static ac_status check_twice(const aci_net *n, const peer *p, ac_err *e) {
  for (const peer *q = n->peers; q < p; q++)
    if (q->port == p->port && strcmp(q->address, p->address) == 0)
      return AC_FAIL(e, INVALID, "rendezvous: %s and %s are the same address, port %d", q->host,
                     p->host, p->port);
  return AC_OK;
}

ac_status aci_net_take_seeds(aci_net *n, const char *seeds, ac_err *e) {
  if (strlen(seeds) >= sizeof n->own.seeds) /* machines compare the whole list */
    return AC_FAIL(e, INVALID, "rendezvous: the list is longer than %zu bytes",
                   sizeof n->own.seeds - 1);
  for (const char *at = seeds; *at != 0;) {
    const size_t bytes = strcspn(at, ",");
    char why[128], found[1][ACI_ADDRESS];
    bool may_change;
    if (n->n_seeds == ACI_NET_SEEDS)
      return AC_FAIL(e, INVALID, "rendezvous: there are at most %d addresses", ACI_NET_SEEDS);
    peer *p = &n->peers[n->n_seeds];
    *p = (peer){.seed = n->n_seeds};
    if (!parse_seed(at, bytes, p))
      return AC_FAIL(e, INVALID, "rendezvous: '%.*s' is not HOST[:PORT]", (int)bytes, at);
    if (aci_resolve(p->host, found, 1, &may_change, why, sizeof why) == 0)
      return AC_FAIL(e, INVALID, "rendezvous: cannot find %s: %s", p->host, why);
    memcpy(p->address, found[0], sizeof p->address);
    AC_TRY(check_twice(n, p, e));
    n->n_peers = ++n->n_seeds;
    at += bytes;
    if (*at == ',') at++;
  }
  if (n->n_seeds == 0) return AC_FAIL(e, INVALID, "rendezvous: there is no address");
  if (n->n_seeds > n->own.max) /* the job begins with an agent at each */
    return AC_FAIL(e, INVALID, "rendezvous: %d addresses for a job of at most %d machines",
                   n->n_seeds, n->own.max);
  return AC_OK;
}

/* The loopback that a name leads to here may be another address elsewhere (/etc/hosts). */
static bool leads_elsewhere(const peer *p) {
  return aci_address_is_loopback(p->address) && !aci_address_is_loopback(p->host) &&
         strcasecmp(p->host, "localhost") != 0;
}

ac_status aci_net_listen(aci_net *n, ac_err *e) {
  char why[128];
  bool all_here = true;
  n->own.seed = -1;
  for (int i = 0; i < n->n_seeds && n->listener < 0; i++) {
    const peer *p = &n->peers[i];
    n->listener = aci_socket_listen(p->address, p->port, &n->own.port, why, sizeof why);
    if (n->listener >= 0 && leads_elsewhere(p)) {
      close(n->listener);
      n->listener = aci_socket_listen(NULL, p->port, &n->own.port, why, sizeof why);
    }
    if (n->listener >= 0) n->own.seed = i;
    all_here &= aci_address_is_loopback(p->address) && !leads_elsewhere(p);
  }
  if (n->listener >= 0) return AC_OK;
  n->listener =
      aci_socket_listen(all_here ? n->peers[0].address : NULL, 0, &n->own.port, why, sizeof why);
  return n->listener >= 0 ? AC_OK : AC_FAIL(e, IO, "accel-run cannot listen: %s", why);
}

bool aci_net_fits(const aci_net *n, const aci_net_hello *h, char *why, size_t size) {
  const aci_net_hello *own = &n->own;
  if (strcmp(h->version, own->version) != 0)
    snprintf(why, size, "%s runs accel %s, this machine %s; install the same on all machines",
             h->host, h->version, own->version);
  else if (h->min != own->min || h->max != own->max)
    snprintf(why, size,
             "%s was started with --num-machines %d:%d, this machine with %d:%d; give all machines "
             "the same",
             h->host, h->min, h->max, own->min, own->max);
  else if (strcmp(h->seeds, own->seeds) != 0)
    snprintf(why, size,
             "%s was started with --rendezvous %.80s, this machine with %.80s; give all machines "
             "the same list",
             h->host, h->seeds, own->seeds);
  else return true;
  return false;
}
