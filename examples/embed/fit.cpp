/* accel inside a C++17 program: ./fit_cpp fit.lua [steps]
 *
 * What fit.c does, in C++: a vector is wrapped as tensors without a copy and stays alive as long as they do, a lambda is the loss,
 * errors are exceptions, and DLPack takes a tensor to a second host. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <accel/accel.h>

namespace {

struct CloseHost {
  void operator()(ac_host *h) const { ac_host_close(h); }
};
struct ReleaseTensor {
  void operator()(ac_tensor *t) const { ac_tensor_release(t); }
};
using Host = std::unique_ptr<ac_host, CloseHost>;
using Tensor = std::unique_ptr<ac_tensor, ReleaseTensor>;
using Buffer = std::shared_ptr<std::vector<float>>;

void check(ac_status st, const ac_err &e) {
  if (st != AC_OK) throw std::runtime_error(std::string(ac_status_name(st)) + ": " + e.msg);
}

Host open_host() {
  ac_err e;
  ac_host *h = nullptr;
  check(ac_host_open(nullptr, &h, &e), e);
  return Host(h);
}

ac_device *device(const Host &h) { return ac_ctx_default_device(ac_host_ctx(h.get())); }

/* The tensor shares ownership of the vector. */
Tensor wrap(const Host &h, const Buffer &b, int64_t rows, int64_t columns) {
  ac_err e;
  ac_tensor *t = nullptr;
  const int64_t shape[] = {rows, columns};
  auto keep = std::make_unique<Buffer>(b);
  auto let_go = [](void *user) { delete static_cast<Buffer *>(user); };
  check(ac_tensor_wrap(device(h), AC_F32, 2, shape, b->data(), let_go, keep.get(), &t, &e), e);
  keep.release(); // the tensor's from here on
  return Tensor(t);
}

ac_host_value value(const Tensor &t) {
  ac_host_value v{};
  v.type = AC_HOST_TENSOR;
  v.t = t.get();
  return v;
}

ac_host_value value(int64_t i) {
  ac_host_value v{};
  v.type = AC_HOST_INT;
  v.i = i;
  return v;
}

ac_host_value call(const Host &h, const char *function, const std::vector<ac_host_value> &args) {
  ac_err e;
  ac_host_value result{};
  check(ac_host_call(h.get(), function, static_cast<int>(args.size()), args.data(), 1, &result, nullptr, &e), e);
  return result;
}

/* app.cost(prediction, wanted): the mean absolute error, recorded, since it calls ops. Exceptions must not cross into the host: what
 * fails returns its status. */
ac_status cost(void *user, ac_ctx *c, int n_args, const ac_host_value *args, int, ac_host_value *results, int *n_results, ac_err *e) {
  if (n_args != 2 || args[0].type != AC_HOST_TENSOR || args[1].type != AC_HOST_TENSOR)
    return AC_FAIL(e, INVALID, "cost(prediction, wanted) takes two tensors");
  ++*static_cast<int *>(user);
  ac_scalar one{};
  one.kind = AC_SCALAR_INT;
  one.i = 1;
  ac_tensor *t = nullptr;
  ac_status st = ac_sub(c, ac_operand_tensor(args[0].t), ac_operand_tensor(args[1].t), one, &t, e);
  const Tensor difference(t);
  if (st == AC_OK) st = ac_abs(c, difference.get(), &t, e);
  const Tensor size(st == AC_OK ? t : nullptr);
  if (st == AC_OK) st = ac_mean(c, size.get(), nullptr, 0, false, nullptr, &results[0].t, e);
  if (st != AC_OK) return st;
  results[0].type = AC_HOST_TENSOR;
  *n_results = 1;
  return AC_OK;
}

void run(const char *script, int steps) {
  constexpr int64_t n = 256, in = 3;
  auto x = std::make_shared<std::vector<float>>(n * in), y = std::make_shared<std::vector<float>>(n);
  unsigned state = 1;
  for (float &v : *x) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) / (1 << 23) - 1;
  }
  for (int64_t i = 0; i < n; i++) (*y)[i] = std::sin(2 * (*x)[i * in]) + (*x)[i * in + 1] * (*x)[i * in + 2];

  ac_err e;
  int calls = 0;
  {
    Host h = open_host();
    check(ac_host_register(h.get(), "app.cost", cost, &calls, &e), e);
    check(ac_host_run_file(h.get(), script, 0, nullptr, &e), e);
    Tensor tx = wrap(h, x, n, in), ty = wrap(h, y, n, 1);
    std::printf("cost after %d steps: %.4f\n", steps, call(h, "train", {value(tx), value(ty), value(steps)}).n);
    std::printf("the loss called back %d times\n", calls);

    const Tensor answers(call(h, "predict", {value(tx)}).t);
    const float *v = static_cast<const float *>(ac_tensor_data(answers.get()));
    double worst = 0;
    for (int64_t i = 0; i < n; i++) worst = std::fmax(worst, std::fabs(v[i] - (*y)[i]));
    std::printf("worst error %.2f\n", worst);

    Host other = open_host();
    DLManagedTensor *capsule = nullptr;
    ac_tensor *t = nullptr;
    check(ac_tensor_to_dlpack(answers.get(), &capsule, &e), e);
    check(ac_tensor_from_dlpack(device(other), capsule, &t, &e), e);
    const Tensor same(t);
    std::printf("handed over: %s\n", ac_tensor_data(t) == v ? "the same memory" : "a copy");
  }
  std::printf("users of the buffers left: %ld\n", x.use_count() - 1 + y.use_count() - 1);
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s fit.lua [steps]\n", argv[0]);
    return 2;
  }
  try {
    run(argv[1], argc > 2 ? std::atoi(argv[2]) : 300);
  } catch (const std::exception &x) {
    std::fprintf(stderr, "%s\n", x.what());
    return 1;
  }
  return 0;
}
