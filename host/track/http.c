/* The server of accel/http.h, over libmicrohttpd in the mode in which its caller polls: no threads,
 * no locks. */
#include "accel/http.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"

#ifdef ACCEL_HAVE_MICROHTTPD
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/gate.h"
#include "base/strbuf.h"
#include "comm/segment.h"

#define FUNCTIONS(X)               \
  X(start_daemon)                  \
  X(stop_daemon)                   \
  X(run)                           \
  X(get_daemon_info)               \
  X(get_timeout)                   \
  X(create_response_from_buffer)   \
  X(create_response_from_callback) \
  X(add_response_header)           \
  X(queue_response)                \
  X(destroy_response)              \
  X(lookup_connection_value)       \
  X(suspend_connection) X(resume_connection) X(get_version) X(get_connection_info)

typedef struct library {
#define X(name) __typeof__(MHD_##name) *name;
  FUNCTIONS(X)
#undef X
} library;

enum { BLOCK = 64 << 10, IDLE_SECONDS = 120, CONNECTIONS = 512, WATCH_MS = 1000 };

/* A connection has authenticated once a request of it got an answer other than 401, 403 and 405. */
static const aci_gate_limits limits = {
    .most = 64, .of_source = 64, .ns = 10 * INT64_C(1000000000), .bytes = 1 << 20};

/* A request under way, and the stream that its answer may be. */
struct ac_http_request {
  ac_http *h;
  struct MHD_Connection *connection;
  const char *method, *path;
  uint64_t id;
  aci_strbuf body; /* of the request */
  bool too_long;
  aci_strbuf waiting; /* unsent bytes of the stream */
  size_t sent;        /* of waiting */
  bool stream, suspended, over;
  ac_http_request *next;
};

struct ac_http {
  library lib;
  struct MHD_Daemon *daemon;
  int epoll, port;
  uint64_t ids;
  ac_http_request *all;
  ac_http_handler handler; /* during a poll */
  void *user;
  aci_gate gate;
  int waiting[ACI_GATE_MOST]; /* sockets of its places */
};

static ac_status load(library *l, ac_err *e) {
#define X(name) {"MHD_" #name, &l->name},
  const aci_symbol symbols[] = {FUNCTIONS(X)};
#undef X
  return aci_library_open("microhttpd", symbols, sizeof symbols / sizeof *symbols, e);
}

ac_status ac_http_library(const char **version, ac_err *e) {
  library l;
  AC_TRY(load(&l, e));
  *version = l.get_version();
  return AC_OK;
}

static ssize_t feed(void *cls, uint64_t at, char *to, size_t most) {
  ac_http_request *r = cls;
  (void)at;
  const size_t n = r->waiting.len - r->sent;
  if (n == 0 && r->over) return MHD_CONTENT_READER_END_OF_STREAM;
  if (n == 0) { /* until there is more */
    r->suspended = true;
    r->h->lib.suspend_connection(r->connection);
    return 0;
  }
  const size_t k = n < most ? n : most;
  memcpy(to, r->waiting.s + r->sent, k);
  r->sent += k;
  if (r->sent == r->waiting.len) r->sent = r->waiting.len = 0;
  return (ssize_t)k;
}

static struct MHD_Response *response_of(ac_http_request *r, const ac_http_answer *a) {
  const library *l = &r->h->lib;
  struct MHD_Response *response;
  if (a->stream) {
    r->stream = true;
    if (a->n > 0) aci_strbuf_add(&r->waiting, a->body, a->n);
    response = l->create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, feed, r, NULL);
  } else {
    response =
        l->create_response_from_buffer(a->n, (void *)(uintptr_t)a->body, MHD_RESPMEM_MUST_COPY);
  }
  for (int i = 0; response != NULL && a->headers[i] != NULL; i += 2)
    l->add_response_header(response, a->headers[i], a->headers[i + 1]);
  return response;
}

/* ---- connections that have not authenticated. The place of one, plus 1, is the context of its socket ---- */
/* -1: it has authenticated. */
static int place_of(const ac_http *h, struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *i = h->lib.get_connection_info(
                                     connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT),
                                 *fd = h->lib.get_connection_info(
                                     connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  const int at = i == NULL || fd == NULL ? -1 : (int)(intptr_t)i->socket_context - 1;
  return at >= 0 && h->gate.place[at].taken && h->waiting[at] == fd->connect_fd ? at : -1;
}

/* The library sees the end of the connection and closes it. */
static void refuse(ac_http *h, int place, const char *why) {
  shutdown(h->waiting[place], SHUT_RDWR);
  aci_gate_refuse(&h->gate, place, "127.0.0.1", why, "");
}

static void connected(void *cls, struct MHD_Connection *connection, void **context,
                      enum MHD_ConnectionNotificationCode code) {
  ac_http *h = cls;
  const union MHD_ConnectionInfo *fd =
      h->lib.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  const int at = (int)(intptr_t)*context - 1;
  bool displaces;
  if (fd == NULL) return;
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    if (at >= 0 && h->gate.place[at].taken && h->waiting[at] == fd->connect_fd)
      aci_gate_leave(&h->gate, at);
    return;
  }
  const int place = aci_gate_find(&h->gate, 0, aci_now_ns(), &displaces);
  if (displaces) refuse(h, place, "it has not shown the token, and others wait");
  aci_gate_enter(&h->gate, place, 0, aci_now_ns());
  h->waiting[place] = fd->connect_fd;
  *context = (void *)(intptr_t)(place + 1);
}

