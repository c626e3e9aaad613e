/* Kernels on the current tile of linear_cross_entropy: each row's maximum, sum and label from its
 * logits, and in backward the gradients that replace the logits. One block per row. */
#include "ops/loss/linear_cross_entropy.cuh"

template <class C> ACI_DEVICE C lce_logit(const lce_args &a, int64_t i, int64_t c) {
  const C x = ((const C *)a.tile)[i * a.n_cols + c];
  return a.bias == NULL ? x : x + aci_get<C>(a.bias_dt, a.bias, (a.j0 + c) * a.bias_stride);
}

/* ---- forward ---- */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) lce_take(const __grid_constant__ lce_args a) {
  __shared__ ce_sum<C> sums[ACI_BLOCK];
  __shared__ double shared[ACI_BLOCK];
  for (int64_t i = blockIdx.x; i < a.n_rows; i += gridDim.x) {
    const int64_t r = a.i0 + i, y = a.y.id(r);
    lce_state s = {-INFINITY, 0, 0, 0};
    if (a.j0 > 0) s = a.state[r];
    ce_sum<C> sum;
    double weighted = 0;
    sum.clear();
    for (int64_t c = threadIdx.x; c < a.n_cols; c += blockDim.x) {
      const C x[1] = {lce_logit<C>(a, i, c)};
      sum.add(x);
      if (a.smooth > 0) weighted = fma((double)x[0], a.y.weight(a.j0 + c), weighted);
    }
    sum = aci_block_join<ce_sum<C>>(sum, sums);
    if (a.smooth > 0) weighted = aci_block_join<aci_add_op>(weighted, shared);
    const double m = (double)sum.m > s.max ? (double)sum.m : s.max, base = ce_sum<double>::base(m);
    s.sum = s.sum * exp(s.max - base) + (double)sum.s * exp((double)sum.m - base);
    s.max = m;
    s.weighted += weighted;
    if (y >= a.j0 && y < a.j0 + a.n_cols) s.at_target = (double)lce_logit<C>(a, i, y - a.j0);
    if (a.kept != NULL) {
      for (int64_t c = threadIdx.x; c < a.n_cols; c += blockDim.x)
        aci_put(a.product, a.kept, r * a.v + a.j0 + c, ce_exp(lce_logit<C>(a, i, c) - (C)base));
      if (threadIdx.x == 0) a.shifts[r] = m == -INFINITY ? m : (double)(C)base;
    }
    if (threadIdx.x == 0) a.state[r] = s;
  }
}

static __global__ void __launch_bounds__(ACI_BLOCK) lce_done(const __grid_constant__ lce_args a) {
  for (int64_t r = aci_first(); r < a.n; r += aci_step()) {
    const int64_t y = a.y.id(r);
    double loss = 0, lse = 0, weight = 0;
    if (y >= 0) {
      const lce_state s = a.state[r];
      weight = a.y.weight(y);
      lse = s.max + log(s.sum);
      if (a.smooth < 1) loss = (1 - a.smooth) * weight * (lse - s.at_target);
      if (a.smooth > 0)
        loss += a.smooth / (double)a.v *
                ((a.y.w != NULL ? a.totals[0] : (double)a.v) * lse - s.weighted);
    }
    a.lse[r] = lse;
    if (a.each) {
      aci_put(a.out_dt, a.out, r, loss);
    } else {
      a.loss[r] = loss;
      a.weight[r] = weight;
    }
  }
}

