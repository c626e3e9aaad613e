/* HMAC-SHA-256, a comparison in constant time and random bytes, for peers that must prove that they
 * know a secret. Called by comm/.
 *
 * The one place of the choice of library: OpenSSL's libcrypto. It computes HMAC and compares in
 * constant time, it is maintained with long-term releases, Debian 12 and 13 ship the same
 * libcrypto.so.3, and it adds nothing to a machine that starts other machines, because ssh and
 * libcurl bring it. libsodium is smaller by itself, but would be a further package. The header
 * (package libssl-dev) is enough to build. The library is loaded on first use, so a start on one
 * machine never pays for it. */
#ifndef ACI_HMAC_H
#define ACI_HMAC_H
#include "accel/base.h"

enum { ACI_HMAC = 32 }; /* bytes */

/* The library's version. UNSUPPORTED explains why there is none. Any thread. */
ac_status aci_hmac_library(const char **version, ac_err *e);
/* out = HMAC-SHA-256(key, text). UNSUPPORTED without the library. Any thread. */
ac_status aci_hmac(const void *key, size_t key_bytes, const void *text, size_t bytes,
                   uint8_t out[ACI_HMAC], ac_err *e);
/* Compares in a time that does not depend on the contents. False without the library. */
bool aci_hmac_equal(const uint8_t a[ACI_HMAC], const uint8_t b[ACI_HMAC]);
/* From the kernel (getrandom). IO: it has none. */
ac_status aci_random_bytes(void *out, size_t n, ac_err *e);

#endif
