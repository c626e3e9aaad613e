--- layer_replication: a model whose stack consists of ranges of its blocks (Upstage, "SOLAR 10.7B: Scaling Large Language Models with
--- Simple yet Effective Depth Up-Scaling"). Blocks that come again are copies with the same weights, so that each may have an adapter of
--- its own. Used by inject.lua.
local accel = require "accel"
local ModuleList = require "accel.nn.module_list"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local targets = require "accel.peft.targets"

--- A copy of a module with the parameters of the original.
local function copy_of(block)
  local copy = block:clone()
  local function share(to, from)
    to, from = to:_itself(), from:_itself()
    for _, value, kind, field in from:_fields() do
      if kind == "parameter" then to[field] = value
      elseif kind == "module" then share(to[field], value) end
    end
  end
  share(copy, block)
  return copy
end

local COUNTS <const> = { "num_hidden_layers", "n_layer", "num_layers" }

---@param model accel.nn.Module
---@param ranges integer[][] {first, last + 1}, from 0
return function(model, ranges)
  local _ <close> = accel.no_grad()
  local at
  targets.visit(model, function(place) -- the stack: the list with the most blocks
    if class.isinstance(place.module, ModuleList) and (not at or #place.module > #at.module) then at = place end
  end)
  if not at then raise "layer_replication: the model has no list of blocks" end
  local old, new, seen = at.module, ModuleList(), {}
  for _, range in ipairs(ranges) do
    local first, last = range[1], range[2]
    if math.type(first) ~= "integer" or math.type(last) ~= "integer" or first < 0 or first >= last or last > #old then
      raise("layer_replication: {%s, %s} is not a range of the %d blocks", tostring(first), tostring(last), #old)
    end
    for i = first + 1, last do
      new:append(seen[i] and copy_of(old[i]) or old[i])
      seen[i] = true
    end
  end
  at.parent[at.field] = new
  local c = model.config
  for _, key in ipairs(c and COUNTS or {}) do
    if rawget(c, key) == #old then c[key] = #new end
  end
  for _, module in pairs(model:named_modules()) do -- descriptions of decoders count their blocks too
    if rawget(module, "d") and module.d.layers == #old then module.d.layers = #new end
  end
end
