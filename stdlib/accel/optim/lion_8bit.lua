--- optim.Lion8bit with an 8-bit state, Lion32bit with an f32 state, Paged... with states that can be paged out.
local Blockwise = require "accel.optim.blockwise"

--- Lion whose one state takes 8 bits an element.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.Lion8bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.Lion8bit : accel.optim.Blockwise
local Lion8bit = Blockwise:declare("Lion8bit", "lion", 1, { lr = 1e-4, betas = { 0.9, 0.99 }, weight_decay = 0 })

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-4: learning rate
---  betas number[] = { 0.9, 0.99 }: factors of the momentum in the step and in its own update
---  weight_decay number = 0: share of the parameter that each step takes off, times lr
---  min_8bit_size integer = 4096: parameters with fewer elements keep states of f32
---  stochastic_rounding boolean = false: parameters of bf16 are rounded to a neighbour at random, without bias
function Lion8bit:init(params, opts) Blockwise.init(self, params, opts) end

--- Lion8bit with states of f32, whatever the dtype of the parameters.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.Lion32bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.Lion32bit : accel.optim.Lion8bit
local Lion32bit = Lion8bit:variant("Lion32bit", { bits = 32 })

--- Lion8bit whose states are stored outside the device between steps: in host memory, or in a file of page_folder. A step fetches them,
--- page_budget bytes at a time, with the same numbers. On the CPU, paging needs a folder. Without one a warning reports that nothing is
--- paged.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedLion8bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.PagedLion8bit : accel.optim.Lion8bit
local PagedLion8bit = Lion8bit:variant("PagedLion8bit", { paged = true })

--- Lion32bit whose states are stored outside the device between steps: in host memory, or in a file of page_folder. A step fetches them,
--- page_budget bytes at a time, with the same numbers. On the CPU, paging needs a folder. Without one a warning reports that nothing is
--- paged.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedLion32bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.PagedLion32bit : accel.optim.Lion8bit
local PagedLion32bit = Lion8bit:variant("PagedLion32bit", { bits = 32, paged = true })

--- PagedLion32bit under the name that it has without bits.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.PagedLion(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.PagedLion : accel.optim.Lion8bit
local PagedLion = Lion8bit:variant("PagedLion", { bits = 32, paged = true })

return {
  Lion8bit = Lion8bit, Lion32bit = Lion32bit, PagedLion8bit = PagedLion8bit, PagedLion32bit = PagedLion32bit,
  PagedLion = PagedLion,
}
