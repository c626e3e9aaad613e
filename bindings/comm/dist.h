/* accel.dist from C. world.c: the world, and the cleanup at its end. lac_group.c: groups in Lua.
 * coll_args.c: checks of collectives. lac_work.c: the buffers of a collective until it is done.
 * lac_collective.c, lac_coll_list.c: the collectives, of one tensor and of lists. lac_dist.c: the
 * world in Lua, records. */
#ifndef LAC_DIST_H
#define LAC_DIST_H
#include "accel/comm.h"
#include "bindings/core/lac.h"

/* A state's part. */
typedef struct lac_ranks {
  ac_world *world;   /* NULL: not joined so far, or left */
  uint32_t world_nr; /* counts worlds joined and left: a group of another number is stale */
  bool is_worker;    /* the state of a data worker: no rank of any world */
  bool left;         /* by the script: only init_process_group joins again */
  char *script;      /* whose contents must be the same on all ranks. NULL: unknown */
  struct lac_pending *pending_works;
  /* groups alive, and the number at which those without a handle are searched */
  int n_groups, collect_groups_at;
  /* name of the code that only some ranks run: no collective of more may begin. "": none */
  char alone[LAC_SITE];
  int alone_ranks; /* how many */
  /* script line where the run ended, failed or left the world. "": unknown */
  char end_site[LAC_SITE];
} lac_ranks;

/* ---- lac_group.c ---- */
/* A group of ranks, shared by its handle in Lua and by works under way in it. */
typedef struct lac_group {
  ac_group *g;
  uint32_t nr; /* lac_ranks.world_nr when it was made: of an older world it is stale */
  int ref;
  bool destroyed;
} lac_group;

/* The group at idx. nil and group.WORLD are all ranks, with *own NULL. */
ac_group *lac_check_group(lua_State *L, lac_state *S, int idx, lac_group **own);
static inline void lac_group_retain(lac_group *own) {
  if (own != NULL) own->ref++;
}

/* ---- world.c ---- */
void lac_world_init(lua_State *L, lac_state *S);
/* Joins if the environment makes this process one of many ranks. Otherwise does nothing. */
ac_status lac_world_join(lac_state *S, const char *script, ac_err *e);
/* Leaves, if joined. site: the line at which the script ended, NULL: unknown. */
void lac_world_leave(lac_state *S, const char *site);
/* Makes a world that S has not so far. */
ac_status lac_world_start(lac_state *S, const ac_world_options *o, ac_err *e);
void lac_group_release(lac_state *S, lac_group *own); /* NULL is fine */
/* A work under way, for the time when nobody waits for it any more. */
struct lac_pending {
  struct lac_pending *next;
  ac_work *work;
  lac_group *own;
};
/* Lets go of works that were collected and are done by now. all: the world is closed, so that every
 * work is. */
void lac_works_drain(lac_state *S, bool all);
/* The world, made or joined at its first use. Raises on failure. */
ac_world *lac_world_open(lua_State *L, lac_state *S);
static inline ac_world *lac_world(lua_State *L, lac_state *S) {
  return __builtin_expect(S->ranks->world != NULL, 1) ? S->ranks->world : lac_world_open(L, S);
}

/* ---- coll_args.c: a collective in the making ---- */
typedef struct lac_coll {
  const char *name; /* as scripts call it: "all_gather_into_tensor" */
  ac_coll c;        /* all but the buffers */
  ac_group *g;
  lac_group *own; /* of g. NULL: all ranks */
  bool async;
  char site[LAC_SITE];
} lac_coll;
/* Names of options that a function takes in addition to group. */
enum {
  LAC_O_ASYNC = 1,
  LAC_O_OP = 2,
  LAC_O_DST = 4,
  LAC_O_SRC = 8,
  LAC_O_TAG = 16,
  LAC_O_SPLITS = 32,
  LAC_O_GATHER = 64,
  LAC_O_SCATTER = 128
};
/* Reads the options at idx, before which a reduction may stand as a string (LAC_O_OP). */
lac_opts lac_coll_open(lua_State *L, lac_state *S, lac_coll *k, const char *name, ac_coll_kind kind,
                       int idx, unsigned which);
/* Fills c.root from the positional rank at idx (0: none), the option dst or src, or the default
 * (-1: none). */
void lac_coll_root(lac_coll *k, const lac_opts *o, int idx, const char *what, int fallback);
/* Raises. The message follows the name. */
int lac_coll_bad(lua_State *L, lac_state *S, const lac_coll *k, ac_status code, const char *fmt,
                 ...) AC_PRINTF(5, 6);
/* Raises e, which came from the core. */
int lac_coll_raise(lua_State *L, lac_state *S, const lac_coll *k, ac_err *e);
/* Raises when t may not take part: device, form, and, if it will be written, gradients and
 * overlap. */
void lac_coll_tensor(lua_State *L, lac_state *S, const lac_coll *k, const ac_tensor *t,
                     bool written);
/* Raises when a and b are not of one dtype and device. */
void lac_coll_alike(lua_State *L, lac_state *S, const lac_coll *k, const char *na,
                    const ac_tensor *a, const char *nb, const ac_tensor *b);
/* Sets k->c.device if this collective takes tensors on t's device in place. kind, dtype, group and
 * site must be set. Otherwise tensors of devices other than the CPU go through host memory. */
void lac_coll_place(lua_State *L, lac_state *S, lac_coll *k, const ac_tensor *t);
/* Can its bytes be sent and received as they lie? */
static inline bool lac_coll_direct(const lac_coll *k, const ac_tensor *t) {
  return t->storage->provider == NULL && t->layout == NULL && aci_is_contiguous(t) &&
         (!aci_is_accelerator(t->device) || t->device == k->c.device);
}

/* ---- lac_work.c ---- */
/* The buffers of a collective until it is done. As a userdata of Lua it is the result of
 * async_op. */
typedef struct lac_work {
  lac_state *S;
  ac_work *work; /* NULL: not async */
  struct lac_pending *pending;
  lac_group *own; /* retained */
  ac_coll_kind kind;
  ac_tensor *send, *recv; /* contiguous, retained. NULL: none */
  ac_tensor *held;        /* source of the copy under way. Retained */
  bool staged;            /* recv is a copy: its parts go to out when it is done */
  bool finished;          /* received data is in its place */
  int n_out;
  ac_tensor *out[]; /* tensors that are written, in order. Retained */
} lac_work;
/* Pushes one with room for n_out tensors. */
lac_work *lac_work_push(lua_State *L, lac_state *S, const lac_coll *k, int n_out);
/* Puts t into *slot, &w->send or &w->recv: in place, or as a copy. The parts of a list follow each
 * other. */
enum { LAC_READ = 1, LAC_WRITE = 2 };
void lac_work_take(lua_State *L, const lac_coll *k, lac_work *w, ac_tensor **slot, ac_tensor *t,
                   unsigned how);
void lac_work_take_list(lua_State *L, const lac_coll *k, lac_work *w, ac_tensor **slot,
                        const lac_list *l, unsigned how);
/* Runs it or starts it, after separating buffers that overlap. Pushes the results. The work is on
 * top of the stack. */
int lac_work_run(lua_State *L, lac_coll *k, lac_work *w);
/* Do the two buffers overlap other than in the way that the core allows? */
bool lac_work_clash(const lac_coll *k, const ac_tensor *send, const ac_tensor *recv);

#endif
