/* The handshake of a new connection. See auth.h for messages and proofs. */
#include "comm/tcp/auth.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static const char magic[8] = {'a', 'c', 'c', 'e', 'l', 'a', 'u', '1'}, protocol[] = "accel peer 1";

enum {
  OPEN = 1,
  AT_FLAGS = 8,
  AT_PURPOSE = 9,
  AT_GENERATION = 12,
  AT_FROM = 12,
  AT_TO = 16,
  AT_WORLD = 20
};
enum { AT_NONCE_L = 16, AT_NONCE_D = 24, AT_PROOF_D = 56, AT_PROOF_L = 8 };
_Static_assert(AT_NONCE_L + ACI_NONCE == ACI_CHALLENGE && AT_PROOF_L + ACI_HMAC == ACI_CONFIRM,
               "messages end with their last field");
_Static_assert(AT_NONCE_D + ACI_NONCE == AT_PROOF_D && AT_PROOF_D + ACI_HMAC == ACI_RESPONSE,
               "fields follow each other");

static void put(uint8_t *p, uint32_t v) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static aci_auth_state failed(aci_auth *a, aci_auth_fault fault) {
  a->fault = fault;
  return ACI_AUTH_FAILED;
}

/* The bytes that both messages begin with. */
static bool is_ours(const aci_auth *a) {
  return (a->in[AT_FLAGS] & ~OPEN) == 0 && a->in[AT_PURPOSE] == (uint8_t)a->purpose &&
         a->in[AT_PURPOSE + 1] == 0 && a->in[AT_PURPOSE + 2] == 0;
}

/* role: 'D' or 'L'. False: there is no library. */
static bool prove(const aci_auth *a, char role, uint8_t out[ACI_HMAC]) {
  uint8_t text[sizeof protocol + 2 + 4 * 5 + ACI_AUTH_TOKEN + 2 * ACI_NONCE + ACI_RUN_ID],
      *p = text;
  const size_t n = strnlen(a->run_id, ACI_RUN_ID);
  if (a->key == NULL) {
    memset(out, 0, ACI_HMAC);
    memcpy(out, a->token, sizeof a->token);
    return true;
  }
  memcpy(p, protocol, sizeof protocol);
  p += sizeof protocol;
  *p++ = (uint8_t)role;
  *p++ = (uint8_t)a->purpose;
  const uint32_t numbers[] = {(uint32_t)a->from, (uint32_t)a->to, (uint32_t)a->world, a->generation,
                              (uint32_t)n};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++, p += 4) put(p, numbers[i]);
  memcpy(p, a->token, sizeof a->token);
  p += sizeof a->token;
  memcpy(p, a->nonce, sizeof a->nonce);
  p += sizeof a->nonce;
  memcpy(p, a->run_id, n);
  p += n;
  return aci_hmac(a->key, ACI_HMAC, text, (size_t)(p - text), out, NULL) == AC_OK;
}

static bool proves(const aci_auth *a, char role, const uint8_t *given) {
  uint8_t right[ACI_HMAC];
  if (!prove(a, role, right)) return false;
  /* a token is not a proof, and a build that may not prove lacks the comparison */
  return a->key == NULL ? memcmp(right, given, sizeof right) == 0 : aci_hmac_equal(right, given);
}

/* A fresh connection takes these few bytes at once. */
static bool say(aci_auth *a, int fd, const uint8_t *p, size_t n) {
  const ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
  a->error = k < 0 ? errno : EIO;
  return k == (ssize_t)n;
}

static bool challenge(aci_auth *a, int fd) {
  uint8_t m[ACI_CHALLENGE] = {0};
  if (aci_random_bytes(a->nonce[0], ACI_NONCE, NULL) != AC_OK) return false;
  memcpy(m, magic, sizeof magic);
  m[AT_FLAGS] = a->key == NULL ? OPEN : 0;
  m[AT_PURPOSE] = (uint8_t)a->purpose;
  put(m + AT_GENERATION, a->generation);
  memcpy(m + AT_NONCE_L, a->nonce[0], ACI_NONCE);
  a->wanted = ACI_RESPONSE;
  return say(a, fd, m, sizeof m);
}

