--- accel.peft: models that train a small part of their weights. Names, files and defaults are PEFT's. Loaded on first use.
return require "accel.util.lazy" ("accel.peft", require("accel.peft.kinds").add_to {
  get_peft_model = "model", PeftModel = "model", prepare_model_for_kbit_training = "model",
  get_peft_model_state_dict = "state", set_peft_model_state_dict = "state",
  LoraLinear = "lora", LoraConv = "lora_conv", LoraEmbedding = "lora_embedding", DoraLinearLayer = "dora", IA3Linear = "ia3",
  WeightLayer = "weight_layer", ModulesToSaveWrapper = "modules_to_save",
})
