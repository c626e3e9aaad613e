--- BnbQuantizationConfig of accelerate.utils: how load_and_quantize_model quantises.
local check = require "accel.util.check"
local class = require "accel.util.class"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local NAME <const> = "BnbQuantizationConfig"
local FIELDS <const> = { load_in_8bit = true, llm_int8_threshold = true, load_in_4bit = true, bnb_4bit_quant_type = true,
  bnb_4bit_use_double_quant = true, bnb_4bit_compute_dtype = true, torch_dtype = true, skip_modules = true,
  keep_in_fp32_modules = true, head_quant_type = true }
local HEADS <const> = { int8 = true, nf4 = true, fp4 = true }
local DTYPES <const> = { f32 = "f32", f16 = "f16", bf16 = "bf16", fp32 = "f32", fp16 = "f16", float32 = "f32", float16 = "f16",
  bfloat16 = "bf16" }

--- Exactly one of load_in_8bit and load_in_4bit is true.
--- example: accel.quant.BnbQuantizationConfig { load_in_4bit = true, bnb_4bit_quant_type = "nf4" }.torch_dtype --> "f16"
---@class accel.quant.BnbQuantizationConfig
---@field load_in_8bit boolean
---@field llm_int8_threshold number
---@field load_in_4bit boolean
---@field bnb_4bit_quant_type string
---@field bnb_4bit_use_double_quant boolean
---@field bnb_4bit_compute_dtype string
---@field torch_dtype string
---@field skip_modules string[]?
---@field keep_in_fp32_modules string[]?
---@field head_quant_type string?
---@field _absent_ok boolean? lists may name modules that the model does not have
---@field target_dtype string "int4" or "int8": the dtype of weights in device maps
local Config = class("accel.quant.BnbQuantizationConfig")

local function names(field, list)
  if list == nil then return nil end
  local ok = type(list) == "table"
  for _, name in ipairs(ok and list or {}) do ok = ok and type(name) == "string" end
  if not ok then raise("%s: %s must be a list of strings, got %s", NAME, field, check.shown(list)) end
  return { table.unpack(list) }
end

local function dtype(field, value)
  local short = type(value) == "string" and DTYPES[value]
  if not short then raise("%s: %s must be in ['fp32','fp16','bf16'] but found %s", NAME, field, check.shown(value)) end
  return short
end