static aci_auth_state respond(aci_auth *a, int fd) {
  uint8_t m[ACI_RESPONSE] = {0};
  if (!is_ours(a)) return failed(a, ACI_AUTH_STRANGER);
  a->generation = get(a->in + AT_GENERATION);
  memcpy(a->nonce[0], a->in + AT_NONCE_L, ACI_NONCE);
  memcpy(m, magic, sizeof magic);
  m[AT_FLAGS] = a->key == NULL ? OPEN : 0;
  m[AT_PURPOSE] = (uint8_t)a->purpose;
  put(m + AT_FROM, (uint32_t)a->from);
  put(m + AT_TO, (uint32_t)a->to);
  put(m + AT_WORLD, (uint32_t)a->world);
  const bool they_open = (a->in[AT_FLAGS] & OPEN) != 0, differ = they_open != (a->key == NULL);
  if (aci_random_bytes(a->nonce[1], ACI_NONCE, NULL) != AC_OK) return failed(a, ACI_AUTH_BROKEN);
  memcpy(m + AT_NONCE_D, a->nonce[1], ACI_NONCE);
  /* if the ends differ, the listener gets only the difference, never data that could serve as a
   * proof */
  if (!differ && !prove(a, 'D', m + AT_PROOF_D)) return failed(a, ACI_AUTH_BROKEN);
  if (!say(a, fd, m, sizeof m)) return failed(a, ACI_AUTH_BROKEN);
  if (differ) return failed(a, they_open ? ACI_AUTH_THEY_OPEN : ACI_AUTH_WE_OPEN);
  a->wanted = ACI_CONFIRM;
  a->got = 0;
  return ACI_AUTH_MORE;
}

static aci_auth_state judge(aci_auth *a, int fd) {
  uint8_t m[ACI_CONFIRM] = {0};
  const bool they_open = (a->in[AT_FLAGS] & OPEN) != 0;
  if (!is_ours(a)) return failed(a, ACI_AUTH_STRANGER);
  if (they_open != (a->key == NULL))
    return failed(a, they_open ? ACI_AUTH_THEY_OPEN : ACI_AUTH_WE_OPEN);
  if ((int32_t)get(a->in + AT_TO) != a->to) return failed(a, ACI_AUTH_STRANGER);
  a->from = (int32_t)get(a->in + AT_FROM);
  a->world = (int32_t)get(a->in + AT_WORLD);
  memcpy(a->nonce[1], a->in + AT_NONCE_D, ACI_NONCE);
  if (!proves(a, 'D', a->in + AT_PROOF_D)) return failed(a, ACI_AUTH_NO_PROOF);
  memcpy(m, magic, sizeof magic);
  if (!prove(a, 'L', m + AT_PROOF_L) || !say(a, fd, m, sizeof m)) return failed(a, ACI_AUTH_BROKEN);
  return ACI_AUTH_DONE;
}

aci_auth_state aci_auth_step(aci_auth *a, int fd, size_t *taken) {
  *taken = 0;
  if (!a->begun) {
    a->begun = true;
    a->wanted = ACI_CHALLENGE;
    if (a->listens && !challenge(a, fd)) return failed(a, ACI_AUTH_BROKEN);
  }
  while (a->got < a->wanted) {
    const ssize_t n = recv(fd, a->in + a->got, a->wanted - a->got, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ACI_AUTH_MORE;
    if (n <= 0) {
      a->error = n < 0 ? errno : 0;
      /* a reset after our proof means that there were too many connections (door.c) */
      if (!a->listens && a->wanted == ACI_CONFIRM && n == 0) return failed(a, ACI_AUTH_REFUSED);
      return failed(a, n < 0 && errno != ECONNRESET ? ACI_AUTH_BROKEN : ACI_AUTH_EARLY);
    }
    a->got += (size_t)n;
    *taken += (size_t)n;
    /* a program of another kind is known by its first bytes */
    if (memcmp(a->in, magic, a->got < sizeof magic ? a->got : sizeof magic) != 0)
      return failed(a, ACI_AUTH_STRANGER);
    if (a->got < a->wanted) continue;
    if (a->listens) return judge(a, fd);
    if (a->wanted == ACI_CONFIRM)
      return proves(a, 'L', a->in + AT_PROOF_L) ? ACI_AUTH_DONE : failed(a, ACI_AUTH_NO_PROOF);
    const aci_auth_state s = respond(a, fd);
    if (s != ACI_AUTH_MORE) return s;
  }
  return ACI_AUTH_MORE;
}

const char *aci_auth_why(const aci_auth *a) {
  switch (a->fault) {
    case ACI_AUTH_EARLY: return "it closed the connection";
    case ACI_AUTH_REFUSED: return "it does not accept the secret of this machine";
    case ACI_AUTH_STRANGER: return "it is not a rank of accel, or of another version";
    case ACI_AUTH_NO_PROOF: return "it does not know the secret of this job";
    case ACI_AUTH_THEY_OPEN: return "it runs with --insecure, unlike this machine";
    case ACI_AUTH_WE_OPEN: return "it does not run with --insecure, unlike this machine";
    case ACI_AUTH_BROKEN: break;
  }
  return a->error != 0 ? strerror(a->error) : "the connection broke";
}
