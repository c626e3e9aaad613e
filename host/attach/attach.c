/* The service of a rank: one thread that admits clients and answers them, and the calls of the
 * rank's own thread at its steps.
 *
 * Ownership: clients and the socket belong to the service's thread. The fields below `shared` pass
 * between the two threads, under the lock or atomic. The client agrees a pause by asking all ranks
 * for a step that none has made yet. A rank takes it only when it has not made that step. The
 * client's side writes pause_at before it reads step, the rank's side writes step before it reads
 * pause_at. Both are sequentially consistent, so one of the two sees the other. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach_impl.h"
#include "base/base_impl.h"
#include "base/gate.h"
#include "base/struct_size.h"

#define SECOND ((int64_t)1000000000)
#define MS ((int64_t)1000000)
enum {
  ACCEPT_PAUSE_MS = 100, /* if the system has no descriptor for a client */
  LOOK_MS = 500
};

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* ---- requests ---- */

static bool say(aci_client *c, const char *text) { return aci_client_send(c, text, strlen(text)); }

/* "word N": the number. False: it is another word, or not a number. */
static bool number_of(const char *frame, const char *word, uint64_t *out) {
  const size_t n = strlen(word);
  char *end;
  if (strncmp(frame, word, n) != 0 || frame[n] != ' ' || frame[n + 1] < '0' || frame[n + 1] > '9')
    return false;
  errno = 0;
  *out = strtoull(frame + n + 1, &end, 10);
  return *end == 0 && errno == 0;
}

static bool admit(ac_attach *a, aci_client *c) {
  if (strncmp(c->frame, "hello ", 6) != 0 ||
      !aci_token_equal(a->folder.token, c->frame + 6, c->length < 6 ? 0 : c->length - 6)) {
    say(c, "denied");
    return false;
  }
  char text[24];
  c->admitted = true;
  c->id = ++a->last_id;
  snprintf(text, sizeof text, "ok %u", c->id);
  return say(c, text);
}

static bool is_client(const ac_attach *a, uint64_t id) {
  for (int i = 0; i < ACI_CLIENTS; i++)
    if (a->client[i].fd >= 0 && a->client[i].admitted && a->client[i].id == id &&
        !a->client[i].prompt)
      return true;
  return false;
}

/* True: the connection is parked and no longer ours. */
static bool park(ac_attach *a, aci_client *c, uint64_t owner, bool *alive) {
  uint32_t none = 0;
  if (!is_client(a, owner) || !atomic_compare_exchange_strong(&a->owner, &none, (uint32_t)owner)) {
    *alive = say(c, is_client(a, owner) ? "busy" : "no such connection");
    return false;
  }
  /* the answer goes first, before the rank's messages there. The client that gets it finds the
   * connection */
  pthread_mutex_lock(&a->lock);
  if (!say(c, "parked")) {
    pthread_mutex_unlock(&a->lock);
    atomic_store(&a->owner, 0);
    *alive = false;
    return false;
  }
  c->prompt = true;
  c->owner = (uint32_t)owner;
  a->prompt_fd = c->fd;
  pthread_cond_broadcast(&a->came);
  pthread_mutex_unlock(&a->lock);
  return true;
}

static bool pause_at(ac_attach *a, aci_client *c, uint64_t step) {
  char text[40];
  if (atomic_load(&a->owner) != c->id) return say(c, "no prompt");
  atomic_store(&a->pause_at, step);
  const uint64_t made = atomic_load(&a->step);
  if (step > made && !atomic_load(&a->standing)) return say(c, "armed");
  uint64_t at = step;
  /* the rank has taken it */
  if (!atomic_compare_exchange_strong(&a->pause_at, &at, 0)) return say(c, "armed");
  snprintf(text, sizeof text, "late %llu", (unsigned long long)made);
  return say(c, text);
}

/* False: the connection ends. */
static bool serve(ac_attach *a, aci_client *c) {
  uint64_t n;
  bool alive = true;
  if (!c->admitted) return admit(a, c);
  if (strcmp(c->frame, "status") == 0) {
    char text[40];
    snprintf(text, sizeof text, "%s %llu", atomic_load(&a->standing) ? "paused" : "step",
             (unsigned long long)atomic_load(&a->step));
    return say(c, text);
  }
  const bool all = strcmp(c->frame, "stacks all") == 0;
  if (all || strcmp(c->frame, "stacks") == 0) {
    char *text = malloc(AC_ATTACH_STACKS);
    if (text == NULL || a->o.stacks == NULL) {
      free(text);
      return say(c, "");
    }
    const size_t k = a->o.stacks(a->o.user, all, text, AC_ATTACH_STACKS);
    alive = aci_client_send(c, text, k);
    free(text);
    return alive;
  }
  if (number_of(c->frame, "prompt", &n)) {
    park(a, c, n, &alive);
    return alive;
  }
  if (number_of(c->frame, "pause", &n)) return pause_at(a, c, n);
  if (strcmp(c->frame, "cancel") == 0) {
    return say(c, atomic_load(&a->owner) == c->id && atomic_exchange(&a->pause_at, 0) != 0
                      ? "ok"
                      : "none");
  }
  if (strcmp(c->frame, "interrupt") == 0) {
    pthread_mutex_lock(&a->lock);
    if (atomic_load(&a->owner) == c->id && a->interruptible && a->o.interrupt != NULL)
      a->o.interrupt(a->o.user);
    pthread_mutex_unlock(&a->lock);
    return say(c, "ok");
  }
  return say(c, "no such request");
}

