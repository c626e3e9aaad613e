--- Names of Transformers' GenerationConfig that are not followed here, and why. Used by models.GenerationConfig.
---
--- `refused`: a call with another value than the neutral one raises, a folder's file with one warns and goes without. `idle`: options
--- that change Transformers' method but not its result. A call with one warns once.
local BEAMS <const> = "group and constrained beam search are not supported, and Transformers 5 removed them; num_beams is, and "
  .. "prefix_allowed_tokens_fn constrains"
local SEARCH <const> = "the search is not built, and left Transformers with its version 5"
local ASSISTANT <const> = "an assistant is a model of the same vocabulary (assistant_model), or the text itself (prompt_lookup_num_tokens)"

local function row(neutral, why) return { neutral = neutral, why = why } end

local refused = {
  num_beam_groups = row(1, BEAMS), diversity_penalty = row(0.0, BEAMS), constraints = row(false, BEAMS), force_words_ids = row(false, BEAMS),
  penalty_alpha = row(0.0, SEARCH), dola_layers = row(false, SEARCH),
  guidance_scale = row(1.0, "a second pass without the prompt is not supported; logits_processor is a function of the scores"),
  token_healing = row(false, "leave the last token out of the prompt and constrain by prefix_allowed_tokens_fn"),
  output_attentions = row(false, "attention is computed without its matrix"),
  output_hidden_states = row(false, "call the model's base on the sequences that come out"),
  is_assistant = row(false, "give the assistant as assistant_model"),
  watermarking_config = row(false, "watermarks are not supported; logits_processor is a function of the scores"),
  top_h = row(false, "of the truncations top_k, top_p, min_p, typical_p, epsilon_cutoff and eta_cutoff are built"),
  assistant_early_exit = row(false, ASSISTANT), assistant_ensemble_weight = row(false, ASSISTANT), speculation_type = row(false, ASSISTANT),
  assistant_lookbehind = row(10, ASSISTANT), target_lookbehind = row(10, ASSISTANT),
}

local idle = {
  compile_config = "nothing is compiled", disable_compile = "nothing is compiled", low_memory = "beams share one cache",
  continuous_batching_config = "it is of Transformers' server", prefill_chunk_size = "attention needs no memory by the square of the prompt",
  max_cache_len = "a cache is as long as the call can need", use_mtp = "give assistant_model or prompt_lookup_num_tokens for several tokens a step",
}

local M, said = {}, {}

--- nil if a name is supported here, or unknown. Otherwise whether it is refused with this value, and the reason.
---@param key any
---@param value any
---@return boolean?, string?
function M.of(key, value)
  local r = refused[key]
  if r then return value ~= r.neutral and value ~= false, r.why end
  if idle[key] then return false, idle[key] end
  return nil
end

--- Says once in a process that an option has no effect.
---@param who string
---@param key string
function M.say(who, key)
  if not idle[key] or said[key] then return end
  said[key] = true
  warn(("%s: %s has no effect: %s"):format(who, key, idle[key]))
end

return M
