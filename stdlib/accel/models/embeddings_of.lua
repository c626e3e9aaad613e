--- Embeddings of tokens by Transformers' method names, for every family: get_input_embeddings, get_output_embeddings,
--- resize_token_embeddings, set_attn_implementation. Added to PreTrainedModel.
local accel = require "accel"
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local configuration = require "accel.models.config"
local nn = require "accel.nn"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local function vocabulary(model) return configuration.get(model.config, "vocab_size") end

--- The embedding of input tokens, or nil.
---@return accel.nn.Module?
function M:get_input_embeddings()
  local n = vocabulary(self)
  for _, module in pairs(self:named_modules()) do
    if n and accel.util.class.isinstance(module, nn.Embedding) and module.weight.shape[1] == n then return module end
  end
end

--- The layer that scores each token, or nil.
---@return accel.nn.Module?
function M:get_output_embeddings()
  local n, found = vocabulary(self), nil
  for _, module in pairs(self:named_modules()) do
    if n and accel.util.class.isinstance(module, nn.Linear) and module.weight.shape[1] == n then found = module end
  end
  return found
end

--- A tensor with n rows: those that there are, then rows that are the mean of these.
local function with_rows(t, n)
  local _ <close> = accel.no_grad()
  local old = t.shape[1]
  if n <= old then return t:detach():narrow(1, 1, n):clone() end
  local mean = t:detach():to("f32"):mean(1, true):to(t.dtype)
  local shape = mean.shape
  shape[1] = n - old
  return accel.cat({ t:detach(), mean:expand(shape) }, 1)
end

--- Changes the model's number of tokens, in input and output embeddings. config.vocab_size follows. New rows are the mean of the old
--- ones. Call it before an optimizer takes the parameters: they are replaced.
---@param new_num_tokens integer
---@param opts? {pad_to_multiple_of: integer?}
---@return accel.nn.Module the embedding of input tokens
function M:resize_token_embeddings(new_num_tokens, opts, ...)
  local o = options("resize_token_embeddings", opts, { pad_to_multiple_of = options.none }, ...)
  local n = check.positive("resize_token_embeddings", "new_num_tokens", new_num_tokens)
  if o.pad_to_multiple_of then
    local by = check.positive("resize_token_embeddings", "pad_to_multiple_of", o.pad_to_multiple_of)
    n = (n + by - 1) // by * by
  end
  local old, input = vocabulary(self), self:get_input_embeddings()
  if not input then raise "resize_token_embeddings: the model has no embedding of tokens" end
  if self.config.pad_token_id and self.config.pad_token_id >= n then
    raise("resize_token_embeddings: pad_token_id %d would lie outside of %d tokens", self.config.pad_token_id, n)
  end
  if n == old then return input end
  local tied, done = next(self.tied_weights) ~= nil and self:is_tied(), {}
  for name, slot in pairs(self:_slots()) do
    local t = slot.tensor
    if t.shape[1] == old and (slot.module == input or accel.util.class.isinstance(slot.module, nn.Linear) or name:find "%.bias$")
      or name == "final_logits_bias" then
      if t.quant_state then raise("resize_token_embeddings: '%s' is quantised; resize before quantising", name) end
      local new = done[t]
      if not new and name == "final_logits_bias" then
        new = with_rows(t:transpose(1, 2), n):transpose(1, 2):contiguous()
      elseif not new then
        new = Parameter(with_rows(t, n), t.requires_grad)
      end
      done[t] = new
      slot.module[slot.key] = new
    end
  end
  for _, module in ipairs { input, self:get_output_embeddings() } do
    if module.num_embeddings then module.num_embeddings = n else module.out_features = n end
  end
  for _, module in pairs(self:named_modules()) do
    if module.config and configuration.get(module.config, "vocab_size") == old then module.config.vocab_size = n end
  end
  self.config.vocab_size = n
  if tied then self:tie_weights() end
  return input
end

local IMPLEMENTATIONS <const> = { eager = true, sdpa = true, flash_attention_2 = true, flash_attention_3 = true, flex_attention = true }

--- Takes the names of Transformers' implementations of attention. accel has one, without a matrix of all pairs in memory, so that each name
--- means the same.
---@param name string
function M:set_attn_implementation(name, ...) -- luacheck: no self
  check.surplus("set_attn_implementation", ...)
  if not IMPLEMENTATIONS[name] then
    raise("set_attn_implementation: expected eager, sdpa, flash_attention_2, flash_attention_3 or flex_attention, got %s", check.shown(name))
  end
end

return M
