--- The common part of the configurations of adapters, as in adapter_config.json, and LoraConfig and IA3Config. Those of the other types
--- are in kinds/, one file a type.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

--- PEFT's fields without meaning here, which must have these values. Other values raise.
local IDLE <const> = { alora_invocation_tokens = false, arrow_config = false, corda_config = false,
  ensure_weight_tying = false, eva_config = false, kasa_config = false,
  loftq_config = {}, lora_ga_config = false, megatron_config = false, megatron_core = "megatron.core", monteclora_config = false,
  qalora_group_size = 16, revision = false, use_bdlora = false, use_qalora = false, velora_config = false, runtime_config = false,
  tokenizer_kwargs = false }

--- Fields that record where an adapter is from.
local RECORDS <const> = { auto_mapping = true, peft_type = true, peft_version = true }

--- The base of all. A type's class has the fields below, and one of a type in weight_layer.lua those that are listed there.
---@class accel.peft.Config : accel.util.class.Object
---@field peft_type string
---@field defaults table<string, any> the fields of the file with their defaults
---@field lists table<string, boolean> fields that are lists in files
---@field loose table<string, boolean> fields that take values of several types
---@field prompt boolean virtual tokens in front of the input instead of changed layers
---@field bases table<string, boolean> kinds of layers that the adapters of a type of weight_layer.lua go to
local Config = class("accel.peft.Config")
Config.lists, Config.loose, Config.prompt, Config.bases = {}, {}, false, { linear = true }
for _, key in ipairs { "_delta", "_update", "_weight", "_input", "_output", "output_before_bias", "_shared", "_dropout", "_skips",
  "file_beside", "fit", "trim", "file_version", "penalty", "allocate" } do
  Config[key] = false
end

local function idle(value, default)
  if value == nil or value == accel.json.null or value == default then return true end
  return default == false and value == false or type(value) == "table" and next(value) == nil
end

function Config:init(opts)
  local name = getmetatable(self).__name:match "[^.]*$"
  if opts ~= nil and type(opts) ~= "table" then raise("%s: options must be a table, got %s", name, check.shown(opts)) end
  for key, value in next, self.defaults do
    if value ~= M.none then self[key] = type(value) == "table" and {} or value end
  end
  for key, value in next, opts or {} do
    if self.defaults[key] ~= nil then
      if value == accel.json.null then value = nil end
      local default = self.defaults[key]
      if value ~= nil and default ~= M.none and type(value) ~= type(default) and not self.loose[key] then
        raise("%s: %s must be a %s, got %s", name, key, type(default), check.shown(value))
      end
      self[key] = value
    elseif IDLE[key] ~= nil then
      if not idle(value, IDLE[key]) then raise("%s: %s = %s is not supported; leave it out", name, key, check.shown(value)) end
    elseif not RECORDS[key] then
      local near = type(key) == "string" and nearest(key, self.defaults)
      raise("%s: unknown option '%s'%s", name, tostring(key), near and ("; did you mean '%s'?"):format(near) or options.listed(self.defaults))
    end
  end
  self:validate(name)
end

--- Plain data as adapter_config.json has it.
---@return table
function Config:to_dict()
  local out = { peft_type = self.peft_type }
  for key in next, self.defaults do
    local value = self[key]
    if value == nil then value = accel.json.null end
    if type(value) == "table" and value ~= accel.json.null and (value[1] ~= nil or self.lists[key]) then
      value = accel.json.array { table.unpack(value) }
    end
    out[key] = value
  end
  return out
end

M.none = setmetatable({}, { __tostring = function() return "none" end })
local none = M.none
M.Config = Config

--- A class of configurations. While ACCEL_TEST_STRICT is set, as in accel's tests, reading a field that a type of adapter does not have
--- raises (models/config.lua has the same for models). Elsewhere it is nil. Code that serves several types reads by M.get.
---@param name string
---@param fields table peft_type and the other fields of the class
---@return any
function M.define(name, fields)
  local kind = Config:extend("accel.peft." .. name)
  for key, value in next, fields do kind[key] = value end
  if os.getenv "ACCEL_TEST_STRICT" == "1" then
    kind.__index = function(_, key)
      local value = kind[key]
      if value == nil and kind.defaults[key] == nil and type(key) == "string" and not key:find "^_" then
        error(("%s: '%s' is read, which it does not declare"):format(kind.__name, key), 2)
      end
      return value
    end
  end
  return kind
