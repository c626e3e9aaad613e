--- accel.func: PyTorch's torch.func. Its functions take a function and return another one: its gradient, its Jacobian, the same for a batch,
--- or a module as a function of its parameters. You can nest them. The guides autograd and porting have examples.
return require "accel.util.lazy"("accel.func", {
  vmap = "vmap", grad = "transforms", grad_and_value = "transforms", jacrev = "transforms", jacfwd = "transforms", hessian = "transforms",
  vjp = "transforms", jvp = "transforms", linearize = "transforms", functional_call = "functional_call", stack_module_state = "functional_call",
})
