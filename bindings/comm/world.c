/* The world of ranks for accel.dist: joining and leaving it, and the end of its groups and works
 * under way (dist.h). lac_dist.c, lac_group.c and the collectives make it visible to scripts.
 *
 * A host that is one of many ranks joins when it is opened, so that leaving is always published.
 * Otherwise the first function that needs a world joins or makes one (of one rank). */
#include <stdlib.h>
#include <string.h>

#include "comm/comm_impl.h"
#include "dist.h"

/* The group itself goes with its last work, its record with the handle as well. */
void lac_group_release(lac_state *S, lac_group *own) {
  if (own == NULL) return;
  own->ref--;
  if (own->g != NULL && (own->ref == 0 || (own->ref == 1 && own->destroyed))) {
    if (own->nr == S->ranks->world_nr && S->ranks->world != NULL) ac_group_free(own->g);
    own->g = NULL;
    S->ranks->n_groups--;
  }
  if (own->ref == 0) free(own);
}

void lac_works_drain(lac_state *S, bool all) {
  for (struct lac_pending **at = &S->ranks->pending_works; *at != NULL;) {
    struct lac_pending *p = *at;
    if (!all && !ac_work_done(p->work)) {
      at = &p->next;
      continue;
    }
    *at = p->next;
    ac_work_release(p->work);
    lac_group_release(S, p->own);
    free(p);
  }
}

ac_status lac_world_start(lac_state *S, const ac_world_options *o, ac_err *e) {
  if (S->ranks->is_worker)
    return AC_FAIL(
        e, STATE,
        "a data worker is not a rank; pass facts about ranks to it as an argument of its data set");
  AC_TRY(ac_world_open(S->ctx, o, &S->ranks->world, e));
  S->ranks->world_nr++;
  S->ranks->left = false;
  return AC_OK;
}

ac_status lac_world_join(lac_state *S, const char *script, ac_err *e) {
  aci_place place;
  free(S->ranks->script);
  S->ranks->script = script != NULL ? strdup(script) : NULL;
  AC_TRY(aci_discover(&place, e));
  if (place.source[0] == 0) return AC_OK;
  ac_world_options o = AC_WORLD_OPTIONS_INIT;
  o.script = S->ranks->script;
  return lac_world_start(S, &o, e);
}

void lac_world_leave(lac_state *S, const char *site) {
  if (S->ranks->world == NULL) return;
  ac_world_close(S->ranks->world, site); /* works under way end first */
  S->ranks->world = NULL;
  S->ranks->world_nr++;
  lac_works_drain(S, true);
}

ac_world *lac_world_open(lua_State *L, lac_state *S) {
  ac_err e;
  if (S->ranks->left) {
    aci_place place;
    const bool again = aci_discover(&place, &e) == AC_OK;
    lac_error(L, S, AC_STATE, "the process group was destroyed at %s; %s",
              S->ranks->end_site[0] != 0 ? S->ranks->end_site : "some line",
              again ? "accel.dist.init_process_group() makes a new one" : e.msg);
  }
  ac_world_options o = AC_WORLD_OPTIONS_INIT;
  o.script = S->ranks->script;
  if (lac_world_start(S, &o, &e) != AC_OK) lac_raise(L, S, &e);
  return S->ranks->world;
}

static void close_world(lua_State *L, lac_state *S) {
  lac_world_leave(S, S->ranks->end_site[0] != 0 ? S->ranks->end_site : NULL);
  free(S->ranks->script);
  S->ranks->script = NULL;
}

void lac_world_init(lua_State *L, lac_state *S) {
  S->ranks = lac_state_part(L, sizeof *S->ranks);
  lac_at_close(S, close_world);
}
