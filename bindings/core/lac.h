/* What every file of the bindings shares: the state behind a Lua state, boxes, argument checks, errors,
 * callbacks, collection.
 *
 * Every C function of the bindings is a closure with upvalue 1 = the tensor metatable and upvalue 2 = the
 * lac_state (a full userdata, so that whoever can call still has it). Registry keys are addresses of
 * statics. Order inside a function is fixed: check arguments, push empty boxes, call the core, fill the
 * boxes; nothing that may raise stands between the core and a box. Functions raise on the lua_State they
 * were called with, never on another one. */
#ifndef LAC_LAC_H
#define LAC_LAC_H
#include <lauxlib.h>
#include <lua.h>
#include <stdatomic.h>

#include "accel/autograd.h"
#include "accel/comm.h"
#include "accel/precision.h"
#include "ops/ctx_impl.h"

/* A tensor's handle in Lua. t NULL: not filled yet, or released. */
typedef struct lac_box {
  const void *magic; /* &lac_box_magic: tells a box from any other userdata without asking for its metatable */
  ac_tensor *t;
  union {
    uint32_t leaf; /* while t is held: this is the one box of its leaf */
    uint32_t site; /* after the release: where it was, see lac_site_here */
  };
  uint32_t slot; /* in S->slots until the release; 0: made after the state closed */
} lac_box;
extern const char lac_box_magic;

/* An open scope: a table with weak keys in the registry, by this address, holds the boxes born in it. It is no part
 * of the userdata that stands for it: Lua skips finalizers where its C stack is full, and then nothing may point into
 * memory of the collector's. */
typedef struct lac_scope {
  struct lac_scope *outer;
} lac_scope;

/* What callbacks leave behind when the core frees them, maybe on another thread: emptied by
 * lac_callbacks_drain. */
typedef struct lac_hub {
  _Atomic int ref;
  _Atomic bool closed;
  struct lac_callback *_Atomic dead;
} lac_hub;

enum { LAC_SITE = 64 }; /* bytes of a script line's text */

typedef enum lac_gc_mode { LAC_GC_AUTO, LAC_GC_EXACT, LAC_GC_OFF } lac_gc_mode;

typedef struct lac_state lac_state;
typedef void lac_closer(lua_State *L, lac_state *S);
enum { LAC_CLOSERS = 4 };

struct lac_state {
  lac_closer *closer[LAC_CLOSERS]; /* see lac_at_close */
  int n_closers;
  ac_ctx *ctx;      /* NULL once the Lua state is being closed */
  lua_State *main;  /* for callbacks when no call of ours is in flight */
  lua_State *now;   /* the thread whose call may lead to callbacks */
  int64_t n_live;   /* boxes that hold a tensor */
  uintptr_t *slots; /* what boxes hold, a second time: a tensor, 0 for a box that is not filled yet, or 2 * next free slot + 1 */
  uint32_t n_slots, free_slot;
  lac_scope *scope; /* innermost open one */
  lac_hub *hub;
  void *host; /* the ac_host that owns us, NULL under another interpreter */
  char
      lib_dir[256]; /* "@/usr/share/lua/5.4/accel/": frames below it are ours, errors point at the caller's */
  /* collection */
  bool worker; /* of another Lua state: no rank of any world */
  lac_gc_mode gc_mode;
  bool generational; /* the host put Lua into that mode: a GC step is a young collection */
  bool in_gc;
  size_t gc_charged, gc_due; /* bytes handed to Lua since the last collection; so many that the next one comes */
  uint64_t n_full;
  /* errors of callbacks on their way through the core: registry reference of the Lua value */
  int pending;
  int stop_ref; /* the one that ends a checkpoint's second run: made once, stays */
  /* interruption: set by a signal handler through the host, read at step boundaries */
  _Atomic int interrupt;
  _Atomic bool noticed; /* the script knows: a step came, or it asked */
  bool interrupt_as_flag;
  int64_t step_at;           /* ns of the last step; 0: none yet */
  _Atomic int64_t step_long; /* ns of the longest time between two */
  /* ranks: see lac_dist.c */
  ac_world *world;   /* NULL: not joined so far, or left */
  uint32_t world_nr; /* counts worlds joined and left: a group of another number is stale */
  char *script;      /* whose contents all ranks must share; NULL: not known */
  struct lac_pending *pending_works;
  bool world_left;         /* by the script: only init_process_group joins again */
  int n_groups, collect_groups_at; /* groups alive; so many that those without a handle are looked for */
  char alone[LAC_SITE];    /* what only some ranks run: no collective of more may begin; "": nothing */
  int alone_ranks;         /* how many */
  bool stopped;            /* the interrupt on which ranks agreed was raised */
  int stop_signal;         /* ... or is there for accel.interrupted(); 0: none */
  char end_site[LAC_SITE]; /* script line where the run ended, failed or left the world; "" not known */
};

