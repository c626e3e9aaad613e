/* Fuzz entry of op calls: bytes choose an op and its arguments - shapes, dtypes, strides, numbers - and the call is made twice, on
 * the CPU and on the meta device. The shape rule and the kernel must agree: the same error, or results of the same shapes, strides
 * and dtypes, and gradients too. A call that fails leaves nothing behind. Built with libFuzzer by clang, with driver.c otherwise
 * (CMakeLists.txt here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/autograd.h"
#include "ops/core/ctx_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { POOL = 1 << 26, MOST_DIMS = 4, MOST_LIST = 4, MOST_TENSORS = 128 };

static ac_ctx *ctx;
static ac_device *devices[2]; /* CPU, meta */
static const ac_op **ops;
static int n_ops;
static char what[2000]; /* the call, for the message of a failure */

#define REQUIRE(x)                                                                                   \
  do {                                                                                               \
    if (!(x)) (fprintf(stderr, "%s:%d: %s\n  in %s\n", __FILE__, __LINE__, #x, what), (void)abort()); \
  } while (0)

static void open_once(void) {
  ac_err e;
  ac_ctx_options o = AC_CTX_OPTIONS_INIT;
  if (ctx != NULL) return;
  o.n_threads = 1;
  o.memory_limit = POOL;
  REQUIRE(ac_ctx_new(&o, &ctx, &e) == AC_OK);
  ac_autograd_open(ctx);
  REQUIRE(ac_ctx_device(ctx, "cpu", &devices[0], &e) == AC_OK && ac_ctx_device(ctx, "meta", &devices[1], &e) == AC_OK);
  ops = calloc((size_t)ctx->n_ops, sizeof(*ops));
  REQUIRE(ops != NULL);
  const char *only = getenv("FUZZ_OP");
  for (int i = 0; i < ctx->n_ops; i++)
    if (!ctx->ops[i]->desc->hidden && (only == NULL || strcmp(only, ctx->ops[i]->name) == 0)) ops[n_ops++] = ctx->ops[i];
  REQUIRE(n_ops > 0);
}

/* ---- bytes to choices; 0 when they are used up ---- */
typedef struct input {
  const uint8_t *at, *end;
} input;

static int byte(input *in) { return in->at < in->end ? *in->at++ : 0; }
static int below(input *in, int n) { return byte(in) % n; }

static int64_t number(input *in) {
  static const int64_t odd[] = {INT64_MIN, INT64_MAX, INT32_MAX, INT64_C(1) << 40, -100, 100, 1000, 7};
  int b = byte(in);
  return b < 232 ? b % 8 - 3 : odd[b % 8];
}

static double real(input *in) {
  static const double odd[] = {1e30, -1e30, 1e-30, 0.1, 0.9, 2, -1, 1e300};
  int b = byte(in);
  return b < 200 ? (b % 16 - 4) / 4.0 : odd[b % 8];
}

/* ---- arguments, for both devices ---- */
typedef struct call {
  input in;
  ac_dtype dtype; /* most tensors have it */
  int ndim;       /* and this shape, or one like it */
  int64_t shape[MOST_DIMS];
  bool grad;
  int n_made, n_ints, n_floats, n_lists;
  ac_tensor *made[2][MOST_TENSORS];
  int64_t ints[AC_MAX_ARGS][MOST_LIST];
  double floats[AC_MAX_ARGS][MOST_LIST];
  ac_tensor *lists[2][AC_MAX_ARGS][MOST_LIST];
  ac_value args[2][AC_MAX_ARGS];
} call;

static void fill(input *in, ac_dtype dt, size_t n, void *data) {
  const int base = byte(in), kind = below(in, 4);
  for (size_t i = 0; i < n; i++) {
    const int v = kind == 0 ? 0 : kind == 1 ? (int)i : (int)((i * 7 + (size_t)base) % 11) - (kind == 2 ? 0 : 5);
    switch (dt) {
      case AC_F64: ((double *)data)[i] = v / 2.0; break;
      case AC_F32: ((float *)data)[i] = (float)v / 2; break;
      case AC_F16: ((uint16_t *)data)[i] = (uint16_t)(v == 0 ? 0 : v > 0 ? 0x3c00 : 0xbc00); break;
      case AC_BF16: ((uint16_t *)data)[i] = (uint16_t)(v == 0 ? 0 : v > 0 ? 0x3f80 : 0xbf80); break;
      case AC_I64: ((int64_t *)data)[i] = v; break;
      case AC_I32: ((int32_t *)data)[i] = v; break;
      case AC_I16: ((int16_t *)data)[i] = (int16_t)v; break;
      case AC_BOOL: ((uint8_t *)data)[i] = v > 0; break;
      default: memset((char *)data + i * ac_dtype_bytes(dt), v & 0x3f, ac_dtype_bytes(dt)); break;
    }
  }
}

/* One tensor and its twin: contiguous, turned, with gaps, or expanded. */
static bool make(call *c, ac_tensor *out[2]) {
  static const ac_dtype dtypes[] = {AC_F32, AC_F64, AC_I64, AC_BF16, AC_F16, AC_I32, AC_U8, AC_BOOL, AC_I16, AC_I8, AC_F8_E4M3, AC_U16};
  ac_err e;
  input *in = &c->in;
  const int how = byte(in);
  ac_dtype dt = how % 8 == 7 ? dtypes[below(in, 12)] : how % 8 == 6 ? AC_I64 : c->dtype;
  int ndim = c->ndim;
  int64_t shape[MOST_DIMS], stride[MOST_DIMS], step = 1, reach = 1;
  memcpy(shape, c->shape, sizeof shape);
  switch (how / 8 % 8) {
    case 0: shape[ndim > 0 ? below(in, ndim) : 0] = 1 + below(in, 4); break;
    case 1: ndim = below(in, MOST_DIMS + 1); break;
    case 2:
      ndim = below(in, MOST_DIMS + 1);
      for (int i = 0; i < ndim; i++) shape[i] = below(in, 5);
      break;
    case 3: /* without the first dims */
      ndim = ndim > 0 ? ndim - 1 : 0;
      memmove(shape, shape + 1, sizeof shape - sizeof shape[0]);
      shape[MOST_DIMS - 1] = 2;
      break;
    default: break;
  }
  const int layout = how / 64;
  int order[MOST_DIMS] = {0, 1, 2, 3};
  if (layout == 1 && ndim > 1) { /* two dims change places */
    int a = below(in, ndim), b = below(in, ndim), was = order[a];
    order[a] = order[b];
    order[b] = was;
  }
  for (int k = ndim - 1; k >= 0; k--) {
    const int i = order[k];
    stride[i] = step;
    step *= shape[i] > 0 ? shape[i] : 1;
    if (layout == 2) step += k % 2 + 1; /* gaps */
  }
  if (layout == 3 && ndim > 0) stride[below(in, ndim)] = 0;
  for (int i = 0; i < ndim; i++) reach += shape[i] > 0 ? (shape[i] - 1) * stride[i] : 0;
  const int64_t offset = layout == 2 ? below(in, 3) : 0;
  const size_t n = (size_t)(reach + offset);
  for (int d = 0; d < 2; d++) {
    ac_storage *s;
    REQUIRE(ac_storage_new(devices[d], n * ac_dtype_bytes(dt), AC_MEM_ACTIVATION, &s, &e) == AC_OK);
    ac_status st = ac_tensor_view(s, dt, ndim, shape, stride, offset, &out[d], &e);
    if (d == 0 && st == AC_OK) fill(in, dt, n, (char *)ac_tensor_data(out[0]) - offset * (int64_t)ac_dtype_bytes(dt));
    ac_storage_release(s);
    REQUIRE(st == AC_OK);
    c->made[d][c->n_made] = out[d];
  }
  c->n_made++;
  if (c->grad && (dt == AC_F64 || dt == AC_F32 || dt == AC_BF16 || dt == AC_F16))
    for (int d = 0; d < 2; d++) REQUIRE(ac_tensor_set_requires_grad(out[d], true, &e) == AC_OK);
  size_t at = strlen(what);
  char text[200];
  snprintf(what + at, sizeof what - at, " [%s strides %s%s]", aci_tensor_str(out[0], text, 100),
           aci_shape_str(ndim, stride, text + 100, 100), c->grad ? " grad" : "");
  return true;
}

static void list_of_ints(call *c, ac_value *v, const aci_param *p) {
  v->n = below(&c->in, MOST_LIST + 1);
  int64_t *list = c->ints[c->n_ints++];
  for (int i = 0; i < v->n; i++) list[i] = p->type == AC_T_SHAPE ? below(&c->in, 8) - 1 : number(&c->in);
  v->ints = list;
}

static void argument(call *c, int i, const aci_param *p) {
  input *in = &c->in;
  ac_tensor *pair[2];
  ac_value v = {.kind = p->type};
  if (p->has_default && below(in, 3) == 0) v.kind = AC_T_NONE;
  else if (p->optional && below(in, 2) == 0) v.kind = AC_T_NONE;
  c->args[0][i] = c->args[1][i] = v;
  if (v.kind == AC_T_NONE) return;
  switch (p->type) {
    case AC_T_OPERAND:
      if (below(in, 4) == 0) {
        v.kind = AC_T_SCALAR;
        v.scalar = (ac_scalar){.kind = AC_SCALAR_INT, .i = number(in)};
        if (below(in, 2) == 0) v.scalar = (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = real(in)};
        break;
      }
      v.kind = AC_T_TENSOR; /* fall through */
    case AC_T_TENSOR:
      make(c, pair);
      for (int d = 0; d < 2; d++) c->args[d][i] = (ac_value){.kind = AC_T_TENSOR, .tensor = pair[d]};
      return;
    case AC_T_TENSORS:
      v.n = below(in, MOST_LIST);
      for (int k = 0; k < v.n; k++) {
        make(c, pair);
        for (int d = 0; d < 2; d++) c->lists[d][c->n_lists][k] = pair[d];
      }
      for (int d = 0; d < 2; d++) {
        c->args[d][i] = v;
        c->args[d][i].tensors = c->lists[d][c->n_lists];
      }
      c->n_lists++;
      return;
    case AC_T_SCALAR:
      v.scalar = (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = real(in)};
      if (below(in, 2) == 0) v.scalar = (ac_scalar){.kind = AC_SCALAR_INT, .i = number(in)};
      if (below(in, 8) == 0) v.scalar = (ac_scalar){.kind = AC_SCALAR_BOOL, .i = 1};
      break;
    case AC_T_INT:
    case AC_T_POS:
    case AC_T_DIM: v.i = number(in); break;
    case AC_T_INTS:
    case AC_T_DIMS:
    case AC_T_SHAPE: list_of_ints(c, &v, p); break;
    case AC_T_FLOAT: v.f = real(in); break;
    case AC_T_FLOATS:
      v.n = below(in, MOST_LIST + 1);
      for (int k = 0; k < v.n; k++) c->floats[c->n_floats][k] = real(in);
      v.floats = c->floats[c->n_floats++];
      break;
    case AC_T_BOOL: v.b = below(in, 2); break;
    case AC_T_STRING: v.str = (const char *[]){"", "x", "nearest", "ij,jk->ik"}[below(in, 4)]; break;
    case AC_T_ENUM: v.i = below(in, p->n_enum); break;
    case AC_T_DTYPE: v.dtype = (ac_dtype)below(in, AC_DTYPE_COUNT); break;
    default: v.kind = AC_T_NONE; break; /* device: follows the tensors; generator: the context's */
  }
  c->args[0][i] = c->args[1][i] = v;
  size_t at = strlen(what);
  if (v.kind == AC_T_INT || v.kind == AC_T_POS || v.kind == AC_T_DIM || v.kind == AC_T_ENUM)
    snprintf(what + at, sizeof what - at, " %s=%lld", p->name, (long long)v.i);
  else if (v.kind == AC_T_INTS || v.kind == AC_T_DIMS || v.kind == AC_T_SHAPE)
    snprintf(what + at, sizeof what - at, " %s=%s", p->name, aci_shape_str(v.n, v.ints, (char[160]){0}, 160));
  else if (v.kind == AC_T_FLOAT) snprintf(what + at, sizeof what - at, " %s=%g", p->name, v.f);
  else if (v.kind == AC_T_BOOL) snprintf(what + at, sizeof what - at, " %s=%d", p->name, v.b);
  else if (v.kind == AC_T_DTYPE) snprintf(what + at, sizeof what - at, " %s=%s", p->name, ac_dtype_name(v.dtype));
  else if (v.kind == AC_T_SCALAR)
    snprintf(what + at, sizeof what - at, " %s=%g", p->name, v.scalar.kind == AC_SCALAR_FLOAT ? v.scalar.f : (double)v.scalar.i);
}

/* ---- comparing ---- */
typedef struct outcome {
  ac_status st;
  ac_err e;
  int n;
  ac_value r[AC_MAX_RESULTS];
} outcome;

/* Errors that come from the values of elements, which the meta device has not: after the shape rule has agreed. */
static bool by_values(const ac_op *op, ac_status st) {
  return st == AC_INDEX || st == AC_INVALID || (st == AC_SHAPE && strncmp(op->name, "masked_scatter", 14) == 0);
}

/* A length that only the values tell: the meta device takes what the caller says for it. */
static bool length_by_values(const ac_op *op) { return strcmp(op->name, "bincount") == 0; }

static void compare(const ac_op *op, bool placed, const outcome *cpu, const outcome *meta) {
  if (cpu->st == AC_OOM || meta->st == AC_OOM) return;
  if (cpu->st != AC_OK && cpu->st == meta->st) return;
  if (by_values(op, cpu->st)) return; /* a composed op may see them before it comes to another mistake */
  if (meta->st != AC_OK && strstr(meta->e.msg, "meta") != NULL) return; /* says that it needs the values */
  if (cpu->st != meta->st)
    fprintf(stderr, "CPU: %s: %s\nmeta: %s: %s\n", ac_status_name(cpu->st), cpu->st != AC_OK ? cpu->e.msg : "",
            ac_status_name(meta->st), meta->st != AC_OK ? meta->e.msg : "");
  REQUIRE(cpu->st == meta->st);
  REQUIRE(cpu->n == meta->n);
  for (int i = 0; i < cpu->n; i++) {
    const ac_tensor *a = cpu->r[i].tensor, *b = meta->r[i].tensor;
    REQUIRE((a == NULL) == (b == NULL));
    if (a == NULL) continue;
    REQUIRE(a->device == devices[0] && b->device == devices[placed]); /* without tensors: the default one */
    REQUIRE(a->dtype == b->dtype && a->ndim == b->ndim);
    for (int k = 0; k < a->ndim && !length_by_values(op); k++) {
      REQUIRE(op->dynamic ? a->shape[k] <= b->shape[k] : a->shape[k] == b->shape[k]);
      REQUIRE(op->dynamic || a->stride[k] == b->stride[k] || a->numel == 0);
    }
    REQUIRE(aci_requires_grad(a) == aci_requires_grad(b));
    REQUIRE(op->dynamic || a->offset == b->offset);
  }
}

/* Gradients of every result that has one, with zeros as cotangents, for every tensor that asked. */
static void gradients(const call *c, int d, const outcome *o, outcome *g) {
  ac_tensor *outs[AC_MAX_RESULTS], *cots[AC_MAX_RESULTS], *ins[AC_MAX_RESULTS], *got[AC_MAX_RESULTS] = {0};
  int n_out = 0, n_in = 0;
  memset(g, 0, sizeof *g);
  for (int i = 0; i < o->n; i++) {
    ac_tensor *t = o->r[i].tensor;
    if (t == NULL || t->grad_fn == NULL) continue;
    outs[n_out] = t;
    g->st = ac_tensor_new(devices[d], (ac_dtype)t->dtype, t->ndim, t->shape, &cots[n_out], &g->e);
    if (g->st != AC_OK) goto done;
    if (d == 0 && t->numel > 0) memset(ac_tensor_data(cots[n_out]), 0, (size_t)t->numel * ac_dtype_bytes((ac_dtype)t->dtype));
    n_out++;
  }
  for (int i = 0; i < c->n_made && n_in < AC_MAX_RESULTS; i++)
    if (aci_requires_grad(c->made[d][i])) ins[n_in++] = c->made[d][i];
  if (n_out == 0 || n_in == 0) goto done;
  g->st = ac_gradients(ctx, n_out, outs, cots, n_in, ins, true, NULL, got, &g->e);
  if (g->st != AC_OK) goto done;
  g->n = n_in;
  for (int i = 0; i < n_in; i++) g->r[i] = (ac_value){.kind = AC_T_TENSOR, .tensor = got[i]};
done:
  for (int i = 0; i < n_out; i++) ac_tensor_release(cots[i]);
}

static void drop(outcome *o) {
  for (int i = 0; i < o->n; i++) ac_tensor_release(o->r[i].tensor);
  o->n = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static call c;
  static outcome out[2], grads[2];
  open_once();
  memset(&c, 0, offsetof(call, made));
  c.in = (input){data, data + n};
  const int which = byte(&c.in) << 8;
  const ac_op *op = ops[(which | byte(&c.in)) % n_ops];
  ac_err why;
  if (aci_op_parse(op, &why) != AC_OK) return 0;
  const aci_sig *sig = aci_op_sig(op);
  const int64_t live = ac_tensor_live();
  c.dtype = (ac_dtype[]){AC_F32, AC_F32, AC_F64, AC_BF16, AC_I64, AC_F16, AC_BOOL, AC_I32}[below(&c.in, 8)];
  c.grad = below(&c.in, 4) == 0;
  c.ndim = below(&c.in, MOST_DIMS + 1);
  for (int i = 0; i < MOST_DIMS; i++) c.shape[i] = (int64_t[]){2, 3, 1, 4, 2, 0, 5, 3}[below(&c.in, 8)];
  snprintf(what, sizeof what, "%s:", op->name);
  for (int i = 0; i < sig->n_params; i++) argument(&c, i, &sig->param[i]);
  for (int d = 0; d < 2; d++) {
    out[d].n = 0;
    out[d].st = ac_call(ctx, op, c.args[d], out[d].r, &out[d].n, &out[d].e);
    if (out[d].st != AC_OK) {
      REQUIRE(out[d].st != AC_INTERNAL && out[d].e.msg[0] != 0);
      out[d].n = 0;
    }
  }
  compare(op, c.n_made > 0, &out[0], &out[1]);
  if (c.grad && out[0].st == AC_OK && out[1].st == AC_OK && !op->dynamic) {
    for (int d = 0; d < 2; d++) gradients(&c, d, &out[d], &grads[d]);
    for (int d = 0; d < 2; d++) REQUIRE(grads[d].st != AC_INTERNAL);
    size_t at = strlen(what);
    snprintf(what + at, sizeof what - at, " (gradients)");
    compare(op, true, &grads[0], &grads[1]);
    for (int d = 0; d < 2; d++) drop(&grads[d]);
  }
  for (int d = 0; d < 2; d++) {
    drop(&out[d]);
    for (int i = 0; i < c.n_made; i++) ac_tensor_release(c.made[d][i]);
  }
  REQUIRE(ac_tensor_live() == live);
  return 0;
}
