--- accel.quant: models and files in 4 and 8 bits, in bitsandbytes' formats. Names are loaded on first use.
return require "accel.util.lazy" ("accel.quant", {
  state_dict_of = "accel.nn.quant_state", from_state_dict = "accel.nn.quant_state",
  BnbQuantizationConfig = "config", load_and_quantize_model = "load", replace_with_bnb_layers = "replace",
  get_keys_to_not_convert = "replace",
})
