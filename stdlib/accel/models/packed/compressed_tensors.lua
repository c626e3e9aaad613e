--- compressed-tensors, which vLLM's tools write: integers or floats of 8 bits, integers of a few bits in words of 32, and codes of 4 bits
--- (NVFP4, MXFP4), with scales of the whole weight, its rows, groups of its columns, or blocks. A folder may have several schemes.
--- `targets` assign them to layers.
---
--- w = (q - zero_point) scale. Packed integers are stored plus half their range, and so are packed zero points. NVFP4's scale of a group
--- is divided by weight_global_scale.
local accel = require "accel"
local core = require "accel.file.core"
local packed = require "accel.models.packed"
local spread = require "accel.models.packed.spread"

--- The kind of a weight's codes by the word of `format`.
local FORMATS <const> = {
  ["pack-quantized"] = "integers", ["int-quantized"] = "plain", ["float-quantized"] = "plain", ["naive-quantized"] = "plain",
  ["nvfp4-pack-quantized"] = "codes", ["mxfp4-pack-quantized"] = "codes",
}
local CODES <const> = { i8 = true, f8_e4m3 = true, f8_e5m2 = true }

--- Whether a layer is one of a scheme's targets: 1 by its name, 2 by a pattern ("re:..."), 3 by a class, which is that of all layers
--- whose weights are quantised here. nil: none.
local function rank_of(scheme, layer)
  local best
  for _, target in ipairs(scheme.targets) do
    local rank
    if target == layer then
      rank = 1
    elseif target:sub(1, 3) == "re:" then
      local ok, found = pcall(require("accel.text.core").fullmatch, "(?:" .. target:sub(4) .. ")[\\s\\S]*", { layer })
      if not ok then packed.unfit("cannot be matched with the target '%s'", target) end
      rank = found[1] and 2 or nil
    elseif not target:find "[%.%*]" then
      rank = 3
    end
    if rank and (not best or rank < best) then best = rank end
  end
  return best
end

--- The schemes of a configuration, in the order of their names. nil and the reason if one is wrong.
local function schemes_of(q)
  local out = {}
  if type(q.config_groups) ~= "table" then return nil, "config_groups must be an object", "format" end
  for name, group in accel.pairs(q.config_groups) do
    local w, targets = type(group) == "table" and group.weights, type(group) == "table" and group.targets
    if type(targets) ~= "table" then return nil, ("config_groups.%s has no targets"):format(name), "format" end
    for _, target in ipairs(targets) do
      if type(target) ~= "string" then return nil, ("config_groups.%s: a target must be a string"):format(name), "format" end
    end
    if type(w) == "table" then
      local word = group.format or q.format
      local kind = FORMATS[word]
      if not kind then
        return nil, ("format '%s' of compressed-tensors cannot be read; decompress the model with the tool that wrote it"):format(
          tostring(word))
      end
      if math.type(w.num_bits) ~= "integer" or w.num_bits < 1 or w.num_bits > 8 then
        return nil, ("config_groups.%s.weights.num_bits must be an integer in 1 .. 8, got %s"):format(name, tostring(w.num_bits)), "format"
      end
      if w.group_size ~= nil and (math.type(w.group_size) ~= "integer" or w.group_size < -1 or w.group_size == 0) then
        return nil, ("config_groups.%s.weights.group_size must be a positive integer, got %s"):format(name, tostring(w.group_size)),
          "format"
      end
      local block = w.block_structure
      if block ~= nil then
        for i = 1, 2 do
          if type(block) ~= "table" or math.type(block[i]) ~= "integer" or block[i] < 1 then
            return nil, ("config_groups.%s.weights.block_structure must be two positive integers"):format(name), "format"
          end
        end
      end
      out[#out + 1] = { kind = kind, word = word, targets = targets, bits = w.num_bits, strategy = w.strategy, block = block,
        size = w.group_size ~= -1 and w.group_size or nil }
    end
  end
  if #out == 0 then return nil, "config_groups has no scheme for weights", "format" end
  return out
end

--- Scales or zero points of a weight, spread over it.
local function fitted(t, shape, scheme, index, what)
  if scheme.strategy == "block" then
    if not scheme.block then packed.unfit "is quantised in blocks, but its scheme has no block_structure" end
    return spread.blocks(t, shape, scheme.block[1], scheme.block[2], what)
  end
  return spread.groups(t, shape, scheme.size, index, what)
end

