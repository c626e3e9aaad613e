/* accel/rest.h - requests to servers that follow runs (MLflow, Trackio, ...) and to webhooks. A
 * request blocks its thread, so trackers send from threads of their own. libcurl is loaded on first
 * use. Without it requests fail with UNSUPPORTED and name the missing package. */
#ifndef ACCEL_REST_H
#define ACCEL_REST_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AC_REST_MAX_ANSWER = 64 << 20 };

typedef struct ac_rest_request {
  const char *method, *url;   /* "POST", "https://...". Only http and https */
  const char *const *headers; /* "Name: value", ..., NULL. May be NULL */
  const char *body;           /* may be NULL */
  size_t n_body;
  const char *file;        /* its bytes are the body. May be NULL */
  const char *user;        /* "name:password" for basic authentication. May be NULL */
  double seconds;          /* time limit, 0: 30. Connecting gets at most 10 of them */
  bool (*stop)(void *arg); /* polled about once a second, true to give up. May be NULL */
  void *stop_arg;
  bool insecure; /* certificates are not looked at */
} ac_rest_request;

/* The version of libcurl. The message of UNSUPPORTED explains why there is none. */
AC_API ac_status ac_rest_library(const char **version, ac_err *e);
/* *status: the answer's (200, 404, ...), *answer: its body, malloc'ed, with a trailing 0. PEER:
 * nobody answers, or the connection breaks. TIMEOUT: not in time. INTERRUPTED: stop returned
 * true. */
AC_API ac_status ac_rest(const ac_rest_request *r, int *status, char **answer, size_t *n,
                         ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
