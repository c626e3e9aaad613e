--- Prompt tuning: learned embeddings before the input. Used by prompt.lua.
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"

--- Prompt tuning (Lester and others, "The Power of Scale for Parameter-Efficient Prompt Tuning"): embeddings of virtual tokens before the
--- input are learned, nothing else.
--- example: accel.peft.PromptTuningConfig { num_virtual_tokens = 5 }.prompt_tuning_init --> "RANDOM"
---@class accel.peft.PromptTuningConfig
---@field peft_type string "PROMPT_TUNING"
local PromptTuningConfig = configs.define("PromptTuningConfig", { peft_type = "PROMPT_TUNING", prompt = true, lists = { modules_to_save = true },
  defaults = configs.prompts { prompt_tuning_init = "RANDOM", prompt_tuning_init_text = configs.none, tokenizer_name_or_path = configs.none } })

---@param opts? table
---  num_virtual_tokens integer: how many
---  prompt_tuning_init string = "RANDOM": or "SAMPLE_VOCAB", embeddings of tokens drawn from the vocabulary, or "TEXT"
---  prompt_tuning_init_text string: with "TEXT": the text whose tokens begin the prompt
---  tokenizer_name_or_path string: with "TEXT": the folder of its tokenizer.json
---  token_dim integer: filled in from the model, as the next three
---  num_layers integer: of the model
---  num_attention_heads integer: of the model
---  num_transformer_submodules integer: 2 of encoder and decoder, else 1
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  base_model_name_or_path string: for PEFT
---  inference_mode boolean = false: nothing learns
function PromptTuningConfig:init(opts) configs.Config.init(self, opts) end

--- Raises for values that no adapter can have.
---@param name string name of the adapter, for messages
function PromptTuningConfig:validate(name)
  configs.common_prompt(self, name)
  local how = self.prompt_tuning_init
  if how ~= "RANDOM" and how ~= "SAMPLE_VOCAB" and how ~= "TEXT" then
    raise("%s: prompt_tuning_init must be 'RANDOM', 'SAMPLE_VOCAB' or 'TEXT', got %s", name, check.shown(how))
  end
  if how == "TEXT" and not (self.prompt_tuning_init_text and self.tokenizer_name_or_path) then
    raise("%s: 'TEXT' needs prompt_tuning_init_text and tokenizer_name_or_path", name)
  end
  if how ~= "TEXT" then
    no_effect.given(name, self, { "prompt_tuning_init_text", "tokenizer_name_or_path" }, "with prompt_tuning_init = '" .. how .. "'; say 'TEXT'")
  end
end

return { PromptTuningConfig = PromptTuningConfig }
