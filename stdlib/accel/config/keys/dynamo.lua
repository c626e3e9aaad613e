--- Keys of dynamo_config: compilation by TorchDynamo.
return {
  title = "dynamo", section = "dynamo_config", prefix = "dynamo_", env_prefix = "ACCELERATE_DYNAMO_",
  keys = {
    { "dynamo_backend", "word", default = "no", launched = "no_deepspeed", env = "BACKEND", env_as = "upper", any_case = true,
      allowed = { "NO", "EAGER", "AOT_EAGER", "INDUCTOR", "AOT_TS_NVFUSER", "NVPRIMS_NVFUSER", "CUDAGRAPHS", "OFI", "FX2TRT",
        "ONNXRT", "TENSORRT", "AOT_TORCHXLA_TRACE_ONCE", "TORCHXLA_TRACE_ONCE", "TVM", "HPU_BACKEND", "NEURON" },
      help = "backend of the compiler", question = "Which dynamo backend would you like to use?" },
    { "dynamo_mode", "word", default = "default", env = "MODE",
      allowed = { "default", "reduce-overhead", "max-autotune" }, help = "optimization goal",
      when = "dynamo", question = "Which mode do you want to use?" },
    { "dynamo_use_fullgraph", "switch", default = false, env = "USE_FULLGRAPH", help = "compile the model as one graph",
      when = "dynamo", question = "Do you want the fullgraph mode or it is ok to break model into several subgraphs?" },
    { "dynamo_use_dynamic", "switch", default = false, env = "USE_DYNAMIC", help = "let shapes change",
      when = "dynamo", question = "Do you want to enable dynamic shape tracing?" },
    { "dynamo_use_regional_compilation", "switch", default = false, env = "USE_REGIONAL_COMPILATION",
      help = "compile repeated blocks once", when = "dynamo",
      question = "Do you want to enable regional compilation?" },
  },
}
