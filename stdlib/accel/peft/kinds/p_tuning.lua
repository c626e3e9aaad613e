--- P-tuning: learned embeddings before the input that are computed by a small network. Used by prompt.lua.
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"

--- P-tuning (Liu and others, "GPT Understands, Too"): embeddings of virtual tokens before the input are computed by a network that learns.
--- Files hold the embeddings alone: an adapter from a file learns them directly.
--- example: accel.peft.PromptEncoderConfig { num_virtual_tokens = 5 }.encoder_reparameterization_type --> "MLP"
---@class accel.peft.PromptEncoderConfig
---@field peft_type string "P_TUNING"
local PromptEncoderConfig = configs.define("PromptEncoderConfig", { peft_type = "P_TUNING", prompt = true, lists = { modules_to_save = true },
  fit = configs.flat,
  defaults = configs.prompts { encoder_reparameterization_type = "MLP", encoder_hidden_size = configs.none, encoder_num_layers = 2,
    encoder_dropout = 0 } })

---@param opts? table
---  num_virtual_tokens integer: how many
---  encoder_reparameterization_type string = "MLP": or "LSTM", in both directions, and two layers
---  encoder_hidden_size integer: width of the network (default: token_dim)
---  encoder_num_layers integer = 2: of the LSTM
---  encoder_dropout number = 0: between the layers of the LSTM, in training
---  token_dim integer: filled in from the model, as the next three
---  num_layers integer: of the model
---  num_attention_heads integer: of the model
---  num_transformer_submodules integer: 2 of encoder and decoder, else 1
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function PromptEncoderConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string
function PromptEncoderConfig:validate(name)
  configs.common_prompt(self, name)
  if self.encoder_hidden_size ~= nil then check.positive(name, "encoder_hidden_size", self.encoder_hidden_size) end
  check.positive(name, "encoder_num_layers", self.encoder_num_layers)
  check.number(name, "encoder_dropout", self.encoder_dropout, 0, 1)
  local how = self.encoder_reparameterization_type
  if how ~= "MLP" and how ~= "LSTM" then
    raise("%s: encoder_reparameterization_type must be 'MLP' or 'LSTM', got %s", name, check.shown(how))
  end
  if how == "MLP" and self.encoder_num_layers ~= 2 then
    no_effect.once(name, "encoder_num_layers", "with encoder_reparameterization_type = 'MLP', which has three layers")
  end
  if how == "MLP" and self.encoder_dropout ~= 0 then
    no_effect.once(name, "encoder_dropout", "with encoder_reparameterization_type = 'MLP'; choose 'LSTM'")
  end
end

return { PromptEncoderConfig = PromptEncoderConfig }