#define LAC_META lua_upvalueindex(1)
#define LAC_STATE lua_upvalueindex(2)

/* The state of the running function; raises when the Lua state is being closed. */
lac_state *lac_get(lua_State *L);
/* The same for code that does not run in one of our functions; NULL before accel was opened. */
lac_state *lac_state_of(lua_State *L);
/* Registers functions with the two upvalues into the table on top. */
void lac_setfuncs(lua_State *L, lac_state *S, const luaL_Reg *funcs);
/* Makes the metatable of a userdata, for luaL_setmetatable: metamethods, methods behind __index; getmetatable gives its
 * name. */
void lac_new_class(lua_State *L, lac_state *S, const char *name, const luaL_Reg *metas, const luaL_Reg *methods);
/* Pushes a C closure with the two upvalues. */
void lac_pushfunction(lua_State *L, lac_state *S, lua_CFunction f);
void lac_push_meta(lua_State *L); /* of tensors */
/* Pushes both upvalues: metatable, state. */
void lac_push_upvalues(lua_State *L);
/* Makes the state of a Lua state, still without a context, and pushes it. It frees the context that is put
 * in. */
lac_state *lac_state_new(lua_State *L);
/* Defines the opener of a file: LAC_OPEN("accel.console", channels) { ... } adds functions to the table of that module, on
 * top of the stack. "accel" is what scripts require, when all ops are there already; "accel.x" its field x; a name that
 * ends in .core is required by the library's own files. The build collects the openers (openers.cmake), so that no list
 * names files. Those of one module run in no order that one may rely on. */
#define LAC_OPEN(module, part)                          \
  void lac_open_##part(lua_State *L, lac_state *S);     \
  void lac_open_##part(lua_State *L, lac_state *S)
typedef struct lac_opener {
  const char *module;
  void (*open)(lua_State *L, lac_state *S);
} lac_opener;
extern const lac_opener lac_openers[];
extern const int lac_n_openers;
/* What the state ends with, the last one first: its owner's part is given up while the context is there still. */
void lac_at_close(lac_state *S, lac_closer *close);
/* Registry field that leads luaopen_accel_core to the ac_ctx_options of a host (light userdata). */
#define LAC_OPTIONS "accel.ctx_options"
/* Folder that holds accel/init.lua: beside this library, else where it was installed. false: not found. */
bool lac_lua_dir(char *buf, size_t n);

/* ---- box.c ---- */
void lac_box_open(lua_State *L, lac_state *S); /* fills the metatable */
/* Pushes an empty box; the metatable comes from upvalue 1 (box_push) or the registry (box_new). */
lac_box *lac_box_push(lua_State *L, lac_state *S);
lac_box *lac_box_new(lua_State *L, lac_state *S);
/* Hands an owned reference to an empty box. Never raises. */
void lac_box_fill(lac_state *S, lac_box *b, ac_tensor *t);
/* Pushes t (borrowed; NULL pushes nil). Leaves that require grad get their one box. */
void lac_push_tensor(lua_State *L, lac_state *S, ac_tensor *t);
/* Pushes a new tensor of undefined contents; collects and tries again when memory is short, raises when that did not
 * help. Making the box may run finalizers. lac_new_cpu: on the CPU, an activation. */
ac_tensor *lac_new_tensor(lua_State *L, lac_state *S, ac_device *d, ac_dtype dt, int ndim, const int64_t *shape,
                          ac_mem_class c);
