--- zero.Init and zero.GatheredParameters: models created in shards, and access to whole sharded parameters.
---
---   local model
---   do
---     local _ <close> = accel.deepspeed.zero.Init()
---     model = Net()                             -- no rank ever holds more than one module's parameters whole
---   end
---   model, optimizer = accelerator:prepare(model, optimizer)
---
--- A parameter that is created so lies in memory of which every rank has its part. An op that needs it gathers it, on all ranks,
--- and the one gathered before is written back to its shards, with its changes. Units of a sharded model (accel.shard.unit) take
--- it over when the model is prepared. Units of a sharded model (accel.shard.unit) take it over when the model is prepared. With
--- remote_device, or if the active plugin has offload_param, a rank's shard stays in host memory or in a file
--- (accel.offload.creation), even on one rank.
local plugins = require "accel.deepspeed.plugins"
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
local unwritten = require "accel.util.unwritten"

local M = {}

require "accel.nn.divided".creation = M

-- Parameter -> {flat, own, part}: this rank's shard of it. Flat does not hold the parameter.
local states = setmetatable({}, { __mode = "k" })
-- State -> its flat tensor, of those that are whole now. A state may outlive its tensor until the next collection: the weak value is gone then.
local open = setmetatable({}, { __mode = "kv" })
local depth, garbage = 0, 0
local remote = {} -- of the Inits that are open: accel.offload.Creation, or false

local TIERS <const> = { cpu = "host", nvme = "file" }

--- Elements below which a parameter is not worth a collective: it stays whole.
local SMALL <const> = 1024
--- Bytes of unreachable whole parameters after which they are collected.
local COLLECT <const> = 1 << 20

--- Whether an Init is open.
---@return boolean
function M.active() return depth > 0 end

--- Copies the whole parameter's values back into the own shard.
local function take_back(s)
  local mine <close> = (s.bytes or s.flat):narrow(1, s.rank * s.part + 1, s.part)
  if s.remote then s.remote:write(s.own, mine) else s.own:copy_(mine) end
end

--- Gives up the memory of the whole.
local function put_away(s)
  core.set(s.flat, nil)
  if s.bytes then s.bytes:release() end
  s.bytes = nil
end

--- Whole ones go back to their parts, except those that an op has right now.
local function close_others()
  local _ <close> = accel.no_grad()
  for s, flat in next, open do
    if core.there(flat) and not s.held and not core.used(s.flat) then
      if core.written(s.flat) then take_back(s) end
      put_away(s)
    end
    if not core.there(flat) then open[s] = nil end
  end
end

local function gather(s)
  local _ <close> = accel.no_grad()
  close_others()
  local whole = accel.unscoped(accel.empty, s.part * s.size, { dtype = s.flat.dtype, device = s.flat.device })
  local mine = s.own
  if s.remote then
    mine = whole:narrow(1, s.rank * s.part + 1, s.part)
    s.remote:read(s.own, mine)
  end
  if s.size > 1 then dist.all_gather_into_tensor(whole, mine) end
  if s.remote then mine:release() end
  core.set(s.flat, whole)
  if s.remote then s.bytes = whole else whole:release() end -- the flat tensor alone holds it now
  open[s] = s.flat
end

--- The whole parameter, which has memory while it is gathered.
local function make_flat(s, dtype, device)
  local weak = setmetatable({ s }, { __mode = "v" })
  return accel.unscoped(core.gathered, s.name, s.part * s.size, dtype, device, function() gather(weak[1]) end, true)
end

--- Whether models have no values on purpose, in a dry run: then meta stands for the device, and parameters are cut there.
local dry = unwritten.dry_run

--- The storage of new parameters' shards, if not in memory: set by the innermost Init or the active plugin.
local function remote_now()
  if depth > 0 and remote[depth] ~= nil then return remote[depth] or nil end
  local plugin = plugins.active()
  local o = plugin and require "accel.offload.from_plugin".deepspeed(plugin)
  if not o or not o.parameters then return nil end
  return require "accel.offload.creation".at("offload", o.parameters, o.parameters_folder, dry())
end

--- Cuts a parameter over all ranks: each keeps its part of the values that it has here. No collective: ranks draw the same
--- values.
---@param p accel.Tensor
---@param name? string for messages
function M.cut(p, name)
  local size = dist.get_world_size()
  if states[p] or p.quant_state or (p.device == "meta" and not dry()) or p:numel() < math.max(SMALL, size) then return end
  local n, rank, to = p:numel(), dist.get_rank(), remote_now()
  if size == 1 and not to then return end
  local part = (n + size - 1) // size
  local _ <close> = accel.no_grad()
  local s = { part = part, rank = rank, size = size, remote = to }
  local values <close> = p:detach():reshape(-1)
  if size == 1 then
    s.own = to:put(values)
  else
    local own = accel.unscoped(accel.zeros, part, { dtype = p.dtype, device = p.device })
    local first, last = rank * part, math.min(n, (rank + 1) * part)
    if first < last then own:narrow(1, 1, last - first):copy_(values:narrow(1, first + 1, last - first)) end
    s.own = to and to:put(own) or own
  end
  s.name = name or "zero.Init"
  s.flat = make_flat(s, p.dtype, p.device)
  core.bind(p, s.flat, 0)
  states[p] = s
  garbage = garbage + n * p:element_size() -- the tensor that the parameter was made of
  if garbage >= COLLECT then
    collectgarbage()
    garbage = 0
  end
