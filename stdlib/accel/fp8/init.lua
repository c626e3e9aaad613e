--- accel.fp8: linear layers that multiply in floats of 8 bits, by the recipes of TransformerEngine, torchao and MS-AMP. An Accelerator
--- with mixed_precision = "fp8" does all of this in prepare. This module is for custom loops.
---   convert.lua    selects the layers, and converts their forward
---   product.lua    the three products of a layer, with their gradients
---   delayed.lua    scales from a history of amax (TransformerEngine). current.lua: from the present tensor (torchao, MS-AMP)
---   granular.lua   scales of rows (torchao's rowwise) and of blocks of 32 (MXFP8), with the products of their layers
---   recipe.lua     from a recipe of kwargs_handlers to one of these
---   states.lua     states of Adam and AdamW in 8 and 16 bits (MS-AMP's level O2)
---@class accel.fp8
---@field convert_model fun(model: accel.nn.Module, recipe?: accel.accelerator.KwargsHandler): accel.fp8.Scaling
---@field autocast fun(scaling: accel.fp8.Scaling, fn: function, ...: any): any
---@field has_fp8_layers fun(model: accel.nn.Module): boolean
---@field find_first_last_linear_layers fun(model: accel.nn.Module): string?, string?
---@field filter_linear_layers fun(module: accel.nn.Module, name: string, layers_to_filter: string[]): boolean
---@field compress_states fun(optimizer: accel.optim.Optimizer): accel.optim.Optimizer
return require "accel.util.lazy" ("accel.fp8", {
  convert_model = "convert", has_fp8_layers = "convert", find_first_last_linear_layers = "convert", filter_linear_layers = "convert",
  autocast = "region", compress_states = "states", DelayedScaling = "delayed", CurrentScaling = "current", GranularScaling = "granular",
})
