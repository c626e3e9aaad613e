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
---  exclude_modules, modules_to_save, task_type, inference_mode, base_model_name_or_path: as of LoraConfig
function LNTuningConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function LNTuningConfig:validate(name) configs.common(self, name) end

return { LNTuningConfig = LNTuningConfig }