/* ---- the thread ---- */

void aci_attach_disown(ac_attach *a, uint32_t owner) {
  atomic_compare_exchange_strong(&a->owner, &owner, 0);
}

int aci_attach_take_parked(ac_attach *a, int only) {
  pthread_mutex_lock(&a->lock);
  const int fd = only < 0 || a->prompt_fd == only ? a->prompt_fd : -1;
  if (fd >= 0) a->prompt_fd = -1;
  pthread_mutex_unlock(&a->lock);
  return fd;
}

/* Ends a connection. A parked connection takes its prompt with it. So does the connection that a
 * prompt belongs to, with its pauses: a running rank learns of it at its next step, a standing rank
 * sees the end of its own connection. */
static void drop(ac_attach *a, aci_client *c) {
  const uint32_t owner = c->prompt ? c->owner : c->id;
  /* the rank has not seen it */
  const bool parked = c->prompt && aci_attach_take_parked(a, c->fd) >= 0;
  if (c->prompt && !parked) c->fd = -1; /* the rank has it */
  aci_client_close(c);
  if (owner == 0 || atomic_load(&a->owner) != owner) return;
  atomic_store(&a->pause_at, 0);
  const int fd = aci_attach_take_parked(a, -1);
  for (int i = 0; i < ACI_CLIENTS && fd >= 0; i++)
    if (a->client[i].fd == fd) aci_client_close(&a->client[i]);
  const bool stood = atomic_load(&a->standing), seen = fd < 0 && !parked;
  if (seen && !stood) atomic_store(&a->gone, true);
  aci_attach_disown(a, owner);
  /* it continued meanwhile. If it does so now, it sees no owner */
  if (seen && stood && !atomic_load(&a->standing)) atomic_store(&a->gone, true);
}

/* A client that has not shown the token ends. */
static void refuse(ac_attach *a, int i, const char *why) {
  drop(a, &a->client[i]);
  aci_gate_refuse(&a->gate, i, "a program of this user", why, "");
}

static void accept_all(ac_attach *a) {
  for (;;) {
    const int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0) {
      /* no descriptor, no memory: the connection stays, and poll would tell of it at once */
      a->full = errno != EAGAIN && errno != EWOULDBLOCK;
      return;
    }
    bool displaces = false;
    for (int i = 0; i < ACI_CLIENTS; i++)
      if (a->client[i].fd < 0) aci_gate_leave(&a->gate, i);
    const int i = aci_client_same_user(fd) ? aci_gate_find(&a->gate, 0, now_ns(), &displaces) : -1;
    if (i < 0) {
      close(fd);
      continue;
    }
    if (displaces) refuse(a, i, "it has not shown the token, and others wait");
    a->client[i] = (aci_client){.fd = fd};
    aci_gate_enter(&a->gate, i, 0, now_ns());
  }
}

/* The rank takes parked connections away while we wait: their slots are freed here. */
static void free_taken(ac_attach *a) {
  pthread_mutex_lock(&a->lock);
  const int parked = a->prompt_fd;
  pthread_mutex_unlock(&a->lock);
  for (int i = 0; i < ACI_CLIENTS; i++)
    if (a->client[i].prompt && a->client[i].fd >= 0 && a->client[i].fd != parked) {
      a->client[i].fd = -1;
      aci_client_close(&a->client[i]);
    }
}

