--- Megatron-LM's step of a prepared model, model(batch): it converts a batch of named tensors into the model's arguments and its output
--- into the loss. GPTTrainStep, BertTrainStep and T5TrainStep are for the models of these families, a custom_train_step_class of a
--- MegatronLMPlugin is one below them or AbstractTrainStep. Used by parallelism.lua, which ties a step to the pipeline.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local means = require "accel.autograd.means"
local raise = require "accel.util.raise"

local M = {}

local IGNORED <const> = -100

--- A step. get_batch(batch) returns the model's ids and options, without labels, and the targets for losses: the batch's own fields, with
--- labels [B, T] at their own positions (-100: masked, as are positions whose loss_mask [B, T] is 0) and loss_mask [B, T], 1 for counted
--- labels. with_labels(opts, targets) returns options with which the model computes its own loss. get_loss_func() returns a
--- function(output, targets) that computes another loss, and optionally a second value, which the call returns after the loss. nil: the
--- model's own loss. prepare raises for a class that defines Accelerate's get_forward_step_func or get_batch_func, which would never be
--- called.
--- example: local Mine = accel.accelerator.GPTTrainStep:extend "Mine"
---   function Mine:get_loss_func() return function(logits, targets) return logits:sum() end end
---   return Mine({}):get_batch { input_ids = accel.tensor { { 1, 2, 3 } } }.shape --> { 1, 3 }
---@class accel.accelerator.AbstractTrainStep
---@field args table megatron_lm_default_args of the plugin
---@field kwargs table custom_train_step_kwargs
local Step = class "accel.accelerator.AbstractTrainStep"
M.AbstractTrainStep = Step

---@param args table
---@param kwargs? table
function Step:init(args, kwargs) self.args, self.kwargs = args, kwargs or {} end

--- The model's arguments from a batch, and the targets of losses.
---@param batch table<string, accel.Tensor>
---@return accel.Tensor ids
---@return table opts
---@return table targets
function Step:get_batch(batch) -- luacheck: no unused
  raise("%s does not define get_batch", class.of(self).__name)
end

--- Options by which the model computes its own loss.
---@param opts table
---@param targets table
---@return table
function Step:with_labels(opts, targets) -- luacheck: no self
  local all = { labels = targets.labels }
  for key, value in next, opts do all[key] = value end
  return all
end

--- The loss function that replaces the model's own loss, or nil.
---@return (fun(output: any, targets: table): accel.Tensor, any)?
---@return (fun(targets: table): accel.Tensor[])? counts of the means in the loss, if they are known before it
function Step:get_loss_func()
  if self.args.return_logits then return self:with_logits() end
end

--- A mean over labels that are not -100.
local function over_labels(logits, labels)
  labels = labels:reshape(-1)
  return means.over(accel.cross_entropy(logits:reshape(-1, logits.shape[logits.ndim]), labels), labels)
end

--- A loss followed by the logits of words, and its count.
function Step:with_logits() -- luacheck: no self
  return function(logits, targets) return over_labels(logits, targets.labels), logits:detach() end,
    function(targets) return { targets.labels and means.labels(targets.labels) } end
end

local function first(batch, ...)
  for _, name in ipairs { ... } do
    if batch[name] ~= nil then return batch[name] end
  end
end

--- The ids of a batch, by one of the names that it may go by.
local function ids_of(self, batch, ...)
  local ids = first(batch, ...)
  if not accel.is_tensor(ids) or ids.ndim ~= 2 then
    raise("%s: the batch needs %s [B, T], got %s", class.of(self).__name:match "[^.]*$", table.concat({ ... }, " or "), check.shown(ids))
  end
  return ids
end

--- Labels in Megatron's data sets are -1 for unmasked tokens.
local function told(labels)
  if labels and labels.ndim == 2 and labels.dtype:find "^i" then return labels:masked_fill(labels:eq(-1), IGNORED) end
  return labels
end

