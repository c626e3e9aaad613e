--- LLaMA-Adapter: attention layers see a learned prompt through a gate. Used by adaption_layer.lua.
local check = require "accel.util.check"
local configs = require "accel.peft.config"

--- LLaMA-Adapter (Zhang and others, "LLaMA-Adapter: Efficient Fine-tuning of Language Models with Zero-init Attention"): in the last
--- adapter_layers blocks the queries also see adapter_len learned tokens, through a gate that begins closed.
--- example: accel.peft.AdaptionPromptConfig { adapter_len = 10, adapter_layers = 2 }.adapter_len --> 10
---@class accel.peft.AdaptionPromptConfig
---@field peft_type string "ADAPTION_PROMPT"
local AdaptionPromptConfig = configs.define("AdaptionPromptConfig", { peft_type = "ADAPTION_PROMPT",
  defaults = configs.targets({ adapter_len = configs.none, adapter_layers = configs.none },
    "exclude_modules layers_to_transform layers_pattern modules_to_save bias") })

---@param opts? table
---  adapter_len integer: tokens of the prompt
---  adapter_layers integer: blocks that see it, from the last
---  target_modules string: name of the attention layer in a block (default: by the model's family)
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function AdaptionPromptConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function AdaptionPromptConfig:validate(name)
  configs.common(self, name)
  check.positive(name, "adapter_len", self.adapter_len)
  check.positive(name, "adapter_layers", self.adapter_layers)
end

return { AdaptionPromptConfig = AdaptionPromptConfig }
