--- nn.Linear4bit(in_features, out_features, opts): a linear layer whose weight has 4 bits a value.
local accel = require "accel"
local Quantized = require "accel.nn.quantized"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local linear_quantized = accel.linear_quantized

--- y = x W^T + b with W in blocks of 64 values of 4 bits, as bitsandbytes' layer of this name (QLoRA). The product reads the packed bytes.
--- Its sums are f32. The weight takes no gradient, x and the bias do. The weight gets no gradient, x and the bias do. Its state_dict has
--- bitsandbytes' entries. load_state_dict takes these, or values, which it quantises.
--- example: local layer = accel.nn.Linear4bit(64, 8, { quant_type = "nf4" }) return layer(accel.ones(2, 64)).shape --> { 2, 8 }
---@class accel.nn.Linear4bit : accel.nn.Quantized
---@field compute_dtype string? x is converted to this dtype. nil: unchanged
local Linear4bit = Quantized:extend("accel.nn.Linear4bit")

local parse = arguments("Linear4bit", { "in_features" }, { "out_features" }, { "bias", true }, { "compute_dtype" },
  { "compress_statistics", true }, { "quant_type", "fp4" }, { "blocksize", 64 }, { "device" })

---@param in_features integer
---@param out_features integer
---@param opts? table
---  bias boolean = true
---  compute_dtype string: dtype of the product (default: x's)
---  compress_statistics boolean = true: quantise the blocks' largest magnitudes as well
---  quant_type string = "fp4": or "nf4"
---  blocksize integer = 64: values that share one magnitude
---  device string
function Linear4bit:init(in_features, out_features, opts, ...)
  local o = parse(in_features, out_features, opts, ...)
  self.in_features = check.positive("Linear4bit", "in_features", o.in_features)
  self.out_features = check.positive("Linear4bit", "out_features", o.out_features)
  if o.quant_type ~= "nf4" and o.quant_type ~= "fp4" then
    raise("Linear4bit: quant_type must be 'nf4' or 'fp4', got %s", check.shown(o.quant_type))
  end
  self.compute_dtype = o.compute_dtype
  self.quant_type, self.compress_statistics, self.blocksize = o.quant_type, o.compress_statistics, o.blocksize
  self:make(o, o.device == "meta" and accel.empty_quantized(o.quant_type, { self.out_features, self.in_features }, {
    blocksize = o.blocksize, nested = o.compress_statistics, device = "meta",
  }))
end

--- Values as this layer keeps them.
---@param values accel.Tensor
---@return accel.Tensor
function Linear4bit:quantize(values)
  return accel.quantize_4bit(values, self.quant_type, self.blocksize, self.compress_statistics)
end

function Linear4bit:forward(x)
  local dtype = self.compute_dtype
  if not dtype or x.dtype == dtype then return linear_quantized(x, self.weight, self.bias) end
  return linear_quantized(x:to(dtype), self.weight, self.bias):to(x.dtype)
end

return Linear4bit