--- Labels without those that the batch's own loss_mask leaves out, at the same places.
local function masked(self, batch, labels)
  local mask = batch.loss_mask
  if mask == nil or not labels or labels.ndim ~= 2 then return labels end
  if not accel.is_tensor(mask) or mask.ndim ~= 2 or mask.shape[1] ~= labels.shape[1] or mask.shape[2] ~= labels.shape[2] then
    raise("%s: loss_mask must have the shape of labels (%s), got %s", class.of(self).__name:match "[^.]*$", table.concat(labels.shape, ", "),
      accel.is_tensor(mask) and "(" .. table.concat(mask.shape, ", ") .. ")" or check.shown(mask))
  end
  return labels:masked_fill(mask:eq(0), IGNORED)
end

--- The batch with labels and the mask of those that count.
local function targets_of(batch, labels)
  local targets = {}
  for key, value in next, batch do targets[key] = value end
  targets.labels = labels
  targets.loss_mask = labels and labels:ne(IGNORED):to "f32"
  return targets
end

--- Decoders: Megatron-LM's batches (tokens, labels one token on), or Transformers' (input_ids, perhaps labels, which are shifted here).
--- With eod_mask_loss, inputs that are the token eod of other_megatron_args, or the model's eos_token_id, have no loss.
--- example: local _, _, targets = accel.accelerator.GPTTrainStep({}):get_batch { input_ids = accel.tensor { { 1, 2, 3 } } }
---   return targets.labels --> { { 2, 3, -100 } }
---@class accel.accelerator.GPTTrainStep : accel.accelerator.AbstractTrainStep
local GPT = Step:extend "accel.accelerator.GPTTrainStep"
M.GPTTrainStep = GPT

function GPT:get_batch(batch)
  local ids, labels = ids_of(self, batch, "tokens", "input_ids"), masked(self, batch, first(batch, "shift_labels"))
  if not labels and batch.tokens then
    labels = masked(self, batch, batch.labels)
  elseif not labels then
    local context = package.loaded["accel.parallel.context"]
    if context and context.active() then
      raise "GPTTrainStep: the label of a part's last token is on another rank: shift labels before they are cut, and give shift_labels"
    end
    local own, B, T = masked(self, batch, batch.labels or ids), ids.shape[1], ids.shape[2]
    local last = accel.full({ B, math.min(T, 1) }, IGNORED, { dtype = own.dtype, device = own.device })
    labels = accel.cat({ own:narrow(2, math.min(T, 1) + 1, math.max(T - 1, 0)), last }, 2)
  end
  local eod = self.args.eod_mask_loss and (self.args.eod or self.args.eos_token_id)
  if self.args.eod_mask_loss and not batch.tokens then -- data sets of Megatron's form have it done
    if math.type(eod) ~= "integer" then
      raise "GPTTrainStep: eod_mask_loss needs the token that ends documents: other_megatron_args = { eod = ID }, or the model's eos_token_id"
    end
    labels = labels:masked_fill(ids:eq(eod), IGNORED)
  end
  local megatron = batch.tokens ~= nil
  return ids, { attention_mask = batch.attention_mask, position_ids = (not megatron or self.args.reset_position_ids) and batch.position_ids or nil },
    targets_of(batch, labels)
end

--- Labels stand at their own places.
---@param opts table options of the forward
---@param targets table labels by name
function GPT:with_labels(opts, targets) -- luacheck: no self
  local all = { shift_labels = targets.labels }
  for key, value in next, opts do all[key] = value end
  return all
end

--- BERT: Megatron-LM's batches (text, types, padding_mask, labels, is_random) or Transformers' (input_ids, token_type_ids, attention_mask,
--- labels, next_sentence_label). A model with the binary head adds the loss of the sentence, "sop loss", unless bert_binary_head of
--- other_megatron_args is false. A classifier's loss is computed from labels [B]: classes, numbers for a single output, or several yes/no
--- labels.
--- example: local _, opts = accel.accelerator.BertTrainStep({}):get_batch { text = accel.ones(1, 2), types = accel.zeros(1, 2) }
---   return opts.token_type_ids --> { { 0, 0 } }
---@class accel.accelerator.BertTrainStep : accel.accelerator.AbstractTrainStep
local Bert = Step:extend "accel.accelerator.BertTrainStep"
M.BertTrainStep = Bert

