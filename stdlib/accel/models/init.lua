--- accel.models: language models with Hugging Face's names and layouts, loaded on first use.
return require "accel.util.lazy" ("accel.models", {
  GPT2 = "gpt2", Llama = "llama", KVCache = "kv_cache", Conv1D = "conv1d", generate = "generate",
  pretrained = "pretrained",
})
