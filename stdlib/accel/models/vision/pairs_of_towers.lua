--- The common part of CLIP and SigLIP: a configuration with two towers' configurations, names of layers, texts through a
--- tower, unit vectors.
local accel = require "accel"
local config = require "accel.models.config"
local context = require "accel.models.context"
local raise = require "accel.util.raise"
local tower = require "accel.models.vision.tower"

local M = {}

M.NAMES = { layers = "encoder.layers", norm1 = "layer_norm1", q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj",
  o = "self_attn.out_proj", norm2 = "layer_norm2", first = "mlp.fc1", second = "mlp.fc2" }

--- Names of the whole model's results.
M.OUTPUTS = { "logits_per_image", "logits_per_text", "text_embeds", "image_embeds" }

--- The schema of both towers. own: its further keys.
---@param model_type string
---@param text accel.models.Schema
---@param vision accel.models.Schema
---@param own table<string, accel.models.Field>
---@return accel.models.Schema
function M.schema(model_type, text, vision, own)
  local keys = { text_config = config.table(), vision_config = config.table(), initializer_range = config.number(0.02) }
  for key, field in next, own do keys[key] = field end
  return config.schema(model_type, keys, function(c)
    for key, schema in next, { text_config = text, vision_config = vision } do
      local given = {}
      for name, value in next, c[key] or given do given[name] = value end
      given.model_type = schema.model_type
      local checked, problem, code = config.read(schema, given)
      if not checked then return ("%s: %s"):format(key, problem), code end
      c[key] = checked
    end
  end)
end

--- Hidden states [B, T, width] of ids through a text tower with embeddings, layers and final_layer_norm.
---@param self accel.models.PreTrainedModel
---@param ids accel.Tensor
---@param mask? accel.Tensor
---@param causal boolean
---@return accel.Tensor
function M.read_text(self, ids, mask, causal)
  local c, e = self.config, self.embeddings
  context.check_ids(c.model_type, ids)
  local B, T = ids.shape[1], ids.shape[2]
  if T > c.max_position_embeddings then raise("%s: %d tokens exceed the %d positions", c.model_type, T, c.max_position_embeddings) end
  local x = e.token_embedding(ids) + e.position_embedding(accel.arange(T, { device = ids.device }))
  mask = context.padding(c.model_type, mask, B, T)
  if causal and mask then mask = context.join(context.causal(T, 0, nil, ids.device), mask) end
  return self.final_layer_norm(tower.run(self, self.t, x, { attn_mask = mask, is_causal = causal and not mask }))
end

--- Rows divided by their lengths.
---@param x accel.Tensor [B, width]
---@return accel.Tensor
function M.unit(x) return x / x:square():sum(2, true):sqrt() end

return M
