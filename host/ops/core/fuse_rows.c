/* Passes in which rows are reduced: a row by every formula, then the next one. Scratch is a row a
 * value that is read again, in the cache. */
#include "ops/core/fuse_pass.h"
#include "ops/reduce/slots.h"

enum { WORK = 32768 };

typedef struct rows_job {
  const aci_fuse_pass *p;
  int64_t step;
  aci_slots slots;
} rows_job;

/* The value of a row rounded to the node's dtype. Written if wanted. */
static float settle(const aci_fuse_node *n, int64_t r, aci_ctype ct, const void *v) {
  char narrow[8];
  float y;
  char *to = n->write ? (char *)n->out->ptr + r * (int64_t)aci_dsize(n->dt) : narrow;
  aci_store(ct, v, n->dt, to, 1, 1);
  aci_load(ACI_C_F32, &y, n->dt, to, 1, 1);
  return y;
}

/* ---- formula by formula ---- */
static float reduce_row(const aci_fuse_pass *p, int at, int64_t r, const aci_fuse_scratch *s) {
  const aci_fuse_node *n = p->node[at], *from = p->from[at][0];
  const aci_fuse_operand *o = &n->in[0];
  const bool f32 = o->dt == AC_F32;
  const float *x;
  if (from != NULL && from->slot >= 0) {
    x = s->row + from->slot * s->step;
  } else if (f32) {
    x = (const float *)(const void *)o->ptr + r * p->cols;
  } else {
    aci_fuse_fetch(o, p->cols, r * p->cols, p->cols, s->row);
    x = s->row;
  }
  const double v = n->how.row(&n->how, x, p->cols, f32);
  return settle(n, r, ACI_C_F64, &v);
}

static float map_value(const aci_fuse_pass *p, int at, int64_t r, const aci_fuse_scratch *s) {
  const aci_fuse_node *n = p->node[at];
  float v[ACI_MAP_MAX_IN], y;
  const void *in[ACI_MAP_MAX_IN];
  for (int k = 0; k < n->n_in; k++) {
    in[k] = &v[k];
    if (n->in[k].storage == NULL) v[k] = n->in[k].number;
    else if (p->from[at][k] != NULL) v[k] = s->value[p->from[at][k]->at];
    else aci_fuse_fetch(&n->in[k], n->inner, r, 1, &v[k]);
  }
  n->loop(1, &y, in, n->p);
  return settle(n, r, ACI_C_F32, &y);
}

static void by_steps(const rows_job *j, int64_t begin, int64_t end, float *memory) {
  const aci_fuse_pass *p = j->p;
  aci_fuse_scratch s = {.row = memory, .step = j->step};
  aci_fuse_numbers(p, p->cols, &s);
  for (int64_t r = begin; r < end; r++)
    for (int at = 0; at < p->n; at++) {
      const aci_fuse_kind kind = p->node[at]->kind;
      if (kind == ACI_FUSE_MAP) aci_fuse_step(p, at, r * p->cols, p->cols, &s);
      else
        s.value[at] = kind == ACI_FUSE_REDUCED ? reduce_row(p, at, r, &s) : map_value(p, at, r, &s);
    }
}

/* ---- by a kernel that was made for it: all of its nodes are of f32 ---- */
static float reduce(const aci_fuse_row *r, int at, const float *x) {
  const aci_fuse_node *n = r->pass->node[at];
  return (float)n->how.row(&n->how, x, r->pass->cols, n->in[0].dt == AC_F32);
}

static void by_code(const rows_job *j, int64_t begin, int64_t end, float *memory) {
  const aci_fuse_pass *p = j->p;
  const aci_fuse_row row = {
      .scratch = memory + p->n_inputs * j->step, .step = j->step, .reduce = reduce, .pass = p};
  const int64_t cols = p->cols;
  const float *in[ACI_FUSE_INPUTS];
  float *out[ACI_FUSE_MOST];
  for (int64_t r = begin; r < end; r++) {
    for (int k = 0; k < p->n_inputs; k++) {
      const aci_fuse_operand *o = p->input[k];
      const aci_fuse_node *reader = p->input_of[k];
      const bool value = reader->kind == ACI_FUSE_ROW_MAP;
      const float *x = (const float *)(const void *)o->ptr;
      float *buf = memory + k * j->step;
      in[k] = buf;
      if (o->dt == AC_F32 && o->linear) in[k] = x + r * (value ? 1 : cols);
      else if (o->dt == AC_F32 && !value && reader->inner == cols && o->step == 1)
        in[k] = x + r * o->row;
      else if (!value && o->row == 0 && reader->inner == cols && r > begin)
        continue; /* it is there from the row before */
      else aci_fuse_fetch(o, reader->inner, value ? r : r * cols, value ? 1 : cols, buf);
    }
    for (int k = 0; k < p->n_outputs; k++) {
      const aci_fuse_node *n = p->node[p->output[k]];
      out[k] = (float *)n->out->ptr + r * (n->kind == ACI_FUSE_MAP ? cols : 1);
    }
    p->code(cols, in, out, p->numbers, &row);
  }
}

static void range(void *arg, int64_t begin, int64_t end) {
  rows_job *j = arg;
  const int slot = aci_slots_take(&j->slots);
  float *memory = (float *)(void *)aci_slots_at(&j->slots, slot);
  if (j->p->code != NULL) by_code(j, begin, end, memory);
  else by_steps(j, begin, end, memory);
  aci_slots_give(&j->slots, slot);
}

ac_status aci_fuse_run_rows(const aci_fuse_pass *p, ac_frame *f, ac_err *e) {
  /* adjacent rows would map to the same cache sets */
  rows_job j = {.p = p, .step = (p->cols + 15) / 16 * 16 + 16};
  const int64_t rows = p->numel / p->cols, grain = WORK / p->cols < 1 ? 1 : WORK / p->cols;
  const int n = p->code != NULL ? p->n_inputs + p->n_scratch : p->rows;
  AC_TRY(aci_slots_open(&j.slots, f, (rows + grain - 1) / grain, (size_t)(n * j.step) * 4, e));
  ac_parallel_for(f->team, rows, grain, range, &j);
  aci_slots_close(&j.slots);
  return AC_OK;
}
