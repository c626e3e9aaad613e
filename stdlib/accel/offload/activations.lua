--- Activations on a tier: tensors that a forward's operations save for their gradients go to host memory or to a file, and return
--- when the backward needs them. See accel.offload.activations.
local accel = require "accel"
local check = require "accel.util.check"
local core = require "accel.offload.core"
local creation = require "accel.offload.creation"
local graph = require "accel.autograd".graph
local options = require "accel.util.options"
local Tiers = require "accel.offload.tiers"
local unwritten = require "accel.util.unwritten"

local WHO <const> = "offload.activations"
local UNDER_WAY <const> = 2 -- transfers whose memory is still held
local LEAST <const> = 4096 -- bytes: less is not worth a transfer

-- Tiers by their options: windows learn the order of a backward from the one before.
local made = {}

local function tiers_of(o)
  local key = ("%s %s %d"):format(o.tier, tostring(o.folder), o.window)
  local it = made[key]
  if not it then
    local phantom = unwritten.dry_run()
    it = { tiers = Tiers { budget = o.window, phantom = phantom }, leaving = {}, phantom = phantom }
    if o.tier == "file" then it.file = creation.file_in(WHO, "activations", o.folder, phantom, true) end
    made[key] = it
  end
  return it
end

local function pack(it, t)
  if t.is_leaf and t.requires_grad then return t end -- a parameter, which is there anyhow
  if (t.device == "meta" and not it.phantom) or core.tier(t) or t:numel() * t:element_size() < it.least then return t end
  local _ <close> = accel.no_grad()
  local memory = creation.in_memory(t:detach())
  local away = it.file and it.tiers:in_file(t.device, it.file, t.shape, t.dtype) or it.tiers:in_host(t.device, t.shape, t.dtype)
  while #it.leaving >= UNDER_WAY do table.remove(it.leaving, 1):wait() end
  local transfer = core.move(true, away, 0, memory)
  it.leaving[#it.leaving + 1], it.fresh = transfer, true
  return { away = away, transfer = transfer }
end

local function unpack_(it, saved)
  if type(saved) ~= "table" then return saved end
  saved.transfer:wait()
  if it.fresh then -- the backward begins: in the order of the last one
    it.fresh = false
    it.tiers:pass()
  end
  return saved.away
end

--- Until the block ends, `local _ <close> = accel.offload.activations()`, or while fn(...) runs, tensors that operations save
--- for their gradients stay on a tier until the backward. Parameters are not moved. The gradients are the same, bit for bit.
--- Beside recompute (accel.checkpoint), which saves less and computes more.
--- example: local x = accel.ones({ 64, 64 }, { requires_grad = true })
---   local y = accel.offload.activations({}, function() return (x * 2):tanh():sum() end) y:backward() return x.grad.shape --> { 64, 64 }
---@param opts? table
---  tier string = "host": or "file"
---  folder string: the folder of the unnamed file
---  window integer = 0: bytes of the device for returned activations. 0: as many as fit
---  least integer = 4096: smaller tensors stay, in bytes
---@param fn? function
---@param ... any
---@return any
return function(opts, fn, ...)
  local o = options(WHO, opts, { tier = "host", folder = options.none, window = 0, least = LEAST })
  check.word(WHO, "tier", o.tier, { "host", "file" })
  local it = setmetatable({ least = o.least }, { __index = tiers_of(o), __newindex = tiers_of(o) })
  return graph.saved_tensors_hooks(function(t) return pack(it, t) end, function(saved) return unpack_(it, saved) end, fn, ...)
end