function Bert:get_batch(batch)
  local ids, binary = ids_of(self, batch, "text", "input_ids"), self.args.bert_binary_head ~= false
  local targets = targets_of(batch, masked(self, batch, batch.text and told(batch.labels) or batch.labels))
  targets.next_sentence_label = binary and first(batch, "is_random", "next_sentence_label") or nil
  return ids, { token_type_ids = binary and first(batch, "types", "token_type_ids") or nil,
    attention_mask = first(batch, "padding_mask", "attention_mask") }, targets
end

--- Labels of words, and of the sentence if the model has the binary head.
---@param opts table options of the forward
---@param targets table labels by name
function Bert:with_labels(opts, targets)
  local all = Step.with_labels(self, opts, targets)
  if self.args.model_class == "BertForPreTraining" then all.next_sentence_label = targets.next_sentence_label end
  return all
end

local function classes(logits, targets)
  local labels = targets.labels
  if logits.shape[2] == 1 then return accel.mse_loss(logits:reshape(-1), labels:reshape(-1):to(logits.dtype)) end
  if labels.dtype:find "^i" then return over_labels(logits, labels) end
  return accel.binary_cross_entropy_with_logits(logits, labels)
end

--- A classifier's loss, or one followed by logits.
function Bert:get_loss_func()
  if self.args.model_class == "BertForSequenceClassification" then
    if not self.args.return_logits then return classes end
    return function(logits, targets) return classes(logits, targets), logits:detach() end
  elseif self.args.model_class == "BertForPreTraining" and self.args.return_logits then
    local words = self:with_logits()
    return function(output, targets)
      local loss, logits = words(output[1], targets)
      local order = targets.next_sentence_label
      if not order then return loss, logits end
      order = over_labels(output[2], order)
      return means.mark(loss + order, { means.of(loss)[1], means.of(order)[1] }), logits
    end, function(targets)
      local order = targets.next_sentence_label
      return { means.labels(targets.labels), order and means.labels(order) }
    end
  end
  return Step.get_loss_func(self)
end

--- T5: Megatron-LM's batches (text_enc, text_dec, enc_mask, labels) or Transformers' (input_ids, attention_mask, labels).
--- example: local _, opts = accel.accelerator.T5TrainStep({}):get_batch { text_enc = accel.ones(1, 2), text_dec = accel.zeros(1, 1) }
---   return opts.decoder_input_ids.shape --> { 1, 1 }
---@class accel.accelerator.T5TrainStep : accel.accelerator.AbstractTrainStep
local T5 = Step:extend "accel.accelerator.T5TrainStep"
M.T5TrainStep = T5

function T5:get_batch(batch)
  local ids, before = ids_of(self, batch, "text_enc", "input_ids"), first(batch, "text_dec", "decoder_input_ids")
  local labels = batch.text_enc and told(batch.labels) or batch.labels
  if not before and labels then before = self.shift_right(labels) end
  return ids, { attention_mask = first(batch, "enc_mask", "attention_mask"), decoder_input_ids = before,
    decoder_attention_mask = batch.decoder_attention_mask }, targets_of(batch, masked(self, batch, labels))
end

local OF_FAMILY <const> = { gpt2 = GPT, llama = GPT, mixtral = GPT, bert = Bert, t5 = T5 }

--- Methods of Accelerate's steps that no call reaches here, each with the one to define in its place.
local ELSEWHERE <const> = {
  get_forward_step_func = "get_batch(batch) for the model's arguments, with_labels(opts, targets) and get_loss_func() for the loss, since the"
    .. " pipeline runs the model itself, once per micro-batch and stage",
  get_batch_func = "get_batch(batch), or give the plugin a custom_get_batch_function",
}

--- Raises for a custom step with methods that would never be called.
local function refuse_elsewhere(step)
  for _, name in ipairs { "get_forward_step_func", "get_batch_func" } do
    local cls = class.of(step) -- the script's own classes: those of the library refuse the name
    while not cls.__name:find "^accel%." and rawget(cls, name) == nil do cls = getmetatable(cls).__index end
    if not cls.__name:find "^accel%." then
      raise("MegatronLMPlugin: custom_train_step_class '%s' defines %s, which is never called; define %s", class.of(step).__name, name,
        ELSEWHERE[name])
    end
  end
