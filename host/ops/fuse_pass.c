/* The pass of fuse.c: 1024 elements by every formula, then the next 1024. What lies in f32 is read and written where it is. */
#include "ops/fuse_pass.h"

enum { BLOCK = 1024, GRAIN = 32768 };

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
      if (p->node[i]->in[k].storage != NULL) continue;
      if (p->rows == ACI_FUSE_ROWS) return false;
      p->number[i][k] = p->rows++;
    }
  }
  for (int i = 0; i < p->n; i++) {
    aci_fuse_node *n = p->node[i];
    n->write = n == wanted || n->keep;
    n->slot = -1;
    if (!n->write || n->dt != AC_F32) {
      if (n_free == 0 && p->rows == ACI_FUSE_ROWS) return false;
      n->slot = n_free > 0 ? free_row[--n_free] : p->rows++;
    }
    for (int j = 0; j <= i; j++) /* read here for the last time */
      if (last[j] == i && p->node[j]->slot >= 0) free_row[n_free++] = p->node[j]->slot;
  }
  return true;
}

/* n elements of an operand from position i on, in f32. */
static void fetch(const aci_fuse_operand *o, int64_t inner, int64_t i, int64_t n, float *to) {
  const int64_t size = (int64_t)aci_dsize(o->dt);
  while (n > 0) {
    const int64_t r = i / inner, c = i % inner, m = n < inner - c ? n : inner - c;
    aci_load(ACI_C_F32, to, o->dt, o->ptr + (r * o->row + c * o->step) * size, o->step, m);
    to += m;
    i += m;
    n -= m;
  }
}

static void step(const aci_fuse_pass *p, int at, int64_t i, int64_t n, float (*row)[BLOCK]) {
  aci_fuse_node *node = p->node[at];
  const void *in[ACI_MAP_MAX_IN];
  uint16_t narrow[BLOCK];
  for (int k = 0; k < node->n_in; k++) {
    const aci_fuse_operand *o = &node->in[k];
    const aci_fuse_node *from = p->from[at][k];
    if (o->storage == NULL) {
      in[k] = row[p->number[at][k]];
    } else if (from != NULL && from->slot >= 0) {
      in[k] = row[from->slot];
    } else if (o->linear && o->dt == AC_F32) {
      in[k] = o->ptr + i * 4;
    } else {
      fetch(o, node->inner, i, n, row[k]);
      in[k] = row[k];
    }
  }
  if (node->slot < 0) {
    node->loop(n, (char *)node->out->ptr + i * 4, in, node->p);
    return;
  }
  float *y = row[node->slot];
  node->loop(n, y, in, node->p);
  if (node->dt == AC_F32) return;
  char *to = node->write ? (char *)node->out->ptr + i * 2 : (char *)narrow; /* readers get what a tensor of 16 bits holds */
  aci_store(ACI_C_F32, y, node->dt, to, 1, n);
  aci_load(ACI_C_F32, y, node->dt, to, 1, n);
}

static void range_by_code(const aci_fuse_pass *p, int64_t begin, int64_t end) {
  _Alignas(64) float row[ACI_FUSE_INPUTS][BLOCK];
  const float *in[ACI_FUSE_INPUTS];
  float *out[ACI_FUSE_MOST];
  for (int64_t i = begin; i < end; i += BLOCK) {
    const int64_t n = end - i < BLOCK ? end - i : BLOCK;
    for (int k = 0; k < p->n_inputs; k++) {
      const aci_fuse_operand *o = p->input[k];
      in[k] = o->linear && o->dt == AC_F32 ? (const float *)(const void *)(o->ptr + i * 4) : row[k];
      if (in[k] == row[k]) fetch(o, p->input_inner[k], i, n, row[k]);
    }
    for (int k = 0; k < p->n_outputs; k++) out[k] = (float *)p->node[p->output[k]]->out->ptr + i;
    p->code(n, in, out, p->numbers);
  }
}

static void range(void *arg, int64_t begin, int64_t end) {
  const aci_fuse_pass *p = arg;
  if (p->code != NULL) {
    range_by_code(p, begin, end);
    return;
  }
  _Alignas(64) float row[ACI_FUSE_ROWS][BLOCK];
  for (int at = 0; at < p->n; at++)
    for (int k = 0; k < p->node[at]->n_in; k++)
      for (int j = 0; p->node[at]->in[k].storage == NULL && j < BLOCK; j++) row[p->number[at][k]][j] = p->node[at]->in[k].number;
  for (int64_t i = begin; i < end; i += BLOCK)
    for (int at = 0; at < p->n; at++) step(p, at, i, end - i < BLOCK ? end - i : BLOCK, row);
}

void aci_fuse_run(const aci_fuse_pass *p, ac_team *team) {
  const int64_t numel = p->node[0]->numel;
  if (numel <= GRAIN) range((void *)(uintptr_t)p, 0, numel);
  else ac_parallel_for(team, numel, GRAIN, range, (void *)(uintptr_t)p);
}
