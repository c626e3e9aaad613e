/* accel/rest.h - requests to servers that follow runs (MLflow, Trackio, ...) and to webhooks. A request blocks the thread that makes it:
 * trackers send from threads of their own. libcurl is loaded on first use; without it requests fail with UNSUPPORTED and say which
 * package is missing. */
#ifndef ACCEL_REST_H
#define ACCEL_REST_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AC_REST_MAX_ANSWER = 64 << 20 };

typedef struct ac_rest_request {
  const char *method, *url; /* "POST", "https://..."; http and https alone */
  const char *const *headers; /* "Name: value", ..., NULL; may be NULL */
  const char *body;         /* may be NULL */
  size_t n_body;
  const char *file;         /* its bytes are the body; may be NULL */
  const char *user;         /* "name:password" for basic authentication; may be NULL */
  double seconds;           /* until it is given up, 0: 30; connecting gets at most 10 of them */
  bool (*stop)(void *arg);  /* asked about once a second whether to give up; may be NULL */
  void *stop_arg;
  bool insecure;            /* certificates are not looked at */
} ac_rest_request;

/* The version of libcurl; UNSUPPORTED says why there is none. */
AC_API ac_status ac_rest_library(const char **version, ac_err *e);
/* *status: the answer's (200, 404, ...), *answer: its body, malloc'ed, with a 0 behind it. PEER: nobody answers, or the connection breaks.
 * TIMEOUT: not in time. INTERRUPTED: stop said so. */
AC_API ac_status ac_rest(const ac_rest_request *r, int *status, char **answer, size_t *n, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
