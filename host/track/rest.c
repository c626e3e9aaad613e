/* Requests over libcurl, one connection each. Called through accel/rest.h. */
#include "accel/rest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/library.h"

#ifdef ACCEL_HAVE_CURL
#include <curl/curl.h>
#include <pthread.h>

#include "base/open_read.h"
#include "base/strbuf.h"

/* curl's headers make macros of these, which check types and do not take pointers to functions */
#undef curl_easy_setopt
#undef curl_easy_getinfo

#define FUNCTIONS(X) \
  X(global_init)     \
  X(version)         \
  X(easy_init)       \
  X(easy_cleanup)    \
  X(easy_perform) X(easy_setopt) X(easy_getinfo) X(easy_strerror) X(slist_append) X(slist_free_all)

typedef struct library {
#define X(name) __typeof__(curl_##name) *name;
  FUNCTIONS(X)
#undef X
} library;

/* of the process: curl_global_init is not a thread's own */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static library lib;
static ac_err unusable; /* why, if its code is set */

static void load_once(void) {
#define X(name) {"curl_" #name, &lib.name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  if (aci_library_open("curl", symbols, sizeof symbols / sizeof *symbols, &unusable) == AC_OK &&
      lib.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    AC_FAIL(&unusable, UNSUPPORTED, "libcurl does not start");
}

static ac_status load(ac_err *e) {
  pthread_once(&once, load_once);
  if (e != NULL && unusable.code != AC_OK) *e = unusable;
  return unusable.code;
}

ac_status ac_rest_library(const char **version, ac_err *e) {
  AC_TRY(load(e));
  *version = lib.version();
  return AC_OK;
}

typedef struct answer {
  aci_strbuf text;
  bool too_long;
  const ac_rest_request *r;
} answer;

static size_t on_data(char *p, size_t size, size_t n, void *user) {
  answer *a = user;
  n *= size;
  if (a->text.len + n > AC_REST_MAX_ANSWER) {
    a->too_long = true;
    return 0;
  }
  aci_strbuf_add(&a->text, p, n);
  return a->text.failed ? 0 : n;
}

static int on_progress(void *user, curl_off_t dt, curl_off_t dn, curl_off_t ut, curl_off_t un) {
  const ac_rest_request *r = ((answer *)user)->r;
  (void)dt, (void)dn, (void)ut, (void)un;
  return r->stop != NULL && r->stop(r->stop_arg);
}

enum { PLACE = 256 };

/* Scheme, host and port of an address: the part before the host may be a password, the part after
 * it the key of a webhook. */
static const char *place_of(const char *url, char out[PLACE]) {
  const char *authority = strstr(url, "://");
  if (authority == NULL) return "an address without a scheme";
  authority += 3;
  const size_t n = strcspn(authority, "/?#\\");
  const char *host = authority;
  for (size_t i = 0; i < n; i++)
    if (authority[i] == '@') host = authority + i + 1;
  snprintf(out, PLACE, "%.*s%.*s", (int)(authority - url < 16 ? authority - url : 16), url,
           (int)(authority + n - host), host);
  return out;
}

static ac_status status_of(CURLcode rc, const answer *a, const char *why, ac_err *e) {
  char place[PLACE];
  const char *url = rc == CURLE_OK ? NULL : place_of(a->r->url, place);
  if (why[0] == 0) why = lib.easy_strerror(rc);
  switch (rc) {
    case CURLE_OK: return AC_OK;
    case CURLE_OUT_OF_MEMORY: return AC_FAIL(e, OOM, "no memory for a request to %s", url);
    case CURLE_OPERATION_TIMEDOUT: return AC_FAIL(e, TIMEOUT, "%s: %.200s", url, why);
    case CURLE_ABORTED_BY_CALLBACK: return AC_FAIL(e, INTERRUPTED, "%s: given up", url);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT: return AC_FAIL(e, INVALID, "%s: %.200s", url, why);
    default:
      if (a->too_long)
        return AC_FAIL(e, PEER, "%s: the answer has more than %d bytes", url,
                       (int)AC_REST_MAX_ANSWER);
      return AC_FAIL(e, PEER, "%s: %.200s", url, why);
  }
}

