--- The effects of a MegatronLMPlugin on a model: dropout probabilities, activation recomputation, layers of the last stage. Only given
--- fields count. The model keeps its own values for the others. Used by parallelism.lua.
local accel = require "accel"
local again = require "accel.models.attention_again"
local check = require "accel.util.check"
local class = require "accel.util.class"
local configuration = require "accel.models.config"
local raise = require "accel.util.raise"

local M = {}

local WHO <const> = "MegatronLMPlugin"

--- Probabilities by attention_dropout and hidden_dropout.
---@param model accel.nn.Module
---@param plugin accel.accelerator.MegatronLMPlugin
---@return string[] missing fields that the model has no place for
function M.set_dropout(model, plugin)
  local attention, hidden, missing = plugin._asked.attention_dropout, plugin._asked.hidden_dropout, {}
  if attention then check.number(WHO, "attention_dropout", attention, 0, 1) end
  if hidden then check.number(WHO, "hidden_dropout", hidden, 0, 1) end
  local set = {}
  for _, module in ipairs(model:modules()) do
    local field = again.dropout_field(module)
    if field and attention then module[field], set.attention_dropout = attention, true end
    if hidden and class.isinstance(module, accel.nn.Dropout) then module.p, set.hidden_dropout = hidden, true end
  end
  if attention and attention > 0 and not set.attention_dropout then
    missing[#missing + 1] = "attention_dropout (the model has no attention with dropout)"
  end
  if hidden and hidden > 0 and not set.hidden_dropout then missing[#missing + 1] = "hidden_dropout (the model has no Dropout)" end
  return missing
end

--- "full", "selective", or nil if the plugin requests none. recompute_activations alone is selective, as in Megatron.
local function granularity(plugin)
  local asked = plugin._asked
  if asked.recompute_granularity or asked.recompute_method or asked.recompute_num_layers then
    return check.word(WHO, "recompute_granularity", plugin.recompute_granularity, { "full", "selective" })
  end
  return plugin.recompute_activations and "selective" or nil
end

--- Activations that backward computes again. "selective": activations of attention. "full": activations of layers, either all of
--- them with the method "uniform", or the first recompute_num_layers of every stage with "block".
---@param model accel.nn.Module
---@param blocks {module: accel.nn.Module, stage: integer}[] of the pipeline, in the order of forward
---@param plugin accel.accelerator.MegatronLMPlugin
function M.recompute(model, blocks, plugin)
  local kind = granularity(plugin)
  if kind == nil then return end
  if kind == "selective" then
    if not again.set(model) then
      raise("%s: recompute_granularity 'selective', recompute_activations: %s has no known attention module; use recompute_granularity"
        .. " = 'full', or let it call accel.checkpoint", WHO,
        getmetatable(model).__name or "the model")
    end
    return
  end
  if not model.gradient_checkpointing_enable then
    raise("%s: recompute_granularity 'full': %s has no gradient_checkpointing_enable; let its blocks call"
      .. " accel.checkpoint", WHO, getmetatable(model).__name or "the model")
  end
  model:gradient_checkpointing_enable()
  if check.word(WHO, "recompute_method", plugin.recompute_method, { "uniform", "block" }) == "uniform" then return end
  local most, counts, chosen = check.count(WHO, "recompute_num_layers", plugin.recompute_num_layers), {}, {}
  for _, b in ipairs(blocks) do
    local n = (counts[b.stage] or 0) + 1
    counts[b.stage], chosen[b.module] = n, n <= most or nil
  end
  for _, stack in ipairs(model:_stacks()) do rawset(stack, "recomputed_layers", chosen) end
end

local function layers_of(model)
  local c = configuration.plain(model.config)
  return c.n_layer or c.num_hidden_layers or c.num_layers
end

--- Parts of the model that a rank has, from the number of layers in one.
---@param model accel.nn.Module
---@param plugin accel.accelerator.MegatronLMPlugin
---@return integer
function M.chunks(model, plugin)
  local layers, all = plugin.num_layers_per_virtual_pipeline_stage, layers_of(model)
  if layers == nil then return 1 end
  if not all or all % (layers * plugin.pp_degree) ~= 0 then
    raise("%s: num_layers_per_virtual_pipeline_stage %s and pp_degree %d do not divide the %s layers of the model", WHO,
      tostring(layers), plugin.pp_degree, tostring(all))
  end
  return all // (layers * plugin.pp_degree)
end

--- Layers of every stage if decoder_last_pipeline_num_layers sets the last one's. The others get equally many.
---@param model accel.nn.Module
---@param plugin accel.accelerator.MegatronLMPlugin
---@return integer[]?
function M.stage_layers(model, plugin)
  local last, stages, all = plugin.decoder_last_pipeline_num_layers, plugin.pp_degree, layers_of(model)
  if last == nil or stages == 1 then return nil end
  check.positive(WHO, "decoder_last_pipeline_num_layers", last)
  if plugin.num_layers_per_virtual_pipeline_stage then
    raise("%s: give decoder_last_pipeline_num_layers or num_layers_per_virtual_pipeline_stage, not both", WHO)
  end
  if not all or all <= last or (all - last) % (stages - 1) ~= 0 then
    raise("%s: decoder_last_pipeline_num_layers %d leaves %s layers, which do not divide over the %d other stages", WHO, last,
      all and tostring(all - last) or "an unknown number of", stages - 1)
  end
  local counts = {}
  for stage = 1, stages - 1 do counts[stage] = (all - last) // (stages - 1) end
  counts[stages] = last
  return counts
end

--- The number of counted labels in a micro-batch. nil if its arguments have none.
local function labels_of(args, shifts)
  for i = 1, args.n do
    local t = args[i]
    if type(t) == "table" and getmetatable(t) == nil then
      local own = t.shift_labels or t.labels
      if accel.is_tensor(own) and own.ndim == 2 then
        if shifts and not t.shift_labels and not t.loss_mask then own = own:narrow(2, 2, own.shape[2] - 1) end
        return own:ne(-100):sum()
      end
    end
  end
end

--- Selects the mean in the loss of a call, by calculate_per_token_loss: over all labels of a call, and with the option set, of all calls of
--- an update. With false, as in Megatron-LM, over the means of its micro-batches. A micro-batch without labels then has loss 0.
---@param pipeline accel.nn.parallel.PipelineParallel
---@param model accel.nn.Module
---@param plugin accel.accelerator.MegatronLMPlugin
function M.average(pipeline, model, plugin)
  local asked, means = plugin._asked.calculate_per_token_loss, pipeline._means
  means.by_micro_batch, means.joined = asked == false, asked
  if not asked then return end
  local kind = type(model.config) == "table" and model.config.model_type
  means.count_arguments = function(args, learns)
    local count = labels_of(args, kind ~= "bert" and kind ~= "t5")
    if not count and learns then
      raise("%s: calculate_per_token_loss counts labels [B, T] among the arguments of %s, and there are none", WHO, class.of(model).__name)
    end
    return count
  end
end

return M