static void authenticated(ac_http *h, struct MHD_Connection *connection) {
  const int at = place_of(h, connection);
  if (at >= 0) aci_gate_leave(&h->gate, at);
}

/* Ends those whose time is over. True: some wait. */
static bool watch(ac_http *h) {
  const int64_t now = aci_now_ns();
  bool some = false;
  for (int i = 0; i < limits.most; i++) {
    if (!h->gate.place[i].taken) continue;
    some = true;
    if (aci_gate_late(&h->gate, i, now)) refuse(h, i, "it did not show the token in time");
  }
  return some;
}

static enum MHD_Result access_handler(void *cls, struct MHD_Connection *connection, const char *url,
                                      const char *method, const char *version, const char *data,
                                      size_t *n_data, void **con_cls) {
  ac_http *h = cls;
  ac_http_request *r = *con_cls;
  (void)version;
  if (r == NULL) { /* the head is there */
    r = calloc(1, sizeof *r);
    if (r == NULL) return MHD_NO;
    r->h = h;
    r->connection = connection;
    r->id = ++h->ids;
    r->next = h->all;
    h->all = r;
    *con_cls = r;
    return MHD_YES;
  }
  if (*n_data > 0) {
    const int at = place_of(h, connection);
    if (at >= 0 && !aci_gate_take(&h->gate, at, *n_data)) r->too_long = true;
    if (r->body.len + *n_data > AC_HTTP_MAX_BODY) r->too_long = true;
    else if (!r->too_long) aci_strbuf_add(&r->body, data, *n_data);
    *n_data = 0;
    return MHD_YES;
  }
  ac_http_answer a = {.status = 200};
  r->method = method;
  r->path = url;
  if (r->too_long || r->body.failed) a.status = 413;
  else if (h->handler == NULL) a.status = 503;
  else {
    h->handler(h->user, r, &a);
    if (a.status != 401 && a.status != 403 && a.status != 405) authenticated(h, connection);
  }
  r->method = r->path = NULL;
  struct MHD_Response *response = response_of(r, &a);
  if (response == NULL) return MHD_NO;
  const enum MHD_Result result = h->lib.queue_response(connection, (unsigned)a.status, response);
  h->lib.destroy_response(response);
  return result;
}

static void completed(void *cls, struct MHD_Connection *connection, void **con_cls,
                      enum MHD_RequestTerminationCode why) {
  ac_http *h = cls;
  ac_http_request *r = *con_cls;
  (void)connection, (void)why;
  for (ac_http_request **at = &h->all; *at != NULL; at = &(*at)->next)
    if (*at == r) {
      *at = r->next;
      aci_strbuf_fini(&r->body);
      aci_strbuf_fini(&r->waiting);
      free(r);
      break;
    }
  *con_cls = NULL;
}

ac_status ac_http_open(int port, ac_http **out, ac_err *e) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (port < 0 || port > 65535) return AC_FAIL(e, INVALID, "a port is 0 to 65535, got %d", port);
  ac_http *h = calloc(1, sizeof *h);
  if (h == NULL) return AC_FAIL(e, OOM, "no memory for a server");
  aci_gate_init(&h->gate, "http", "the page", &limits);
  ac_status st = load(&h->lib, e);
  if (st == AC_OK) {
    errno = 0;
    h->daemon = h->lib.start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, (uint16_t)port, NULL, NULL, access_handler, h,
        MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_NOTIFY_COMPLETED, completed,
        h, MHD_OPTION_NOTIFY_CONNECTION, connected, h, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_END);
    if (h->daemon == NULL)
      st = AC_FAIL(e, IO, "cannot listen on 127.0.0.1:%d: %s", port,
                   errno != 0 ? strerror(errno) : "it is taken");
  }
  if (st != AC_OK) {
    free(h);
    return st;
  }
  h->epoll = h->lib.get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  const int fd = h->lib.get_daemon_info(h->daemon, MHD_DAEMON_INFO_LISTEN_FD)->listen_fd;
  socklen_t n = sizeof address;
  getsockname(fd, (struct sockaddr *)&address, &n);
  h->port = ntohs(address.sin_port);
  *out = h;
  return AC_OK;
}