--- The codes of a weight in f32 and its zero points (nil: none).
local function codes_of(parts, shape, scheme)
  local main, zero = parts.main, parts.zero
  if scheme.kind == "integers" then
    local codes, half = core.unpack_bits(main, scheme.bits, 2, shape[2]):to "f32", (1 << scheme.bits - 1) + 0.0
    if not zero then return codes:sub_(half) end
    if zero.dtype ~= "i32" then return codes:sub_(half), zero:to "f32" end
    return codes, core.unpack_bits(zero, scheme.bits, 1, shape[1]):to "f32"
  elseif scheme.kind == "codes" then
    return core.widen(main, "F4")
  end
  return main:to "f32", zero and zero:to "f32"
end

local function scale_of(parts, scheme)
  local s = parts.scale
  if scheme.kind == "codes" and s.dtype == "u8" then s = core.widen(s, "F8_E8M0") end
  s = s:to "f32"
  return parts.global and s / parts.global:to("f32"):reshape(1) or s
end

---@param q table quantization_config
---@return accel.models.PackedFormat?, string?, string?
return function(q)
  if q.sparsity_config and q.sparsity_config.format and q.sparsity_config.format ~= "dense" then
    return nil, ("sparsity_config of format '%s' cannot be read; decompress the model with the tool that wrote it"):format(
      tostring(q.sparsity_config.format))
  end
  local schemes, why, code = schemes_of(q)
  if not schemes then return nil, why, code end

  local function scheme_of(layer)
    if #schemes == 1 then return schemes[1] end
    local best, rank
    for _, scheme in ipairs(schemes) do
      local r = rank_of(scheme, layer)
      if r and (not rank or r < rank) then best, rank = scheme, r end
    end
    return best or packed.unfit "is the target of no scheme of config_groups"
  end

  return {
    name = #schemes == 1 and ("compressed-tensors, %s"):format(schemes[1].word) or "compressed-tensors",
    weight = ".weight",
    main = function(key, info)
      return key:match "^(.*)%.weight_packed$" or CODES[info.dtype] and key:match "^(.*)%.weight$" or nil
    end,
    parts = { scale = { ".weight_scale" }, zero = { ".weight_zero_point", optional = true }, index = { ".weight_g_idx", optional = true },
      shape = { ".weight_shape", optional = true }, global = { ".weight_global_scale", optional = true } },
    ignored = { "input_scale$", "output_scale$", "input_zero_point$", "output_zero_point$", "input_global_scale$", "%.[kvq]_scale$",
      "%.[kvq]_zero_point$" },
    shape = function(parts, get)
      local main = parts.main
      if #main.shape ~= 2 then return nil, "is not a matrix" end
      if CODES[main.dtype] then return main.shape end
      if main.dtype == "u8" then return { main.shape[1], 2 * main.shape[2] } end
      if main.dtype ~= "i32" or not parts.shape then return nil, "needs words of i32 and a weight_shape" end
      local t, message = get "shape"
      if not t then return nil, message end
      local shape = t:reshape(-1):tolist()
      if #shape ~= 2 or shape[1] ~= main.shape[1] or math.type(shape[2]) ~= "integer" or shape[2] < 1 or shape[2] > 32 * main.shape[2] then
        return nil, ("has the weight_shape %s for words of %s"):format(spread.text(shape), spread.text(main.shape))
      end
      return shape
    end,
    make = function(parts, shape, name)
      local scheme = scheme_of((name:gsub("%.weight$", "")))
      local needs = parts.main.dtype == "i32" and "integers" or parts.main.dtype == "u8" and "codes" or "plain"
      if scheme.kind ~= needs then packed.unfit("is stored as %s, which format %s does not have", parts.main.dtype, scheme.word) end
      if needs == "integers" and shape[2] > 32 * parts.main.shape[2] // scheme.bits then
        packed.unfit("has %d words for rows of %d integers of %d bits", parts.main.shape[2], shape[2], scheme.bits)
      end
      if parts.zero and parts.zero.dtype == "i32" and (#parts.zero.shape ~= 2 or parts.zero.shape[1] * 32 // scheme.bits < shape[1]) then
        packed.unfit("has zero points of shape %s for %d rows", spread.text(parts.zero.shape), shape[1])
      end
      local codes, zero = codes_of(parts, shape, scheme)
      if zero then codes:sub_(fitted(zero, shape, scheme, parts.index, "zero points")) end
      local w = codes:mul_(fitted(scale_of(parts, scheme), shape, scheme, parts.index, "scales"))
      return needs == "codes" and w:to "bf16":to "f32" or w -- the package decompresses codes of 4 bits to bf16
    end,
  }
end