end

--- Whether a parameter was created in parts and still is in them.
---@param p accel.Tensor
---@return boolean
function M.holds(p) return states[p] ~= nil end

--- A parameter that was created in parts is whole afterwards, until another one is. A collective.
---@param p accel.Tensor
function M.gather(p)
  local s = states[p]
  if s and not core.there(s.flat) then gather(s) end
end

--- A parameter that was created in parts gets another dtype, part by part: no rank holds it whole for that. false for a parameter
--- that was not. All ranks do the same, though it is not a collective.
---@param p accel.Tensor
---@param dtype string
---@return boolean
function M.cast(p, dtype)
  local s = states[p]
  if not s then return false end
  local _ <close> = accel.no_grad()
  if core.there(s.flat) then
    if core.written(s.flat) then take_back(s) end
    put_away(s)
    open[s] = nil
  end
  local own = s.own
  if s.remote then
    own = accel.empty(s.part, { dtype = s.flat.dtype, device = s.flat.device })
    s.remote:read(s.own, own)
  end
  local cast = accel.unscoped(own.to, own, dtype)
  s.own = s.remote and s.remote:put(cast) or cast
  s.flat = make_flat(s, dtype, p.device)
  core.bind(p, s.flat, 0)
  return true
end

--- Reads a parameter that was created in shards straight into a flat tensor. false if it must be gathered.
---@param p accel.Tensor
---@param into accel.Tensor
---@return boolean
function M.read(p, into)
  local s = states[p]
  if not s or not s.remote or s.size > 1 or into.dtype ~= s.flat.dtype then return false end
  close_others()
  if core.there(s.flat) then return false end
  s.remote:read(s.own, into)
  return true
end

--- Parameters that have other memory now: their parts are given up.
---@param params accel.Tensor[]
function M.forget(params)
  for _, p in ipairs(params) do
    local s = states[p]
    if s and s.bytes then s.bytes:release() end
    states[p] = nil
  end
end

--- A module that is complete: its own parameters are cut.
local function constructed(object)
  if not Module.is_module(object) then return end
  for key, value, kind in object:_fields() do
    if kind == "parameter" then M.cut(value, ("%s of a %s"):format(tostring(key), class.of(object).__name)) end
  end
end

--- Until the block ends, or while fn runs, modules are created in parts: parameters are cut over all ranks as soon as their
--- module's init is through, so that memory holds a rank's part of the model and one module. All ranks must create the same
--- modules, with the same random numbers. enabled = false: no effect, as on one rank whose shard stays in memory.
--- example: local net do local _ <close> = accel.deepspeed.zero.Init() net = accel.nn.Linear(2, 1) end
---   return #net:parameters() --> 2
---@param opts? table
---  enabled boolean = true: false: as without it
---  remote_device string: the storage of a rank's shard: "cpu" (host memory), "nvme" (a file in nvme_path) or "none" (its device). Default: the
---    active plugin's offload_param
---  nvme_path string: the folder of the file, which has no name
---@param fn? function
---@param ... any
function M.Init(opts, fn, ...)
  if type(opts) == "function" then return M.Init(nil, opts, fn, ...) end
  local o = options("zero.Init", opts, { enabled = true, remote_device = options.none, nvme_path = options.none })
  if not o.enabled then return guard(function() end, fn, ...) end
  local to
  if o.remote_device ~= nil then
    check.word("zero.Init", "remote_device", o.remote_device, { "none", "cpu", "nvme" })
    to = o.remote_device ~= "none" and require "accel.offload.creation".at("zero.Init", TIERS[o.remote_device], o.nvme_path, dry())
  elseif o.nvme_path ~= nil then
    raise "zero.Init: nvme_path is of remote_device = 'nvme'"
  end
  local before = class.constructed
  class.constructed, depth = constructed, depth + 1
  remote[depth] = to
  return guard(function()
    class.constructed, remote[depth], depth = before, nil, depth - 1
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
    if s.size > 1 then dist.broadcast(s.flat, { src = modifier }) end
    take_back(s)
  elseif core.written(s.flat) then
    put_away(s)
    raise "GatheredParameters: parameters were written to, which would be lost: give modifier_rank"
  end
  put_away(s)
end

--- Parameters that every rank has whole, since they are small or nothing divides them.
local function in_no_parts(list)
  local owners, whole = package.loaded["accel.shard.owners"], {}
  for _, p in ipairs(dist.get_world_size() > 1 and list or {}) do
    if not states[p] and not (owners and owners.of[p]) and not p.quant_state and p.device ~= "meta" then whole[#whole + 1] = p end
  end
  return whole
end

--- Every rank has these parameters whole until the block ends, or while fn runs. With modifier_rank, this rank's changes are
--- kept, on all ranks. Without it you may only read them. A collective, at its begin and at its end.
--- example: local net = accel.nn.Linear(2, 1) do local _ <close> = accel.deepspeed.GatheredParameters(net:parameters()) end
---   return net.weight.shape --> { 1, 2 }
---@param params accel.Tensor[]|accel.Tensor|accel.nn.Module
---@param opts? {modifier_rank: integer?, enabled: boolean?, fwd_module: any}|integer modifier_rank; fwd_module: without
---  effect
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
  local whole = modifier ~= nil and o.enabled and in_no_parts(list) or {}
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
    for _, p in ipairs(whole) do dist.broadcast(p:detach(), { src = modifier }) end
  end, fn, ...)
end

M.zero = M
return M
