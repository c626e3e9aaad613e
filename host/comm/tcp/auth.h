/* The handshake of a new connection: both ends prove that they know the key of the job before
 * either believes another byte. Used by the rendezvous and by every link, through door.c on the
 * side that listens.
 *
 *   listener -> dialer   challenge: magic, purpose, generation, nonce L
 *   dialer -> listener   response:  magic, purpose, from, to, world, nonce D, proof D
 *   listener -> dialer   confirm:   magic, proof L
 *
 * A proof is HMAC-SHA-256 with the key of the job (secret.h) over the name of the protocol, the
 * role of its maker, purpose, from, to, world, generation, the world's token, both nonces and the
 * run id. Nonces are 32 fresh bytes of the kernel, so a recording proves nothing. The role differs
 * between the two proofs, so a reflected one proves nothing. The dialer proves itself first: a
 * program that connects to the listener gets no proof to guess a weak secret from. Integers are
 * little-endian, so that ranks of different byte order get as far as the message that names the
 * difference.
 *
 * With --insecure the world's token replaces a proof, and the challenge shows this, so that both
 * ends can report the difference. */
#ifndef ACI_COMM_AUTH_H
#define ACI_COMM_AUTH_H
#include "base/hmac.h"
#include "comm/comm_impl.h"

enum {
  ACI_NONCE = 32,
  ACI_AUTH_TOKEN = 16,
  ACI_CHALLENGE = 48,
  ACI_RESPONSE = 88,
  ACI_CONFIRM = 40
};

typedef enum aci_auth_purpose {
  ACI_FOR_RENDEZVOUS = 1,
  ACI_FOR_LINK,
  ACI_FOR_AGENT
} aci_auth_purpose;
typedef enum aci_auth_state { ACI_AUTH_MORE, ACI_AUTH_DONE, ACI_AUTH_FAILED } aci_auth_state;
typedef enum aci_auth_fault {
  ACI_AUTH_EARLY,     /* the other end closed the connection before anything was proved */
  ACI_AUTH_REFUSED,   /* it closed the connection after our proof */
  ACI_AUTH_STRANGER,  /* it speaks another protocol */
  ACI_AUTH_NO_PROOF,  /* its proof is wrong */
  ACI_AUTH_THEY_OPEN, /* it runs with --insecure, we do not */
  ACI_AUTH_WE_OPEN,   /* the other way round */
  ACI_AUTH_BROKEN     /* errno */
} aci_auth_fault;

typedef struct aci_auth {
  /* set by the caller. key and run_id are borrowed */
  const uint8_t *key; /* NULL: --insecure */
  const char *run_id;
  aci_auth_purpose purpose;
  bool listens;
  uint32_t generation; /* the listener's. The dialer learns it */
  /* the dialer's rank, the listener's, ranks. The listener learns from and world */
  int32_t from, to, world;
  uint8_t token[ACI_AUTH_TOKEN]; /* of the world. Zero before it is known */
  /* its own */
  aci_auth_fault fault;
  int error;
  bool begun;
  size_t wanted, got;
  uint8_t in[ACI_RESPONSE], nonce[2][ACI_NONCE]; /* the listener's, the dialer's */
} aci_auth;

/* Goes as far as it can without blocking, on a connected socket that does not block. Call it first
 * when the connection is there, then whenever the socket is readable. It reads no byte beyond the
 * handshake. taken: bytes that it read in this call. */
aci_auth_state aci_auth_step(aci_auth *a, int fd, size_t *taken);
/* The fault in words: "it does not know the secret of this job". */
const char *aci_auth_why(const aci_auth *a);

#endif
