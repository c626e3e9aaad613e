--- accel.models: models with Hugging Face's names, layouts and configurations, loaded on first use. Each
--- class goes by the name that config.json has in `architectures`; GPT2 and Llama are short for their
--- language models.
return require "accel.util.lazy" ("accel.models", {
  from_pretrained = "auto",
  GPT2 = "gpt2", GPT2Model = "gpt2", GPT2LMHeadModel = "gpt2",
  Llama = "llama", LlamaModel = "llama", LlamaForCausalLM = "llama",
  MixtralModel = "mixtral", MixtralForCausalLM = "mixtral",
  BertModel = "bert", BertForSequenceClassification = "bert", BertForMaskedLM = "bert",
  BertForNextSentencePrediction = "bert", BertForPreTraining = "bert",
  T5EncoderModel = "t5", T5ForConditionalGeneration = "t5",
  ViTModel = "vit", ViTForImageClassification = "vit",
  ResNetModel = "resnet", ResNetForImageClassification = "resnet",
  PreTrainedModel = "pretrained_model",
  gguf = "gguf.init", KVCache = "kv_cache", DynamicCache = "dynamic_cache", SlidingWindowCache = "sliding_window_cache",
  QuantizedCache = "quantized_cache", GenerationConfig = "generation.config", Conv1D = "conv1d", generate = "generate", pretrained = "pretrained",
  tiny = "tiny",
})
