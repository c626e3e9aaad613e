--- Rotary positions in GGUF's metadata: base, turned columns and scaling. Llama 3's scaling is a tensor of factors (rope_freqs.weight), one
--- for each pair. Used by decoder.lua here.
local Rotary = require "accel.models.rotary"
local raise = require "accel.util.raise"

local M = {}

M.THETA = 10000.0

--- Metadata of a set of rotary positions (rope_parameters, rope_theta, head_dim = columns that turn). Raises for scalings that llama.cpp's
--- files cannot represent.
---@param head accel.models.gguf.Head
---@param arch string
---@param set table
function M.write(head, arch, set)
  local kind, theta, p = Rotary.parameters(set, set.theta or M.THETA)
  if (set.partial_rotary_factor or 1) ~= 1 then raise("gguf.save: llama.cpp turns whole heads of %s (partial_rotary_factor)", arch) end
  head:u32(arch .. ".rope.dimension_count", set.head_dim)
  head:f32(arch .. ".rope.freq_base", theta)
  if kind == "linear" or kind == "yarn" then
    head:string(arch .. ".rope.scaling.type", kind)
    head:f32(arch .. ".rope.scaling.factor", p.factor)
  end
  if kind == "yarn" then
    local usual = 0.1 * math.log(p.factor) + 1
    if p.fast ~= 32 or p.slow ~= 1 or not p.truncate or math.abs(p.scale - usual) > 1e-6 then
      raise "gguf.save: yarn in GGUF has beta_fast 32, beta_slow 1, truncate and the usual attention_factor, this model other values"
    end
    head:u32(arch .. ".rope.scaling.original_context_length", math.floor(p.original))
  elseif kind ~= "default" and kind ~= "llama3" and kind ~= "linear" then
    raise("gguf.save: rope_type '%s' is not written", kind)
  end
end

--- The factor by which each pair turns slower than without scaling. nil: no scaling of this kind.
---@param set table
---@return number[]?
function M.slower(set)
  local kind, theta = Rotary.parameters(set, set.theta or M.THETA)
  if kind ~= "llama3" then return nil end
  local scaled = Rotary(set, set.theta or M.THETA):inverse_frequencies(0)
  local out, d = {}, set.head_dim
  for i, f in ipairs(scaled) do out[i] = theta ^ (-2 * (i - 1) / d) / f end
  return out
end

--- Whether Llama 3's scaling by these numbers gives the factors.
local function gives(set, rope, factors)
  if not rope.original_max_position_embeddings or rope.original_max_position_embeddings < 1 then return false end
  local ok, got = pcall(M.slower, { head_dim = set.head_dim, rope_parameters = rope, max_position_embeddings = set.max_position_embeddings })
  if not ok or not got then return false end
  for i, f in ipairs(factors) do
    if math.abs(got[i] - f) > 1e-4 * f then return false end
  end
  return true
end

--- Llama 3's numbers from its factors, which are the result: pairs that turn less than `low` times over the original context are slowed
--- down by the largest factor, those that turn more than `high` times by 1, and between them the share of 1 is linear in the turns. The
--- usual bounds are 1 and 4, and one pair between them gives the context. With other bounds, two pairs give both (in units of the
--- lower). Otherwise the scaling is longrope's with these factors, which turns the same.
---@param set table head_dim, rope_theta, max_position_embeddings
---@param factors number[]
---@return table? rope_parameters
---@return string? why
function M.scaling_of(set, factors)
  if #factors ~= set.head_dim // 2 then
    return nil, ("rope_freqs.weight has %d factors for %d pairs"):format(#factors, set.head_dim // 2)
  end
  local most = 1
  for _, f in ipairs(factors) do
    if f ~= f or f <= 0 or f > 1e6 then return nil, ("rope_freqs.weight has the factor %g"):format(f) end
    most = math.max(most, f)
  end
  local theta, between, last_fast, first_slow = set.rope_theta, {}, nil, nil
  for i, f in ipairs(factors) do
    local frequency = theta ^ (-2 * (i - 1) / set.head_dim)
    if f < 1.0001 then last_fast = frequency
    elseif f > most * 0.9999 then first_slow = first_slow or frequency
    else between[#between + 1] = { frequency, (1 / f - 1 / most) / (1 - 1 / most) } end
  end
  local function rope(original, high)
    return { rope_type = "llama3", rope_theta = theta, factor = most, low_freq_factor = 1.0, high_freq_factor = high,
      original_max_position_embeddings = math.floor(original + 0.5) }
  end
  local tries = {}
  if most > 1 then
    for _, b in ipairs(between) do tries[#tries + 1] = rope(2 * math.pi * (1 + 3 * b[2]) / b[1], 4.0) end
    if #between == 0 and last_fast and first_slow then -- any context between the bounds
      tries[1] = rope(math.sqrt(8 * math.pi / last_fast * (2 * math.pi / first_slow)), 4.0)
    end
    if #between >= 2 then
      local x, y = between[1], between[#between]
      local slope = (x[2] - y[2]) / (x[1] - y[1]) -- of the share over the frequency: context / (2 pi (high - low))
      local start = x[2] - slope * x[1] -- -low / (high - low)
      if start < 0 and slope > 0 then tries[#tries + 1] = rope(slope * 2 * math.pi / -start, 1 - 1 / start) end
    end
  end
  for _, candidate in ipairs(tries) do
    if gives(set, candidate, factors) then return candidate end
  end
  return { rope_type = "longrope", rope_theta = theta, attention_factor = 1.0, short_factor = factors, long_factor = factors,
    original_max_position_embeddings = set.max_position_embeddings }
end

--- The rope_parameters of a file, with the base. nil and the reason if it has a scaling that accel does not compute.
---@param key fun(name: string): any of the architecture's metadata
---@param set table head_dim (columns that turn), max_position_embeddings
---@param factors number[]? rope_freqs.weight
---@return table?, string?
function M.read(key, set, factors)
  local theta = key "rope.freq_base" or M.THETA
  set.rope_theta = theta
  if factors then return M.scaling_of(set, factors) end
  local kind, factor = key "rope.scaling.type", key "rope.scaling.factor" or key "rope.scale_linear"
  if kind == nil and factor then kind = "linear" end -- as llama.cpp reads a file without a type
  local rope = { rope_type = "default", rope_theta = theta }
  if kind == "linear" then
    if factor and factor ~= 0 then rope.rope_type, rope.factor = "linear", factor end -- 0: none
  elseif kind == "yarn" then
    rope.rope_type, rope.factor = "yarn", factor
    rope.original_max_position_embeddings = key "rope.scaling.original_context_length" or set.max_position_embeddings
  elseif kind ~= nil and kind ~= "none" then
    return nil, ("rope scaling '%s' is not read"):format(tostring(kind))
  end
  return rope
end

return M