ac_tensor *lac_new_cpu(lua_State *L, lac_state *S, ac_dtype dt, int ndim, const int64_t *shape);
/* Makes the box at idx the one box of its leaf. */
void lac_box_canonical(lua_State *L, lac_state *S, int idx);
/* Gives up the box's reference; where: what errors say later. */
void lac_box_release(lua_State *L, lac_state *S, lac_box *b, uint32_t site);
/* The value on top of the stack, a box, belongs to s. */
void lac_scope_add(lua_State *L, lac_scope *s);
/* NULL when the value at idx is no box. A released one has ->t NULL. */
static inline lac_box *lac_box_test(lua_State *L, int idx) {
  lac_box *b = lua_touserdata(L, idx);
  /* a light userdata, whose address means nothing, has no length */
  return b != NULL && lua_rawlen(L, idx) >= sizeof(lac_box) && b->magic == &lac_box_magic ? b : NULL;
}
/* Number of a script line ("train.lua:12") for lac_box.site; 0 when there is none. */
uint32_t lac_site_here(lua_State *L, lac_state *S);
/* Pushes its text ("train.lua:12", or nil for 0). */
void lac_site_push(lua_State *L, uint32_t site);
/* Weight of a new result, so that scripts without modules and steps are collected too. */
static inline void lac_charge(lac_state *S, const ac_tensor *t) {
  if (t->storage == NULL) return;
  /* a result that its own node keeps shares its storage with an alias, a view with what it is a view of */
  if (atomic_load_explicit(&t->storage->ref, memory_order_relaxed) == 1 || (t->grad_fn != NULL && !(t->flags & ACI_T_VIEW)))
    S->gc_charged += t->storage->bytes;
}

/* ---- raise.c ---- */
void lac_raise_open(lua_State *L);
void lac_sites_open(lua_State *L);
/* Raises the error (does not return): message "train.lua:12: op: message", fields code, message, op,
 * where, traceback. */
int lac_raise(lua_State *L, lac_state *S, const ac_err *e);
int lac_error(lua_State *L, lac_state *S, ac_status code, const char *fmt, ...) AC_PRINTF(4, 5);
/* "bad argument #2 'dim' to 'sum' (expected ...)"; arg 0: an option. fn NULL: the running function's name. */
int lac_argerror(lua_State *L, lac_state *S, ac_status code, const char *fn, int arg, const char *name,
                 const char *fmt, ...) AC_PRINTF(7, 8);
/* nil, message, code: for files, peers and devices that fail. */
int lac_fail(lua_State *L, const ac_err *e);
/* Pushes an error object made of e, without raising. */
void lac_push_error(lua_State *L, lac_state *S, const ac_err *e, bool with_where);
/* Pushes "train.lua:12: " of the first frame that is the caller's own, or "". */
void lac_push_where(lua_State *L, lac_state *S);
/* The same line as "train.lua:12", "" when there is none; what runs at `level` is the first to be asked. Returns buf. */
const char *lac_site(lua_State *L, const lac_state *S, int level, char buf[LAC_SITE]);
/* Such a text of a chunk's short name and a line. */
const char *lac_site_text(const char *source, int line, char buf[LAC_SITE]);
/* "number", "f32 tensor", "nil", "no value", for messages. buf holds the longer ones. */
const char *lac_typename(lua_State *L, int idx, char *buf, size_t n);

/* ---- check.c: arguments of hand-written functions. `name` is the parameter's. ---- */
lac_box *lac_check_box(lua_State *L, lac_state *S, int idx, const char *name);
ac_tensor *lac_check_tensor(lua_State *L, lac_state *S, int idx, const char *name);
int64_t lac_check_int(lua_State *L, lac_state *S, int idx, const char *name);
double lac_check_number(lua_State *L, lac_state *S, int idx, const char *name);
bool lac_check_bool(lua_State *L, lac_state *S, int idx, const char *name);
const char *lac_check_string(lua_State *L, lac_state *S, int idx, const char *name, size_t *len);
ac_dtype lac_check_dtype(lua_State *L, lac_state *S, int idx, const char *name);
ac_device *lac_check_device(lua_State *L, lac_state *S, int idx, const char *name);
ac_generator *lac_check_generator(lua_State *L, lac_state *S, int idx, const char *name);
void lac_check_function(lua_State *L, lac_state *S, int idx, const char *name);
/* Extents from a table at idx or from numbers at idx, idx+1, ... up to last; returns ndim and the index
 * after the last one read. */
