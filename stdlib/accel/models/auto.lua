--- models.from_pretrained(dir, opts): the model of a folder, of the class that its config.json names in
--- `architectures`; without a known one, the usual class of its `model_type`. Options and results are those
--- of models/loading.lua.
local models = require "accel.models"
local check = require "accel.util.check"
local nearest = require "accel.util.nearest"
local pretrained = require "accel.models.pretrained"
local raise = require "accel.util.raise"

local M = {}

local usual = {
  gpt2 = "GPT2LMHeadModel", llama = "LlamaForCausalLM", mixtral = "MixtralForCausalLM", bert = "BertModel",
  t5 = "T5ForConditionalGeneration", vit = "ViTModel", resnet = "ResNetModel",
}

--- The class that a configuration asks for; or nil and why there is none.
---@param config table
---@return table?, string?
function M.class_of(config)
  local wanted = type(config.architectures) == "table" and config.architectures[1]
  local kind = config.model_type
  local class = type(wanted) == "string" and wanted:find "^%u" and models[wanted]
  if type(class) == "table" and class.schema and (kind == nil or class.schema.model_type == kind) then return class end
  if type(kind) == "string" and usual[kind] then return models[usual[kind]] end
  local near = type(kind) == "string" and nearest(kind, usual)
  return nil, ("no model here has model_type %s%s (known: gpt2, llama, mixtral, bert, t5, vit, resnet)"):format(
    check.shown(kind), near and ("; did you mean '%s'?"):format(near) or "")
end

--- The model of a folder in Hugging Face's layout, in eval mode, of the class that its config.json names;
--- each class has a from_pretrained of its own, which insists on its family. Returns the model and what did
--- not fit, {missing_keys=, unexpected_keys=, mismatched_keys=}; or nil, message, code.
---
---   local bert = assert(accel.models.BertForSequenceClassification.from_pretrained("bert", {
---     config = { num_labels = 2 }, ignore_mismatched_sizes = true }))    -- a new head
---
---@param dir string
---@param opts? table
---  dtype string: of floating parameters (default: config.json's, else the file's)
---  device string: where they lie (default: the default device)
---  config table = {}: keys that override config.json's
---  strict boolean = false: what is missing or left over is an error
---  ignore_mismatched_sizes boolean = false: parameters of another shape keep their first values
---@return accel.models.PreTrainedModel?, table|string|nil, string?
function M.from_pretrained(dir, opts)
  if type(dir) ~= "string" then raise("from_pretrained: dir must be a string, got %s", type(dir)) end
  local config, message, code = pretrained.read_config(dir)
  if not config then return nil, message, code end
  local class, problem = M.class_of(config)
  if not class then return nil, ("%s/config.json: %s"):format(dir, problem), "unsupported" end
  return class.from_pretrained(dir, opts)
end

return M
