--- Recipes of tests/options/peft_test.lua for the configurations of stdlib/accel/peft/kinds: arguments of a plain call and a value of each
--- option. Required by that test.
local sweep = require "option_sweep"

local M = {}

local QV <const> = { "q_proj", "v_proj" }

-- What most of them have.
local PLACES <const> = { layers_to_transform = { 1, { 0 } }, layers_pattern = { "blocks" } }
local WITH <const> = { layers_pattern = { layers_to_transform = 1 } }
local RAISES <const> = { layers_pattern = "no layer" }

local function join(...)
  local all = {}
  for _, part in ipairs { ... } do
    for key, value in pairs(part) do all[key] = value end
  end
  return all
end

--- Arguments, values and errors by class.
M.list = {
  LoHaConfig = { { r = 2, init_weights = false }, { r = { 3 }, alpha = { 3 }, rank_dropout = { 0.5 }, module_dropout = { 1.0 },
    use_effective_conv2d = { true }, init_weights = { true }, rank_pattern = { { q_proj = 3 } }, alpha_pattern = { { q_proj = 3 } } },
    elsewhere = { use_effective_conv2d = "tests/stdlib/peft/kinds_test.lua" } },
  LoKrConfig = { { r = 2, init_weights = false, decompose_factor = 2, decompose_both = false }, { r = { 1 }, alpha = { 3 }, rank_dropout = { 0.5 },
    rank_dropout_scale = { true }, module_dropout = { 1.0 }, use_effective_conv2d = { true }, decompose_both = { true }, decompose_factor = { 4 },
    init_weights = { true, "lycoris" }, rank_pattern = { { q_proj = 1 } }, alpha_pattern = { { q_proj = 3 } } },
    with = { rank_dropout_scale = { rank_dropout = 0.5 }, decompose_both = { r = 1, decompose_factor = 8 } },
    elsewhere = { use_effective_conv2d = "tests/stdlib/peft/kinds_test.lua" } },
  OFTConfig = { { oft_block_size = 4, init_weights = false }, { r = { 2 }, oft_block_size = { 2 }, module_dropout = { 0.5 },
    init_weights = { true }, coft = { true }, eps = { 1e-3 }, block_share = { true }, use_cayley_neumann = { false },
    num_cayley_neumann_terms = { 3 }, fan_in_fan_out = { true } }, with = { r = { oft_block_size = sweep.none }, eps = { coft = true } } },
  BOFTConfig = { { boft_block_size = 4, init_weights = false }, { boft_block_size = { 2 }, boft_block_num = { 4 }, boft_dropout = { 0.5 },
    boft_n_butterfly_factor = { 2 }, init_weights = { true }, fan_in_fan_out = { true } },
    with = { boft_block_num = { boft_block_size = sweep.none } } },
  VeraConfig = { { r = 2, init_weights = false }, { r = { 3 }, projection_prng_key = { 4 }, save_projection = { false }, vera_dropout = { 0.5 },
    d_initial = { 0.3 }, init_weights = { true }, fan_in_fan_out = { true } }, with = { d_initial = { init_weights = true } },
    elsewhere = { save_projection = "tests/stdlib/peft/kinds_test.lua" } },
  RandLoraConfig = { { r = 2, init_weights = false }, { r = { 3 }, randlora_alpha = { 3 }, projection_prng_key = { 4 },
    save_projection = { false }, sparse = { true }, very_sparse = { true }, randlora_dropout = { 0.5 }, init_weights = { true },
    fan_in_fan_out = { true } }, raises = { save_projection = "bf16 or f16" } },
  HRAConfig = { { r = 2, init_weights = false }, { r = { 4 }, apply_GS = { true }, init_weights = { true } } },
  FourierFTConfig = { { n_frequency = 5 }, { n_frequency = { 6 }, scaling = { 3.0 }, random_loc_seed = { 3 },
    n_frequency_pattern = { { q_proj = 3 } }, init_weights = { true }, fan_in_fan_out = { true } } },
  WaveFTConfig = { { n_frequency = 6, init_weights = false }, { n_frequency = { 7 }, scaling = { 3.0 }, wavelet_family = { "db2" },
    use_idwt = { false }, random_loc_seed = { 3 }, n_frequency_pattern = { { q_proj = 3 } }, proportional_parameters = { true },
    init_weights = { true }, fan_in_fan_out = { true } }, raises = { wavelet_family = "accel has 'db1'" },
    with = { proportional_parameters = { target_modules = { "q_proj", "down_proj" } } } },
  VBLoRAConfig = { { r = 2, num_vectors = 5, vector_length = 4 }, { r = { 3 }, num_vectors = { 6 }, vector_length = { 2 }, topk = { 3 },
    save_only_topk_weights = { true }, vblora_dropout = { 0.5 }, init_vector_bank_bound = { 0.3 }, init_logits_std = { 2.0 },
    fan_in_fan_out = { true } }, raises = { save_only_topk_weights = "leaves out the logits" } },
  ShiraConfig = { { r = 2, random_seed = 3, init_weights = false }, { r = { 3 }, mask_type = { "magnitude" }, random_seed = { 4 },
    init_weights = { true }, fan_in_fan_out = { true } }, raises = { mask_type = "choose 'random'" } },
  MissConfig = { { r = 2, init_weights = false }, { r = { 4 }, miss_dropout = { 0.5 }, mini_r = { 2 }, init_weights = { true, "bat", "mini" } },
    with = { mini_r = { init_weights = "mini" } } },
  C3AConfig = { { block_size = 4 }, { block_size = { 2 }, block_size_pattern = { { q_proj = 2 } },
    init_weights = { true, "gaussian", "kaiming_uniform" } } },
  RoadConfig = { { group_size = 4, init_weights = false }, { variant = { "road_2", "road_4" }, group_size = { 2 }, init_weights = { true } } },
  DeloraConfig = { { r = 2, init_weights = false }, { r = { 3 }, delora_lambda = { 3 }, module_dropout = { 0.5 }, init_weights = { true },
    rank_pattern = { { q_proj = 3 } }, lambda_pattern = { { q_proj = 3 } } } },
  GraloraConfig = { { r = 2, init_weights = false }, { r = { 4 }, hybrid_r = { 1 }, alpha = { 3 }, gralora_dropout = { 0.5 }, gralora_k = { 1 },
    init_weights = { true }, fan_in_fan_out = { true } } },
  HiraConfig = { { r = 2, init_weights = false }, { r = { 3 }, hira_dropout = { 0.5 }, init_weights = { true, "gaussian" },
    rank_pattern = { { q_proj = 3 } }, fan_in_fan_out = { true } } },
  LNTuningConfig = { { target_modules = { "input_layernorm" } }, { target_modules = { { "norm" } },
    exclude_modules = { { "layers.0.input_layernorm" } } } },
  TrainableTokensConfig = { { token_indices = { 1, 2 }, target_modules = { "embed_tokens" } }, { token_indices = { { 1, 3 } },
    init_weights = { false }, target_modules = { { "lm_head" } } } },
  AdaptionPromptConfig = { { adapter_len = 2, adapter_layers = 1, target_modules = "self_attn" }, { adapter_len = { 3 }, adapter_layers = { 2 },
    target_modules = { "mlp" } }, raises = { target_modules = "no layer" } },
  AdaLoraConfig = { { init_r = 4, target_r = 2, total_step = 10, init_lora_weights = false }, { target_r = { 1 }, init_r = { 3 }, tinit = { 2 },
    tfinal = { 2 }, deltaT = { 2 }, beta1 = { 0.5 }, beta2 = { 0.5 }, orth_reg_weight = { 0.1 }, total_step = { 8 },
    rank_pattern = { { ["model.layers.0.self_attn.q_proj.lora_E"] = { true, false, true, true } } } },
    elsewhere = { target_r = "tests/stdlib/peft/adalora_test.lua", tinit = "tests/stdlib/peft/adalora_test.lua",
      tfinal = "tests/stdlib/peft/adalora_test.lua", deltaT = "tests/stdlib/peft/adalora_test.lua", beta1 = "tests/stdlib/peft/adalora_test.lua",
      beta2 = "tests/stdlib/peft/adalora_test.lua", total_step = "tests/stdlib/peft/adalora_test.lua" } },
}

