/* Insides of the membership core, shared by its files. member.h has the list of them. */
#ifndef ACI_MEMBER_IMPL_H
#define ACI_MEMBER_IMPL_H
#include "launch/member/member.h"

/* Faults that the simulator plants to prove that it finds them. In the library each is false. */
#ifndef ACI_MEMBER_FAULT
#define ACI_MEMBER_FAULT(name) false
#endif
/* After each store to an acceptor's page, for the simulator, which kills agents between two. */
#ifndef ACI_MEMBER_STORED
#define ACI_MEMBER_STORED(page) ((void)0)
#endif

static inline bool aci_set_has(const aci_member_set *s, int i) {
  return s->word[i >> 6] >> (i & 63) & 1;
}
static inline void aci_set_add(aci_member_set *s, int i) {
  s->word[i >> 6] |= UINT64_C(1) << (i & 63);
}
static inline void aci_set_remove(aci_member_set *s, int i) {
  s->word[i >> 6] &= ~(UINT64_C(1) << (i & 63));
}
int aci_set_count(const aci_member_set *s);

/* ---- member.c ---- */
void aci_member_send(aci_member *m, uint64_t to, aci_member_msg *msg);
void aci_member_begin_change(aci_member *m, uint64_t now, bool planned);
/* A record is decided. */
void aci_member_learn(aci_member *m, uint64_t now, const aci_record *record);
/* Whether a machine of the record is neither dead nor silent. */
bool aci_member_hears(const aci_member *m, uint64_t now, int i);

/* ---- choose.c ---- */
/* The next record by the reports. false: it has fewer than `min` machines. */
bool aci_member_choose(aci_member *m, uint64_t now, aci_record *out);
/* Whether every machine that must report has reported. */
bool aci_member_all_reported(const aci_member *m, uint64_t now);
/* Whether the next record would take in a joiner or let a machine go. */
bool aci_member_wants_change(const aci_member *m, uint64_t now);

/* ---- propose.c ---- */
void aci_member_propose(aci_member *m, uint64_t now);
void aci_member_answer(aci_member *m, uint64_t now, const aci_member_msg *msg);

/* ---- start.c ---- */
/* The first record. false: not all seeds or too few machines are present. */
bool aci_member_choose_first(aci_member *m, uint64_t now, aci_record *out);
void aci_member_stranger(aci_member *m, uint64_t now, const aci_member_msg *msg);
void aci_member_forget_strangers(aci_member *m, uint64_t now);

#endif