int ac_http_port(const ac_http *h) { return h->port; }

ac_status ac_http_poll(ac_http *h, double seconds, ac_http_handler handler, void *user, ac_err *e) {
  MHD_UNSIGNED_LONG_LONG soon;
  int ms = seconds <= 0 ? 0 : seconds > 3600 ? 3600000 : (int)(seconds * 1000);
  if (watch(h) && ms > WATCH_MS) ms = WATCH_MS;
  if (h->lib.get_timeout(h->daemon, &soon) == MHD_YES && soon < (unsigned)ms) ms = (int)soon;
  struct pollfd fd = {.fd = h->epoll, .events = POLLIN};
  if (poll(&fd, 1, ms) < 0 && errno != EINTR)
    return AC_FAIL(e, IO, "cannot wait for requests: %s", strerror(errno));
  h->handler = handler;
  h->user = user;
  const bool ok = h->lib.run(h->daemon) == MHD_YES;
  h->handler = NULL;
  return ok ? AC_OK : AC_FAIL(e, IO, "the server on port %d does not run", h->port);
}

static ac_http_request *stream_of(ac_http *h, uint64_t id) {
  for (ac_http_request *r = h->all; r != NULL; r = r->next)
    if (r->id == id) return r->stream ? r : NULL;
  return NULL;
}

static void wake(ac_http_request *r) {
  if (!r->suspended) return;
  r->suspended = false;
  r->h->lib.resume_connection(r->connection);
}

bool ac_http_send(ac_http *h, uint64_t stream, const char *p, size_t n) {
  ac_http_request *r = stream_of(h, stream);
  if (r == NULL || r->over) return false;
  if (r->waiting.len - r->sent + n > AC_HTTP_MAX_BUFFERED) r->over = true;
  else aci_strbuf_add(&r->waiting, p, n);
  if (r->waiting.failed) {
    r->waiting.failed = false;
    r->over = true;
  }
  wake(r);
  return !r->over;
}

void ac_http_end(ac_http *h, uint64_t stream) {
  ac_http_request *r = stream_of(h, stream);
  if (r == NULL) return;
  r->over = true;
  wake(r);
}

void ac_http_close(ac_http *h) {
  if (h == NULL) return;
  for (ac_http_request *r = h->all; r != NULL; r = r->next) {
    r->over = true;
    if (r->stream) wake(r); /* a daemon with suspended connections cannot stop */
  }
  h->lib.run(h->daemon);
  h->lib.stop_daemon(h->daemon);
  free(h);
}

const char *ac_http_method(const ac_http_request *r) { return r->method; }
const char *ac_http_path(const ac_http_request *r) { return r->path; }
const char *ac_http_query(const ac_http_request *r, const char *name) {
  return r->h->lib.lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}
const char *ac_http_header(const ac_http_request *r, const char *name) {
  return r->h->lib.lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}
const char *ac_http_body(const ac_http_request *r, size_t *n) {
  *n = r->body.len;
  return r->body.len > 0 ? r->body.s : "";
}
uint64_t ac_http_stream(const ac_http_request *r) { return r->id; }

#else

ac_status ac_http_library(const char **version, ac_err *e) {
  return (void)version, aci_library_absent("microhttpd", e);
}
ac_status ac_http_open(int port, ac_http **out, ac_err *e) {
  return (void)port, (void)out, aci_library_absent("microhttpd", e);
}
/* Nobody has a server here. */
int ac_http_port(const ac_http *h) { return (void)h, 0; }
ac_status ac_http_poll(ac_http *h, double seconds, ac_http_handler handler, void *user, ac_err *e) {
  (void)h, (void)seconds, (void)handler, (void)user;
  return aci_library_absent("microhttpd", e);
}
void ac_http_close(ac_http *h) { (void)h; }
const char *ac_http_method(const ac_http_request *r) { return (void)r, ""; }
const char *ac_http_path(const ac_http_request *r) { return (void)r, ""; }
const char *ac_http_query(const ac_http_request *r, const char *name) {
  return (void)r, (void)name, NULL;
}
const char *ac_http_header(const ac_http_request *r, const char *name) {
  return (void)r, (void)name, NULL;
}
const char *ac_http_body(const ac_http_request *r, size_t *n) { return (void)r, *n = 0, ""; }
uint64_t ac_http_stream(const ac_http_request *r) { return (void)r, 0; }
bool ac_http_send(ac_http *h, uint64_t stream, const char *p, size_t n) {
  return (void)h, (void)stream, (void)p, (void)n, false;
}
void ac_http_end(ac_http *h, uint64_t stream) { (void)h, (void)stream; }
#endif
