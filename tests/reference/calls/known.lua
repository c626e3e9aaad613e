-- Calls whose results differ from PyTorch's on purpose: the call as its area has it in Lua, and the reason.
return {
  ["F.hardsigmoid(x)"] = "PyTorch's slope in f64 is 1/6 in single precision",
  ["nn.Hardsigmoid()(x)"] = "PyTorch's slope in f64 is 1/6 in single precision",
}