int lac_check_shape(lua_State *L, lac_state *S, int idx, int last, const char *name, int64_t *shape,
                    int *next);
/* 1-based position among n (negative from the end) -> 0-based; INDEX error otherwise. */
int64_t lac_check_pos(lua_State *L, lac_state *S, int idx, int64_t n, const char *name);
/* Is the value at idx a table of options (string keys) and not a list? */
bool lac_is_opts(lua_State *L, int idx);
bool lac_is_scalar(lua_State *L, int idx, ac_scalar *out); /* number or boolean */

/* ---- opts.c: one table of declared options at the end of the arguments ---- */
typedef struct lac_opts {
  lua_State *L;
  lac_state *S;
  int idx; /* 0: none given */
} lac_opts;
/* The table at idx (nil or none: no options). names ends with NULL; an unknown key raises and names the
 * nearest. */
lac_opts lac_opts_open(lua_State *L, lac_state *S, int idx, const char *const *names);
/* Pushes the option and returns its index, or returns 0 (and pushes nothing) when it is not given. */
int lac_opt_push(const lac_opts *o, const char *name);
bool lac_opt_bool(const lac_opts *o, const char *name, bool fallback);
int64_t lac_opt_int(const lac_opts *o, const char *name, int64_t fallback);
double lac_opt_number(const lac_opts *o, const char *name, double fallback);
const char *lac_opt_string(const lac_opts *o, const char *name, const char *fallback);
bool lac_opt_dtype(const lac_opts *o, const char *name, ac_dtype *out);
/* fallback NULL: the default device, which is found (and a GPU opened) only where the option is not given. */
ac_device *lac_opt_device(const lac_opts *o, const char *name, ac_device *fallback);
ac_generator *lac_opt_generator(const lac_opts *o, const char *name);
int lac_opt_shape(const lac_opts *o, const char *name, int64_t *shape); /* -1: not given */

/* ---- callback.c: Lua functions that the core calls ---- */
typedef struct lac_callback {
  struct lac_callback *next;
  lac_hub *hub;
  lac_state *state;
  int ref;     /* registry: the function, or a table */
  void *extra; /* malloc'ed, freed with the callback */
} lac_callback;
/* Anchors the value at idx. Raises only before anything is owned. */
lac_callback *lac_callback_new(lua_State *L, lac_state *S, int idx);
void lac_callback_free(void *callback); /* any thread */
void lac_callbacks_open(lua_State *L, lac_state *S);
void lac_callbacks_drain(lua_State *L, lac_state *S);
/* Runs body(arg as a light userdata) protected on the thread whose call led here. Its error is kept for
 * lac_raise. Nothing else may touch Lua between the core and a callback, since anything may raise. */
ac_status lac_protect(lac_state *S, lua_CFunction body, void *arg, ac_err *e);
/* Around core functions that may call back: returns what S->now was. */
static inline lua_State *lac_enter(lua_State *L, lac_state *S) {
  lua_State *was = S->now;
  S->now = L;
  return was;
}
static inline void lac_leave(lac_state *S, lua_State *was) { S->now = was; }
/* One tensor or a list of them at idx -> *n retained references in a userdata that is pushed; give them
 * back with lac_list_release. */
typedef struct lac_list {
  int n;
  ac_tensor *t[]; /* entries may be NULL where nils are allowed */
} lac_list;
lac_list *lac_check_list(lua_State *L, lac_state *S, int idx, const char *name, bool nils);
lac_list *lac_list_new(lua_State *L, size_t cap); /* empty, pushed; the caller stays within cap */
void lac_list_release(lac_list *l);

