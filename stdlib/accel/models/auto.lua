--- models.from_pretrained(dir, opts): the model of a folder, of the class that its config.json names in `architectures`, or of
--- the class that the call names. Options and results are models/loading.lua's. Also the one rule by which every loader finds a
--- class: a folder whose class accel does not have is not loaded as another one.
local models = require "accel.models"
local check = require "accel.util.check"
local nearest = require "accel.util.nearest"
local pretrained = require "accel.models.pretrained"
local raise = require "accel.util.raise"

local M = {}

-- Families of one file each (models/families), and those that are older than these.
local usual = {
  gpt2 = "GPT2LMHeadModel", llama = "LlamaForCausalLM", mixtral = "MixtralForCausalLM", bert = "BertModel",
  t5 = "T5ForConditionalGeneration", vit = "ViTModel", resnet = "ResNetModel",
}

--- Classes of each family here, by Transformers' names.
local classes = {
  gpt2 = { "GPT2ForSequenceClassification", "GPT2LMHeadModel", "GPT2Model" },
  llama = { "LlamaForCausalLM", "LlamaForQuestionAnswering", "LlamaForSequenceClassification", "LlamaForTokenClassification",
    "LlamaModel" },
  mixtral = { "MixtralForCausalLM", "MixtralModel" },
  bert = { "BertForMaskedLM", "BertForMultipleChoice", "BertForNextSentencePrediction", "BertForPreTraining", "BertForQuestionAnswering",
    "BertForSequenceClassification", "BertForTokenClassification", "BertLMHeadModel", "BertModel" },
  t5 = { "T5EncoderModel", "T5ForConditionalGeneration", "T5ForSequenceClassification", "T5Model" },
  vit = { "ViTForImageClassification", "ViTForMaskedImageModeling", "ViTModel" },
  resnet = { "ResNetForImageClassification", "ResNetModel" },
}

do
  local families = require "accel.models.families"
  for kind, name in next, families.usual do usual[kind] = name end
  for kind, list in next, families.classes do classes[kind] = list end
end

--- Names that old files have for a class of today.
local renamed = { T5WithLMHeadModel = "T5ForConditionalGeneration" }

--- The class of this name. nil if accel has none.
local function named(name)
  local class = type(name) == "string" and name:find "^%u" and models[renamed[name] or name]
  return type(class) == "table" and class.schema and class or nil
end

--- The family of a configuration, and its usual class. nil and the reason if there is none.
---@param config table
---@return table? class
---@return string? why
function M.usual_class(config)
  local kind = config.model_type
  if type(kind) == "string" and usual[kind] then return models[usual[kind]] end
  local near = type(kind) == "string" and nearest(kind, usual)
  return nil, ("accel has no model with model_type %s%s; 'accel-run help families' lists the families"):format(
    check.shown(kind), near and ("; did you mean '%s'?"):format(near) or "")
end

--- The class of a configuration, or the caller's choice (a name or a class). nil and the reason if there is none.
---@param config table
---@param asked? string|table
---@return table?, string?
function M.class_of(config, asked)
  local kind, architectures = config.model_type, config.architectures
  local wanted = type(architectures) == "table" and architectures[1] or nil
  if asked == nil and wanted == nil then return M.usual_class(config) end
  local class = type(asked) == "table" and asked.schema and asked or named(asked == nil and wanted or asked)
  if class and (kind == nil or class.schema.model_type == kind) then return class end
  if not classes[kind] then -- the family is missing
    local _, why = M.usual_class(config)
    if _ == nil then return nil, why end
  end
  if asked ~= nil then
    return nil, ("class %s is not one of accel's classes of %s; give one of %s"):format(
      type(asked) == "table" and asked.__name or check.shown(asked), kind, table.concat(classes[kind], ", "))
  end
  return nil, ("architectures names %s, which %s; to load another head, give class = %s"):format(check.shown(wanted),
    class and ("is not a class of model_type '%s'"):format(kind) or "accel does not have", '"' .. table.concat(classes[kind], '" or "') .. '"')
end

--- Names of the classes of a family, in order. Empty if there are none.
---@param kind any
---@return string[]
function M.classes_of(kind) return classes[kind] or {} end

--- Adds a family to those that from_pretrained finds. Raises if it is there already.
---@param kind string model_type
---@param added table<string, table> classes by name
---@param name string the usual class
function M.add(kind, added, name)
  if usual[kind] then raise("register: model_type '%s' is a family of accel already", kind) end
  local list = {}
  for key, class in next, added do
    list[#list + 1] = key
    rawset(models, key, class)
  end
  table.sort(list)
  usual[kind], classes[kind] = name, list
end

--- The model of a folder in Hugging Face's layout, in eval mode, of the class in its config.json. Each class has its
--- own from_pretrained, which requires its family. Returns the model and the mismatches, {missing_keys=,
--- unexpected_keys=, mismatched_keys=}. On failure returns nil, message, code.
---
---   local bert = assert(accel.models.BertForSequenceClassification.from_pretrained("bert", {
---     config = { num_labels = 2 }, ignore_mismatched_sizes = true }))    -- a new head
---   local encoder = assert(accel.models.from_pretrained("ner", { class = "BertModel" }))    -- without the head
---
--- A folder whose class accel does not have (BertForTokenClassification) gives nil, a message with the available classes, and
--- "unsupported". It is loaded as another class only if you name that class.
---@param dir string
---@param opts? table
---  class string|table: the class to load, in place of the one that config.json names
---  dtype string: of floating parameters (default: config.json's, else the file's)
---  device string: the device of the parameters (default: the default device)
---  config table = {}: keys that override config.json's
---  strict boolean = false: missing or unexpected names are an error
---  ignore_mismatched_sizes boolean = false: parameters of another shape keep their first values
---  quantization_config accel.quant.BnbQuantizationConfig: weights of linear layers in 4 or 8 bits
---@return accel.models.PreTrainedModel?, table|string|nil, string?
function M.from_pretrained(dir, opts, ...)
  if type(dir) ~= "string" then raise("from_pretrained: dir must be a string, got %s", type(dir)) end
  check.surplus("from_pretrained", ...)
  local asked, rest = nil, opts
  if type(opts) == "table" and opts.class ~= nil then
    asked, rest = opts.class, {}
    for key, value in next, opts do
      if key ~= "class" then rest[key] = value end
    end
  end
  local config, message, code = pretrained.read_config(dir)
  if not config then return nil, message, code end
  local class, problem = M.class_of(config, asked)
  if not class then return nil, ("%s/config.json: %s"):format(dir, problem), "unsupported" end
  return class.from_pretrained(dir, rest)
end

return M
