/* The pass of fuse.c: 1024 elements by every formula, then the next 1024. f32 operands and results
 * are read and written in place. */
#include "ops/core/fuse_pass.h"

enum { BLOCK = ACI_FUSE_BLOCK, GRAIN = 32768 };

static aci_fuse_node *inner_operand(const aci_fuse_pass *p, const aci_fuse_node *n, int k) {
  const ac_storage *s = n->in[k].storage;
  for (int i = 0; s != NULL && i < p->n; i++)
    if (p->node[i]->out == s) return p->node[i];
  return NULL;
}

bool aci_fuse_lay_out(aci_fuse_pass *p, const aci_fuse_node *wanted) {
  int last[ACI_FUSE_MOST], free_row[ACI_FUSE_ROWS], n_free = 0;
  p->rows = ACI_MAP_MAX_IN; /* the first are for operands that are converted */
  for (int i = 0; i < p->n; i++) {
    last[i] = i;
    for (int k = 0; k < p->node[i]->n_in; k++) {
      aci_fuse_node *from = p->from[i][k] = inner_operand(p, p->node[i], k);
      if (from != NULL) last[from->at] = i;
      if (p->node[i]->in[k].storage != NULL || p->node[i]->kind != ACI_FUSE_MAP) continue;
      if (p->rows == ACI_FUSE_ROWS) return false;
      p->number[i][k] = p->rows++;
    }
  }
  for (int i = 0; i < p->n; i++) {
    aci_fuse_node *n = p->node[i];
    n->write = n == wanted || n->keep || n->passed || n->shared;
    n->slot = -1;
    if (n->kind == ACI_FUSE_MAP && (!n->write || n->dt != AC_F32)) {
      if (n_free == 0 && p->rows == ACI_FUSE_ROWS) return false;
      n->slot = n_free > 0 ? free_row[--n_free] : p->rows++;
    }
    for (int j = 0; j <= i; j++) /* read here for the last time */
      if (last[j] == i && p->node[j]->slot >= 0) free_row[n_free++] = p->node[j]->slot;
  }
  return true;
}

void aci_fuse_fetch(const aci_fuse_operand *o, int64_t inner, int64_t i, int64_t n, float *to) {
  const int64_t size = (int64_t)aci_dsize(o->dt);
  if (o->linear) {
    aci_load(ACI_C_F32, to, o->dt, o->ptr + i * size, 1, n);
    return;
  }
  while (n > 0) {
    const int64_t r = i / inner, c = i % inner, m = n < inner - c ? n : inner - c;
    aci_load(ACI_C_F32, to, o->dt, o->ptr + (r * o->row + c * o->step) * size, o->step, m);
    to += m;
    i += m;
    n -= m;
  }
}

static float *row_of(const aci_fuse_scratch *s, int k) { return s->row + k * s->step; }

void aci_fuse_numbers(const aci_fuse_pass *p, int64_t n, const aci_fuse_scratch *s) {
  for (int at = 0; at < p->n; at++)
    for (int k = 0; k < p->node[at]->n_in && p->node[at]->kind == ACI_FUSE_MAP; k++)
      for (int64_t j = 0; p->node[at]->in[k].storage == NULL && j < n; j++)
        row_of(s, p->number[at][k])[j] = p->node[at]->in[k].number;
}

