/* Generation records: copies, hash, search. Called by all files of the core. */
#include <string.h>

#include "launch/member/member_impl.h"

void aci_record_copy(aci_record *to, const aci_record *from) {
  if (to != from)
    memcpy(to, from, offsetof(aci_record, machine) + from->n * sizeof from->machine[0]);
}

/* splitmix64's finalizer: every bit of x reaches every bit of the result. */
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static uint64_t add(uint64_t h, uint64_t x) { return mix(h * UINT64_C(0x9e3779b97f4a7c15) + x); }

/* It tells records apart. Links prove records to each other by a keyed hash. */
uint64_t aci_record_hash(const aci_record *r) {
  uint64_t h = add(add(add(add(r->number, r->before), r->run), r->committed), r->next_id);
  for (uint32_t i = 0; i < r->n; i++)
    h = add(add(add(h, r->machine[i].uid), r->machine[i].ranks), r->machine[i].id);
  return h;
}

int aci_record_find(const aci_record *r, uint32_t id, uint64_t uid) {
  int first = 0, end = (int)r->n;
  while (first < end) {
    int middle = (first + end) / 2;
    if (r->machine[middle].id < id) first = middle + 1;
    else end = middle;
  }
  return first < (int)r->n && r->machine[first].id == id && r->machine[first].uid == uid ? first
                                                                                         : -1;
}

int aci_set_count(const aci_member_set *s) {
  int n = 0;
  for (int i = 0; i < ACI_MEMBER_WORDS; i++) n += __builtin_popcountll(s->word[i]);
  return n;
}
