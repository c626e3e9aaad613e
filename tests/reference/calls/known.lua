-- Calls whose results differ from PyTorch's on purpose: the call as its area has it in Lua, and the reason.
return {
}
