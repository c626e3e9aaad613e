--- Prefix tuning: learned keys and values before those of the input, in each layer. Used by prompt.lua and prefix.lua.
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"

--- Prefix tuning (Li and Liang, "Prefix-Tuning: Optimizing Continuous Prompts for Generation"): attention also sees num_virtual_tokens
--- learned keys and values in each layer. Files hold them alone: an adapter from a file learns them directly, also if they began from a
--- projection.
--- example: accel.peft.PrefixTuningConfig { num_virtual_tokens = 5 }.prefix_projection --> false
---@class accel.peft.PrefixTuningConfig
---@field peft_type string "PREFIX_TUNING"
local PrefixTuningConfig = configs.define("PrefixTuningConfig", { peft_type = "PREFIX_TUNING", prompt = true, lists = { modules_to_save = true },
  fit = configs.flat,
  defaults = configs.prompts { init_weights = configs.none, encoder_hidden_size = configs.none, prefix_projection = false } })

---@param opts? table
---  num_virtual_tokens integer: how many
---  prefix_projection boolean = false: keys and values are computed from embeddings by two layers
---  encoder_hidden_size integer: width between them (default: token_dim)
---  init_weights string: "zero": keys and values begin as zero
---  token_dim integer: width of all keys of a token, filled in from the model, as the next three
---  num_layers integer: of the model
---  num_attention_heads integer: heads of keys
---  num_transformer_submodules integer: 1
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function PrefixTuningConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function PrefixTuningConfig:validate(name)
  configs.common_prompt(self, name)
  if self.encoder_hidden_size ~= nil then check.positive(name, "encoder_hidden_size", self.encoder_hidden_size) end
  if self.init_weights ~= nil and self.init_weights ~= "zero" then
    raise("%s: init_weights must be 'zero' or left out, got %s", name, check.shown(self.init_weights))
  end
  if self.task_type == "SEQ_2_SEQ_LM" or self.num_transformer_submodules == 2 then
    raise("%s: prefixes of models with an encoder and a decoder are not supported; use PromptTuningConfig", name)
  end
end

--- Completes the sizes from the model: keys have as many heads as the model's cache.
---@param model accel.nn.Module
function PrefixTuningConfig:complete(model)
  if not model.cache_shape then
    raise("get_peft_model: %s needs a model that continues text and takes a cache, which %s does not", self.peft_type, getmetatable(model).__name)
  end
  local layers, heads, width = model:cache_shape()
  for key, value in next, { num_layers = layers, num_attention_heads = heads, token_dim = heads * width } do
    if self[key] == nil then self[key] = value
    elseif self[key] ~= value then raise("get_peft_model: %s is %d, of this model it is %d", key, self[key], value) end
  end
  self.num_transformer_submodules = 1
  if self.encoder_hidden_size == nil then self.encoder_hidden_size = self.token_dim
  elseif not self.prefix_projection and self.encoder_hidden_size ~= self.token_dim then
    no_effect.once("PrefixTuningConfig", "encoder_hidden_size", "without prefix_projection = true")
  end
end

return { PrefixTuningConfig = PrefixTuningConfig }
