--- optim.SGD8bit, RMSprop8bit and Adagrad8bit with one 8-bit state, and SGD32bit and so on with an f32 state.
local Blockwise = require "accel.optim.blockwise"

--- SGD with momentum whose state takes 8 bits an element. weight_decay joins the gradient.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.SGD8bit(p, { lr = 0.1, momentum = 0.9 }):step() return p:mean():item() --> 0.8
---@class accel.optim.SGD8bit : accel.optim.Blockwise
local SGD8bit = Blockwise:declare("SGD8bit", "momentum", 1, { lr = 1e-3, momentum = 0, weight_decay = 0 })

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  momentum number = 0: factor of the momentum. Required, above 0
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  min_8bit_size integer = 4096: parameters with fewer elements keep states of f32
---  stochastic_rounding boolean = false: parameters of bf16 are rounded to a neighbour at random, without bias
function SGD8bit:init(params, opts) Blockwise.init(self, params, opts) end

function SGD8bit:check_options(o)
  Blockwise.check_options(self, o)
  self:expect(o.momentum > 0 and o.momentum < 1, "momentum must be between 0 and 1, got %g: without it there is no state; use SGD",
    o.momentum)
end

--- The factors of the momentum.
---@param group table parameter group
function SGD8bit:numbers_of(group) return { beta1 = group.momentum } end -- luacheck: ignore self

--- RMSprop whose state takes 8 bits an element. weight_decay joins the gradient.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.RMSprop8bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0
---@class accel.optim.RMSprop8bit : accel.optim.Blockwise
local RMSprop8bit = Blockwise:declare("RMSprop8bit", "rmsprop", 1, { lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0 })

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-2: learning rate
---  alpha number = 0.99: factor of the running mean of the square
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  min_8bit_size integer = 4096: parameters with fewer elements keep states of f32
---  stochastic_rounding boolean = false: parameters of bf16 are rounded to a neighbour at random, without bias
function RMSprop8bit:init(params, opts) Blockwise.init(self, params, opts) end

--- The factor of the mean and eps.
---@param group table parameter group
function RMSprop8bit:numbers_of(group) return { beta1 = group.alpha, eps = group.eps } end -- luacheck: ignore self

--- Adagrad whose state takes 8 bits an element. weight_decay joins the gradient.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.Adagrad8bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.Adagrad8bit : accel.optim.Blockwise
local Adagrad8bit = Blockwise:declare("Adagrad8bit", "adagrad", 1, { lr = 1e-2, eps = 1e-10, weight_decay = 0 })

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-2: learning rate
---  eps number = 1e-10: added to the denominator
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  min_8bit_size integer = 4096: parameters with fewer elements keep states of f32
---  stochastic_rounding boolean = false: parameters of bf16 are rounded to a neighbour at random, without bias
function Adagrad8bit:init(params, opts) Blockwise.init(self, params, opts) end

--- SGD8bit with states of f32, whatever the dtype of the parameters.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.SGD32bit(p, { lr = 0.1, momentum = 0.9 }):step() return p:mean():item() --> 0.8
---@class accel.optim.SGD32bit : accel.optim.SGD8bit
local SGD32bit = SGD8bit:variant("SGD32bit", { bits = 32 })

--- RMSprop8bit with states of f32, whatever the dtype of the parameters.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.RMSprop32bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0
---@class accel.optim.RMSprop32bit : accel.optim.RMSprop8bit
local RMSprop32bit = RMSprop8bit:variant("RMSprop32bit", { bits = 32 })

--- Adagrad8bit with states of f32, whatever the dtype of the parameters.
--- example: local p = accel.ones(4096) p.grad = p * 2 accel.optim.Adagrad32bit(p, { lr = 0.1 }):step() return p:mean():item() --> 0.9
---@class accel.optim.Adagrad32bit : accel.optim.Adagrad8bit
local Adagrad32bit = Adagrad8bit:variant("Adagrad32bit", { bits = 32 })

return {
  SGD8bit = SGD8bit, RMSprop8bit = RMSprop8bit, Adagrad8bit = Adagrad8bit, SGD32bit = SGD32bit, RMSprop32bit = RMSprop32bit,
  Adagrad32bit = Adagrad32bit,
}
