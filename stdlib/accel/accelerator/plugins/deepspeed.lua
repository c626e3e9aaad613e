--- DeepSpeedPlugin: sharding and offloading in DeepSpeed's words, from fields, from a DeepSpeed configuration, or from both.
local check = require "accel.util.check"
local HfDeepSpeedConfig = require "accel.accelerator.plugins.deepspeed_config".HfDeepSpeedConfig
local base = require "accel.accelerator.plugins.base"
local environment = require "accel.accelerator.environment"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = { HfDeepSpeedConfig = HfDeepSpeedConfig }

local none <const> = options.none
local WHO <const> = "DeepSpeedPlugin"
local ENV <const> = "ACCELERATE_DEEPSPEED_"

--- Fields and their keys in a DeepSpeed configuration, in the order used in messages.
local PLACES <const> = {
  { "gradient_accumulation_steps", "gradient_accumulation_steps" },
  { "gradient_clipping", "gradient_clipping" },
  { "zero_stage", "zero_optimization.stage" },
  { "offload_optimizer_device", "zero_optimization.offload_optimizer.device" },
  { "offload_param_device", "zero_optimization.offload_param.device" },
  { "offload_param_nvme_path", "zero_optimization.offload_param.nvme_path" },
  { "offload_optimizer_nvme_path", "zero_optimization.offload_optimizer.nvme_path" },
  { "zero3_save_16bit_model", "zero_optimization.stage3_gather_16bit_weights_on_model_save" },
}

--- ZeRO stages 0 to 3. Missing values come from the environment (ACCELERATE_DEEPSPEED_...), which a launch with deepspeed_config sets.
--- hf_ds_config is a table, the path of DeepSpeed's JSON, JSON text, or that text in base64. deepspeed_config holds the result.
--- example: accel.accelerator.DeepSpeedPlugin { zero_stage = 3 }.deepspeed_config.zero_optimization.stage --> 3
---@class accel.accelerator.DeepSpeedPlugin : accel.accelerator.Plugin
---@field deepspeed_config table
local DeepSpeed = base.extend(WHO, {
  { "hf_ds_config", none, ENV .. "CONFIG_FILE", "text" },
  { "gradient_accumulation_steps", none, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "text" },
  { "gradient_clipping", none, "ACCELERATE_GRADIENT_CLIPPING", "text" },
  { "zero_stage", 2, ENV .. "ZERO_STAGE", "int" },
  { "is_train_batch_min", true },
  { "offload_optimizer_device", "none", ENV .. "OFFLOAD_OPTIMIZER_DEVICE", "text" },
  { "offload_param_device", "none", ENV .. "OFFLOAD_PARAM_DEVICE", "text" },
  { "offload_optimizer_nvme_path", "none", ENV .. "OFFLOAD_OPTIMIZER_NVME_PATH", "text" },
  { "offload_param_nvme_path", "none", ENV .. "OFFLOAD_PARAM_NVME_PATH", "text" },
  { "zero3_init_flag", none },
  { "zero3_save_16bit_model", none },
  { "transformer_moe_cls_names", none },
  { "enable_msamp", false },
  { "msamp_opt_level", "O1" },
  { "deepspeed_config", none },
})
M.DeepSpeedPlugin = DeepSpeed

--- Converts digits to a number. "auto" and other words stay.
local function numbers(self)
  local steps, clip = self.gradient_accumulation_steps, self.gradient_clipping
  if steps == nil then steps = "auto" end
  self.gradient_accumulation_steps = type(steps) == "string" and steps:find "^%d+$" and math.tointeger(tonumber(steps)) or steps
  if clip == nil then clip = "auto" end
  if type(clip) == "string" and clip ~= "auto" then
    local value = tonumber(clip)
    if not value then raise("%s: gradient_clipping: could not convert '%s' to a number", WHO, clip) end
    clip = value + 0.0
  end
  self.gradient_clipping = clip
end

