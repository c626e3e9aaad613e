--- Keys of megatron_lm_config.
local function size(name, default, help, question)
  return { "megatron_lm_" .. name, "int", default = default, least = 1, env = name:upper(), help = help, question = question }
end
local function yes(name, default, help, question)
  return { "megatron_lm_" .. name, "bool", default = default, env = name:upper(), help = help, question = question }
end
local function number(name, default, help, question)
  return { "megatron_lm_" .. name, "float", default = default, env = name:upper(), help = help, question = question }
end

return {
  title = "megatron-lm", section = "megatron_lm_config", prefix = "megatron_lm_", env_prefix = "MEGATRON_LM_",
  when = "megatron_lm",
  keys = {
    size("tp_degree", 1, "ranks that share a layer", "What is the Tensor Parallelism degree?"),
    size("pp_degree", 1, "stages of the pipeline", "What is the Pipeline Parallelism degree?"),
    { "megatron_lm_pipeline_schedule", "word", allowed = { "gpipe", "1f1b", "interleaved", "zero_bubble" }, env = "PIPELINE_SCHEDULE",
      help = "the order of forwards and backwards of micro-batches [1f1b]" }, -- not of the reference, which gets none without it
    size("num_layers_per_virtual_pipeline_stage", nil, "layers of a part of the model, of which ranks have several"), -- nor this
    size("num_micro_batches", nil, "micro-batches of a step", "What is the number of micro-batches?"),
    number("gradient_clipping", 1.0, "largest norm of the gradients", "What is the gradient clipping value?"),
    yes("sequence_parallelism", nil, "shard layer norms and dropout over the sequence",
      "Do you want to enable Sequence Parallelism?"),
    yes("recompute_activations", nil, "compute attention again in the backward pass",
      "Do you want to enable selective activation recomputation?"),
    yes("use_distributed_optimizer", nil, "shard optimizer states over data-parallel ranks",
      "Do you want to use distributed optimizer which shards optimizer state and gradients across data parallel ranks?"),
    yes("use_custom_fsdp", false, "shard parameters as Megatron's FSDP does"),
    yes("no_load_optim", false, "leave optimizer states of checkpoints out"),
    yes("eod_mask_loss", false, "mask the loss of end-of-document tokens"),
    yes("no_save_optim", false, "write no optimizer states"),
    yes("optimizer_cpu_offload", false, "keep the optimizer on the CPU"),
    yes("overlap_cpu_optimizer_d2h_h2d", false, "copy for it while training continues"),
    yes("use_precision_aware_optimizer", false, "optimizer states in chosen formats"),
    size("decoder_last_pipeline_num_layers", nil, "layers of the last stage"),
    { "megatron_lm_recompute_granularity", "text", env = "RECOMPUTE_GRANULARITY", help = "full or selective" },
    { "megatron_lm_recompute_method", "text", env = "RECOMPUTE_METHOD", help = "uniform or block" },
    size("recompute_num_layers", nil, "layers of a recomputed group"),
    yes("attention_backend", nil, "fused attention"),
    size("expert_model_parallel_size", nil, "ranks that share the experts"),
    size("context_parallel_size", nil, "ranks that share a sequence"),
    number("attention_dropout", nil, "dropout of attention"),
    number("hidden_dropout", nil, "dropout of hidden states"),
    yes("attention_softmax_in_fp32", nil, "softmax in f32"),
    size("expert_tensor_parallel_size", nil, "ranks that share one expert"),
    yes("calculate_per_token_loss", nil, "average the loss over tokens"),
    yes("use_rotary_position_embeddings", nil, "rotary positions"),
  },
}
