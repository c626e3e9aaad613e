--- accel.quant: models and files in 4 and 8 bits, in bitsandbytes' formats. Names are loaded on first use.
return require "accel.util.lazy" ("accel.quant", {
  state_dict_of = "state", from_state_dict = "state",
})
