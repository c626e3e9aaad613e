--- nn.Linear8bitLt(in_features, out_features, opts): a linear layer whose weight has 8 bits a value.
local accel = require "accel"
local Quantized = require "accel.nn.quantized"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local linear_quantized = accel.linear_quantized

--- y = x W^T + b with W in int8 by row, as bitsandbytes' layer of this name ("LLM.int8()"). Rows of x become int8 as well, and the product
--- is computed in integers. Columns of x with a value of at least threshold are multiplied unquantised. The weight takes no gradient, x and
--- the bias do. The weight gets no gradient, x and the bias do. Its state_dict has bitsandbytes' entries. load_state_dict takes these, or
--- values, which it quantises through f16.
--- example: local layer = accel.nn.Linear8bitLt(64, 8, { threshold = 6 }) return layer(accel.ones(2, 64)).shape --> { 2, 8 }
---@class accel.nn.Linear8bitLt : accel.nn.Quantized
---@field threshold number
local Linear8bitLt = Quantized:extend("accel.nn.Linear8bitLt")

local parse = arguments("Linear8bitLt", { "in_features" }, { "out_features" }, { "bias", true }, { "has_fp16_weights", false },
  { "threshold", 0 }, { "device" })

---@param in_features integer
---@param out_features integer
---@param opts? table
---  bias boolean = true
---  has_fp16_weights boolean = false: weights in 16 bits that are quantised in every call are not supported: use nn.Linear
---  threshold number = 0: the magnitude from which on a value of x makes its column an outlier. 0: none does
---  device string
function Linear8bitLt:init(in_features, out_features, opts, ...)
  local o = parse(in_features, out_features, opts, ...)
  self.in_features = check.positive("Linear8bitLt", "in_features", o.in_features)
  self.out_features = check.positive("Linear8bitLt", "out_features", o.out_features)
  self.threshold = check.number("Linear8bitLt", "threshold", o.threshold, 0)
  if o.has_fp16_weights then
    raise "Linear8bitLt: has_fp16_weights = true keeps weights of 16 bits; use nn.Linear for that, or set it to false for int8 weights"
  end
  self:make(o, o.device == "meta" and accel.empty_quantized("int8", { self.out_features, self.in_features }, {
    dtype = "f16", device = "meta",
  }))
end

--- Values as this layer keeps them.
---@param values accel.Tensor
---@return accel.Tensor
function Linear8bitLt:quantize(values) return accel.quantize_int8(values:to "f16") end

function Linear8bitLt:forward(x) return linear_quantized(x, self.weight, self.bias, self.threshold) end

return Linear8bitLt
