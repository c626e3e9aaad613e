--- Recurrent layers: RNN, LSTM, GRU. The input's part of all steps is one product. The steps themselves are ops in a
--- loop.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"
local rnn_cell = require "accel.nn.rnn_cell"
local tensors = require "accel.util.tensors"

local linear, steps = accel.linear, rnn_cell.steps

local function packed_sequence() return require "accel.nn.utils.packed_sequence" end

local M = {}

--- "l0", "l0_reverse", "l1", ...
local function suffixes(self)
  local out = {}
  for i = 0, self.num_layers - 1 do
    out[#out + 1] = ("l%d"):format(i)
    if self.bidirectional then out[#out + 1] = ("l%d_reverse"):format(i) end
  end
  return out
end

local function setup(self, who, gates, o)
  self.input_size = check.positive(who, "input_size", o.input_size)
  self.hidden_size = check.positive(who, "hidden_size", o.hidden_size)
  self.num_layers = check.positive(who, "num_layers", o.num_layers)
  self.dropout = check.number(who, "dropout", o.dropout, 0, 1)
  if self.dropout > 0 and o.num_layers == 1 then
    no_effect.once(who, "dropout", "with num_layers = 1, because it applies between layers; give more layers, or leave it out")
  end
  self.batch_first, self.bidirectional, self.bias = o.batch_first, o.bidirectional, o.bias
  self.proj_size = o.proj_size or 0
  if math.type(self.proj_size) ~= "integer" or self.proj_size < 0 or self.proj_size >= self.hidden_size then
    raise("%s: proj_size must be an integer from 0 to hidden_size - 1, got %s", who, check.shown(self.proj_size))
  end
  local make, H = { dtype = o.dtype, device = o.device }, self.hidden_size
  local width = self.proj_size > 0 and self.proj_size or H
  local inputs = self.input_size
  for i, suffix in ipairs(suffixes(self)) do
    if i == (self.bidirectional and 3 or 2) then inputs = width * (self.bidirectional and 2 or 1) end
    local function parameter(name, ...) self[name .. "_" .. suffix] = Parameter(accel.empty(...)) end
    parameter("weight_ih", gates * H, inputs, make)
    parameter("weight_hh", gates * H, width, make)
    if o.bias then
      parameter("bias_ih", gates * H, make)
      parameter("bias_hh", gates * H, make)
    end
    if self.proj_size > 0 then parameter("weight_hr", width, H, make) end
  end
  self:reset_parameters()
end

--- The positions of dimension 1. One op splits into at most 64.
local function places(x)
  local n = x:size(1)
  if n <= 64 then return x:unbind(1) end
  local out = {}
  for _, piece in ipairs(x:split((n + 63) // 64, 1)) do
    for _, place in ipairs(places(piece)) do out[#out + 1] = place end
  end
  return out
end

--- The pieces of packed rows, `sizes` of them a step.
local function pieces(x, sizes)
  local out, at = {}, 1
  for t, n in ipairs(sizes) do
    out[t], at = x:narrow(1, at, n), at + n
  end
  return out
end

--- n more (or, negative, fewer) sequences for a state (rows, H): those that begin, of `initial`, or end, which go into `ended`.
local function resized(h, n, initial, ended)
  if h == nil or n == 0 then return h end
  local rows = h:size(1)
  if n > 0 then return accel.cat({ h, initial:narrow(1, rows + 1, n) }, 1) end
  table.insert(ended, 1, h:narrow(1, rows + n + 1, -n))
  return h:narrow(1, 1, rows + n)
end

--- One direction of one layer: x (T, N, inputs) and states (N, H) -> outputs (T, N, H) and last states. sizes: x is packed, (rows,
--- inputs), and so are the outputs.
local function run(self, step, suffix, x, h, c, reverse, sizes)
  local w_hh, b_hh = self["weight_hh_" .. suffix], self["bias_hh_" .. suffix]
  local w_hr = self.proj_size > 0 and self["weight_hr_" .. suffix]
  local gates = linear(x, self["weight_ih_" .. suffix], self["bias_ih_" .. suffix])
  gates = sizes and pieces(gates, sizes) or places(gates)
  local T, out = #gates, {}
  local h0, c0, ended_h, ended_c = h, c, {}, {}
  if sizes then -- backwards the shorter sequences begin later, forwards they end earlier
    local n = sizes[reverse and T or 1]
    h, c = h:narrow(1, 1, n), c and c:narrow(1, 1, n)
  end
  for i = 1, T do
    local t = reverse and T + 1 - i or i
    if sizes then
      local change = sizes[t] - h:size(1)
      h, c = resized(h, change, h0, ended_h), resized(c, change, c0, ended_c)
    end
    h, c = step(gates[t], w_hh, b_hh, h, c)
    if w_hr then h = linear(h, w_hr) end
    out[t] = h
  end
  if not sizes then return accel.stack(out, 1), h, c end
  if #ended_h > 0 then
    h, c = accel.cat({ h, table.unpack(ended_h) }, 1), c and accel.cat({ c, table.unpack(ended_c) }, 1)
  end
  return accel.cat(out, 1), h, c
end

local function check_state(who, name, h, shape)
  local got = tensors.is_tensor(h) and h.shape
  local same = got and #got == #shape
  for i = 1, same and #shape or 0 do same = same and got[i] == shape[i] end
  if not same then
    raise("%s: %s must have shape (%s), got %s", who, name, table.concat(shape, ", "),
      got and tensors.shape_string(h) or check.shown(h))
  end
end

--- All layers over x (L, N, inputs), or over packed rows of `sizes` a step: -> outputs, last h, last c (nil without cells).
local function layers(self, who, step, cells, x, h0, c0, N, batched, sizes)
  local names = suffixes(self)
  local width = self.proj_size > 0 and self.proj_size or self.hidden_size
  local function states(name, given, size)
    if given == nil then
      local zero = accel.zeros(N, size, { dtype = x.dtype, device = x.device })
      local out = {}
      for i = 1, #names do out[i] = zero end
      return out
    end
    check_state(who, name, given, batched and { #names, N, size } or { #names, size })
    return places(batched and given or given:unsqueeze(2))
  end
  local h = states("the initial state", h0, width)
  local c = cells and states("the initial cell state", c0, self.hidden_size) or {}
  local each = self.bidirectional and 2 or 1
  for layer = 1, self.num_layers do
    local outs = {}
    for direction = 1, each do
      local i = (layer - 1) * each + direction
      outs[direction], h[i], c[i] = run(self, step, names[i], x, h[i], c[i], direction == 2, sizes)
    end
    x = each == 2 and accel.cat(outs, -1) or outs[1]
    if self.training and self.dropout > 0 and layer < self.num_layers then
      x = accel.dropout(x, self.dropout, true)
    end
  end
  return x, accel.stack(h, 1), cells and accel.stack(c, 1) or nil
end

--- layers over a PackedSequence. States are in the caller's order of the sequences.
local function packed(self, who, step, cells, x, h0, c0)
  if x.data.ndim ~= 2 or x.data:size(2) ~= self.input_size then
    raise("%s: expected packed rows of %d, got shape %s", who, self.input_size, tensors.shape_string(x.data))
  end
  local sizes, sorted, unsorted = x.batch_sizes:tolist(), x.sorted_indices, x.unsorted_indices
  local function ordered(state, order)
    if not tensors.is_tensor(state) or not order or state.ndim ~= 3 or state:size(2) ~= order:numel() then return state end
    return state:index_select(2, order)
  end
  local out, hn, cn = layers(self, who, step, cells, x.data, ordered(h0, sorted), ordered(c0, sorted), sizes[1], true, sizes)
  return x:with(out), ordered(hn, unsorted), ordered(cn, unsorted)
end

--- All layers over a tensor or a PackedSequence.
local function forward(self, who, step, cells, x, h0, c0)
  if type(x) == "table" and packed_sequence().is(x) then return packed(self, who, step, cells, x, h0, c0) end
  if not tensors.is_tensor(x) or x.ndim < 2 or x.ndim > 3 or x:size(-1) ~= self.input_size then
    raise("%s: expected (%s, %d) or without a batch (L, %d), got %s", who,
      self.batch_first and "N, L" or "L, N", self.input_size, self.input_size,
      tensors.is_tensor(x) and tensors.shape_string(x) or check.shown(x))
  end
  local batched = x.ndim == 3
  if not batched then
    x = x:unsqueeze(2)
  elseif self.batch_first then
    x = x:transpose(1, 2)
  end
  if x:size(1) == 0 then raise("%s: the sequence has no steps", who) end
  local out, hn, cn = layers(self, who, step, cells, x, h0, c0, x:size(2), batched)
  if not batched then
    return out:squeeze(2), hn:squeeze(2), cn and cn:squeeze(2)
  end
  return self.batch_first and out:transpose(1, 2) or out, hn, cn
end

--- Draws the weights anew, as the constructor did.
local function reset(self)
  local init = require "accel.nn.initialization"
  local bound = 1 / math.sqrt(self.hidden_size)
  for _, p in ipairs(self:parameters(false)) do init.uniform_(p, -bound, bound) end
end

local function repr(self)
  local parts = { ("%d, %d"):format(self.input_size, self.hidden_size) }
  if self.proj_size > 0 then parts[#parts + 1] = ("proj_size=%d"):format(self.proj_size) end
  if self.num_layers ~= 1 then parts[#parts + 1] = ("num_layers=%d"):format(self.num_layers) end
  if not self.bias then parts[#parts + 1] = "bias=false" end
  if self.batch_first then parts[#parts + 1] = "batch_first=true" end
  if self.dropout ~= 0 then parts[#parts + 1] = ("dropout=%g"):format(self.dropout) end
  if self.bidirectional then parts[#parts + 1] = "bidirectional=true" end
  return table.concat(parts, ", ")
end

local function class(who, ...)
  local Class = Module:extend("accel.nn." .. who)
  Class.reset_parameters, Class.extra_repr = reset, repr
  return Class, arguments(who, { "input_size" }, { "hidden_size" }, { "num_layers", 1 }, ...)
end

local tail = { { "bias", true }, { "batch_first", false }, { "dropout", 0.0 }, { "bidirectional", false } }
local make = { { "device" }, { "dtype", "f32" } }

local function joined(...)
  local out = {}
  for _, list in ipairs { ... } do table.move(list, 1, #list, #out + 1, out) end
  return table.unpack(out)
end

local RNN, rnn_arguments = class("RNN", joined({ { "nonlinearity", "tanh" } }, tail, make))
local LSTM, lstm_arguments = class("LSTM", joined(tail, { { "proj_size", 0 } }, make))
local GRU, gru_arguments = class("GRU", joined(tail, make))

--- h' = tanh(W_ih x + b_ih + W_hh h + b_hh) over a sequence (L, N, input_size), with batch_first = true
--- (N, L, input_size), or without a batch (L, input_size). layer(x, h0) -> outputs of the last layer
--- (L, N, D * hidden_size) and the last states (num_layers * D, N, hidden_size), D = 2 with bidirectional = true. x may
--- be a PackedSequence (nn.utils.rnn.pack_padded_sequence), and the outputs then are one as well.
--- Options: num_layers = 1, nonlinearity = "tanh" or "relu", bias = true, batch_first = false, dropout = 0
--- (between layers), bidirectional = false. Initial values: uniform in +-1 / sqrt(hidden_size).
--- example: accel.nn.RNN(3, 2)(accel.ones(5, 4, 3)).shape --> { 5, 4, 2 }
---@class accel.nn.RNN : accel.nn.Module
M.RNN = RNN

---@param ... any
function RNN:init(...)
  local o = rnn_arguments(...)
  self.nonlinearity = check.word("RNN", "nonlinearity", o.nonlinearity, { "tanh", "relu" })
  setup(self, "RNN", 1, o)
end

---@param x accel.Tensor
---@param h0? accel.Tensor
---@return accel.Tensor output
---@return accel.Tensor h_n
function RNN:forward(x, h0)
  local out, h = forward(self, "RNN", steps[self.nonlinearity], false, x, h0)
  return out, h
end

--- Long short-term memory: i, f, o = sigmoid, g = tanh of W_i x + b_i + W_h h + b_h. c' = f c + i g. h' = o tanh(c'),
--- projected to proj_size if that is given. layer(x, h0, c0), or layer(x, {h0, c0}) as in PyTorch, -> outputs, h_n,
--- c_n. Shapes and options as RNN's.
--- example: local y, h = accel.nn.LSTM(3, 2, 2)(accel.ones(5, 4, 3)) return y.shape, h.shape --> {5, 4, 2}, {2, 4, 2}
---@class accel.nn.LSTM : accel.nn.Module
M.LSTM = LSTM

---@param ... any
function LSTM:init(...) setup(self, "LSTM", 4, lstm_arguments(...)) end

---@param x accel.Tensor
---@param h0? accel.Tensor|accel.Tensor[]
---@param c0? accel.Tensor
---@return accel.Tensor output
---@return accel.Tensor h_n
---@return accel.Tensor c_n
function LSTM:forward(x, h0, c0)
  if type(h0) == "table" then h0, c0 = rnn_cell.pair("LSTM", h0, c0) end
  return forward(self, "LSTM", steps.lstm, true, x, h0, c0)
end

--- Gated recurrent unit: r, z = sigmoid(...), n = tanh(W_in x + b_in + r (W_hn h + b_hn)),
--- h' = (1 - z) n + z h. layer(x, h0) -> outputs, h_n. Shapes and options as RNN's.
--- example: accel.nn.GRU(3, 2, { bidirectional = true })(accel.ones(5, 4, 3)).shape --> { 5, 4, 4 }
---@class accel.nn.GRU : accel.nn.Module
M.GRU = GRU

---@param ... any
function GRU:init(...) setup(self, "GRU", 3, gru_arguments(...)) end

---@param x accel.Tensor
---@param h0? accel.Tensor
---@return accel.Tensor output
---@return accel.Tensor h_n
function GRU:forward(x, h0)
  local out, h = forward(self, "GRU", steps.gru, false, x, h0)
  return out, h
end

return M