static void *service(void *arg) {
  ac_attach *a = arg;
  int64_t looked = now_ns();
  while (!atomic_load(&a->over)) {
    struct pollfd p[ACI_CLIENTS + 2];
    int timeout = -1;
    free_taken(a);
    p[0] = (struct pollfd){.fd = a->wake, .events = POLLIN};
    p[1] = (struct pollfd){.fd = a->full ? -1 : a->listener, .events = POLLIN};
    if (a->full) timeout = ACCEPT_PAUSE_MS;
    for (int i = 0; i < ACI_CLIENTS; i++) {
      const aci_client *c = &a->client[i];
      p[2 + i] = (struct pollfd){.fd = c->fd, .events = c->prompt ? POLLRDHUP : POLLIN};
      if (c->fd >= 0 && !c->admitted && !a->full) timeout = 500;
    }
    if (a->o.look != NULL && (timeout < 0 || timeout > LOOK_MS)) timeout = LOOK_MS;
    if (poll(p, ACI_CLIENTS + 2, timeout) < 0 && errno != EINTR) break;
    uint64_t count;
    if (p[0].revents != 0 && read(a->wake, &count, sizeof count) < 0 && errno != EAGAIN) break;
    free_taken(a);
    for (int i = 0; i < ACI_CLIENTS; i++) {
      aci_client *c = &a->client[i];
      if (c->fd < 0 || c->fd != p[2 + i].fd) continue;
      if (c->prompt) {
        if (p[2 + i].revents & (POLLRDHUP | POLLHUP | POLLERR)) drop(a, c);
        continue;
      }
      if (!c->admitted && aci_gate_late(&a->gate, i, now_ns())) {
        refuse(a, i, "it did not show the token in time");
        continue;
      }
      if (p[2 + i].revents == 0) continue;
      int got;
      /* one request a turn: a client that floods does not keep the others out */
      if ((got = aci_client_read(c)) > 0) {
        const bool stays = serve(a, c);
        aci_client_next(c);
        if (!stays) got = -1;
        if (c->admitted) aci_gate_trust(&a->gate, i);
        else refuse(a, i, "its token is wrong");
      }
      if (got < 0 && c->fd >= 0) drop(a, c);
    }
    if (a->o.look != NULL && now_ns() - looked >= LOOK_MS * MS) {
      a->o.look(a->o.user);
      looked = now_ns();
    }
    if (p[1].revents != 0 || a->full) a->full = false, accept_all(a);
  }
  return NULL;
}

void aci_attach_wake(ac_attach *a) {
  const uint64_t one = 1;
  const ssize_t n = write(a->wake, &one, sizeof one);
  (void)n;
}

ac_status ac_attach_open(const ac_attach_options *o, ac_attach **out, ac_err *e) {
  *out = NULL;
  ac_attach_options taken = AC_ATTACH_OPTIONS_INIT;
  AC_TRY(aci_struct_take(&taken, sizeof taken, o, "ac_attach_options", e));
  o = &taken;
  ac_attach *a = calloc(1, sizeof *a);
  if (a == NULL) return AC_FAIL(e, OOM, "attach: no memory");
  a->o = *o;
  a->process = getpid();
  a->listener = a->wake = a->prompt_fd = -1;
  for (int i = 0; i < ACI_CLIENTS; i++) a->client[i].fd = -1;
  aci_gate_init(&a->gate, "attach", "attach",
                &(aci_gate_limits){ACI_CLIENTS, ACI_CLIENTS, 2 * SECOND, ACI_UNPROVED_BYTES, 0});
  pthread_mutex_init(&a->lock, NULL);
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&a->came, &clock);
  pthread_condattr_destroy(&clock);
  ac_status st = aci_folder_open(&a->folder, o, e);
  if (st == AC_OK) st = aci_folder_listen(&a->folder, o->rank, &a->listener, e);
  if (st == AC_OK && (a->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
    st = AC_FAIL(e, IO, "attach: cannot create an eventfd: %s", strerror(errno));
  if (st == AC_OK) st = aci_folder_describe(&a->folder, o, e);
  if (st == AC_OK) {
    sigset_t all, was; /* signals are the rank's own thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    const int error = pthread_create(&a->thread, NULL, service, a);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (error == 0) {
      *out = a;
      return AC_OK;
    }
    st = AC_FAIL(e, IO, "attach: cannot start a thread: %s", strerror(error));
  }
  if (a->listener >= 0) close(a->listener);
  if (a->wake >= 0) close(a->wake);
  aci_folder_close(&a->folder);
  free(a);
  return st;
}

void ac_attach_close(ac_attach *a) {
  if (a == NULL) return;
  if (a->process != getpid()) { /* forked: our copies of the descriptors are all that there is */
    for (int i = 0; i < ACI_CLIENTS; i++) aci_client_close(&a->client[i]);
    close(a->listener);
    close(a->wake);
    close(a->folder.fd);
    free(a);
    return;
  }
  atomic_store(&a->over, true);
  aci_attach_wake(a);
  pthread_join(a->thread, NULL);
  free_taken(a); /* the rank closes the connection it took */
  for (int i = 0; i < ACI_CLIENTS; i++) aci_client_close(&a->client[i]);
  close(a->listener);
  close(a->wake);
  aci_folder_close(&a->folder);
  pthread_mutex_destroy(&a->lock);
  pthread_cond_destroy(&a->came);
  free(a);
}

const char *ac_attach_job(const ac_attach *a) { return a->folder.job; }