static void set_body(CURL *c, const ac_rest_request *r, FILE *file, off_t size) {
  if (file != NULL) {
    lib.easy_setopt(c, CURLOPT_UPLOAD, 1L);
    lib.easy_setopt(c, CURLOPT_READDATA, file);
    lib.easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)size);
  } else if (r->body != NULL) {
    lib.easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->n_body);
    lib.easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
  }
  if (strcmp(r->method, "GET") == 0) lib.easy_setopt(c, CURLOPT_HTTPGET, 1L);
  else lib.easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
}

ac_status ac_rest(const ac_rest_request *r, int *status, char **out, size_t *n, ac_err *e) {
  char why[CURL_ERROR_SIZE] = "";
  answer a = {.r = r};
  struct curl_slist *headers = NULL;
  long code = 0;
  AC_TRY(load(e));
  if (strncmp(r->url, "http://", 7) != 0 && strncmp(r->url, "https://", 8) != 0)
    return AC_FAIL(e, INVALID, "the address of a server must begin with http:// or https://");
  FILE *file = NULL;
  uint64_t size = 0;
  int fd;
  if (r->file != NULL) {
    AC_TRY(aci_open_read(r->file, &fd, &size, e));
    file = fdopen(fd, "rb");
    if (file == NULL) {
      close(fd);
      return AC_FAIL(e, OOM, "no memory for a request");
    }
  }
  CURL *c = lib.easy_init();
  if (c == NULL) {
    if (file != NULL) fclose(file);
    return AC_FAIL(e, OOM, "no memory for a request");
  }
  const double seconds = r->seconds > 0 ? r->seconds : 30;
  headers = lib.slist_append(headers, "Expect:"); /* a second round trip before every large body */
  for (int i = 0; r->headers != NULL && r->headers[i] != NULL; i++)
    headers = lib.slist_append(headers, r->headers[i]);
  lib.easy_setopt(c, CURLOPT_URL, r->url);
  lib.easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  lib.easy_setopt(c, CURLOPT_ERRORBUFFER, why);
  lib.easy_setopt(c, CURLOPT_USERAGENT, "accel");
  lib.easy_setopt(c, CURLOPT_HTTPHEADER, headers);
  lib.easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(seconds * 1000));
  lib.easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(seconds > 10 ? 10000 : seconds * 1000));
  lib.easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
  lib.easy_setopt(c, CURLOPT_WRITEDATA, &a);
  lib.easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
  lib.easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
  lib.easy_setopt(c, CURLOPT_XFERINFODATA, &a);
  if (r->user != NULL) lib.easy_setopt(c, CURLOPT_USERPWD, r->user);
  if (r->insecure) {
    lib.easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
    lib.easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  set_body(c, r, file, (off_t)size);
  ac_status st = status_of(lib.easy_perform(c), &a, why, e);
  if (st == AC_OK) lib.easy_getinfo(c, CURLINFO_RESPONSE_CODE, &code);
  lib.easy_cleanup(c);
  lib.slist_free_all(headers);
  if (file != NULL) fclose(file);
  if (st != AC_OK) {
    aci_strbuf_fini(&a.text);
    return st;
  }
  *status = (int)code;
  *out = aci_strbuf_take(&a.text, n);
  return *out != NULL ? AC_OK : AC_FAIL(e, OOM, "no memory for an answer");
}

#else

ac_status ac_rest_library(const char **version, ac_err *e) {
  return (void)version, aci_library_absent("curl", e);
}
ac_status ac_rest(const ac_rest_request *r, int *status, char **answer, size_t *n, ac_err *e) {
  (void)r, (void)status, (void)answer, (void)n;
  return aci_library_absent("curl", e);
}
#endif
