--- The loader of the innermost running loop, for code that counts rows of batches (accel.metrics). accel.accelerator.gradient_state, which
--- knows loops over prepared loaders, puts its function here.
return {
  ---@type (fun(): table?)?
  innermost = nil,
}
