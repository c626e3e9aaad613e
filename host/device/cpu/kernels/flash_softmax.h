/* A template of flash.c, which defines S and T before each #include. The end of this file
 * undefines them. The softmax of one tile. The state of earlier chunks is rescaled if its maximum
 * grew. */
#include "base/cat.h"

static void ACI_CAT(softmax_, S)(const forward *w, const aci_tile *t, int n_q, T *s,
                                 uint32_t *words, T *o, bool first) {
  const aci_flash *f = w->f;
  int nr = w->k.nr;
  T *m = o + (f->d + w->k.mr) * nr, *l = m + nr, old[ACI_GEMM_NR_MAX], by[ACI_GEMM_NR_MAX];
  T c = (T)(f->scale * ACI_LOG2E_64);
  for (int j = 0; j < nr && first; j++) {
    m[j] = (T)-INFINITY;
    l[j] = 0;
  }
  memcpy(old, m, (size_t)nr * sizeof(T));
  if (f->mask_kind != ACI_FLASH_NO_MASK) {
    ACI_CAT(aci_tile_mask_, S)(t, n_q, s, c);
    c = 1;
  }
  if (f->alibi != NULL) {
    ACI_CAT(aci_tile_alibi_, S)(t, s, c);
    c = 1;
  }
  ACI_CAT(aci_tile_max_, S)(s, t->rows, c, f->causal ? t->col0 - t->row0 : t->rows, m);
  if (!first && memcmp(old, m, (size_t)nr * sizeof(T)) != 0) {
    T none[ACI_GEMM_NR_MAX] = {0};
    memcpy(by, old, (size_t)nr * sizeof(T));
    ACI_CAT(aci_tile_exp_, S)
    (by, 1, m, none, NULL); /* 2^(old - m). 0 for columns that had seen nothing */
    for (int j = 0; j < nr; j++) l[j] *= by[j];
    ACI_CAT(aci_tile_scale_, S)(o, f->d, by);
  }
  aci_drop drop;
  ACI_CAT(aci_tile_exp_, S)(s, t->rows, m, l, aci_tile_drop(t, words, &drop));
}

#undef S
#undef T
