--- accel.func: PyTorch's torch.func. Transforms of functions, which can be nested: gradients, Jacobians, products with vectors, a function of
--- one sample for a batch, a module as a function of its parameters.
return require "accel.util.lazy"("accel.func", {
  vmap = "vmap", grad = "transforms", grad_and_value = "transforms", jacrev = "transforms", jacfwd = "transforms", hessian = "transforms",
  vjp = "transforms", jvp = "transforms", linearize = "transforms", functional_call = "functional_call", stack_module_state = "functional_call",
})
