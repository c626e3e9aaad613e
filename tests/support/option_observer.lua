--- What a call did, as one text: values to the last bit, dtypes, shapes, devices and gradients of tensors, entries of tables, the
--- state_dict of layers. The printed form of an object, its fields and the states of others are left out on purpose: an object that keeps
--- or prints an option and does nothing with it ignores it. Used by option_sweep.lua.
local accel = require "accel"
local class = require "accel.util.class"
local ordered = require "accel.util.ordered"

local M = {}

local function number(v)
  if math.type(v) == "integer" then return tostring(v) end
  return v ~= v and "nan" or ("%a"):format(v)
end

local function tensor(t, put)
  put(("%s %s %s%s"):format(t.dtype, t.device, table.concat(t.shape, "x"), t.requires_grad and " grad" or ""))
  if t.device:find "^meta" then return end
  if t:is_complex() then t = accel.view_as_real(t:detach()) end
  local ok, list = pcall(function() return t:detach():to("f64"):reshape(-1):tolist() end)
  if not ok then ok, list = pcall(function() return t:detach():contiguous():to("f64"):reshape(-1):tolist() end) end
  if not ok then return put(tostring(list)) end
  local parts = {}
  for i, v in ipairs(type(list) == "table" and list or { list }) do parts[i] = number(v) end
  put(table.concat(parts, " "))
end

local function show(v, put, depth, seen)
  local kind = type(v)
  if kind == "number" then return put(number(v)) end
  if kind == "nil" or kind == "boolean" or kind == "string" then return put(("%q"):format(tostring(v))) end
  if accel.is_tensor(v) then return tensor(v, put) end
  if kind ~= "table" or depth > 12 then return put(kind) end
  if seen[v] then return put "again" end
  seen[v] = true
  local cls = class.of(v)
  if cls and not ordered.is(v) then
    put(cls.__name)
    if class.isinstance(v, accel.nn.Module) then show(v:state_dict(), put, depth + 1, seen) end
    return
  end
  put "{"
  local meta = getmetatable(v)
  for key, value in (ordered.is(v) and ordered.iterate or accel.pairs)(v) do
    if type(key) ~= "table" and type(key) ~= "userdata" and type(key) ~= "function" then
      put(tostring(key))
      show(value, put, depth + 1, seen)
    end
  end
  put(meta and "}m" or "}")
end

--- One text of the results of a call: f(...) or what was packed.
---@param results table with n
---@return string
function M.text(results)
  local parts = {}
  local function put(text) parts[#parts + 1] = text end
  local seen = {}
  for i = 1, results.n do show(results[i], put, 0, seen) end
  return table.concat(parts, "\n")
end

--- A layer's doings with one input: results of training and of evaluation, gradients of a weighted sum of squares, what the layer keeps,
--- and the input afterwards (layers that write into it).
---@param layer accel.nn.Module
---@param ... accel.Tensor inputs; floating ones get gradients
function M.layer(layer, ...)
  local inputs, out = table.pack(...), {}
  local dtype
  for _, p in ipairs(layer:parameters()) do dtype = dtype or p.dtype end
  local function run(which)
    local own = {}
    for i = 1, inputs.n do
      local x = inputs[i]
      if accel.is_tensor(x) then
        local floating = x.dtype == "f32" or x.dtype == "f64"
        if floating and dtype and (dtype == "f64" or dtype == "f32") then x = x:to(dtype) end
        x = x:detach():clone()
        if floating then x = x:requires_grad_(true) end
      end
      own[i] = x
    end
    accel.manual_seed(5)
    local made = {} -- leaves may not be written in place
    for i = 1, inputs.n do
      made[i] = accel.is_tensor(own[i]) and own[i].requires_grad and own[i] * 1 or own[i]
    end
    local results = table.pack(layer(table.unpack(made, 1, inputs.n)))
    local loss
    local function sum(r)
      if accel.is_tensor(r) and r.requires_grad then
        local weights = (accel.arange(r:numel()) + 1):to(r.dtype):reshape(r.shape)
        local part = (r * r * weights):sum()
        loss = loss and loss + part or part
      elseif type(r) == "table" and not class.of(r) then
        for _, x in accel.pairs(r) do sum(x) end
      end
    end
    for i = 1, results.n do sum(results[i]) end
    local grads = {}
    if loss then
      loss:backward()
      for i = 1, inputs.n do grads[i] = accel.is_tensor(own[i]) and own[i].grad or false end
      for name, p in layer:named_parameters() do
        grads[name] = p.grad and p.grad:clone() or false
        p.grad = nil
      end
    end
    out[#out + 1] = { which, results, grads, { table.unpack(made, 1, inputs.n) } }
  end
  local meta = false
  for _, p in ipairs(layer:parameters()) do meta = meta or p.device:find "^meta" end
  local requires = {}
  for name, p in layer:named_parameters() do requires[name] = p.requires_grad end
  if meta then return layer:state_dict(), "meta" end
  layer:train()
  run "train"
  layer:eval()
  run "eval"
  return out, layer:state_dict(), requires
end

return M
