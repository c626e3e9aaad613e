--- GPTQ, as AutoGPTQ and GPTQModel write it: w[o, i] = scales[g, o] (q[i, o] - z[g, o]), where g is the group of input i. q and z are
--- streams of 2, 3, 4 or 8 bits in words of 32, q along the inputs and z along the outputs. The format gptq stores z - 1, gptq_v2 z.
local core = require "accel.file.core"
local packed = require "accel.models.packed"
local spread = require "accel.models.packed.spread"

local BITS <const> = { [2] = true, [3] = true, [4] = true, [8] = true }
-- How much the stored zero points lack, by checkpoint_format.
local FORMATS <const> = { gptq = 1, gptq_v2 = 0 }

---@param q table quantization_config
---@return accel.models.PackedFormat?, string?
return function(q)
  local bits, size = q.bits, q.group_size
  if not BITS[bits] then return nil, ("gptq with %s bits cannot be read; 2, 3, 4 and 8 can"):format(tostring(bits)) end
  if math.type(size) ~= "integer" or size < -1 or size == 0 then
    return nil, ("group_size must be a positive integer or -1, got %s"):format(tostring(size)), "format"
  end
  local word = q.checkpoint_format or q.format or "gptq"
  local lacking = FORMATS[word]
  if not lacking then
    return nil, ("checkpoint_format '%s' cannot be read; convert the folder to gptq or gptq_v2 with GPTQModel"):format(tostring(word))
  end
  return {
    name = ("gptq, %d bits"):format(bits), weight = ".weight", linear = true,
    main = function(key) return key:match "^(.*)%.qweight$" end,
    parts = { qzeros = { ".qzeros" }, scales = { ".scales" }, g_idx = { ".g_idx", optional = true } },
    shape = function(parts)
      local w = parts.main.shape
      if #w ~= 2 or parts.main.dtype ~= "i32" then return nil, "is not a matrix of i32 words" end
      return { w[2], w[1] * 32 // bits }
    end,
    make = function(parts, shape)
      local out, n = shape[1], shape[2]
      local step = size == -1 and n or size
      local groups = -(-n // step)
      local s, z = parts.scales:to "f32", parts.qzeros
      if #s.shape ~= 2 or s.shape[2] ~= out or s.shape[1] ~= groups and not parts.g_idx then
        packed.unfit("has scales of shape %s; %d groups of %d outputs need (%d, %d)", spread.text(s.shape), groups, out, groups, out)
      end
      groups = s.shape[1]
      if #z.shape ~= 2 or z.dtype ~= "i32" or z.shape[1] ~= groups or z.shape[2] * 32 // bits < out then
        packed.unfit("has qzeros of shape %s (%s) for %d groups of %d outputs", spread.text(z.shape), z.dtype, groups, out)
      end
      local codes = core.unpack_bits(parts.main, bits, 1, n):to "f32"
      z = core.unpack_bits(z, bits, 2, out):to "f32" + lacking
      if parts.g_idx then
        local index = spread.checked_index(parts.g_idx, n, groups)
        s, z = s:index_select(1, index), z:index_select(1, index)
      elseif groups == 1 or n % step ~= 0 then
        s, z = s:repeat_interleave(step, 1):narrow(1, 1, n), z:repeat_interleave(step, 1):narrow(1, 1, n)
      else
        codes, s, z = codes:reshape(groups, step, out), s:unsqueeze(2), z:unsqueeze(2)
      end
      return codes:sub_(z):mul_(s):reshape(n, out):t():contiguous()
    end,
  }
end
