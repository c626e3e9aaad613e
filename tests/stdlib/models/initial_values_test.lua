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

-- Tables of positions that nothing trains are sines and cosines from the start: a model that is made without a folder needs them.
local function positions(model, wavelength)
  local w, half = model.encoder.embed_positions.weight, 4
  assert(not w.requires_grad)
  for at = 0, 6 do
    for i = 0, half - 1 do
      local angle = at / wavelength(i, half)
      assert(math.abs(w[at + 1][i + 1]:item() - math.sin(angle)) < 1e-6 and math.abs(w[at + 1][half + i + 1]:item() - math.cos(angle)) < 1e-6)
    end
  end
end
local small = { d_model = 8, encoder_layers = 1, decoder_layers = 1, encoder_attention_heads = 2, decoder_attention_heads = 2, encoder_ffn_dim = 8,
  decoder_ffn_dim = 8, vocab_size = 8, pad_token_id = 0, bos_token_id = 1, eos_token_id = 2, decoder_start_token_id = 1 }
local function with(more)
  for name, value in next, small do more[name] = value end
  return more
end
positions(models.WhisperModel(with { num_mel_bins = 4, max_source_positions = 7, max_target_positions = 7 }),
  function(i, half) return 10000 ^ (i / (half - 1)) end)
local pegasus = with { max_position_embeddings = 7, forced_eos_token_id = 2 }
pegasus.bos_token_id = nil
positions(models.PegasusModel(pegasus), function(i, half) return 10000 ^ (i / half) end)

local config = require "accel.models.generation.config".from_model_config { forced_bos_token_id = 3, forced_eos_token_id = 4, eos_token_id = 4 }
assert(config.forced_bos_token_id == 3 and config.forced_eos_token_id == 4)
