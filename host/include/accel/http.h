/* accel/http.h - a small server for pages on this machine (accel-run ui). It listens on 127.0.0.1
 * alone and runs on the thread that calls ac_http_poll: a handler fills an answer, which is whole
 * or a stream that is fed later (server-sent events). libmicrohttpd is loaded on first use. Without
 * it ac_http_open fails with UNSUPPORTED and names the missing package. */
#ifndef ACCEL_HTTP_H
#define ACCEL_HTTP_H
#include "accel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* a first request has 1 MiB: later ones follow an answer */
enum { AC_HTTP_MAX_BUFFERED = 8 << 20, AC_HTTP_MAX_BODY = 16 << 20 };

typedef struct ac_http ac_http;
typedef struct ac_http_request ac_http_request;
typedef struct ac_http_answer {
  int status;       /* 200 */
  const char *body; /* copied. NULL: none */
  size_t n;
  const char *headers[24]; /* name, value, name, value, ..., NULL */
  /* continues after the body, with ac_http_send, until ac_http_end or until the client leaves */
  bool stream;
} ac_http_answer;

/* Called within ac_http_poll. The memory that answer points to must live until ac_http_poll
 * returns. */
typedef void (*ac_http_handler)(void *user, const ac_http_request *r, ac_http_answer *answer);

/* The version of libmicrohttpd. The message of UNSUPPORTED explains why there is none. */
AC_API ac_status ac_http_library(const char **version, ac_err *e);
/* port 0: any free one. IO: the port is taken. */
AC_API ac_status ac_http_open(int port, ac_http **out, ac_err *e);
AC_API int ac_http_port(const ac_http *h);
/* Waits up to so many seconds for something to do, and does it. Returns early when a signal
 * arrives. */
AC_API ac_status ac_http_poll(ac_http *h, double seconds, ac_http_handler handler, void *user,
                              ac_err *e);
AC_API void ac_http_close(ac_http *h);

AC_API const char *ac_http_method(const ac_http_request *r);
AC_API const char *ac_http_path(const ac_http_request *r);
AC_API const char *ac_http_query(const ac_http_request *r, const char *name);  /* NULL: not there */
AC_API const char *ac_http_header(const ac_http_request *r, const char *name); /* NULL: not there */
/* the body that the client sent, at most AC_HTTP_MAX_BODY bytes */
AC_API const char *ac_http_body(const ac_http_request *r, size_t *n);
AC_API uint64_t ac_http_stream(const ac_http_request *r); /* the number of the answer's stream */

/* More of a stream. False: the client has left, or does not take the data (AC_HTTP_MAX_BUFFERED
 * bytes wait). The stream is then over. */
AC_API bool ac_http_send(ac_http *h, uint64_t stream, const char *p, size_t n);
AC_API void ac_http_end(ac_http *h, uint64_t stream);

#ifdef __cplusplus
}
#endif
#endif
