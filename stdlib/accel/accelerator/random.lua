--- Random state across ranks: one seed for everything, and generators that are made alike. Used by prepared loaders
--- (rng_types) and by scripts.
local accel = require "accel"
local Random = require "accel.util.random"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local nearest = require "accel.util.nearest"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

--- Seeds accel's generator and math.random. device_specific: every rank another seed, seed + rank. deterministic has
--- no effect: the same seed and number of ranks give the same bits in any case.
--- example: accel.accelerator.set_seed(3) local a = accel.rand(1) accel.accelerator.set_seed(3) return a:item() ==
---   accel.rand(1):item() --> true
---@param seed integer
---@param ... any device_specific, deterministic, or a table of them
function M.set_seed(seed, ...)
  seed = check.integer("set_seed", "seed", seed)
  local o, n = {}, select("#", ...)
  for i, name in ipairs { "device_specific", "deterministic" } do
    local value = select(i, ...)
    if i <= n and type(value) ~= "table" then o[name] = value end
  end
  local last = select(n > 0 and n or 1, ...)
  if type(last) == "table" then
    for key, value in next, last do o[key] = value end
  elseif n > 2 then
    raise("set_seed: expected at most seed, device_specific, deterministic, got %d arguments", n + 1)
  end
  o = options("set_seed", o, { device_specific = false, deterministic = false })
  no_effect("accel.accelerator.set_seed", o)
  if o.device_specific then seed = seed + dist.get_rank() end
  accel.manual_seed(seed)
  math.randomseed(seed)
end

local host = { torch = true, accel = true, cpu = true }
local devices = {
  cuda = true, xla = true, mlu = true, sdaa = true, musa = true, npu = true, xpu = true, hpu = true, neuron = true,
}
local FIELDS <const> = { "seed", "stream", "step", "ordinal", "drawn" }

local function refuse(who, rng_type)
  if devices[rng_type] then
    raise("%s: '%s': this build has no such device; choose from %s", who, rng_type, table.concat(accel.devices(), ", "))
  end
  local names = { "generator" }
  for _, set in ipairs { host, devices } do
    for name in next, set do names[#names + 1] = name end
  end
  local near = type(rng_type) == "string" and nearest(rng_type, names)
  raise("%s: unknown type %s%s", who, check.shown(rng_type), near and ("; did you mean '%s'?"):format(near)
    or "; expected 'torch' or 'generator'")
end

local function of_root(values)
  local t = accel.tensor(values, { dtype = "i64", device = "cpu" })
  dist.broadcast(t, 0)
  return t:tolist()
end

--- Makes the state rank 0's, save the rows that this rank's batches stand at.
local function spread(state)
  local values = {}
  for i, name in ipairs(FIELDS) do values[i] = state[name] end
  values = of_root(values)
  for i, name in ipairs(FIELDS) do state[name] = values[i] end
  if state.math then state.math = of_root(state.math) end
  return state
end

--- Returns a list of generator types. Raises if it is not a list, or contains an unknown word.
---@param who string
---@param types string[]
---@return string[]
function M.check_types(who, types)
  if type(types) ~= "table" then
    raise("%s: rng_types must be a list, such as { 'generator' }, got %s", who, check.shown(types))
  end
  for _, rng_type in ipairs(types) do
    if not host[rng_type] and rng_type ~= "generator" then refuse(who, rng_type) end
  end
  return types
end

--- Gives a generator of all ranks its state on rank 0. All ranks must call it. type: "torch", "accel" or "cpu" is the
--- common generator, "generator" the given one.
--- example: local g = accel.Generator(5) accel.accelerator.synchronize_rng_state("generator", g) return
---   g:initial_seed() --> 5
---@param rng_type string
---@param generator? accel.Generator|accel.util.Random
function M.synchronize_rng_state(rng_type, generator, ...)
  check.surplus("synchronize_rng_state", ...)
  local who = "synchronize_rng_state"
  if host[rng_type] then
    if dist.get_world_size() > 1 then accel.set_rng_state(spread(accel.get_rng_state())) end
  elseif rng_type == "generator" then
    if generator == nil then raise("%s: the type 'generator' needs a generator as second argument", who) end
    if class.isinstance(generator, Random) then
      if dist.get_world_size() > 1 then generator.state = of_root({ generator.state })[1] end
    elseif type(generator) == "userdata" and tostring(generator):find("^Generator%(") then
      if dist.get_world_size() > 1 then generator:set_state(spread(generator:get_state())) end
    else
      raise("%s: generator must be an accel.Generator, got %s", who, check.shown(generator))
    end
  else
    refuse(who, rng_type)
  end
end

--- synchronize_rng_state for each of a list of types.
--- example: accel.accelerator.synchronize_rng_states { "torch" } -->
---@param rng_types string[]
---@param generator? accel.Generator|accel.util.Random
function M.synchronize_rng_states(rng_types, generator, ...)
  check.surplus("synchronize_rng_states", ...)
  if type(rng_types) ~= "table" then
    raise("synchronize_rng_states: expected list of types, got %s", check.shown(rng_types))
  end
  for _, rng_type in ipairs(rng_types) do M.synchronize_rng_state(rng_type, generator) end
end

return M
