--- models.AutoModel and its relatives, by Transformers' names: from_pretrained(dir) gives the model of a folder with the asked-for kind of head,
--- whatever head the folder has. A head that the folder lacks gets initial values, and a warning names it.
local accel = require "accel"
local auto = require "accel.models.auto"
local check = require "accel.util.check"
local pretrained = require "accel.models.pretrained"
local raise = require "accel.util.raise"

--- Name of the Auto class -> endings of class names with such a head. "Model" is the base model.
local HEADS <const> = {
  AutoModel = { "Model" }, AutoModelForCausalLM = { "ForCausalLM", "LMHeadModel" }, AutoModelForMaskedLM = { "ForMaskedLM" },
  AutoModelForSequenceClassification = { "ForSequenceClassification" }, AutoModelForTokenClassification = { "ForTokenClassification" },
  AutoModelForQuestionAnswering = { "ForQuestionAnswering" }, AutoModelForMultipleChoice = { "ForMultipleChoice" },
  AutoModelForSeq2SeqLM = { "ForConditionalGeneration", "MTModel" }, AutoModelForSpeechSeq2Seq = { "ForConditionalGeneration" },
  AutoModelForImageClassification = { "ForImageClassification" }, AutoModelForMaskedImageModeling = { "ForMaskedImageModeling" },
  AutoModelForSemanticSegmentation = { "ForSemanticSegmentation" }, AutoModelForCTC = { "ForCTC" }, AutoModelForPreTraining = { "ForPreTraining" },
}

--- The class of a family with one of these endings. The base model is the one without a head.
local function class_with(kind, ends)
  for _, name in ipairs(auto.classes_of(kind)) do
    for _, last in ipairs(ends) do
      if name:sub(-#last) == last then
        local head = last == "Model" and (name:find "LMHeadModel$" or name:find "MTModel$" or name:find "EncoderModel$")
        if not head then return accel.models[name] end
      end
    end
  end
end

local M = {}

for name, ends in next, HEADS do
  local cls = {}

  --- The class of a configuration's family for this head. nil and the reason if there is none.
  local function find(kind)
    if kind == nil or #auto.classes_of(kind) == 0 then
      local _, why = auto.usual_class { model_type = kind }
      return nil, why
    end
    local class = class_with(kind, ends)
    if class then return class end
    return nil, ("%s: family '%s' has no such class; choose from %s"):format(name, kind, table.concat(auto.classes_of(kind), ", "))
  end

  --- The model of a folder with this head. Options and results are models.from_pretrained's.
  ---@param dir string
  ---@param opts? table
  ---@return accel.models.PreTrainedModel?, table|string|nil, string?
  function cls.from_pretrained(dir, opts, ...)
    if type(dir) ~= "string" then raise("%s.from_pretrained: dir must be a string, got %s", name, type(dir)) end
    check.surplus(name .. ".from_pretrained", ...)
    local given, message, code = pretrained.read_config(dir)
    if not given then return nil, message, code end
    local class, why = find(given.model_type)
    if not class then return nil, ("%s/config.json: %s"):format(dir, why), "unsupported" end
    return class.from_pretrained(dir, opts)
  end

  --- A model with initial values from a configuration, a table with model_type.
  ---@param config table
  ---@param opts? {dtype: string?, device: string?}
  ---@return accel.models.PreTrainedModel
  function cls.from_config(config, opts, ...)
    check.surplus(name .. ".from_config", ...)
    if type(config) ~= "table" then raise("%s.from_config: expected a table, got %s", name, type(config)) end
    local class, why = find(config.model_type)
    if not class then raise("%s.from_config: %s", name, why) end
    return class(config, opts)
  end
  M[name] = cls
end

return M
