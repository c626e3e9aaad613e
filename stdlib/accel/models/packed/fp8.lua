--- FP8, as DeepSeek, Qwen and FBGEMM write it: w = float8 times the scale of its block (weight_block_size, the last blocks cut), of its
--- row, or of the whole weight. Scales may be powers of two of 8 bits (e8m0).
local core = require "accel.file.core"
local packed = require "accel.models.packed"
local spread = require "accel.models.packed.spread"

local FLOAT8 <const> = { f8_e4m3 = true, f8_e5m2 = true }

--- A scale in f32. Bytes are exponents.
local function scale_of(t) return t.dtype == "u8" and core.widen(t, "F8_E8M0") or t:to "f32" end

---@param q table quantization_config
---@return accel.models.PackedFormat?, string?, string?
return function(q)
  local block = q.weight_block_size
  if block ~= nil then
    local fits = type(block) == "table" and #block == 2
    for _, n in ipairs(fits and block or {}) do fits = fits and math.type(n) == "integer" and n > 0 end
    if not fits then return nil, "weight_block_size must be two positive integers", "format" end
  end
  return {
    name = "fp8", weight = "",
    main = function(key, info) return FLOAT8[info.dtype] and key or nil end,
    parts = { inverse = { "_scale_inv", optional = true }, scale = { "_scale", optional = true } },
    ignored = { "activation_scale$", "input_scale$", "input_scale_ub$" },
    shape = function(parts)
      if not parts.inverse and not parts.scale then return nil, "has neither a _scale_inv nor a _scale" end
      if #parts.main.shape < 2 or #parts.main.shape > 3 then return nil, "is not a matrix" end
      return parts.main.shape
    end,
    make = function(parts, shape)
      local w, s = parts.main:to "f32", scale_of(parts.inverse or parts.scale)
      if s:numel() ~= 1 and block then
        s = spread.blocks(s, shape, block[1], block[2], "scales")
      elseif s:numel() ~= 1 then
        while #s.shape < #shape do s = s:unsqueeze(-1) end -- one for each row
        for d, n in ipairs(shape) do
          if s.shape[d] ~= n and s.shape[d] ~= 1 then
            packed.unfit("has scales of shape %s for %s; weight_block_size is missing", spread.text(s.shape), spread.text(shape))
          end
        end
      else
        s = s:reshape(1)
      end
      return w:mul_(s)
    end,
  }
end
