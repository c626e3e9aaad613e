-- Parameters that begin with a value of the configuration have it: scales of layers and of logits. A bound token of generation in a
-- config.json is followed.
local accel = require "accel"
local models = accel.models

local function has(model, pattern, value)
  local n = 0
  for name, p in model:named_parameters() do
    if name:find(pattern) then
      n = n + 1
      assert((p:detach() - value):abs():max():item() < 1e-6, name)
    end
  end
  assert(n > 0, pattern)
end

has(models.BeitModel { hidden_size = 8, intermediate_size = 12, num_hidden_layers = 1, num_attention_heads = 2, image_size = 8, patch_size = 4,
  layer_scale_init_value = 0.3 }, "lambda_[12]$", 0.3)
has(models.Dinov2Model { hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2, image_size = 8, patch_size = 4, layerscale_value = 0.7 },
  "lambda1$", 0.7)
has(models.ConvNextModel { hidden_sizes = { 4, 8 }, depths = { 1, 1 }, num_stages = 2, layer_scale_init_value = 0.4 }, "layer_scale_parameter$", 0.4)

local config = require "accel.models.generation.config".from_model_config { forced_bos_token_id = 3, forced_eos_token_id = 4, eos_token_id = 4 }
assert(config.forced_bos_token_id == 3 and config.forced_eos_token_id == 4)
