-- What the seven model families are called with: inputs by name, as Transformers calls them, to the arguments
-- of our forward. Shared by models.lua and transformers.lua.
local M = {}

--- The families there are, in order.
M.families = { "bert", "gpt2", "llama", "mixtral", "resnet", "t5", "vit" }

--- The output that is compared: logits, or the hidden states of a model without a head. A ViT given images of
--- another size than its own resamples its positions.
---@param model accel.models.PreTrainedModel
---@param inputs table<string, accel.Tensor> by Transformers' argument names
---@return accel.Tensor
function M.run(model, inputs)
  local accel = require "accel"
  local _ <close> = accel.no_grad()
  local opts = {}
  for name, t in accel.pairs(inputs) do
    if name == "pixel_values" then
      local x, config = t:to(model:parameters()[1].dtype), model.config
      local other = config.model_type == "vit" and type(config.image_size) == "number"
        and x.shape[3] ~= config.image_size
      return (model(x, other and { interpolate_pos_encoding = true } or nil))
    elseif name ~= "input_ids" then
      opts[name] = t
    end
  end
  return (model(inputs.input_ids, next(opts) and opts or nil))
end

--- Tensors of a file whose names begin with "in/", without that.
function M.of(tensors)
  local inputs = {}
  for name, t in next, tensors do
    local bare = name:match "^in/(.*)$"
    if bare then inputs[bare] = t end
  end
  return inputs
end

--- Largest difference, relative to the largest value.
function M.relative(got, want)
  got, want = got:to "f64", want:to "f64"
  return (got - want):abs():max():item() / want:abs():max():item()
end

return M
