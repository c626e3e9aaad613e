--- accel.peft: models that train a small part of their weights. Names, files and defaults are PEFT's. Loaded on first use.
return require "accel.util.lazy" ("accel.peft", {
  LoraConfig = "config", IA3Config = "config", PromptTuningConfig = "config",
  get_peft_model = "model", PeftModel = "model", prepare_model_for_kbit_training = "model",
  get_peft_model_state_dict = "state", set_peft_model_state_dict = "state",
  LoraLinear = "lora", LoraEmbedding = "lora_embedding", DoraLinearLayer = "dora", IA3Linear = "ia3", ModulesToSaveWrapper = "modules_to_save",
})