--- Options of LoraConfig that AdaLoRA's class has as well: those that it takes, and those that warn or raise.
M.list.AdaLoraConfig[2] = join(M.list.AdaLoraConfig[2], { lora_alpha = { 4 }, lora_dropout = { 0.5 }, init_lora_weights = { true },
  fan_in_fan_out = { true }, r = { 3 }, use_rslora = { true }, alpha_pattern = { { q_proj = 3 } }, use_dora = { true }, lora_bias = { true },
  trainable_token_indices = { { 1 } }, target_parameters = { { "x" } }, layer_replication = { { { 0, 2 } } } })
M.list.AdaLoraConfig.raises = { use_dora = "not for AdaLoRA", lora_bias = "not for AdaLoRA", trainable_token_indices = "not supported",
  target_parameters = "not supported", layer_replication = "not supported" }

local PROMPTS <const> = { num_virtual_tokens = { 3 }, token_dim = { 4 }, num_layers = { 1 }, num_attention_heads = { 4 },
  num_transformer_submodules = { 2 } }
M.prompts = {
  PrefixTuningConfig = { {}, join(PROMPTS, { prefix_projection = { true }, encoder_hidden_size = { 5 }, init_weights = { "zero" } }),
    with = { encoder_hidden_size = { prefix_projection = true } }, raises = { num_layers = "num_layers is 1", token_dim = "token_dim is 4",
      num_attention_heads = "num_attention_heads is 4", num_transformer_submodules = "not supported" } },
  PromptEncoderConfig = { {}, join(PROMPTS, { encoder_reparameterization_type = { "LSTM" }, encoder_hidden_size = { 5 },
    encoder_num_layers = { 1 }, encoder_dropout = { 0.5 } }), with = { encoder_num_layers = { encoder_reparameterization_type = "LSTM" },
      encoder_dropout = { encoder_reparameterization_type = "LSTM" } }, raises = { token_dim = "token_dim is 4" } },
  MultitaskPromptTuningConfig = { { num_tasks = 2 }, join(PROMPTS, { num_tasks = { 3 }, num_ranks = { 2 },
    prompt_tuning_init = { "AVERAGE_SOURCE_TASKS" }, prompt_tuning_init_text = { "a b" }, tokenizer_name_or_path = { "/none" },
    prompt_tuning_init_state_dict_path = { "/none" }, prompt_tuning_init_task = { 1 } }),
    raises = { token_dim = "token_dim is 4", prompt_tuning_init = "prompt_tuning_init_state_dict_path" },
    elsewhere = { prompt_tuning_init_task = "tests/stdlib/peft/kinds_test.lua", prompt_tuning_init_text = "tests/stdlib/peft/kinds_test.lua",
      tokenizer_name_or_path = "tests/stdlib/peft/kinds_test.lua" } },
}

