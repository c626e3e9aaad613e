--- LN tuning: norms learn as a whole. Used by ln_tuning_layer.lua.
local configs = require "accel.peft.config"

--- LN tuning (Zhao and others, "Tuning LayerNorm in Attention: Towards Efficient Multi-Modal LLM Finetuning"): the norms learn, in copies.
--- example: accel.peft.LNTuningConfig {}.peft_type --> "LN_TUNING"
---@class accel.peft.LNTuningConfig
---@field peft_type string "LN_TUNING"
local LNTuningConfig = configs.define("LNTuningConfig", { peft_type = "LN_TUNING", lists = configs.target_lists,
  defaults = configs.targets({}, "layers_to_transform layers_pattern bias") })

---@param opts? table
---  target_modules string|string[]: names of modules, or ends of names (default: the norms, by the model's family)
---  exclude_modules string[]: layers that are left out
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function LNTuningConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function LNTuningConfig:validate(name) configs.common(self, name) end

return { LNTuningConfig = LNTuningConfig }