/* ---- guard.c: modes that last until __close, or for the run of a function ---- */
typedef struct lac_guard {
  lac_state *state;
  void (*restore)(lua_State *L, lac_state *S, struct lac_guard *g);
  const char *name; /* "no_grad" */
  bool done;
  union {
    bool b;
    ac_autocast_state cast;
    ac_device *device;
  } was;
} lac_guard;
/* Pushes a guard whose restore runs once. */
lac_guard *lac_guard_push(lua_State *L, lac_state *S, const char *name,
                          void (*restore)(lua_State *, lac_state *, lac_guard *));
/* The guard on top as the result; or, with a function at fn, runs it with the arguments after it and
 * returns its results. */
int lac_guard_finish(lua_State *L, int fn);

/* ---- gc.c ---- */
void lac_gc_full(lua_State *L, lac_state *S);
void lac_gc_young(lua_State *L, lac_state *S); /* where a recomputed region ended, whose handles died with it */
/* Where results may be collected: before a call makes more of them, at module exits, after backward, at steps. */
static inline void lac_gc_due(lua_State *L, lac_state *S) {
  if (__builtin_expect(S->gc_charged >= S->gc_due, 0)) lac_gc_full(L, S);
}
void lac_gc_check(lua_State *L, lac_state *S); /* the same at module exits, the end of backward and steps: always with ACCEL_GC=exact */
bool lac_gc_oom(lua_State *L, lac_state *S);   /* frees what can be freed; the caller retries once */
/* Calls a core function once more after a collection when device memory was short. */
#define LAC_RETRY(L, S, st, expr)                              \
  do {                                                         \
    (st) = (expr);                                             \
    if ((st) == AC_OOM && lac_gc_oom((L), (S))) (st) = (expr); \
  } while (0)

/* ---- call.c ---- */
/* Pushes the function of an op. */
void lac_push_op(lua_State *L, lac_state *S, const ac_op *op);

/* ---- chunk.c: the Lua files inside the library ---- */
/* Runs lua/<name>.lua once with the accel table and lib_dir as its arguments and pushes what it returned. */
void lac_chunk(lua_State *L, lac_state *S, const char *name);
/* Pushes a function that stands in for that result until it is first called. */
void lac_push_lazy(lua_State *L, const char *name);

/* ---- lac_json.c ---- */
void lac_push_json_array(lua_State *L); /* the metatable that marks arrays */

/* ---- world.c: the world of ranks ---- */
void lac_world_init(lac_state *S);
/* Joins, when the environment says that this process is one of many ranks; else nothing happens. */
ac_status lac_world_join(lac_state *S, const char *script, ac_err *e);
/* Leaves, when joined; site: where the script ended, NULL: not known. */
void lac_world_leave(lac_state *S, const char *site);

/* ---- lac_ops.c, lac_index.c ---- */
/* Every op as a function of the table at funcs and a method in the table at methods. */
void lac_open_ops(lua_State *L, lac_state *S, int funcs, int methods);
/* t[key] and t[key] = value of the running metamethod, for keys that are no names. */
int lac_index_get(lua_State *L, lac_state *S);
int lac_index_set(lua_State *L, lac_state *S);

/* ac_call for scripts. While hooks on saved tensors or anomaly mode are on, arguments are held and callbacks run on L. */
ac_status lac_call_watched(lua_State *L, lac_state *S, const ac_op *op, const ac_value *v, ac_value *results, int *n_results,
                           ac_err *e);
static inline ac_status lac_call(lua_State *L, lac_state *S, const ac_op *op, const ac_value *v, ac_value *results,
                                 int *n_results, ac_err *e) {
  if (__builtin_expect(S->ctx->record_more, 0)) return lac_call_watched(L, S, op, v, results, n_results, e);
  return ac_call(S->ctx, op, v, results, n_results, e);
}

/* Calls a built-in op by name with ready values (the parameters behind them take their defaults); results are
 * owned. Raises only when there is no such op. Collects and tries again when memory is short: tensors inside
 * lists must be retained. */
ac_status lac_try_op(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n, ac_generator *g,
                     ac_value *results, int *n_results, ac_err *e);
/* Calls a built-in op by name with ready values; raises. Results are put into b (one result), or dropped
 * when it is args[0]. */
void lac_call_op(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n, lac_box *b);
/* The same with a generator in place of the context's own (NULL). */
void lac_call_random(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n,
                     ac_generator *g, lac_box *b);

#endif
