--- accel.nn: modules, loaded one file at a time on first use. Names and meaning are PyTorch's.
return require "accel.util.lazy" ("accel.nn", {
  Module = "module", Parameter = "parameter", Buffer = "buffer",
  Sequential = "sequential", ModuleList = "module_list", ModuleDict = "module_dict",
  ParameterList = "parameter_list", ParameterDict = "parameter_dict",
  -- linear and embedding
  Linear = "linear", Linear4bit = "linear_4bit", Linear8bitLt = "linear_8bit_lt",
  Bilinear = "bilinear", Embedding = "embedding", EmbeddingBag = "embedding_bag", Embedding8bit = "embedding_8bit",
  Embedding4bit = "embedding_4bit", EmbeddingNF4 = "embedding_4bit", EmbeddingFP4 = "embedding_4bit",
  -- convolution, padding and pooling
  Conv1d = "conv", Conv2d = "conv", Conv3d = "conv",
  ConvTranspose1d = "conv", ConvTranspose2d = "conv", ConvTranspose3d = "conv",
  ZeroPad1d = "padding", ZeroPad2d = "padding", ConstantPad1d = "padding", ConstantPad2d = "padding",
  ReflectionPad1d = "padding", ReflectionPad2d = "padding", ReplicationPad1d = "padding",
  ReplicationPad2d = "padding", CircularPad1d = "padding", CircularPad2d = "padding",
  MaxPool1d = "pool", MaxPool2d = "pool", AvgPool1d = "pool", AvgPool2d = "pool",
  AdaptiveAvgPool1d = "pool", AdaptiveAvgPool2d = "pool", AdaptiveMaxPool1d = "pool",
  AdaptiveMaxPool2d = "pool",
  Upsample = "vision", PixelShuffle = "vision", PixelUnshuffle = "vision", ChannelShuffle = "vision",
  Unfold = "vision", Fold = "vision",
  -- normalisation and dropout
  LayerNorm = "layer_norm", RMSNorm = "rms_norm", GroupNorm = "group_norm",
  BatchNorm1d = "batch_norm", BatchNorm2d = "batch_norm", BatchNorm3d = "batch_norm",
  InstanceNorm1d = "instance_norm", InstanceNorm2d = "instance_norm", InstanceNorm3d = "instance_norm",
  Dropout = "dropout", Dropout1d = "dropout", Dropout2d = "dropout", Dropout3d = "dropout",
  AlphaDropout = "dropout",
  -- shape
  Identity = "shape", Flatten = "shape", Unflatten = "shape",
  -- activation
  ReLU = "activation", ReLU6 = "activation", GELU = "activation", SiLU = "activation", Tanh = "activation",
  Sigmoid = "activation", LogSigmoid = "activation", Softmax = "activation", LogSoftmax = "activation",
  Softmax2d = "activation", Softmin = "activation", LeakyReLU = "activation", PReLU = "activation",
  ELU = "activation", SELU = "activation", CELU = "activation", Hardtanh = "activation",
  Hardsigmoid = "activation", Hardswish = "activation", Hardshrink = "activation", Softshrink = "activation",
  Softplus = "activation", Softsign = "activation", Tanhshrink = "activation", Threshold = "activation",
  Mish = "activation", GLU = "activation",
  -- attention and recurrence
  MultiheadAttention = "multihead_attention",
  TransformerEncoderLayer = "transformer_encoder", TransformerEncoder = "transformer_encoder",
  TransformerDecoderLayer = "transformer_decoder", TransformerDecoder = "transformer_decoder",
  Transformer = "transformer",
  RNN = "rnn", LSTM = "rnn", GRU = "rnn",
  RNNCell = "rnn_cell", LSTMCell = "rnn_cell", GRUCell = "rnn_cell",
  -- distance and loss
  CosineSimilarity = "distance", PairwiseDistance = "distance",
  CrossEntropyLoss = "loss", LinearCrossEntropyLoss = "linear_cross_entropy", NLLLoss = "loss", CTCLoss = "loss", MSELoss = "loss",
  L1Loss = "loss", SmoothL1Loss = "loss", HuberLoss = "loss",
  BCELoss = "loss", BCEWithLogitsLoss = "loss", KLDivLoss = "loss", CosineEmbeddingLoss = "loss", MarginRankingLoss = "loss",
  TripletMarginLoss = "loss", PoissonNLLLoss = "loss", GaussianNLLLoss = "loss", HingeEmbeddingLoss = "loss",
  -- functions
  functional = "functional", init = "initialization", utils = "utils", deepcopy = "deepcopy", parallel = "parallel",
})
