--- Multitask prompt tuning: a prompt that tasks share, scaled for each task. Used by prompt.lua.
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"

--- Multitask prompt tuning (Wang and others, "Multitask Prompt Tuning Enables Parameter-Efficient Transfer Learning"): the embeddings of
--- virtual tokens before the input are those that all tasks share times a low-rank matrix of the row's task. Call the model with task_ids =
--- a tensor [batch].
--- example: accel.peft.MultitaskPromptTuningConfig { num_virtual_tokens = 5, num_tasks = 2 }.num_ranks --> 1
---@class accel.peft.MultitaskPromptTuningConfig
---@field peft_type string "MULTITASK_PROMPT_TUNING"
local MultitaskPromptTuningConfig = configs.define("MultitaskPromptTuningConfig", { peft_type = "MULTITASK_PROMPT_TUNING", prompt = true,
  lists = { modules_to_save = true },
  defaults = configs.prompts { prompt_tuning_init = "RANDOM", prompt_tuning_init_text = configs.none, tokenizer_name_or_path = configs.none,
    prompt_tuning_init_state_dict_path = configs.none, prompt_tuning_init_task = 0, num_ranks = 1, num_tasks = 1 } })

---@param opts? table
---  num_virtual_tokens integer: how many
---  num_tasks integer = 1: how many
---  num_ranks integer = 1: rank of the tasks' matrices
---  prompt_tuning_init string = "RANDOM": or "TEXT", as of PromptTuningConfig. "AVERAGE_SOURCE_TASKS", "EXACT_SOURCE_TASK" and
---    "ONLY_SOURCE_SHARED" begin with the prompt of another adapter
---  prompt_tuning_init_state_dict_path string: the other adapter's file
---  prompt_tuning_init_task integer = 0: with "EXACT_SOURCE_TASK": which of its tasks
---  prompt_tuning_init_text string: with "TEXT": the text whose tokens begin the prompt
---  tokenizer_name_or_path string: with "TEXT": the folder of its tokenizer.json
---  token_dim integer: filled in from the model, as the next three
---  num_layers integer: of the model
---  num_attention_heads integer: of the model
---  num_transformer_submodules integer: 2 of encoder and decoder, else 1
---  modules_to_save string[]: modules that learn as a whole and are saved with the adapter
---  task_type string: CAUSAL_LM and others, for PEFT
---  inference_mode boolean = false: nothing learns
---  base_model_name_or_path string: for PEFT
function MultitaskPromptTuningConfig:init(opts) configs.Config.init(self, opts) end

local FROM_FILE <const> = { AVERAGE_SOURCE_TASKS = true, EXACT_SOURCE_TASK = true, ONLY_SOURCE_SHARED = true }

--- Raises for values that no adapter can have.
---@param name string
function MultitaskPromptTuningConfig:validate(name)
  configs.common_prompt(self, name)
  check.positive(name, "num_tasks", self.num_tasks)
  check.positive(name, "num_ranks", self.num_ranks)
  check.count(name, "prompt_tuning_init_task", self.prompt_tuning_init_task)
  local how = self.prompt_tuning_init
  if FROM_FILE[how] then
    if not self.prompt_tuning_init_state_dict_path then
      raise("%s: '%s' needs prompt_tuning_init_state_dict_path, the file of another adapter", name, how)
    end
    if how ~= "ONLY_SOURCE_SHARED" and self.num_tasks ~= 1 then raise("%s: '%s' begins with one task; set num_tasks = 1", name, how) end
  elseif how == "TEXT" then
    if not (self.prompt_tuning_init_text and self.tokenizer_name_or_path) then
      raise("%s: 'TEXT' needs prompt_tuning_init_text and tokenizer_name_or_path", name)
    end
  elseif how ~= "RANDOM" then
    raise("%s: prompt_tuning_init must be 'RANDOM', 'TEXT', 'AVERAGE_SOURCE_TASKS', 'EXACT_SOURCE_TASK' or 'ONLY_SOURCE_SHARED', got %s", name,
      check.shown(how))
  end
  if not FROM_FILE[how] then
    no_effect.given(name, self, { "prompt_tuning_init_state_dict_path" }, "with prompt_tuning_init = '" .. how .. "'")
  end
end

return { MultitaskPromptTuningConfig = MultitaskPromptTuningConfig }
