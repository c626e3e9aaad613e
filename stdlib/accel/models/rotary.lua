--- Frequencies of rotary positions from config.json (rope_parameters, or in older files rope_scaling and rope_theta).
--- Used by models/rotary_attention.lua.
---
--- Pair i of a head turns by position / theta^(2i / d). The kinds of scaling: default none. linear divides every frequency by `factor`.
--- dynamic raises theta once a text is longer than the context in training. llama3 divides the low frequencies and blends between. yarn
--- does so by a ramp over the pairs and sharpens the scores. longrope divides each frequency by its own factor, from two lists: for
--- texts of the training length and for longer ones.
local accel = require "accel"
local class = require "accel.util.class"
local nearest = require "accel.util.nearest"
local no_effect = require "accel.util.no_effect"

---@class accel.models.Rotary
---@field theta number
---@field score_scale number factor of the attention scores
local Rotary = class("accel.models.Rotary")

local kinds = { default = true, linear = true, dynamic = true, llama3 = true, yarn = true, longrope = true }

--- A number of the scaling table within bounds. Raises a message as a table, which `parameters` returns.
local function wanted(rope, key, fallback, low)
  local v = rope[key]
  if v == nil then v = fallback end
  if type(v) ~= "number" or v ~= v or v < (low or 1e-9) or v > 1e12 then
    error({ ("rope_parameters.%s must be a number of at least %g, got %s"):format(key, low or 1e-9, tostring(v)) })
  end
  return v + 0.0
end

--- A list of factors, one for each pair.
local function factors(rope, key, pairs_)
  local list = rope[key]
  if type(list) ~= "table" or #list ~= pairs_ then
    error({ ("rope_parameters.%s must be a list of %d factors, one for each pair of a head"):format(key, pairs_) })
  end
  local out = {}
  for i = 1, pairs_ do out[i] = wanted(list, i, nil, 1e-9) end
  return out
end

--- Tokens of texts in training: the configuration's own key takes precedence over the table's, as in Transformers.
local function original_of(rope, c)
  return c.original_max_position_embeddings or wanted(rope, "original_max_position_embeddings", c.max_position_embeddings)
end

