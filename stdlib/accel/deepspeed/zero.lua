--- zero.Init and zero.GatheredParameters: models that are created in parts, and looks into parameters that lie in parts.
---
---   local model
---   do
---     local _ <close> = accel.deepspeed.zero.Init()
---     model = Net()                             -- no rank ever holds more than one module's parameters whole
---   end
---   model, optimizer = accelerator:prepare(model, optimizer)
---
--- A parameter that is created so lies in memory of which every rank has its part. An op that needs it gathers it, on all ranks,
--- and the one that was gathered before goes back to its parts, with what was written to it. Units of a sharded model
--- (accel.shard.unit) take it over when the model is prepared.
local Module = require "accel.nn.module"
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.shard.core"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

-- Parameter -> {flat, own, part}: what this rank holds of it. Flat does not hold the parameter.
local states = setmetatable({}, { __mode = "k" })
local open = setmetatable({}, { __mode = "k" }) -- states that are whole now, as keys
local depth, garbage = 0, 0

--- Elements below which a parameter is not worth a collective: it stays whole.
local SMALL <const> = 1024
--- Bytes of whole parameters behind which what is left of them is collected.
local COLLECT <const> = 1 << 20

--- Whether an Init is open.
---@return boolean
function M.active() return depth > 0 end

--- Whole ones go back to their parts, except those that an op has right now.
local function close_others()
  local _ <close> = accel.no_grad()
  for s in next, open do
    if core.there(s.flat) and not s.held and not core.used(s.flat) then
      if core.written(s.flat) then s.own:copy_(s.flat:narrow(1, s.rank * s.part + 1, s.part)) end
      core.set(s.flat, nil)
    end
    if not core.there(s.flat) then open[s] = nil end
  end
end

local function gather(s)
  local _ <close> = accel.no_grad()
  close_others()
  local whole = accel.unscoped(accel.empty, s.part * s.size, { dtype = s.flat.dtype, device = s.flat.device })
  dist.all_gather_into_tensor(whole, s.own)
  core.set(s.flat, whole)
  whole:release() -- the flat tensor alone holds it now
  open[s] = true
end

--- Cuts a parameter over all ranks: each keeps its part of the values that it has here. No collective: ranks draw the same
--- values.
---@param p accel.Tensor
---@param name? string for messages
function M.cut(p, name)
  local size = dist.get_world_size()
  if size == 1 or states[p] or p.device == "meta" or p:numel() < math.max(SMALL, size) then return end
  local n, rank = p:numel(), dist.get_rank()
  local part = (n + size - 1) // size
  local _ <close> = accel.no_grad()
  local s = { part = part, rank = rank, size = size }
  s.own = accel.unscoped(accel.zeros, part, { dtype = p.dtype, device = p.device })
  local first, last = rank * part, math.min(n, (rank + 1) * part)
  if first < last then s.own:narrow(1, 1, last - first):copy_(p:detach():reshape(-1):narrow(1, first + 1, last - first)) end
  local weak = setmetatable({ s }, { __mode = "v" })
  s.flat = accel.unscoped(core.gathered, name or "zero.Init", part * size, p.dtype, p.device, function() gather(weak[1]) end, true)
  core.bind(p, s.flat, 0)
  states[p] = s
  garbage = garbage + n * p:element_size() -- the tensor that the parameter was made of
  if garbage >= COLLECT then
    collectgarbage()
    garbage = 0
  end
end

--- A parameter that was created in parts is whole afterwards, until another one is. A collective.
---@param p accel.Tensor
function M.gather(p)
  local s = states[p]
  if s and not core.there(s.flat) then gather(s) end
end

--- Parameters that have other memory now: their parts are given up.
---@param params accel.Tensor[]
function M.forget(params)
  for _, p in ipairs(params) do states[p] = nil end
end

--- A module that is complete: its own parameters are cut.
local function constructed(object)
  if not Module.is_module(object) then return end
  for key, value, kind in object:_fields() do
    if kind == "parameter" then M.cut(value, ("%s of a %s"):format(tostring(key), class.of(object).__name)) end
  end
end

--- Until the block ends, or while fn runs, modules are created in parts: parameters are cut over all ranks as soon as their
--- module's init is through, so that memory holds a rank's part of the model and one module. All ranks create the same modules,
--- with the same random numbers. enabled = false: as without it; so on one rank.
--- example: local net do local _ <close> = accel.deepspeed.zero.Init() net = accel.nn.Linear(2, 1) end
---   return #net:parameters() --> 2
---@param opts? {enabled: boolean?}
---@param fn? function
---@param ... any
function M.Init(opts, fn, ...)
  if type(opts) == "function" then return M.Init(nil, opts, fn, ...) end
  local o = options("zero.Init", opts, { enabled = true })
  if not o.enabled then return guard(function() end, fn, ...) end
  local before = class.constructed
  class.constructed, depth = constructed, depth + 1
  return guard(function()
    class.constructed, depth = before, depth - 1
    close_others()
  end, fn, ...)
end

-- GatheredParameters -----------------------------------------------------------------------------

local function list_of(params)
  if tensors.is_tensor(params) then return { params } end
  if Module.is_module(params) then return params:parameters() end
  if type(params) ~= "table" then raise("GatheredParameters: expected parameters, got %s", check.shown(params)) end
  return params
end

local function close_state(s, modifier)
  s.held = nil
  if modifier then
    dist.broadcast(s.flat, { src = modifier })
    s.own:copy_(s.flat:narrow(1, s.rank * s.part + 1, s.part))
  elseif core.written(s.flat) then
    core.set(s.flat, nil)
    raise "GatheredParameters: parameters were written to, which would be lost: give modifier_rank"
  end
  core.set(s.flat, nil)
end

--- Every rank has these parameters whole until the block ends, or while fn runs. modifier_rank: what this rank writes to them
--- stays, on all ranks; without it they may only be read. A collective, at its begin and at its end. Parameters that do not lie
--- in parts are as they are.
--- example: local net = accel.nn.Linear(2, 1) do local _ <close> = accel.deepspeed.GatheredParameters(net:parameters()) end
---   return net.weight.shape --> { 1, 2 }
---@param params accel.Tensor[]|accel.Tensor|accel.nn.Module
---@param opts? {modifier_rank: integer?, enabled: boolean?, fwd_module: any}|integer modifier_rank; fwd_module: see
---  accel.shard.gathered_parameters
---@param fn? function
---@param ... any
function M.GatheredParameters(params, opts, fn, ...)
  if type(opts) == "function" then return M.GatheredParameters(params, nil, opts, fn, ...) end
  if math.type(opts) == "integer" then opts = { modifier_rank = opts } end
  local o = options("GatheredParameters", opts, { modifier_rank = options.none, enabled = true, fwd_module = options.none })
  local modifier = o.modifier_rank
  if modifier ~= nil and check.count("GatheredParameters", "modifier_rank", modifier) >= dist.get_world_size() then
    raise("GatheredParameters: modifier_rank is %d, there are %d ranks", modifier, dist.get_world_size())
  end
  local list, own = list_of(params), {}
  local inner = require "accel.shard.gathered_parameters"(list, o)
  for _, p in ipairs(o.enabled and list or {}) do own[#own + 1] = states[p] end
  do
    local _ <close> = accel.no_grad()
    for _, s in ipairs(own) do
      if not core.there(s.flat) then gather(s) end
      s.held = true
    end
  end
  return guard(function()
    inner:close()
    local _ <close> = accel.no_grad()
    for _, s in ipairs(own) do close_state(s, modifier) end
  end, fn, ...)
end

M.zero = M
return M