--- Adds the recipes of a sweep.
---@param s any the sweep
---@param peft any
---@param run function what is seen of an adapter
---@param shared table values of options that all types have
function M.add(s, peft, run, shared)
  local function add(name, about, base, extra, raises, with)
    local own = about[2]
    local values = {}
    for key in pairs(peft[name].defaults) do values[key] = own[key] or extra[key] or shared[key] end
    s:recipe("accel.peft." .. name, {
      base = function()
        local args = {}
        for key, value in pairs(base) do args[key] = value end
        for key, value in pairs(about[1]) do args[key] = value end
        return args
      end,
      run = run, values = values, with = join(with, about.with or {}), raises = join(raises, about.raises or {}),
      elsewhere = join(base.task_type and { task_type = "tests/stdlib/peft/prompt_encoder_test.lua" } or {}, about.elsewhere or {}),
    })
  end
  for name, about in pairs(M.list) do
    local target = about[1].target_modules == nil and { target_modules = QV } or {}
    local bias = about[1].target_modules == nil and { bias = { "all", peft[name].peft_type:lower() .. "_only" } } or {}
    add(name, about, target, join(PLACES, bias), RAISES, WITH)
  end
  for name, about in pairs(M.prompts) do
    add(name, about, { num_virtual_tokens = 2, task_type = "CAUSAL_LM" }, {}, {}, {})
  end
end

return M