--- Keys of a configuration file that are not DeepSpeed's are errors: they would have no effect.
local function refuse_fields(self)
  local fields = environment.get "ACCELERATE_CONFIG_DS_FIELDS"
  if not fields or not environment.get(ENV .. "CONFIG_FILE") then return end
  local names = {}
  for i, place in ipairs(PLACES) do names[i] = place[1] end
  names[#names + 1] = "mixed_precision"
  for field in fields:gmatch "[^,]+" do
    for _, name in ipairs(names) do
      if field == name then
        raise("%s: with `deepspeed_config_file` these keys of the configuration have no effect: [%s]; set them in %s, or leave it out",
          WHO, table.concat(names, ", "), tostring(self.hf_ds_config))
      end
    end
  end
end

local function from_file(self)
  local config = HfDeepSpeedConfig(self.hf_ds_config)
  if config.config.gradient_accumulation_steps == nil then config.config.gradient_accumulation_steps = 1 end
  if config.config.zero_optimization == nil then raise("%s: the DeepSpeed config has no ZeRO optimization config (zero_optimization)", WHO) end
  refuse_fields(self)
  local zero = config.config.zero_optimization
  if zero.stage3_gather_16bit_weights_on_model_save == nil then -- its name before fp16 had a brother
    zero.stage3_gather_16bit_weights_on_model_save = zero.stage3_gather_fp16_weights_on_model_save
  end
  local values = {}
  for _, place in ipairs(PLACES) do values[place[2]] = self[place[1]] end
  for _, place in ipairs(PLACES) do config:fill(place[2], values, false) end
  config:set_stage_and_offload()
  for _, place in ipairs(PLACES) do
    local value = config:get_value(place[2])
    if value ~= nil and value ~= "auto" then self[place[1]] = value end
  end
  return config
end

local function offload(device, path) return { device = device, nvme_path = device == "nvme" and path or nil } end

local function from_fields(self)
  return HfDeepSpeedConfig {
    train_batch_size = "auto", train_micro_batch_size_per_gpu = "auto",
    gradient_accumulation_steps = self.gradient_accumulation_steps,
    gradient_clipping = self.gradient_clipping ~= 0 and self.gradient_clipping or nil,
    zero_optimization = {
      stage = self.zero_stage,
      offload_optimizer = offload(self.offload_optimizer_device, self.offload_optimizer_nvme_path),
      offload_param = offload(self.offload_param_device, self.offload_param_nvme_path),
      stage3_gather_16bit_weights_on_model_save = self.zero3_save_16bit_model,
    },
  }
end

function DeepSpeed:init(...)
  base.Plugin.init(self, ...)
  numbers(self)
  if self.zero3_save_16bit_model == nil then
    self.zero3_save_16bit_model = environment.get(ENV .. "ZERO3_SAVE_16BIT_MODEL") == "true"
  end
  local given = self.hf_ds_config
  if given ~= nil and not class.isinstance(given, HfDeepSpeedConfig) then self.hf_ds_config = from_file(self)
  elseif given == nil then self.hf_ds_config = from_fields(self) end
  self.deepspeed_config = self.hf_ds_config.config
  self._steps_per_print = self.deepspeed_config.steps_per_print -- for the warning: the reference puts infinity in its place, as is done here
  self.deepspeed_config.steps_per_print = math.huge
  local zero3 = self.hf_ds_config:is_zero3()
  if self.zero3_init_flag == nil then self.zero3_init_flag = base.read(WHO, ENV .. "ZERO3_INIT", "bool", zero3) end
  self.zero3_init_flag = self.zero3_init_flag and zero3 -- means nothing at other stages
end

--- Replaces each "auto" of the configuration by values of dotted keys ({ ["optimizer.params.lr"] = 1e-3 }). A key without a value is
--- an error. With must_match (default true), a key that differs from the value is an error as well.
--- example: local p = accel.accelerator.DeepSpeedPlugin { hf_ds_config = { train_batch_size = "auto",
---   zero_optimization = { stage = 2 } } } p:deepspeed_config_process { train_batch_size = 8 } return
---   p.deepspeed_config.train_batch_size --> 8
---@param values table<string, any>
---@param opts? {must_match: boolean?}
function DeepSpeed:deepspeed_config_process(values, opts, ...)
  check.surplus("deepspeed_config_process", ...)
  local o = options("deepspeed_config_process", opts, { must_match = true })
  self.hf_ds_config:process(values, o.must_match)
end

--- The value of a dotted key of the DeepSpeed configuration.
--- example: accel.accelerator.DeepSpeedPlugin({}):get_value "zero_optimization.stage" --> 2
---@param key string
---@param default? any
function DeepSpeed:get_value(key, default, ...)
  check.surplus("get_value", ...)
  return self.hf_ds_config:get_value(key, default)
end

--- Whether a dotted key of the configuration is left "auto".
--- example: accel.DeepSpeedPlugin({}):is_auto "train_batch_size" --> true
---@param key string
---@return boolean
function DeepSpeed:is_auto(key) return self.hf_ds_config:get_value(key) == "auto" end

--- Replaces one dotted key that is "auto". Raises if values lack the key.
---@param key string
---@param values table<string, any>
function DeepSpeed:fill_match(key, values)
  if self.hf_ds_config:fill(key, values, false) == "absent" then
    raise("`%s` not found in the values given: say it without \"auto\" in the DeepSpeed config, or give it", key)
  end
end

--- Copies a precision into the fp16 and bf16 blocks, if they are "auto" or absent.
--- example: local p = accel.DeepSpeedPlugin {} p:set_mixed_precision "bf16" return p.deepspeed_config.bf16.enabled --> true
---@param mixed_precision string "no", "fp16", "bf16" or "fp8"
function DeepSpeed:set_mixed_precision(mixed_precision)
  local config, bf16 = self.deepspeed_config, mixed_precision == "bf16" or mixed_precision == "fp8"
  if mixed_precision == "fp16" and config.fp16 == nil then config.fp16 = { enabled = true, auto_cast = true } end
  if bf16 and config.bf16 == nil then config.bf16 = { enabled = true } end
  if mixed_precision ~= "no" then
    local other = mixed_precision == "fp16" and "bf16" or "fp16"
    if self:get_value(other .. ".enabled") == true then
      raise("%s: mixed_precision = '%s', but the DeepSpeed config enables %s; remove one of them", WHO, mixed_precision, other)
    end
  end
  for _, dtype in ipairs { "fp16", "bf16" } do
    if config[dtype] == nil then config[dtype] = { enabled = false } end
  end
  local values = { ["fp16.enabled"] = mixed_precision == "fp16", ["bf16.enabled"] = bf16 }
  self:fill_match("fp16.enabled", values)
  self:fill_match("bf16.enabled", values)
end

--- The precision that the configuration's blocks enable.
--- example: accel.DeepSpeedPlugin({ hf_ds_config = { zero_optimization = {}, bf16 = { enabled = true } } }):precision() --> "bf16"
---@return "no"|"fp16"|"bf16"
function DeepSpeed:precision()
  local fp16, bf16 = self:get_value "fp16.enabled" == true, self:get_value "bf16.enabled" == true
  if fp16 and bf16 then raise("%s: the DeepSpeed config enables both fp16 and bf16; disable one", WHO) end
  return fp16 and "fp16" or bf16 and "bf16" or "no"
end

--- The loss scaler of the fp16 block. nil if it is not enabled.
---@return accel.deepspeed.DynamicLossScaler?
function DeepSpeed:scaler()
  if self:precision() ~= "fp16" then return nil end
  local block, own = self.deepspeed_config.fp16, {}
  for _, key in ipairs { "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis",
    "min_loss_scale" } do
    if block[key] ~= "auto" then own[key] = block[key] end
  end
  return require("accel.deepspeed.loss_scaler")(own)
end

--- Names of the classes that stage 3 gathers whole, mixtures of experts: transformer_moe_cls_names,
--- ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES, or leaf_module of the configuration.
--- example: accel.DeepSpeedPlugin({ transformer_moe_cls_names = "A,B" }):moe_leaf_classes() --> { "A", "B" }
---@return string[]
function DeepSpeed:moe_leaf_classes()
  local given, list = self.transformer_moe_cls_names, {}
  if given == nil then given = environment.get(ENV .. "MOE_LAYER_CLS_NAMES") end
  if given == nil then given = self:get_value "zero_optimization.leaf_module.classes" end
  if type(given) == "table" then return table.move(given, 1, #given, 1, list) end
  for name in (given or ""):gmatch "[^,%s]+" do list[#list + 1] = name end
  return list
end

--- zero3_init_flag has another value until the block ends, or while fn runs.
--- example: local p, seen = accel.DeepSpeedPlugin { zero_stage = 3 } p:zero3_init_context_manager(false, function()
---   seen = p:is_zero3_init_enabled() end) return seen, p:is_zero3_init_enabled() --> false, true
---@param enable boolean
---@param fn? function
---@param ... any
function DeepSpeed:zero3_init_context_manager(enable, fn, ...)
  local was = self.zero3_init_flag
  self.zero3_init_flag = enable == true
  return require "accel.util.guard"(function() self.zero3_init_flag = was end, fn, ...)
end

--- Whether parameters are sharded from the start: at stage 3 with zero3_init_flag.
--- example: accel.accelerator.DeepSpeedPlugin({ zero_stage = 3 }):is_zero3_init_enabled() --> true
---@return boolean
function DeepSpeed:is_zero3_init_enabled() return self.zero3_init_flag end

DeepSpeed.selected = false -- of one that no Accelerator has
require "accel.util.absent".members(DeepSpeed, "DeepSpeedPlugin")

return M