end

--- The fields of types whose adapters are in the target modules, with the type's own. Several types lack some, which `but` names.
---@param own table
---@param but? string names of fields that the type lacks
---@return table
function M.targets(own, but)
  local all = { target_modules = none, exclude_modules = none, layers_to_transform = none, layers_pattern = none, modules_to_save = none,
    bias = "none", task_type = none, inference_mode = false, base_model_name_or_path = none }
  for key in (but or ""):gmatch "%S+" do all[key] = nil end
  for key, value in next, own do all[key] = value end
  return all
end

M.target_lists = { target_modules = true, modules_to_save = true, exclude_modules = true }

local TASKS <const> = { CAUSAL_LM = true, SEQ_CLS = true, SEQ_2_SEQ_LM = true, TOKEN_CLS = true, QUESTION_ANS = true,
  FEATURE_EXTRACTION = true }

--- Raises unless a field is nil, a string or a list of strings.
local function strings(name, key, value)
  if value == nil or type(value) == "string" then return end
  if type(value) ~= "table" then raise("%s: %s must be a string or a list of strings, got %s", name, key, check.shown(value)) end
  for _, text in ipairs(value) do
    if type(text) ~= "string" then raise("%s: %s must be a list of strings, got %s in it", name, key, check.shown(text)) end
  end
end

--- Checks the fields that types share. The own checks of a type follow it.
---@param self accel.peft.Config
---@param name string
local function common(self, name)
  if self.task_type and not TASKS[self.task_type] then
    raise("%s: task_type %s is not one of CAUSAL_LM, SEQ_CLS, SEQ_2_SEQ_LM, TOKEN_CLS, QUESTION_ANS, FEATURE_EXTRACTION", name,
      check.shown(self.task_type))
  end
  if self.defaults.modules_to_save ~= nil and type(self.modules_to_save) == "string" then self.modules_to_save = { self.modules_to_save } end
  for _, key in ipairs { "target_modules", "modules_to_save", "exclude_modules", "target_parameters", "layers_pattern" } do
    if self.defaults[key] ~= nil then strings(name, key, self[key]) end
  end
  for _, key in ipairs { "rank_pattern", "alpha_pattern" } do
    local by_name = self.defaults[key] ~= nil and self[key] or {}
    if self.peft_type == "ADALORA" and key == "rank_pattern" then by_name = {} end -- lists of the ranks that it kept
    if type(by_name) ~= "table" then raise("%s: %s must be a table of numbers by name, got %s", name, key, check.shown(by_name)) end
    for of, value in accel.pairs(by_name) do
      if type(value) ~= "number" or value <= 0 then
        raise("%s: %s['%s'] must be a positive number, got %s", name, key, of, check.shown(value))
      end
    end
  end
  local blocks = self.defaults.layers_to_transform ~= nil and self.layers_to_transform or {}
  for _, n in ipairs(type(blocks) == "table" and blocks or { blocks }) do
    if math.type(n) ~= "integer" then
      raise("%s: layers_to_transform must be a number of a block or a list of them, from 0, got %s", name, check.shown(n))
    end
  end
  local ranges = self.defaults.layer_replication ~= nil and self.layer_replication
  if ranges and type(ranges) ~= "table" then
    raise("%s: layer_replication must be a list of ranges of blocks, {first, last + 1} from 0, got %s", name, check.shown(ranges))
  end
  for _, range in ipairs(ranges or {}) do
    if type(range) ~= "table" or #range ~= 2 or math.type(range[1]) ~= "integer" or math.type(range[2]) ~= "integer" then
      raise("%s: each range of layer_replication must be {first, last + 1}, got %s", name, check.shown(range))
    end
  end
  local bias = self.defaults.bias ~= nil and self.bias
  local only = self.peft_type:lower() .. "_only"
  if bias and bias ~= "none" and bias ~= "all" and bias ~= only then
    raise("%s: bias must be 'none', 'all' or '%s', got %s", name, only, check.shown(bias))
  end
