/* Lists of tensors as one row of chunks: see lists.h. */
#include "ops/optim/lists.h"

#include <stdlib.h>

#include "ops/core/ctx_impl.h"

static int64_t chunks_of(const ac_tensor *t) {
  return (t->numel + ACI_LIST_CHUNK - 1) / ACI_LIST_CHUNK;
}

int64_t aci_list_chunks(int n, ac_tensor *const *tensors) {
  int64_t sum = 0;
  for (int i = 0; i < n; i++) sum += chunks_of(tensors[i]);
  return sum;
}

typedef struct list_job {
  int n;
  ac_tensor *const *tensors;
  const int64_t *chunk, *element; /* first of each tensor, of n + 1 */
  aci_list_fn fn;
  void *arg;
} list_job;

/* Pieces are as many elements as a chunk: piece u has the chunks that begin at its elements u *
 * ACI_LIST_CHUNK .. of the row. So threads get equal work if small tensors stand among large ones,
 * and much the same part of a tensor as in products that are cut by rows. */
static void list_range(void *arg, int64_t begin, int64_t end) {
  const list_job *j = arg;
  const int64_t from = begin * ACI_LIST_CHUNK, to = end * ACI_LIST_CHUNK;
  int lo = 0, hi = j->n;
  while (hi - lo > 1) { /* the last tensor that begins at `from` or before */
    int mid = (lo + hi) / 2;
    if (j->element[mid] <= from) lo = mid;
    else hi = mid;
  }
  /* chunk of that tensor */
  int64_t k = (from - j->element[lo] + ACI_LIST_CHUNK - 1) / ACI_LIST_CHUNK;
  for (; lo < j->n && j->element[lo] < to; lo++, k = 0) {
    const int64_t numel = j->tensors[lo]->numel, most = to - j->element[lo];
    for (int64_t at = k * ACI_LIST_CHUNK; at < numel && at < most; at += ACI_LIST_CHUNK, k++) {
      const int64_t left = numel - at;
      j->fn(j->arg, lo, j->chunk[lo] + k, at, left < ACI_LIST_CHUNK ? left : ACI_LIST_CHUNK);
    }
  }
}

ac_status aci_list_run(ac_frame *f, int n, ac_tensor *const *tensors, aci_list_fn fn, void *arg,
                       ac_err *e) {
  int64_t small[2 * 129], *chunk = n < 129 ? small : malloc(((size_t)n + 1) * 16);
  if (chunk == NULL) return AC_FAIL(e, OOM, "no memory for a list of %d tensors", n);
  int64_t *element = chunk + n + 1;
  chunk[0] = element[0] = 0;
  for (int i = 0; i < n; i++) {
    chunk[i + 1] = chunk[i] + chunks_of(tensors[i]);
    element[i + 1] = element[i] + tensors[i]->numel;
  }
  list_job j = {n, tensors, chunk, element, fn, arg};
  if (element[n] > 0)
    ac_parallel_for(f->team, (element[n] - 1) / ACI_LIST_CHUNK + 1, 1, list_range, &j);
  if (chunk != small) free(chunk);
  return AC_OK;
}

/* A mutated tensor must not be expanded: its elements would be stepped several times. */
static ac_status apart(const ac_frame *f, int arg, ac_err *e) {
  const ac_value *v = &f->args[arg];
  for (int i = 0; (f->op->mutates >> arg & 1) && i < v->n; i++)
    if (v->tensors[i]->numel > 1 && aci_overlaps_self(v->tensors[i]))
      return AC_FAIL(e, SHAPE,
                     "%s: tensor %d has elements that share memory (expanded?); clone it first",
                     aci_op_sig(f->op)->param[arg].name, i + 1);
  return AC_OK;
}

ac_status aci_list_gradients(const ac_frame *f, int arg, ac_err *e) {
  const ac_value *v = &f->args[arg];
  for (int i = 0; i < v->n; i++)
    if (v->tensors[i]->flags & ACI_T_REQUIRES_GRAD)
      return AC_FAIL(
          e, INVALID,
          "%s: tensor %d is a leaf that requires gradients; give the gradients, not the parameters",
          aci_op_sig(f->op)->param[arg].name, i + 1);
  return AC_OK;
}

ac_status aci_list_floats(const ac_frame *f, int arg, ac_err *e) {
  const ac_value *v = &f->args[arg];
  AC_TRY(apart(f, arg, e));
  for (int i = 0; i < v->n; i++)
    if (!ac_dtype_is_float((ac_dtype)v->tensors[i]->dtype))
      return AC_FAIL(e, DTYPE, "%s: tensor %d is %s; only floats can be trained",
                     aci_op_sig(f->op)->param[arg].name, i + 1,
                     ac_dtype_name((ac_dtype)v->tensors[i]->dtype));
  return AC_OK;
}

ac_status aci_list_match(const ac_frame *f, int arg, ac_err *e) {
  const ac_value *p = &f->args[0], *v = &f->args[arg];
  const char *name = aci_op_sig(f->op)->param[arg].name;
  char a[128], b[128];
  if (v->n != p->n) return AC_FAIL(e, INVALID, "%d %s for %d params", v->n, name, p->n);
  for (int i = 0; i < p->n; i++)
    if (!aci_same_shape(p->tensors[i], v->tensors[i]))
      return AC_FAIL(e, SHAPE, "%s: tensor %d has shape %s, its parameter %s", name, i + 1,
                     aci_shape_str(v->tensors[i]->ndim, v->tensors[i]->shape, a, sizeof a),
                     aci_shape_str(p->tensors[i]->ndim, p->tensors[i]->shape, b, sizeof b));
  return aci_list_floats(f, arg, e);
}

double aci_number_get(const ac_tensor *t) {
  double v;
  aci_load(ACI_C_F64, &v, (ac_dtype)t->dtype, aci_data(t), 1, 1);
  return v;
}
void aci_number_set(const ac_tensor *t, double v) {
  aci_store(ACI_C_F64, &v, (ac_dtype)t->dtype, aci_data(t), 1, 1);
}

ac_status aci_number_check(const ac_frame *f, int arg, ac_err *e) {
  const ac_tensor *t = ARG_T(f, arg);
  char a[128];
  if (t->numel == 1) return AC_OK;
  return AC_FAIL(e, SHAPE, "%s must have one element, got shape %s",
                 aci_op_sig(f->op)->param[arg].name, aci_shape_str(t->ndim, t->shape, a, sizeof a));
}
