--- Work of encoder-decoders on ids: labels shifted right, generation from encoded prompts, the state at the last end token. Used by
--- seq2seq/family.lua and t5.lua.
local accel = require "accel"
local config = require "accel.models.config"
local context = require "accel.models.context"
local raise = require "accel.util.raise"

local M = {}

--- labels shifted right by one, after the start token. -100, which losses ignore, becomes padding.
---@param labels accel.Tensor [B, T]
---@param start integer
---@param pad integer
---@return accel.Tensor
function M.shift_right(labels, start, pad)
  local like = { dtype = labels.dtype, device = labels.device }
  if labels.shape[2] == 0 then return labels end
  local first = accel.full({ labels.shape[1], 1 }, start, like)
  local shifted = accel.cat({ first, labels:narrow(2, 1, labels.shape[2] - 1) }, 2)
  return shifted:masked_fill(shifted:eq(-100), pad)
end

--- The same with the last token that is not padding in front (mBART: the language).
---@param labels accel.Tensor
---@param pad integer
---@return accel.Tensor
function M.wrap_right(labels, pad)
  local filled = labels:masked_fill(labels:eq(-100), pad)
  local last = filled:ne(pad):to("i64"):sum(2, true) - 1
  return accel.cat({ filled:gather(2, last), filled:narrow(2, 1, filled.shape[2] - 1) }, 2)
end

--- The state at the last end token of each row: x [B, T, width] -> [B, width].
---@param x accel.Tensor
---@param ids accel.Tensor
---@param eos integer
---@param who string
---@return accel.Tensor
function M.at_last(x, ids, eos, who)
  local ends = ids:eq(eos):to "i64"
  if ends:sum(2):min():item() < 1 then raise("%s: each row must have an end token (%s)", who, tostring(eos)) end
  local place = (ends * accel.arange(1, ids.shape[2] + 1, { device = ids.device }):unsqueeze(1)):max(2) - 1
  return x:gather(2, place:reshape(-1, 1, 1):expand(x.shape[1], 1, x.shape[3])):squeeze(2)
end

--- Adds shift_right and begin_generation to a class that has encode.
---@param cls table
---@param f {model_type: string, wraps: boolean?}
function M.add(cls, f)
  --- decoder_input_ids for labels [B, T].
  ---@param labels accel.Tensor
  ---@return accel.Tensor
  function cls:shift_right(labels)
    context.check_ids(f.model_type, labels, "labels")
    local c = self.config
    if f.wraps then return M.wrap_right(labels, c.pad_token_id) end
    local start = config.get(c, "decoder_start_token_id")
    if not start then raise("%s: decoder_start_token_id of the configuration is not set", f.model_type) end
    return M.shift_right(labels, start, c.pad_token_id)
  end

  --- Encodes the prompts once. Returns the rows to continue, and an object that runs the decoder: forward(ids, {cache=, logits_to_keep=}) and
  --- expand(copies). Shorter prompts of a batch are padded at the end, and are not looked at there.
  ---@param rows integer[][] prompts, or for families of audio {features = tensor, rows = first ids of the decoder?}
  ---@param given table arguments of generate
  function cls:begin_generation(rows, given)
    local c, memory, mask, start = self.config, nil, nil, {}
    local device = self:parameters()[1].device
    local first = config.get(c, "decoder_start_token_id")
    if given and given.features then
      memory = self:encode(given.features)
      for b = 1, given.features.shape[1] do start[b] = given.rows and given.rows[b] or { first } end
    else
      local width, padded = 0, {}
      for _, row in ipairs(rows) do width = math.max(width, #row) end
      local pad = c.pad_token_id or 0
      for b, row in ipairs(rows) do
        padded[b], start[b] = table.move(row, 1, #row, 1, {}), given and given.rows and given.rows[b] or { first }
        for i = #row + 1, width do padded[b][i] = pad end
      end
      if not start[1][1] then raise("%s: give decoder_input_ids, or set decoder_start_token_id", f.model_type) end
      local ids = accel.tensor(padded, { dtype = "i64", device = device })
      mask = c.pad_token_id and ids:ne(c.pad_token_id):to "i64" or accel.ones(ids.shape, { dtype = "i64", device = device })
      for b, row in ipairs(rows) do
        if #row < width then mask:select(1, b):narrow(1, #row + 1, width - #row):fill_(0) end
      end
      memory = self:encode(ids, mask)
    end
    return start, {
      forward = function(new, o)
        return self(nil, { decoder_input_ids = new, encoder_outputs = memory, attention_mask = mask, cache = o.cache,
          logits_to_keep = o.logits_to_keep })
      end,
      expand = function(copies)
        memory = memory:repeat_interleave(copies, 1)
        mask = mask and mask:repeat_interleave(copies, 1)
      end,
    }
  end
end

return M