end
M.common = common

--- The fields of types with virtual tokens, with the type's own.
---@param own table
---@return table
function M.prompts(own)
  local all = { num_virtual_tokens = none, token_dim = none, num_layers = none, num_attention_heads = none, num_transformer_submodules = none,
    modules_to_save = none, task_type = none, inference_mode = false, base_model_name_or_path = none }
  for key, value in next, own do all[key] = value end
  return all
end

--- Checks what types with virtual tokens share. Their prompts in files are computed ones, so that these load without what they were
--- computed from (M.flat).
---@param self accel.peft.Config
---@param name string
function M.common_prompt(self, name)
  common(self, name)
  check.positive(name, "num_virtual_tokens", self.num_virtual_tokens)
end

--- The `fit` of types whose prompt is computed: one from a file is taken as it is.
---@param self accel.peft.Config
function M.flat(self) self._flat = true end

local INITS <const> = { gaussian = true, orthogonal = true, olora = true, pissa = true }

--- LoRA (Hu and others, "LoRA: Low-Rank Adaptation of Large Language Models"): y = W x + B A x * lora_alpha / r.
--- example: accel.peft.LoraConfig { r = 4, lora_alpha = 8 }.bias --> "none"
---@class accel.peft.LoraConfig
---@field peft_type string "LORA"
local LoraConfig = M.define("LoraConfig", { peft_type = "LORA", lists = M.target_lists, loose = { init_lora_weights = true }, defaults = {
  r = 8, lora_alpha = 8, lora_dropout = 0, target_modules = none, exclude_modules = none, bias = "none", modules_to_save = none,
  use_rslora = false, use_dora = false, fan_in_fan_out = false, init_lora_weights = true, rank_pattern = {}, alpha_pattern = {}, lora_bias = false,
  layers_to_transform = none, layers_pattern = none, task_type = none, inference_mode = false, base_model_name_or_path = none,
  trainable_token_indices = none, target_parameters = none, layer_replication = none,
} })

