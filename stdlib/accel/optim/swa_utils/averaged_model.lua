--- swa_utils.AveragedModel: a model whose parameters are an average of another one's over training.
local accel = require "accel"
local Module = require "accel.nn.module"
local arguments = require "accel.util.arguments"
local averages = require "accel.optim.swa_utils.averages"
local check = require "accel.util.check"
local deepcopy = require "accel.nn.deepcopy"
local divided = require "accel.nn.divided"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- An average of a model over training. Call update_parameters(model) after each step or epoch. The first call copies the parameters, later
--- ones average them. You can call the average as the model itself. Its state has PyTorch's names: `module.NAME` and `n_averaged`.
---
--- If the parameters are sharded (FullyShardedDataParallel, ZeRO), each rank averages its own parts, so that the average takes the memory of one
--- copy over all ranks. There is no second model then: a call puts the averages into the model for as long as it runs, without gradients. exchange()
--- does the same for longer, for generation or to save the model. All ranks must call update_parameters, exchange, state_dict and the
--- average itself.
--- example: local net = accel.nn.Linear(1, 1, { bias = false }) local swa = accel.optim.swa_utils.AveragedModel(net)
---   for _, w in ipairs { 1.0, 3.0 } do
---     do local _ <close> = accel.no_grad() net.weight:fill_(w) end
---     swa:update_parameters(net)
---   end
---   return swa(accel.ones(1, 1)) --> { { 2 } }
---@class accel.optim.swa_utils.AveragedModel : accel.nn.Module
---@field module accel.nn.Module the average (of sharded parameters, the model itself)
---@field n_averaged accel.Tensor how many models are in it
local AveragedModel = Module:extend("accel.optim.swa_utils.AveragedModel")

local parse = arguments("AveragedModel", { "device" }, { "avg_fn" }, { "multi_avg_fn" }, { "use_buffers", false })

--- Parameters as this rank has them, and the engines that hold them.
local function parts_of(model)
  local list, engines, owners = model:parameters(), {}, divided.owners
  if not owners then return list, engines end
  local parts, first = owners.pieces(list)
  if not first then return list, engines end
  for _, p in ipairs(list) do
    local place = owners.of[p]
    if place then engines[place.engine] = true end
  end
  local ordered = {}
  for engine in next, engines do ordered[#ordered + 1] = engine end
  if #ordered > 1 then raise "AveragedModel: the parameters belong to several sharded models; average each of them" end
  if ordered[1].tier then raise "AveragedModel: parameters with offloaded optimizer states are not supported; average without offload" end
  return parts, ordered
end

---@param model accel.nn.Module
---@param ... any device (where the average lies), avg_fn, multi_avg_fn (get_ema_multi_avg_fn() and others; default: the mean), use_buffers = false
---  (true: average buffers as well, instead of copying them), or a table of them
function AveragedModel:init(model, ...)
  local o = parse(...)
  if not Module.is_module(model) then raise("AveragedModel: %s", Module.not_a_module(model)) end
  if o.avg_fn ~= nil and o.multi_avg_fn ~= nil then raise "AveragedModel: give avg_fn or multi_avg_fn, not both" end
  for _, name in ipairs { "avg_fn", "multi_avg_fn" } do
    if o[name] ~= nil then check.callable("AveragedModel", name, o[name]) end
  end
  self.avg_fn, self.multi_avg_fn, self.use_buffers = o.avg_fn, o.multi_avg_fn, o.use_buffers
  local parts, engines = parts_of(model)
  if #engines > 0 then
    if o.device ~= nil then raise "AveragedModel: device has no effect for sharded parameters; leave it out" end
    local kept = {}
    for i, p in ipairs(parts) do kept[i] = accel.unscoped(function() return p:detach():clone() end) end
    -- in tables, which are not registered: the parameters are the model's
    self._sharded = { model = model, parts = parts, averages = kept, engine = engines[1] }
  else
    self.module = deepcopy(model)
    self._source = { model = model } -- in a table, which is not registered
    for _, p in ipairs(self.module:parameters()) do p.grad = nil end
    if o.device ~= nil then self.module:to(o.device) end
  end
  self:register_buffer("n_averaged", accel.zeros({}, { dtype = "i64", device = o.device }))
end

--- The model that is called.
function AveragedModel:forward(...)
  local sharded = rawget(self, "_sharded")
  if not sharded then return self.module(...) end
  local _ <close> = self:exchange()
  local _ <close> = accel.no_grad()
  return sharded.model(...)
end

--- Exchanges the values of the model's parameters (this rank's parts of them) and of their averages.
local function swap(held, averages_, parts)
  local _ <close> = accel.no_grad()
  if held.engine then held.engine:before_step() end
  for i, p in ipairs(parts) do
    local value = p:detach():clone()
    p:copy_(averages_[i])
    averages_[i]:copy_(value)
  end
  if held.engine then held.engine:after_step() end
  held.exchanged = not held.exchanged
end

