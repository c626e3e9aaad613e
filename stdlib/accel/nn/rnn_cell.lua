--- One step of recurrence: RNNCell, LSTMCell, GRUCell, and the formulas that RNN, LSTM and GRU share with them.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local linear = accel.linear

local M = {}

--- The two initial states of an LSTM that were given as one list.
---@param who string
---@param given table
---@param other any what stands after the list: nothing
---@return accel.Tensor h
---@return accel.Tensor c
function M.pair(who, given, other)
  for key in next, given do
    if key ~= 1 and key ~= 2 and key ~= "n" then
      raise("%s: the initial states must be a list of two tensors, found the key %s", who, check.shown(key))
    end
  end
  if given[1] == nil or given[2] == nil then raise("%s: the list of initial states must have two tensors, { h, c }", who) end
  if other ~= nil then raise("%s: the initial states are given twice, as a list and as an argument after it", who) end
  return given[1], given[2]
end

--- Steps: from gx, the input's part of the gates (..., gates * H), and the state to the next state. Gates stand
--- in PyTorch's order.
M.steps = {}

function M.steps.tanh(gx, w_hh, b_hh, h) return (gx + linear(h, w_hh, b_hh)):tanh() end

function M.steps.relu(gx, w_hh, b_hh, h) return (gx + linear(h, w_hh, b_hh)):relu() end

--- input, forget, cell, output
function M.steps.lstm(gx, w_hh, b_hh, h, c)
  local g = (gx + linear(h, w_hh, b_hh)):chunk(4, -1)
  c = g[2]:sigmoid() * c + g[1]:sigmoid() * g[3]:tanh()
  return g[4]:sigmoid() * c:tanh(), c
end

--- reset, update, new
function M.steps.gru(gx, w_hh, b_hh, h)
  local x, r = gx:chunk(3, -1), linear(h, w_hh, b_hh):chunk(3, -1)
  local reset, update = (x[1] + r[1]):sigmoid(), (x[2] + r[2]):sigmoid()
  local new = (x[3] + reset * r[3]):tanh()
  return new + update * (h - new)
end

local function class(who, gates, ...)
  local Cell = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "input_size" }, { "hidden_size" }, { "bias", true }, ...)

  function Cell:init(...)
    local o = parse(...)
    self.input_size = check.positive(who, "input_size", o.input_size)
    self.hidden_size = check.positive(who, "hidden_size", o.hidden_size)
    if o.nonlinearity then
      self.nonlinearity = check.word(who, "nonlinearity", o.nonlinearity, { "tanh", "relu" })
    end
    local n, make = gates * self.hidden_size, { dtype = o.dtype, device = o.device }
    self.weight_ih = Parameter(accel.empty(n, self.input_size, make))
    self.weight_hh = Parameter(accel.empty(n, self.hidden_size, make))
    self:register_parameter("bias_ih", o.bias and Parameter(accel.empty(n, make)) or nil)
    self:register_parameter("bias_hh", o.bias and Parameter(accel.empty(n, make)) or nil)
    self:reset_parameters()
  end

  --- Draws the initial values again.
  function Cell:reset_parameters()
    local init = require "accel.nn.initialization"
    local bound = 1 / math.sqrt(self.hidden_size)
    for _, p in ipairs(self:parameters(false)) do init.uniform_(p, -bound, bound) end
  end

  --- Checks the input and gives states that are missing as zeros.
  ---@param x accel.Tensor the input
  function Cell:states(x, ...)
    if x.ndim ~= 1 and x.ndim ~= 2 or x:size(-1) ~= self.input_size then
      raise("%s: expected (N, %d) or (%d), got shape %s", who, self.input_size, self.input_size,
        tensors.shape_string(x))
    end
    local shape = x.shape
    shape[#shape] = self.hidden_size
    local out = { ... }
    for i = 1, select("#", ...) do
      local h = out[i]
      if h == nil then
        out[i] = accel.zeros(shape, { dtype = x.dtype, device = x.device })
      elseif not tensors.is_tensor(h) or h.ndim ~= #shape or h:size(-1) ~= self.hidden_size then
        raise("%s: the state must have shape (%s), got %s", who, table.concat(shape, ", "),
          tensors.is_tensor(h) and tensors.shape_string(h) or check.shown(h))
      end
    end
    return table.unpack(out, 1, select("#", ...))
  end

  function Cell:extra_repr()
    return ("%d, %d%s"):format(self.input_size, self.hidden_size, self.bias_ih and "" or ", bias=false")
  end

  return Cell
end

--- h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with nonlinearity = "relu". cell(x, h) with x (N, input_size) or
--- (input_size). The default h is 0. Initial values: uniform in +-1 / sqrt(hidden_size).
--- example: accel.nn.RNNCell(3, 2)(accel.ones(4, 3)).shape --> { 4, 2 }
---@class accel.nn.RNNCell : accel.nn.Module
---@overload fun(input_size: integer, hidden_size: integer, opts: table?): accel.nn.RNNCell
M.RNNCell = class("RNNCell", 1, { "nonlinearity", "tanh" }, { "device" }, { "dtype", "f32" })

function M.RNNCell:forward(x, h)
  h = self:states(x, h)
  return M.steps[self.nonlinearity](linear(x, self.weight_ih, self.bias_ih), self.weight_hh, self.bias_hh, h)
end

--- One step of LSTM: cell(x, h, c), or cell(x, {h, c}) as in PyTorch, -> h', c'. See LSTM.
--- example: local h, c = accel.nn.LSTMCell(3, 2)(accel.ones(4, 3)) return h.shape, c.shape --> { 4, 2 }, { 4, 2 }
---@class accel.nn.LSTMCell : accel.nn.Module
---@overload fun(input_size: integer, hidden_size: integer, opts: table?): accel.nn.LSTMCell
M.LSTMCell = class("LSTMCell", 4, { "device" }, { "dtype", "f32" })

function M.LSTMCell:forward(x, h, c)
  if type(h) == "table" then h, c = M.pair("LSTMCell", h, c) end
  h, c = self:states(x, h, c)
  return M.steps.lstm(linear(x, self.weight_ih, self.bias_ih), self.weight_hh, self.bias_hh, h, c)
end

--- One step of GRU: cell(x, h) -> h'. See GRU.
--- example: accel.nn.GRUCell(3, 2)(accel.ones(4, 3)).shape --> { 4, 2 }
---@class accel.nn.GRUCell : accel.nn.Module
---@overload fun(input_size: integer, hidden_size: integer, opts: table?): accel.nn.GRUCell
M.GRUCell = class("GRUCell", 3, { "device" }, { "dtype", "f32" })

function M.GRUCell:forward(x, h)
  h = self:states(x, h)
  return M.steps.gru(linear(x, self.weight_ih, self.bias_ih), self.weight_hh, self.bias_hh, h)
end

return M