void aci_fuse_step(const aci_fuse_pass *p, int at, int64_t i, int64_t n,
                   const aci_fuse_scratch *s) {
  aci_fuse_node *node = p->node[at];
  const void *in[ACI_MAP_MAX_IN];
  uint16_t narrow[BLOCK];
  for (int k = 0; k < node->n_in; k++) {
    const aci_fuse_operand *o = &node->in[k];
    const aci_fuse_node *from = p->from[at][k];
    if (o->storage == NULL) {
      in[k] = row_of(s, p->number[at][k]);
    } else if (from != NULL && from->kind != ACI_FUSE_MAP) {
      float *to = row_of(s, k);
      for (int64_t j = 0; j < n; j++) to[j] = s->value[from->at];
      in[k] = to;
    } else if (from != NULL && from->slot >= 0) {
      in[k] = row_of(s, from->slot);
    } else if (o->linear && o->dt == AC_F32) {
      in[k] = o->ptr + i * 4;
    } else {
      aci_fuse_fetch(o, node->inner, i, n, row_of(s, k));
      in[k] = row_of(s, k);
    }
  }
  if (node->slot < 0) {
    node->loop(n, (char *)node->out->ptr + i * 4, in, node->p);
    return;
  }
  float *y = row_of(s, node->slot);
  node->loop(n, y, in, node->p);
  if (node->dt == AC_F32) return;
  for (int64_t j = 0; j < n; j += BLOCK) { /* readers get the value rounded to 16 bits */
    const int64_t m = n - j < BLOCK ? n - j : BLOCK;
    char *to = node->write ? (char *)node->out->ptr + (i + j) * 2 : (char *)narrow;
    aci_store(ACI_C_F32, y + j, node->dt, to, 1, m);
    aci_load(ACI_C_F32, y + j, node->dt, to, 1, m);
  }
}

/* to: destination of taken values */
static void range_by_code(const aci_fuse_pass *p, int64_t begin, int64_t end, float *to) {
  _Alignas(64) float row[ACI_FUSE_INPUTS][BLOCK];
  const float *in[ACI_FUSE_INPUTS];
  float *out[ACI_FUSE_MOST];
  for (int64_t i = begin; i < end; i += BLOCK) {
    const int64_t n = end - i < BLOCK ? end - i : BLOCK;
    for (int k = 0; k < p->n_inputs; k++) {
      const aci_fuse_operand *o = p->input[k];
      in[k] = o->linear && o->dt == AC_F32 ? (const float *)(const void *)(o->ptr + i * 4) : row[k];
      if (in[k] == row[k]) aci_fuse_fetch(o, p->input_of[k]->inner, i, n, row[k]);
    }
    for (int k = 0; k < p->n_outputs; k++) {
      const aci_fuse_node *node = p->node[p->output[k]];
      out[k] = node->write ? (float *)node->out->ptr + i : to + (i - begin);
    }
    p->code(n, in, out, p->numbers, NULL);
  }
}

static void range_by_steps(const aci_fuse_pass *p, int64_t begin, int64_t end, float *to) {
  _Alignas(64) float row[ACI_FUSE_ROWS][BLOCK];
  const aci_fuse_scratch s = {.row = row[0], .step = BLOCK};
  aci_fuse_numbers(p, end - begin < BLOCK ? end - begin : BLOCK, &s);
  for (int64_t i = begin; i < end; i += BLOCK) {
    const int64_t n = end - i < BLOCK ? end - i : BLOCK;
    for (int at = 0; at < p->n; at++) aci_fuse_step(p, at, i, n, &s);
    if (p->taken != NULL && p->taken->slot >= 0)
      memcpy(to + (i - begin), row[p->taken->slot], (size_t)n * 4);
  }
}

static void range(void *arg, int64_t begin, int64_t end) {
  const aci_fuse_pass *p = arg;
  if (p->code != NULL) range_by_code(p, begin, end, NULL);
  else range_by_steps(p, begin, end, NULL);
}

void aci_fuse_fill(const void *pass, int64_t at, int64_t n, float *to) {
  const aci_fuse_pass *p = pass;
  if (p->code != NULL) range_by_code(p, at, at + n, to);
  else range_by_steps(p, at, at + n, to);
  if (p->taken->write && p->taken->slot < 0)
    memcpy(to, (const float *)p->taken->out->ptr + at, (size_t)n * 4);
}

ac_status aci_fuse_run(const aci_fuse_pass *p, ac_frame *f, ac_err *e) {
  if (p->cols != 0) return aci_fuse_run_rows(p, f, e);
  if (p->numel <= GRAIN) range((void *)(uintptr_t)p, 0, p->numel);
  else ac_parallel_for(f->team, p->numel, GRAIN, range, (void *)(uintptr_t)p);
  return AC_OK;
}