--- Puts the averages in the place of the model's parameters until the result is closed, on all ranks of a sharded model, whose average has no
--- model of its own: `do local _ <close> = average:exchange() accelerator:save_model(model, folder) end`.
--- example: local net = accel.nn.Linear(1, 1, { bias = false }) local swa = accel.optim.swa_utils.AveragedModel(net)
---   do local _ <close> = accel.no_grad() net.weight:fill_(3) swa:update_parameters(net) net.weight:fill_(5) end
---   local inside do local _ <close> = swa:exchange() inside = net.weight:item() end return inside, net.weight:item() --> 3, 5
---@return table to be closed
function AveragedModel:exchange(...)
  check.surplus("AveragedModel:exchange", ...)
  local held = rawget(self, "_sharded") or self._source
  if held.exchanged then raise "AveragedModel: the averages are in the model already" end
  local into, parts = held.averages, held.parts
  if not held.engine then into, parts = self.module:parameters(), (parts_of(held.model)) end
  swap(held, into, parts)
  return setmetatable({}, { __close = function() swap(held, into, parts) end })
end

--- Averages of one kind: by the rule for lists where there is one, otherwise tensor by tensor.
local function average(self, into, from, n)
  local by_kind, order = {}, {}
  for i, a in ipairs(into) do
    local kind = tostring(a.device) .. " " .. a.dtype
    if not by_kind[kind] then
      by_kind[kind] = { {}, {} }
      order[#order + 1] = by_kind[kind]
    end
    table.insert(by_kind[kind][1], a)
    table.insert(by_kind[kind][2], from[i]:detach():to(a.device):to(a.dtype))
  end
  for _, lists in ipairs(order) do
    if n == 0 then
      for i, a in ipairs(lists[1]) do a:copy_(lists[2][i]) end
    elseif self.avg_fn then
      for i, a in ipairs(lists[1]) do a:copy_(self.avg_fn(a, lists[2][i], n)) end
    else
      (self.multi_avg_fn or averages.get_swa_multi_avg_fn())(lists[1], lists[2], n)
    end
  end
end

local function expect_fit(into, from, what)
  if #into ~= #from then raise("AveragedModel: the model has %d %s, the average %d", #from, what, #into) end
  for i, a in ipairs(into) do
    if not tensors.same_shape(a, from[i]) then
      raise("AveragedModel: %s %d has shape %s, the average's %s", what:gsub("s$", ""), i, tensors.shape_string(from[i]), tensors.shape_string(a))
    end
  end
end

--- Takes the parameters of a model into the average, and its buffers: averaged with use_buffers = true, otherwise copied.
---@param model accel.nn.Module
function AveragedModel:update_parameters(model, ...)
  check.surplus("AveragedModel:update_parameters", ...)
  if not Module.is_module(model) then raise("AveragedModel: %s", Module.not_a_module(model)) end
  local _ <close> = accel.no_grad()
  local n, sharded = self.n_averaged:item(), rawget(self, "_sharded")
  local from, engines = parts_of(model)
  if (sharded or self._source).exchanged then raise "AveragedModel: the averages are in the model; close the result of exchange first" end
  if sharded then
    if engines[1] ~= sharded.engine then raise "AveragedModel: the average is of another sharded model" end
    sharded.parts = from
    expect_fit(sharded.averages, from, "parts")
    average(self, sharded.averages, from, n)
  else
    if #engines > 0 then raise "AveragedModel: the model is sharded, the average is not; make the average after prepare" end
    local into = self.module:parameters()
    expect_fit(into, from, "parameters")
    average(self, into, from, n)
    local kept, given = self.module:buffers(), model:buffers()
    expect_fit(kept, given, "buffers")
    average(self, kept, given, self.use_buffers and n or 0)
  end
  self.n_averaged:add_(1)
end

local function in_exchange(self, fn)
  local sharded = rawget(self, "_sharded")
  local held <close> = not sharded.exchanged and self:exchange() or nil -- luacheck: ignore held
  return fn(sharded.model)
end

--- The state under PyTorch's names. Of a sharded model it holds whole tensors, as the model's own.
---@return table<string, accel.Tensor>
function AveragedModel:state_dict(...)
  if not rawget(self, "_sharded") then return Module.state_dict(self, ...) end
  local out = require "accel.util.ordered"()
  out.n_averaged = self.n_averaged
  in_exchange(self, function(model)
    for name, t in pairs(model:state_dict()) do out["module." .. name] = accel.is_tensor(t) and t:detach():clone() or t end
  end)
  return out
end

--- Continues from such a state.
---@param state table<string, accel.Tensor>
function AveragedModel:load_state_dict(state, ...)
  if not rawget(self, "_sharded") then return Module.load_state_dict(self, state, ...) end
  local inner, n = {}, state.n_averaged
  for name, t in pairs(state) do
    local own = name:match "^module%.(.*)$"
    if own then inner[own] = t end
  end
  if n == nil then raise "AveragedModel: the state has no n_averaged" end
  local rest = table.pack(...)
  local result = in_exchange(self, function(model) return model:load_state_dict(inner, table.unpack(rest, 1, rest.n)) end)
  self.n_averaged:copy_(n)
  return result
end

return AveragedModel