/* ---- backward ---- */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) lce_turn(const __grid_constant__ lce_args a) {
  for (int64_t i = blockIdx.x; i < a.n_rows; i += gridDim.x) {
    const int64_t r = a.i0 + i, y = a.y.id(r);
    double dl = 0, wy = 0, scale = 0, lse = 0;
    C shift = 0;
    if (y >= 0) {
      dl = aci_get<double>(a.dy.dt, a.dy.ptr, a.each ? aci_row<double>(a.dy, r).base : 0);
      if (a.mean) dl /= a.totals[1];
      lse = aci_row<double>(a.saved, r).get(0);
      wy = (1 - a.smooth) * a.y.weight(y);
      scale = dl * (wy + a.smooth / (double)a.v *
                             (a.y.w != NULL && a.smooth > 0 ? a.totals[0] : (double)a.v));
      /* lse as the row's type rounds it. The rounding error goes into the factor */
      shift = (C)lse;
      scale *= a.kept == NULL ? exp((double)shift - lse) : exp(a.shifts[r] - lse);
    }
    const double each = dl * a.smooth / (double)a.v;
    for (int64_t c = threadIdx.x; c < a.n_cols; c += blockDim.x) {
      C v = 0;
      if (y >= 0) {
        if (a.kept == NULL) v = ce_exp(lce_logit<C>(a, i, c) - shift) * (C)scale;
        else v = aci_get<C>(a.product, a.kept, r * a.v + a.j0 + c) * (C)scale;
        if (a.smooth > 0) v -= (C)(each * a.y.weight(a.j0 + c));
        if (a.j0 + c == y) v -= (C)(dl * wy);
      }
      aci_put(a.product, a.dl, i * a.n_cols + c, v);
    }
  }
}

/* The tile's sums over its rows, in pieces of rows: part's first ACI_LCE_PIECES rows. */
static __global__ void __launch_bounds__(ACI_BLOCK)
    lce_columns(const __grid_constant__ lce_args a, double *part) {
  const int64_t piece = (a.n_rows + ACI_LCE_PIECES - 1) / ACI_LCE_PIECES;
  for (int64_t k = aci_first(); k < ACI_LCE_PIECES * a.n_cols; k += aci_step()) {
    const int64_t c = k % a.n_cols, begin = k / a.n_cols * piece,
                  end = begin + piece < a.n_rows ? begin + piece : a.n_rows;
    double sum = 0;
    for (int64_t i = begin; i < end; i++) sum += aci_get<double>(a.product, a.dl, i * a.n_cols + c);
    part[k] = sum;
  }
}
/* Added to the sums of earlier rows (part's last row), in order. The last rows write the result. */
static __global__ void __launch_bounds__(ACI_BLOCK)
    lce_bias(const __grid_constant__ lce_args a, double *part) {
  for (int64_t c = aci_first(); c < a.n_cols; c += aci_step()) {
    double sum = a.i0 > 0 ? part[ACI_LCE_PIECES * a.n_cols + c] : 0;
    for (int64_t k = 0; k < ACI_LCE_PIECES; k++) sum += part[k * a.n_cols + c];
    part[ACI_LCE_PIECES * a.n_cols + c] = sum;
    if (a.i0 + a.n_rows == a.n) aci_put(a.out_dt, a.out, a.j0 + c, sum);
  }
}

/* ---- launches ---- */
ac_status aci_lce_take_tile(ac_frame *f, const lce_args &a, ac_err *e) {
  return aci_launch(f, "cross entropy (tile)", a.acc == AC_F64 ? lce_take<double> : lce_take<float>,
                    aci_blocks(f->device, a.n_rows, 1), e, a);
}
ac_status aci_lce_finish_rows(ac_frame *f, const lce_args &a, ac_err *e) {
  return aci_launch(f, "cross entropy (rows)", lce_done, aci_blocks(f->device, a.n), e, a);
}
ac_status aci_lce_turn_tile(ac_frame *f, const lce_args &a, ac_err *e) {
  return aci_launch(f, "cross entropy (gradients)",
                    a.acc == AC_F64 ? lce_turn<double> : lce_turn<float>,
                    aci_blocks(f->device, a.n_rows, 1), e, a);
}
ac_status aci_lce_add_bias(ac_frame *f, const lce_args &a, double *part, ac_err *e) {
  AC_TRY(aci_launch(f, "cross entropy (bias)", lce_columns,
                    aci_blocks(f->device, ACI_LCE_PIECES * a.n_cols), e, a, part));
  return aci_launch(f, "cross entropy (bias)", lce_bias, aci_blocks(f->device, a.n_cols), e, a,
                    part);
}