local readers = {
  default = function() return {} end,
  linear = function(rope) return { factor = wanted(rope, "factor") } end,
  dynamic = function(rope, c)
    if c.head_dim == 2 then error { "rope_type 'dynamic' needs heads wider than 2" } end
    return { factor = wanted(rope, "factor"), original = c.max_position_embeddings }
  end,
  llama3 = function(rope, c)
    local p = {
      factor = wanted(rope, "factor"), low = wanted(rope, "low_freq_factor"), high = wanted(rope, "high_freq_factor"),
      original = original_of(rope, c),
    }
    if p.high <= p.low then error { "rope_parameters: high_freq_factor must lie above low_freq_factor" } end
    return p
  end,
  yarn = function(rope, c)
    local original = original_of(rope, c)
    local factor = wanted(rope, "factor", c.max_position_embeddings / original)
    local function sharpen(m) return factor <= 1 and 1.0 or 0.1 * m * math.log(factor) + 1.0 end
    local scale = sharpen(1)
    if rope.attention_factor ~= nil then
      scale = wanted(rope, "attention_factor")
    elseif (rope.mscale or 0) ~= 0 and (rope.mscale_all_dim or 0) ~= 0 then
      scale = sharpen(wanted(rope, "mscale")) / sharpen(wanted(rope, "mscale_all_dim"))
    end
    return {
      factor = factor, original = original, scale = scale, truncate = rope.truncate ~= false,
      fast = wanted(rope, "beta_fast", 32), slow = wanted(rope, "beta_slow", 1),
    }
  end,
  longrope = function(rope, c)
    local original = original_of(rope, c)
    local factor = wanted(rope, "factor", c.max_position_embeddings / original)
    local scale = factor <= 1 and 1.0 or math.sqrt(1 + math.log(factor) / math.log(original))
    if rope.attention_factor ~= nil then scale = wanted(rope, "attention_factor") end
    return { original = original, scale = scale, short = factors(rope, "short_factor", c.head_dim // 2),
      long = factors(rope, "long_factor", c.head_dim // 2) }
  end,
}

--- Kind, theta and the numbers of a configuration, or nil and the error in them.
---@param c table
---@param default_theta number
---@return string?, number|string?, table|string|nil
function Rotary.parameters(c, default_theta)
  local rope = {}
  for key, value in next, c.rope_scaling or c.rope_parameters or {} do -- the older key wins, as in Transformers
    if value ~= accel.json.null then rope[key] = value end
  end
  local kind = rope.rope_type or rope.type or "default"
  if not kinds[kind] then
    local near = type(kind) == "string" and nearest(kind, kinds)
    return nil, ("rope_type '%s' is not supported%s"):format(tostring(kind),
      near and ("; did you mean '%s'?"):format(near) or ""), "unsupported"
  end
  local part = rope.partial_rotary_factor or c.partial_rotary_factor
  if part ~= nil and part ~= 1 then
    if kind ~= "default" then
      return nil, ("partial_rotary_factor %s is not supported with rope_type '%s'"):format(tostring(part), kind), "unsupported"
    end
    no_effect.once("config.json", "partial_rotary_factor", "with rope_type 'default': as in Transformers, whole heads turn; remove it")
  end
  local theta = rope.rope_theta or c.rope_theta or default_theta
  local ok, p = pcall(function()
    theta = wanted({ rope_theta = theta }, "rope_theta", nil, 1)
    return readers[kind](rope, c)
  end)
  if ok then return kind, theta, p end
  if type(p) == "table" and type(p[1]) == "string" then return nil, p[1] end
  error(p, 0)
end

---@param c table a checked configuration with head_dim
---@param default_theta number
function Rotary:init(c, default_theta)
  local kind, theta, p = Rotary.parameters(c, default_theta)
  self.kind, self.theta, self.p, self.dim = kind, theta, p, c.head_dim
  self.score_scale = p.scale and p.scale ^ 2 or 1.0
  self.tables = {} -- device -> inverse frequencies
end

--- Inverse frequencies of the pairs, a list of dim / 2 numbers.
---@param length integer tokens up to the last one, which `dynamic` looks at
---@return number[]
function Rotary:inverse_frequencies(length)
  local d, p, kind, theta, out = self.dim, self.p, self.kind, self.theta, {}
  if kind == "dynamic" and length > p.original then
    theta = theta * (p.factor * length / p.original - (p.factor - 1)) ^ (d / (d - 2))
  end
  for i = 0, d // 2 - 1 do out[i + 1] = theta ^ (-2 * i / d) end
  if kind == "linear" then
    for i, f in ipairs(out) do out[i] = f / p.factor end
  elseif kind == "longrope" then
    for i, by in ipairs(length > p.original and p.long or p.short) do out[i] = out[i] / by end
  elseif kind == "llama3" then
    for i, f in ipairs(out) do
      local turns = p.original * f / (2 * math.pi) -- over the original context
      if turns < p.low then
        out[i] = f / p.factor
      elseif turns <= p.high then
        local s = (turns - p.low) / (p.high - p.low)
        out[i] = (1 - s) * f / p.factor + s * f
      end
    end
  elseif kind == "yarn" then
    local function pair_that_turns(n)
      return d * math.log(p.original / (n * 2 * math.pi)) / (2 * math.log(theta))
    end
    local low, high = pair_that_turns(p.fast), pair_that_turns(p.slow)
    if p.truncate then low, high = math.floor(low), math.ceil(high) end
    low, high = math.max(low, 0), math.min(high, d - 1)
    if low == high then high = high + 0.001 end
    for i, f in ipairs(out) do
      local ramp = math.min(math.max((i - 1 - low) / (high - low), 0), 1)
      out[i] = f / p.factor * ramp + f * (1 - ramp)
    end
  end
  return out
end

--- The options of accel.rope for new tokens.
---@param past integer
---@param T integer
---@param position_ids? accel.Tensor [T] or [B, T]
---@param device string
---@return table
function Rotary:turn(past, T, position_ids, device)
  local o = { theta = self.theta, offset = past }
  local length = past + T
  if position_ids then
    o.offset, o.positions = nil, position_ids
    if (self.kind == "dynamic" or self.kind == "longrope") and length > self.p.original then length = position_ids:max():item() + 1 end
  end
  local dynamic = (self.kind == "dynamic" or self.kind == "longrope") and length > self.p.original
  if self.kind == "default" or (self.kind == "dynamic" and not dynamic) then return o end
  local table_ = not dynamic and self.tables[device]
  if not table_ then
    table_ = accel.unscoped(accel.tensor, self:inverse_frequencies(length), { dtype = "f64", device = device })
    if not dynamic then self.tables[device] = table_ end
  end
  o.inv_freq = table_
  return o
end

return Rotary
