--- Trainable tokens: rows of embeddings learn. Used by tokens_layer.lua.
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local raise = require "accel.util.raise"

--- Rows of the embedding, for example of new special tokens, learn while the others stay. Tied heads follow.
--- example: accel.peft.TrainableTokensConfig { token_indices = { 3 } }.init_weights --> true
---@class accel.peft.TrainableTokensConfig
---@field peft_type string "TRAINABLE_TOKENS"
local TrainableTokensConfig = configs.define("TrainableTokensConfig", { peft_type = "TRAINABLE_TOKENS",
  lists = { target_modules = true, token_indices = true }, defaults = configs.targets({ token_indices = {}, init_weights = true },
    "exclude_modules layers_to_transform layers_pattern modules_to_save bias") })

---@param opts? table
---  token_indices integer[] = {}: the rows, from 0
---  target_modules string|string[]: names of embeddings, or ends of names (default: the model's input embedding)
---  init_weights boolean = true: rows begin as they are. false: at random
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function TrainableTokensConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function TrainableTokensConfig:validate(name)
  configs.common(self, name)
  if #self.token_indices == 0 then raise("%s: token_indices is empty; give the rows that learn", name) end
  local seen = {}
  for _, i in ipairs(self.token_indices) do
    check.count(name, "token_indices", i)
    if seen[i] then raise("%s: token_indices has %d twice", name, i) end
    seen[i] = true
  end
end

return { TrainableTokensConfig = TrainableTokensConfig }
