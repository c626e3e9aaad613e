--- MXFP4, as gpt-oss has its experts: value j of a block of 32 is the e2m1 code in nibble j % 2 (low first) of byte j // 2, times
--- 2^(scale - 127). Blocks [experts, out, in / 32, 16] and scales [experts, out, in / 32] make a weight [experts, in, out].
local core = require "accel.file.core"
local packed = require "accel.models.packed"
local spread = require "accel.models.packed.spread"

---@return accel.models.PackedFormat
return function()
  return {
    name = "mxfp4", weight = "",
    main = function(key) return key:match "^(.*)_blocks$" end,
    parts = { scales = { "_scales" } },
    shape = function(parts)
      local b, s = parts.main.shape, parts.scales.shape
      if #b ~= 4 or b[4] ~= 16 or parts.main.dtype ~= "u8" then return nil, "is not u8 of shape (experts, outputs, blocks, 16)" end
      if #s ~= 3 or s[1] ~= b[1] or s[2] ~= b[2] or s[3] ~= b[3] then
        return nil, ("has scales of shape %s, not (%d, %d, %d)"):format(spread.text(s), b[1], b[2], b[3])
      end
      return { b[1], 32 * b[3], b[2] }
    end,
    make = function(parts, shape)
      local scales = parts.scales
      if scales.dtype == "u8" then scales = core.widen(scales, "F8_E8M0") end
      if scales.dtype ~= "f32" then packed.unfit("has scales of dtype %s, not u8", scales.dtype) end
      return core.widen(parts.main, "F4"):mul_(scales:unsqueeze(4)):reshape(shape[1], shape[3], shape[2]):transpose(2, 3):contiguous()
    end,
  }
end
