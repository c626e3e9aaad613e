--- The types of adapters: the class of configurations of each, loaded on first use. Used by config.lua and peft/init.lua.
local M = {}

--- PEFT's name of a type -> the file of its class and the class.
local KINDS <const> = {
  LORA = { "config", "LoraConfig" }, IA3 = { "config", "IA3Config" }, ADALORA = { "kinds.adalora", "AdaLoraConfig" },
  LOHA = { "kinds.loha", "LoHaConfig" }, LOKR = { "kinds.lokr", "LoKrConfig" }, OFT = { "kinds.oft", "OFTConfig" },
  BOFT = { "kinds.boft", "BOFTConfig" }, VERA = { "kinds.vera", "VeraConfig" }, HRA = { "kinds.hra", "HRAConfig" },
  FOURIERFT = { "kinds.fourierft", "FourierFTConfig" }, VBLORA = { "kinds.vblora", "VBLoRAConfig" },
  RANDLORA = { "kinds.randlora", "RandLoraConfig" }, SHIRA = { "kinds.shira", "ShiraConfig" }, MISS = { "kinds.miss", "MissConfig" },
  C3A = { "kinds.c3a", "C3AConfig" }, ROAD = { "kinds.road", "RoadConfig" }, DELORA = { "kinds.delora", "DeloraConfig" },
  GRALORA = { "kinds.gralora", "GraloraConfig" }, HIRA = { "kinds.hira", "HiraConfig" }, WAVEFT = { "kinds.waveft", "WaveFTConfig" },
  LN_TUNING = { "kinds.ln_tuning", "LNTuningConfig" }, TRAINABLE_TOKENS = { "kinds.trainable_tokens", "TrainableTokensConfig" },
  ADAPTION_PROMPT = { "kinds.adaption_prompt", "AdaptionPromptConfig" }, PROMPT_TUNING = { "kinds.prompt_tuning", "PromptTuningConfig" },
  PREFIX_TUNING = { "kinds.prefix_tuning", "PrefixTuningConfig" }, P_TUNING = { "kinds.p_tuning", "PromptEncoderConfig" },
  MULTITASK_PROMPT_TUNING = { "kinds.multitask_prompt_tuning", "MultitaskPromptTuningConfig" },
}

--- The class of a type. nil for an unknown name.
---@param peft_type any
---@return any
function M.by_type(peft_type)
  local at = KINDS[peft_type]
  return at and require("accel.peft." .. at[1])[at[2]]
end

--- The names of all types in order.
---@return string[]
function M.types()
  local names = {}
  for name in next, KINDS do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- Adds each class's file to the entries of a lazy table.
---@param home table<string, string>
---@return table<string, string>
function M.add_to(home)
  for _, at in next, KINDS do home[at[2]] = at[1] end
  return home
end

return M
