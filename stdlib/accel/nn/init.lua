--- accel.nn: modules, loaded one file at a time on first use. Names and meaning are PyTorch's.
return require "accel.util.lazy" ("accel.nn", {
  Module = "module", Parameter = "parameter",
  Sequential = "sequential", ModuleList = "module_list", ModuleDict = "module_dict",
  Linear = "linear", Embedding = "embedding", LayerNorm = "layer_norm", RMSNorm = "rms_norm",
  Dropout = "dropout",
  Identity = "shape", Flatten = "shape", Unflatten = "shape",
  ReLU = "activation", GELU = "activation", SiLU = "activation", Tanh = "activation", Sigmoid = "activation",
  Softmax = "activation", LogSoftmax = "activation",
  CrossEntropyLoss = "loss", MSELoss = "loss",
  functional = "functional", init = "initialization", utils = "utils",
})
