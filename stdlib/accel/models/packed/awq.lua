--- AWQ, as AutoAWQ's version gemm writes it: w[o, i] = scales[g, o] (q[i, o] - z[g, o]) with g = i // group_size. Eight outputs of 4 bits
--- share a word of 32 bits. Its nibbles, low first, are the outputs 0 2 4 6 1 3 5 7.
local core = require "accel.file.core"
local packed = require "accel.models.packed"
local spread = require "accel.models.packed.spread"

--- Integers [rows, out] of words [rows, out / 8]: nibble 4 a + b is output 2 b + a.
local function unpacked(words)
  local rows, eights = words.shape[1], words.shape[2]
  return core.unpack_bits(words, 4, 2, 8 * eights):to("f32"):reshape(rows, eights, 2, 4):transpose(3, 4):reshape(rows, 8 * eights)
end

---@param q table quantization_config
---@return accel.models.PackedFormat?, string?, string?
return function(q)
  local bits, size, version = q.bits or q.w_bit, q.group_size or q.q_group_size, q.version or "gemm"
  if bits ~= 4 then return nil, ("awq with %s bits cannot be read; 4 can"):format(tostring(bits)) end
  if type(version) ~= "string" or version:lower() ~= "gemm" then
    return nil, ("awq's version '%s' cannot be read; quantise again with version gemm"):format(tostring(version))
  end
  if math.type(size) ~= "integer" or size < -1 or size == 0 then
    return nil, ("group_size must be a positive integer or -1, got %s"):format(tostring(size)), "format"
  end
  return {
    name = "awq, 4 bits", weight = ".weight", linear = true,
    main = function(key) return key:match "^(.*)%.qweight$" end,
    parts = { qzeros = { ".qzeros" }, scales = { ".scales" } },
    shape = function(parts)
      local w = parts.main.shape
      if #w ~= 2 or parts.main.dtype ~= "i32" then return nil, "is not a matrix of i32 words" end
      return { w[2] * 8, w[1] }
    end,
    make = function(parts, shape)
      local out, n = shape[1], shape[2]
      local step = size == -1 and n or size
      local groups = -(-n // step)
      local s, z = parts.scales:to "f32", parts.qzeros
      if #s.shape ~= 2 or s.shape[1] ~= groups or s.shape[2] ~= out or n % step ~= 0 then
        packed.unfit("has scales of shape %s; %d inputs in groups of %d need (%d, %d)", spread.text(s.shape), n, step, groups, out)
      end
      if #z.shape ~= 2 or z.dtype ~= "i32" or z.shape[1] ~= groups or z.shape[2] * 8 ~= out then
        packed.unfit("has qzeros of shape %s (%s); (%d, %d) is needed", spread.text(z.shape), z.dtype, groups, out // 8)
      end
      local codes = unpacked(parts.main):reshape(groups, step, out)
      return codes:sub_(unpacked(z):unsqueeze(2)):mul_(s:unsqueeze(2)):reshape(n, out):t():contiguous()
    end,
  }
end
