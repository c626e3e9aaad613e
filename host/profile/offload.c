/* Spans of the offload tiers: reads and writes of the I/O thread, and waits of uses. Rows come on
 * two threads and become spans when the recording ends, as collectives do. */
#include <stdlib.h>
#include <string.h>

#include "profile/profile_impl.h"

static void on_event(void *user, aci_io_event what, aci_tier tier, uint64_t bytes, int64_t begin,
                     int64_t end) {
  ac_profile *p = user;
  const bool own = pthread_equal(pthread_self(), p->owner);
  pthread_mutex_lock(&p->coll_lock);
  if (p->n_ios == p->cap_ios) {
    const int64_t cap = p->cap_ios == 0 ? 256 : p->cap_ios * 2;
    void *more =
        cap <= (int64_t)p->o.max_spans * 2 ? realloc(p->ios, (size_t)cap * sizeof *p->ios) : NULL;
    if (more != NULL) {
      p->ios = more;
      p->cap_ios = cap;
    }
  }
  if (p->n_ios < p->cap_ios)
    p->ios[p->n_ios++] = (struct aci_io_row){.begin = begin,
                                             .end = end,
                                             .bytes = bytes,
                                             .parent = own ? (int32_t)p->current : -1,
                                             .what = (uint8_t)what,
                                             .tier = (uint8_t)tier};
  else p->lost_ios++;
  pthread_mutex_unlock(&p->coll_lock);
}

void aci_profile_io_init(ac_profile *p) { p->io_watch = (aci_io_watch){on_event, p}; }

void aci_profile_take_io(ac_profile *p) {
  static const char *const names[][ACI_TIERS] = {{"offload::read_host", "offload::read_file"},
                                                 {"offload::write_host", "offload::write_file"},
                                                 {"offload::wait", "offload::wait"}};
  for (int64_t i = 0; i < p->n_ios; i++) {
    const struct aci_io_row *r = &p->ios[i];
    aci_span *s = aci_profile_append(p);
    if (s == NULL) continue;
    const char *name = names[r->what][r->tier];
    s->kind = AC_SPAN_OFFLOAD;
    s->name = aci_texts_add(&p->texts, name, strlen(name));
    s->begin = r->begin < p->started ? p->started : r->begin;
    s->end = r->end;
    s->parent = r->parent;
    s->thread = r->what == ACI_IO_WAIT ? 0 : 2;
    s->bytes = r->bytes;
  }
  p->dropped += p->lost_ios;
  p->n_ios = p->lost_ios = 0;
}
