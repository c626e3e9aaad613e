--- optim.Adam8bit and AdamW8bit, with states of 8 bits. Adam32bit and AdamW32bit, the same rules with f32 states for any dtype
--- of the parameter. Paged...: with states that can be paged out.
local Blockwise = require "accel.optim.blockwise"

--- AdamW whose two states take 8 bits an element: 2 bytes of state for each parameter instead of 8. weight_decay shrinks parameters by
--- lr * weight_decay, as AdamW's. With stochastic_rounding parameters of bf16 need no copy in f32: 4 bytes for each in all.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.AdamW8bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.899
---@class accel.optim.AdamW8bit : accel.optim.Blockwise
local AdamW8bit = Blockwise:declare("AdamW8bit", "adam", 2, {
  lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0.01,
})

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  betas number[] = { 0.9, 0.999 }: factors of the running means of the gradient and of its square
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0.01: share of the parameter that each step takes off, times lr
---  min_8bit_size integer = 4096: parameters with fewer elements keep states of f32
---  stochastic_rounding boolean = false: parameters of bf16 are rounded to a neighbour at random, without bias
function AdamW8bit:init(params, opts) Blockwise.init(self, params, opts) end

--- AdamW8bit with a weight decay of 0 by default, which shrinks parameters too, as bitsandbytes' Adam8bit.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.Adam8bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.Adam8bit : accel.optim.Blockwise
local Adam8bit = Blockwise:declare("Adam8bit", "adam", 2, { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0 })

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  betas number[] = { 0.9, 0.999 }: factors of the running means of the gradient and of its square
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: share of the parameter that each step takes off, times lr
---  min_8bit_size integer = 4096: parameters with fewer elements keep states of f32
---  stochastic_rounding boolean = false: parameters of bf16 are rounded to a neighbour at random, without bias
function Adam8bit:init(params, opts) Blockwise.init(self, params, opts) end

--- AdamW8bit with states of f32, whatever the dtype of the parameters.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.AdamW32bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.899
---@class accel.optim.AdamW32bit : accel.optim.AdamW8bit
local AdamW32bit = AdamW8bit:variant("AdamW32bit", { bits = 32 })

--- Adam8bit with states of f32, whatever the dtype of the parameters.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.Adam32bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.Adam32bit : accel.optim.Adam8bit
local Adam32bit = Adam8bit:variant("Adam32bit", { bits = 32 })

--- AdamW8bit whose states are stored outside the device between steps: in host memory, or in a file of page_folder. A step fetches them,
--- page_budget bytes at a time, with the same numbers. On the CPU, paging needs a folder. Without one a warning reports that nothing is
--- paged.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedAdamW8bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.899
---@class accel.optim.PagedAdamW8bit : accel.optim.AdamW8bit
local PagedAdamW8bit = AdamW8bit:variant("PagedAdamW8bit", { paged = true })

--- Adam8bit whose states are stored outside the device between steps: in host memory, or in a file of page_folder. A step fetches them,
--- page_budget bytes at a time, with the same numbers. On the CPU, paging needs a folder. Without one a warning reports that nothing is
--- paged.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedAdam8bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.PagedAdam8bit : accel.optim.Adam8bit
local PagedAdam8bit = Adam8bit:variant("PagedAdam8bit", { paged = true })

--- AdamW32bit whose states are stored outside the device between steps: in host memory, or in a file of page_folder. A step fetches them,
--- page_budget bytes at a time, with the same numbers. On the CPU, paging needs a folder. Without one a warning reports that nothing is
--- paged.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedAdamW32bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.899
---@class accel.optim.PagedAdamW32bit : accel.optim.AdamW8bit
local PagedAdamW32bit = AdamW8bit:variant("PagedAdamW32bit", { bits = 32, paged = true })

--- Adam32bit whose states are stored outside the device between steps: in host memory, or in a file of page_folder. A step fetches them,
--- page_budget bytes at a time, with the same numbers. On the CPU, paging needs a folder. Without one a warning reports that nothing is
--- paged.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedAdam32bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.PagedAdam32bit : accel.optim.Adam8bit
local PagedAdam32bit = Adam8bit:variant("PagedAdam32bit", { bits = 32, paged = true })

--- PagedAdamW32bit under the name that it has without bits.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedAdamW(p, { lr = 0.1 }):step() return p:mean():item() --> 0.899
---@class accel.optim.PagedAdamW : accel.optim.AdamW8bit
local PagedAdamW = AdamW8bit:variant("PagedAdamW", { bits = 32, paged = true })

--- PagedAdam32bit under the name that it has without bits.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedAdam(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.PagedAdam : accel.optim.Adam8bit
local PagedAdam = Adam8bit:variant("PagedAdam", { bits = 32, paged = true })

return {
  AdamW8bit = AdamW8bit, Adam8bit = Adam8bit, AdamW32bit = AdamW32bit, Adam32bit = Adam32bit, PagedAdamW8bit = PagedAdamW8bit,
  PagedAdam8bit = PagedAdam8bit, PagedAdamW32bit = PagedAdamW32bit, PagedAdam32bit = PagedAdam32bit,
  PagedAdamW = PagedAdamW, PagedAdam = PagedAdam,
}
