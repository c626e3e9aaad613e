/* The wrapper of libcrypto. See hmac.h for the choice of library. */
#include "base/hmac.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/library.h"

ac_status aci_random_bytes(void *out, size_t n, ac_err *e) {
  for (size_t at = 0; at < n;) {
    const ssize_t k = getrandom((char *)out + at, n - at, 0);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return AC_FAIL(e, IO, "the kernel has no random bytes: %s", strerror(errno));
    at += (size_t)k;
  }
  return AC_OK;
}

#ifdef ACCEL_HAVE_LIBCRYPTO
#include <openssl/crypto.h>
#include <openssl/hmac.h>

#define FUNCTIONS(X) \
  X(HMAC) X(EVP_sha256) X(CRYPTO_memcmp) X(OPENSSL_init_crypto) X(OpenSSL_version)

static struct {
#define X(name) __typeof__(name) *name;
  FUNCTIONS(X)
#undef X
} lib;                  /* process-wide, like the library: written once by load, read after that */
static ac_err unusable; /* why, if its code is set */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
#define X(name) {#name, &lib.name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  if (aci_library_open("libcrypto", symbols, sizeof symbols / sizeof *symbols, &unusable) != AC_OK)
    return;
  /* neither openssl.cnf nor a handler at exit: the embedding program may use the library in its own
   * way */
  if (lib.OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
    AC_FAIL(&unusable, UNSUPPORTED, "libcrypto does not start");
}

static ac_status ready(ac_err *e) {
  pthread_once(&once, load);
  if (e != NULL && unusable.code != AC_OK) *e = unusable;
  return unusable.code;
}

ac_status aci_hmac_library(const char **version, ac_err *e) {
  AC_TRY(ready(e));
  *version = lib.OpenSSL_version(OPENSSL_VERSION);
  return AC_OK;
}

ac_status aci_hmac(const void *key, size_t key_bytes, const void *text, size_t bytes,
                   uint8_t out[ACI_HMAC], ac_err *e) {
  unsigned n = 0;
  AC_TRY(ready(e));
  if (key_bytes > INT_MAX ||
      lib.HMAC(lib.EVP_sha256(), key, (int)key_bytes, text, bytes, out, &n) == NULL ||
      n != ACI_HMAC)
    return AC_FAIL(e, UNSUPPORTED, "libcrypto does not compute HMAC-SHA-256");
  return AC_OK;
}

bool aci_hmac_equal(const uint8_t a[ACI_HMAC], const uint8_t b[ACI_HMAC]) {
  return ready(NULL) == AC_OK && lib.CRYPTO_memcmp(a, b, ACI_HMAC) == 0;
}

#else

ac_status aci_hmac_library(const char **version, ac_err *e) {
  return (void)version, aci_library_absent("libcrypto", e);
}
ac_status aci_hmac(const void *key, size_t key_bytes, const void *text, size_t bytes,
                   uint8_t out[ACI_HMAC], ac_err *e) {
  (void)key, (void)key_bytes, (void)text, (void)bytes, (void)out;
  return aci_library_absent("libcrypto", e);
}
bool aci_hmac_equal(const uint8_t a[ACI_HMAC], const uint8_t b[ACI_HMAC]) {
  return (void)a, (void)b, false;
}
#endif