---@param opts? table
---  load_in_8bit boolean = false: int8 by row, with columns of outliers in the input's dtype
---  llm_int8_threshold number = 6: magnitude from which on a value is an outlier
---  load_in_4bit boolean = false: 4 bits in blocks of 64
---  bnb_4bit_quant_type string = "fp4": or "nf4"
---  bnb_4bit_use_double_quant boolean = false: quantise the blocks' magnitudes as well
---  bnb_4bit_compute_dtype string = "fp16": dtype of products: "fp32", "fp16" or "bf16"
---  torch_dtype string: dtype of unquantised parameters (default: fp16 with 8 bits, the compute dtype with 4)
---  skip_modules string[]: modules that are not quantised (default: tied ones and the last one, the head). Where a list names neither
---    a head nor the embedding that it is tied to, as {}, they share one quantised weight
---  head_quant_type string: "int8", "nf4" or "fp4": quantise the modules that are skipped by default (a field of accel's own)
---  keep_in_fp32_modules string[]: modules that are not quantised and stay f32
function Config:init(opts)
  local o = { load_in_8bit = false, llm_int8_threshold = 6.0, load_in_4bit = false, bnb_4bit_quant_type = "fp4",
    bnb_4bit_use_double_quant = false, bnb_4bit_compute_dtype = "fp16" }
  if opts ~= nil and type(opts) ~= "table" then raise("%s: options must be a table, got %s", NAME, check.shown(opts)) end
  for key, value in next, opts or {} do
    if not FIELDS[key] then
      local near = type(key) == "string" and nearest(key, FIELDS)
      raise("%s: unknown option '%s'%s", NAME, tostring(key), near and ("; did you mean '%s'?"):format(near) or "")
    end
    o[key] = value
  end
  for _, key in ipairs { "load_in_8bit", "load_in_4bit", "bnb_4bit_use_double_quant" } do
    if type(o[key]) ~= "boolean" then raise("%s: %s must be a boolean, got %s", NAME, key, check.shown(o[key])) end
  end
  if o.load_in_4bit and o.load_in_8bit then raise("%s: load_in_4bit and load_in_8bit can't be both true", NAME) end
  if not o.load_in_4bit and not o.load_in_8bit then raise("%s: load_in_4bit and load_in_8bit can't be both false", NAME) end
  if type(o.llm_int8_threshold) ~= "number" then
    raise("%s: llm_int8_threshold must be a float or an int, got %s", NAME, check.shown(o.llm_int8_threshold))
  end
  check.number(NAME, "llm_int8_threshold", o.llm_int8_threshold, 0)
  if type(o.bnb_4bit_quant_type) ~= "string" then
    raise("%s: bnb_4bit_quant_type must be a string, got %s", NAME, check.shown(o.bnb_4bit_quant_type))
  elseif o.bnb_4bit_quant_type ~= "fp4" and o.bnb_4bit_quant_type ~= "nf4" then
    raise("%s: bnb_4bit_quant_type must be in ['fp4','nf4'] but found %s", NAME, o.bnb_4bit_quant_type)
  end
  if o.head_quant_type ~= nil and not HEADS[o.head_quant_type] then
    raise("%s: head_quant_type must be in ['int8','nf4','fp4'] but found %s", NAME, check.shown(o.head_quant_type))
  end
  if o.load_in_4bit and o.llm_int8_threshold ~= 6 and o.head_quant_type ~= "int8" then
    warn(("%s: llm_int8_threshold has no effect with load_in_4bit"):format(NAME))
  end
  local idle = {} -- a head of 4 bits has its own type, and follows the others
  for _, key in ipairs { "bnb_4bit_compute_dtype", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant" } do
    local used = key ~= "bnb_4bit_quant_type" and o.head_quant_type and o.head_quant_type ~= "int8"
    if o.load_in_8bit and opts[key] and not used then idle[#idle + 1] = key end
  end
  if #idle > 0 then warn(("%s: %s %s no effect with load_in_8bit"):format(NAME, table.concat(idle, ", "), #idle == 1 and "has" or "have")) end
  o.bnb_4bit_compute_dtype = dtype("bnb_4bit_compute_dtype", o.bnb_4bit_compute_dtype)
  o.torch_dtype = o.torch_dtype and dtype("torch_dtype", o.torch_dtype) or o.load_in_8bit and "f16" or o.bnb_4bit_compute_dtype
  for key, value in next, o do self[key] = value end
  self.skip_modules, self.keep_in_fp32_modules = names("skip_modules", o.skip_modules), names("keep_in_fp32_modules", o.keep_in_fp32_modules)
  self.target_dtype = o.load_in_4bit and "int4" or "int8"
end

--- The fields of a quantization_config in Hugging Face's config.json.
---@return table
function Config:to_dict()
  local long = { f32 = "float32", f16 = "float16", bf16 = "bfloat16" }
  local out = { quant_method = "bitsandbytes", load_in_4bit = self.load_in_4bit, load_in_8bit = self.load_in_8bit,
    llm_int8_threshold = self.llm_int8_threshold + 0.0, bnb_4bit_quant_type = self.bnb_4bit_quant_type,
    bnb_4bit_use_double_quant = self.bnb_4bit_use_double_quant, bnb_4bit_quant_storage = "uint8",
    bnb_4bit_compute_dtype = long[self.bnb_4bit_compute_dtype], llm_int8_enable_fp32_cpu_offload = false,
    llm_int8_has_fp16_weight = false }
  local accel = require "accel"
  out.llm_int8_skip_modules = self.skip_modules and accel.json.array { table.unpack(self.skip_modules) } or accel.json.null
  out.head_quant_type = self.head_quant_type
  return out
end

--- The configuration that a quantization_config of Hugging Face's config.json describes.
---@param given table
---@return accel.quant.BnbQuantizationConfig
function Config.from_dict(given, ...)
  check.surplus("BnbQuantizationConfig.from_dict", ...)
  if given.quant_method ~= nil and given.quant_method ~= "bitsandbytes" then
    raise("%s: quant_method %s is not bitsandbytes", NAME, check.shown(given.quant_method))
  end
  local null = require("accel").json.null
  local function of(key) return given[key] ~= null and given[key] or nil end
  local head = of "head_quant_type"
  local bits4 = not of "load_in_8bit" or head ~= nil and head ~= "int8" -- files have all fields, including the 4-bit ones
  local self = Config {
    load_in_4bit = of "load_in_4bit" or false, load_in_8bit = of "load_in_8bit" or false,
    llm_int8_threshold = (of "load_in_8bit" or head == "int8") and of "llm_int8_threshold" or 6.0,
    bnb_4bit_quant_type = not of "load_in_8bit" and of "bnb_4bit_quant_type" or nil,
    bnb_4bit_use_double_quant = bits4 and of "bnb_4bit_use_double_quant" or nil,
    bnb_4bit_compute_dtype = bits4 and (of "bnb_4bit_compute_dtype" or "fp32") or nil, skip_modules = of "llm_int8_skip_modules",
    head_quant_type = head,
  }
  self._absent_ok = true
  return self
end

return Config
