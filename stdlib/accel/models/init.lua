--- accel.models: models with Hugging Face's names, layouts and configurations, loaded on first use. Each class has the
--- name that config.json has in `architectures`. GPT2 and Llama are short for their language models.
local homes = {
  from_pretrained = "auto", register = "register",
  GPT2 = "gpt2", GPT2Model = "gpt2", GPT2LMHeadModel = "gpt2", GPT2ForSequenceClassification = "gpt2",
  Llama = "llama", LlamaModel = "llama", LlamaForCausalLM = "llama", LlamaForSequenceClassification = "llama",
  LlamaForTokenClassification = "llama", LlamaForQuestionAnswering = "llama",
  MixtralModel = "mixtral", MixtralForCausalLM = "mixtral",
  BertModel = "bert", BertForSequenceClassification = "bert", BertForMaskedLM = "bert",
  BertForNextSentencePrediction = "bert", BertForPreTraining = "bert", BertForTokenClassification = "bert",
  BertForQuestionAnswering = "bert", BertForMultipleChoice = "bert", BertLMHeadModel = "bert",
  T5EncoderModel = "t5", T5ForConditionalGeneration = "t5", T5Model = "t5", T5ForSequenceClassification = "t5",
  ViTModel = "vit", ViTForImageClassification = "vit", ViTForMaskedImageModeling = "vit",
  ResNetModel = "resnet", ResNetForImageClassification = "resnet",
  PreTrainedModel = "pretrained_model",
  gguf = "gguf.init", KVCache = "kv_cache", DynamicCache = "dynamic_cache", SlidingWindowCache = "sliding_window_cache",
  QuantizedCache = "quantized_cache", GenerationConfig = "generation.config", Conv1D = "conv1d", generate = "generate", pretrained = "pretrained",
  tiny = "tiny",
}
for _, head in ipairs { "", "ForCausalLM", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
  "ForMultipleChoice", "ForSeq2SeqLM", "ForSpeechSeq2Seq", "ForImageClassification", "ForMaskedImageModeling", "ForSemanticSegmentation",
  "ForCTC", "ForPreTraining" } do
  homes["AutoModel" .. head] = "auto_classes"
end
for name, file in next, require("accel.models.families").homes do homes[name] = file end
return require "accel.util.lazy" ("accel.models", homes)
