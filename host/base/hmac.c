/* The wrapper of libcrypto. See hmac.h for the choice of library. */
#include "base/hmac.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

ac_status aci_random_bytes(void *out, size_t n, ac_err *e) {
  for (size_t at = 0; at < n;) {
    const ssize_t k = getrandom((char *)out + at, n - at, 0);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return AC_FAIL(e, IO, "the kernel has no random bytes: %s", strerror(errno));
    at += (size_t)k;
  }
  return AC_OK;
}

#ifdef ACCEL_HAVE_CRYPTO
#include <openssl/crypto.h>
#include <openssl/hmac.h>

#define FUNCTIONS(X) \
  X(HMAC) X(EVP_sha256) X(CRYPTO_memcmp) X(OPENSSL_init_crypto) X(OpenSSL_version)

static struct {
#define X(name) __typeof__(name) *name;
  FUNCTIONS(X)
#undef X
} lib; /* process-wide, like the library: written once by load, read after that */
static const char *unusable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool take(void *from, const char *name, void *to, size_t n) {
  void *p = dlsym(from, name);
  if (p != NULL && n == sizeof p) memcpy(to, &p, n);
  return p != NULL;
}

static void load(void) {
  void *so = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  unusable = "libcrypto is missing; install the package libssl3";
  if (so == NULL) return;
  unusable = "the installed libcrypto lacks functions; install the package libssl3";
#define X(name) take(so, #name, &lib.name, sizeof lib.name) &&
  if (!(FUNCTIONS(X) true)) return;
#undef X
  /* neither openssl.cnf nor a handler at exit: the embedding program may use the library in its own
   * way */
  unusable = "libcrypto does not start";
  if (lib.OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
    return;
  unusable = NULL;
}

static ac_status ready(ac_err *e) {
  pthread_once(&once, load);
  return unusable == NULL ? AC_OK : AC_FAIL(e, UNSUPPORTED, "%s", unusable);
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

#define ABSENT "this build lacks libcrypto; install the package libssl-dev and build again"
ac_status aci_hmac_library(const char **version, ac_err *e) {
  return (void)version, AC_FAIL(e, UNSUPPORTED, ABSENT);
}
ac_status aci_hmac(const void *key, size_t key_bytes, const void *text, size_t bytes,
                   uint8_t out[ACI_HMAC], ac_err *e) {
  (void)key, (void)key_bytes, (void)text, (void)bytes, (void)out;
  return AC_FAIL(e, UNSUPPORTED, ABSENT);
}
bool aci_hmac_equal(const uint8_t a[ACI_HMAC], const uint8_t b[ACI_HMAC]) {
  return (void)a, (void)b, false;
}
#endif
