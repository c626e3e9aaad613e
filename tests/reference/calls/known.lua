-- Calls whose results differ from PyTorch's on purpose: the call as its area has it in Lua, and the reason.
return {
  ["accel.as_strided_scatter(x, v, { 2, 2 }, { 1, 2 }, 1)"] = "PyTorch gives x the gradient of the elements that were replaced, and none of the others",
}