end

--- The step of a model under a plugin, or nil for a family without one.
---@param model accel.nn.Module
---@param plugin accel.accelerator.MegatronLMPlugin
---@return accel.accelerator.AbstractTrainStep?
function M.of(model, plugin)
  local config, args = type(model.config) == "table" and model.config or {}, {}
  for key, value in next, plugin.megatron_lm_default_args do args[key] = value end
  args.return_logits = plugin.return_logits
  if args.eos_token_id == nil then args.eos_token_id = config.eos_token_id end
  args.model_class = (class.of(model) or {}).__name
  local custom = plugin.custom_train_step_class
  local Class = custom or OF_FAMILY[config.model_type or ""]
  if not Class then return nil end
  local made = Class(args, plugin.custom_train_step_kwargs)
  if custom and not class.isinstance(made, Step) then
    raise "MegatronLMPlugin: custom_train_step_class must be a class below accel.accelerator.AbstractTrainStep"
  end
  if custom then refuse_elsewhere(made) end
  if model.shift_right then made.shift_right = function(labels) return model:shift_right(labels) end end
  return made
end

--- Raises for a loss function with Accelerate's parameters, (inputs, loss_mask, output_tensor) or (loss_mask, output_tensor): by position
--- it would get other values.
local function refuse_parameters(loss, step)
  if type(loss) ~= "function" then return end
  local n = debug.getinfo(loss, "u").nparams
  for i = 1, n do
    if i > 2 or debug.getlocal(loss, i) == "loss_mask" then
      raise("MegatronLMPlugin: the function of %s's get_loss_func has Accelerate's parameters; it is called with (output, targets): the model's"
        .. " output and the fields of the batch, such as targets.loss_mask", class.of(step).__name)
    end
  end
end

--- Whether the arguments of a call are one batch of named tensors.
local function is_batch(args)
  local batch = args[1]
  return args.n == 1 and type(batch) == "table" and getmetatable(batch) == nil and type((next(batch))) == "string"
end

--- Defines model(batch) for a pipeline: its arguments become ids, options and targets. The model takes the first two.
---@param pipeline accel.nn.parallel.PipelineParallel
---@param model accel.nn.Module
---@param plugin accel.accelerator.MegatronLMPlugin
---@param say fun(text: string) warns
function M.attach(pipeline, model, plugin, say)
  local step, idle = M.of(model, plugin), {}
  for _, field in ipairs { "custom_get_batch_function", "custom_train_step_class", "eod_mask_loss", "return_logits" } do
    if plugin[field] and not (field == "eod_mask_loss" and plugin.megatron_dataset_flag) then idle[#idle + 1] = field end
  end
  local loss, counts = plugin.custom_loss_function, nil
  if not loss and step then
    loss, counts = step:get_loss_func()
    refuse_parameters(loss, step)
  end
  rawset(pipeline, "_read_batch", function(args)
    if not is_batch(args) then
      if #idle > 0 then
        say(("MegatronLMPlugin: %s: no effect on a call with the model's own arguments; call model(batch)"):format(table.concat(idle, ", ")))
      end
      idle = {}
      return nil
    end
    local batch = args[1]
    if plugin.custom_get_batch_function then batch = plugin.custom_get_batch_function(batch) end
    if not step then
      raise("MegatronLMPlugin: model(batch) is for GPT-2, Llama, Mixtral, BERT and T5, not %s; call it with its own arguments, or give a"
        .. " custom_train_step_class", class.of(model).__name)
    end
    local ids, opts, targets = step:get_batch(batch)
    if not loss then opts = step:with_labels(opts, targets) end
    return { ids, opts, targets, n = 3 }, loss and function(output, _, _, rows) return loss(output, rows) end, counts
  end)
end

for name, cls in next, { AbstractTrainStep = Step, GPTTrainStep = GPT, BertTrainStep = Bert, T5TrainStep = T5 } do
  require "accel.util.absent".members(cls, name)
end

return M
