--- Keys of a config.json that no family declares and that change nothing: models/config.lua passes over them and warns of all others.
--- Transformers writes many of them into every file, some only with its defaults.
local accel = require "accel"

-- Names of files and programs, of tasks, and of ways of computing the same: any value.
local ANY <const> = {
  _name_or_path = true, _commit_hash = true, _attn_implementation = true, _attn_implementation_autoset = true, attn_implementation = true,
  _num_labels = true, tokenizer_class = true, finetuning_task = true, task_specific_params = true, torchscript = true, use_bfloat16 = true,
  tf_legacy_loss = true, gradient_checkpointing = true, name_or_path = true, model_card = true, language = true, license = true,
}

-- Defaults of Transformers: those of generation, which accel reads from generation_config.json alone, and of models within others.
local DEFAULT <const> = {
  max_length = 20, min_length = 0, do_sample = false, early_stopping = false, num_beams = 1, num_beam_groups = 1, diversity_penalty = 0,
  temperature = 1, top_k = 50, top_p = 1, typical_p = 1, repetition_penalty = 1, length_penalty = 1, no_repeat_ngram_size = 0,
  encoder_no_repeat_ngram_size = 0, num_return_sequences = 1, output_scores = false, return_dict_in_generate = false,
  remove_invalid_values = false, is_decoder = false, add_cross_attention = false, tie_encoder_decoder = false,
}

--- The names of keys that change nothing here though they may elsewhere, in order.
---@param others table<string, any> keys that the family does not declare
---@return string[]
return function(others)
  local list = {}
  for key, value in next, others do
    if not ANY[key] and value ~= accel.json.null and value ~= DEFAULT[key] then list[#list + 1] = key end
  end
  table.sort(list)
  return list
end