---@param opts? table
---  r integer = 8: rank
---  lora_alpha number = 8: the update counts lora_alpha / r, with use_rslora lora_alpha / sqrt(r)
---  lora_dropout number = 0: of the adapter's input, in training
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names. "all-linear": all
---    but the head (default: by the model's family)
---  exclude_modules string[]: layers that are left out
---  bias string = "none": which biases learn as well: "none", "all", "lora_only"
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  use_rslora boolean = false: the rank counts by its square root
---  use_dora boolean = false: magnitudes of the rows of the weight with its update learn as well (DoRA)
---  fan_in_fan_out boolean = false: set for Conv1D layers
---  init_lora_weights boolean|string = true: B zero; "gaussian": A normal too; false: B as A; "orthogonal": rows of A and columns of B are
---    orthogonal to each other; "olora" and "pissa": both from a QR or a singular value decomposition of the model's weights, of which their
---    product is taken off
---  rank_pattern table = {}: other ranks by name
---  alpha_pattern table = {}: other lora_alpha by name
---  lora_bias boolean = false: B has a bias
---  trainable_token_indices integer[]|table<string, integer[]>: rows of the embedding (or of the embeddings by name) that learn as well
---  target_parameters string[]: parameters of stacked experts, [experts, in, out], by the ends of their names
---  layer_replication integer[][]: ranges of blocks, {first, last + 1} from 0, that the model consists of then. Copies share their weights
---    and have adapters of their own
---  layers_to_transform integer|integer[]: only blocks of these numbers
---  layers_pattern string|string[]: names of the lists of blocks that are counted
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function LoraConfig:init(opts) Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string name of the adapter, for messages
function LoraConfig:validate(name)
  common(self, name)
  check.positive(name, "r", self.r)
  check.number(name, "lora_alpha", self.lora_alpha, 0)
  check.number(name, "lora_dropout", self.lora_dropout, 0, 1)
  local pattern = self.layers_pattern
  if pattern ~= nil and pattern ~= "" and (type(pattern) ~= "table" or #pattern > 0) and self.layers_to_transform == nil then
    raise("%s: layers_pattern names the list of the blocks that layers_to_transform chooses; give layers_to_transform, or leave it out", name)
  end
  if self.use_dora and self.lora_bias then raise("%s: lora_bias does not go with use_dora", name) end
  local init = self.init_lora_weights
  if type(init) == "string" and init:find "^pissa_niter_" then
    raise("%s: init_lora_weights = %s draws at random, so that a file does not give the model back; use 'pissa', or let PEFT save the adapter "
      .. "as LoRA (save_pretrained with path_initial_model_for_weight_conversion)", name, check.shown(init))
  elseif type(init) ~= "boolean" and not INITS[init] then
    raise("%s: init_lora_weights must be true, false, 'gaussian', 'orthogonal', 'olora' or 'pissa', got %s", name, check.shown(init))
  end
  if init == "orthogonal" and self.r % 2 == 1 then raise("%s: init_lora_weights = 'orthogonal' needs an even r, got %d", name, self.r) end
end

--- IA3 (Liu and others, "Few-Shot Parameter-Efficient Fine-Tuning is Better and Cheaper than In-Context Learning"): outputs, or inputs of
--- feedforward_modules, are multiplied by a vector that is learned.
--- example: accel.peft.IA3Config {}.init_ia3_weights --> true
---@class accel.peft.IA3Config
---@field peft_type string "IA3"
local IA3Config = M.define("IA3Config", { peft_type = "IA3", lists = { target_modules = true, modules_to_save = true, feedforward_modules = true },
  defaults = {
  target_modules = none, exclude_modules = none, feedforward_modules = none, fan_in_fan_out = false, modules_to_save = none,
  init_ia3_weights = true, task_type = none, inference_mode = false, base_model_name_or_path = none,
} })

---@param opts? table
---  target_modules string|string[]: names of layers, or ends of names. A string: a regular expression for whole names (default: by the
---    model's family)
---  exclude_modules string[]: layers that are left out
---  feedforward_modules string[]: those of them that multiply their inputs (default: by the model's family)
---  fan_in_fan_out boolean = false: set for Conv1D layers
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  init_ia3_weights boolean = true: vectors of ones. false: normal
---  task_type string: CAUSAL_LM and others, for PEFT
---  base_model_name_or_path string: for PEFT
---  inference_mode boolean = false: nothing learns
function IA3Config:init(opts) Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string name of the adapter, for messages
function IA3Config:validate(name)
  common(self, name)
  strings(name, "feedforward_modules", self.feedforward_modules)
  if type(self.target_modules) ~= "table" or type(self.feedforward_modules) ~= "table" then return end
  local targets = {}
  for _, target in ipairs(self.target_modules) do targets[target] = true end
  for _, module in ipairs(self.feedforward_modules) do
    if not targets[module] then
      raise("%s: feedforward_modules should be a subset of target_modules, '%s' is not among them", name, module)
    end
  end
end

M.LoraConfig, M.IA3Config = LoraConfig, IA3Config

--- The value of a field if the kind of configuration has it, otherwise nil.
---@param config table
---@param key string
---@return any
function M.get(config, key)
  if config.defaults[key] == nil then return nil end
  return config[key]
end

--- The configuration that an adapter_config.json describes.
---@param given table
---@return table
function M.from_dict(given)
  local kind = require("accel.peft.kinds").by_type(given.peft_type)
  if not kind then
    raise("adapter_config.json: peft_type %s is not one of %s", check.shown(given.peft_type),
      table.concat(require("accel.peft.kinds").types(), ", "))
  end
  return kind(given)
end

--- Whether x is a configuration.
function M.is(x) return class.isinstance(x, Config) end

return M
