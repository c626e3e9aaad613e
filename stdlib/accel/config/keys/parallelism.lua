--- Keys of parallelism_config: the sizes of the mesh's dimensions and how context and sequence are sharded.
local function size(name, help, question)
  return { "parallelism_config_" .. name, "int", default = 1, least = 1, env = name:upper(), help = help, question = question }
end

return {
  title = "parallelism", section = "parallelism_config", prefix = "parallelism_config_", env_prefix = "PARALLELISM_CONFIG_",
  when = "parallelism", launched = "mesh",
  keys = {
    size("dp_replicate_size", "replicas", "What is the data parallelism replicate size?"),
    size("dp_shard_size", "ranks that share one replica's parameters", "What is the FSDP shard size?"),
    size("tp_size", "ranks that share a layer", "What is the tensor parallelism size?"),
    size("cp_size", "ranks that share a sequence", "What is the context parallelism size?"),
    { "parallelism_config_cp_backend", "word", default = "torch", allowed = { "torch" }, env = "CP_BACKEND",
      help = "who shards sequences" },
    { "parallelism_config_cp_comm_strategy", "word", default = "allgather", allowed = { "allgather", "alltoall" },
      env = "CP_COMM_STRATEGY", when = "context_parallel", help = "how keys and values travel",
      question = "What is the compute parallelism communication strategy?" },
    { "parallelism_config_ep_size", "int", default = 1, least = 1, env = "EP_SIZE", when = "expert_parallel",
      help = "data ranks that divide the experts of a mixture" }, -- the reference has none, and gets none from a launch without
    size("sp_size", "ranks that share a sequence by heads", "What is the sequence parallelism size?"),
    { "parallelism_config_sp_backend", "word", default = "deepspeed", allowed = { "deepspeed" }, env = "SP_BACKEND",
      help = "who shards heads" },
    { "parallelism_config_sp_seq_length", "int", env = "SP_SEQ_LENGTH", when = "sequence_parallel", least = 1,
      help = "length of sequences, if it is fixed" },
    { "parallelism_config_sp_seq_length_is_variable", "bool", default = true, env = "SP_SEQ_LENGTH_IS_VARIABLE",
      when = "sequence_parallel", help = "sequences differ in length" },
    { "parallelism_config_sp_attn_implementation", "text", env = "SP_ATTN_IMPLEMENTATION", when = "sequence_parallel",
      default = "sdpa", help = "attention that is used" },
  },
}
