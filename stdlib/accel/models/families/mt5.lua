--- mT5: T5 1.1 without the factor in front of the head.
--- example: #accel.models.MT5ForConditionalGeneration({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 28
local config = require "accel.models.config"
local t5 = require "accel.models.t5"

local fields = {}
for key, field in next, t5.fields do fields[key] = field end
fields.vocab_size, fields.feed_forward_proj = config.size(250112), config.word "gated-gelu"
fields.scale_decoder_outputs = config.in_files(config.flag(false), false)
local schema = config.schema("mt5", fields, t5.complete, t5.aliases)

local out = {}
for _, name in ipairs { "Model", "EncoderModel", "ForConditionalGeneration", "ForSequenceClassification" } do
  out["MT5" .. name] = t5["T5" .. name]:define("MT5" .. name, { schema = schema })
end
return out
