--- The stack of a decoder without a head: embedding, layers, last norm, and data shared by the layers of one forward (rotary angles,
--- masks by kind of layer). Used by decoder/family.lua.
local accel = require "accel"
local Rotary = require "accel.models.rotary"
local alibi = require "accel.nn.alibi"
local context = require "accel.models.context"
local nn = require "accel.nn"
local norms = require "accel.models.decoder.norms"
local paths = require "accel.models.decoder.paths"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"

local M = {}

---@class accel.models.DecoderContext : accel.models.Context
---@field router_logits accel.Tensor[]?
local Context = {}
Context.__index = Context

--- The options of accel.rope for a rotary by name, the rotated width, and the factor of rotated values.
function Context:turn(name)
  local found = self.turns[name]
  if not found then
    local rotary = self.rotaries[name]
    local options = rotary:turn(self.past, self.T, self.position_ids, self.device)
    options.interleaved = self.d.rotary.interleaved or nil
    found = { options = options, dim = rotary.dim, scale = math.sqrt(rotary.score_scale) }
    self.turns[name] = found
  end
  return found
end

--- Positions of the new tokens, [T] or [B, T].
function Context:positions()
  return self.position_ids or accel.arange(self.past, self.past + self.T, { device = self.device })
end

--- The scale of queries in layers without rotary positions (Nakanishi 2025): 1 + scale * log(1 + floor((position + 1) / floor)).
function Context:temperature(t)
  local at = self:positions():to "f64"
  local scale = (((at + 1) / t.floor):floor() + 1):log() * t.scale + 1
  return scale.ndim == 1 and scale:reshape(1, 1, -1, 1) or scale:reshape(scale.shape[1], 1, -1, 1)
end

--- Keys of a window to both sides.
local function near(T, S, window, device)
  local at = accel.arange(S - T, S, { device = device }):unsqueeze(2)
  return (accel.arange(S, { device = device }):unsqueeze(1) - at):abs():le(window)
end

--- Keys of the query's own chunk, counted from the first token of each row.
local function same_chunk(T, S, chunk, mask, device)
  local query, key = accel.arange(S - T, S, { device = device }):unsqueeze(2), accel.arange(S, { device = device }):unsqueeze(1)
  if mask then
    local first = S - mask:ne(0):to("i64"):cumsum(2):ne(0):to("i64"):sum(2) -- padding in front of each row
    first = first:reshape(-1, 1, 1, 1)
    query, key = query - first, key - first
  end
  local function at(x) return accel.floor(x:to("f64") / chunk) end
  return at(query):eq(at(key))
end

--- Mask and slopes for a kind of layer: {mask, is_causal, slopes}.
function Context:view(kind)
  local key = kind.window and "w" .. kind.window or kind.chunk and "c" .. kind.chunk or "full"
  local found = self.views[key]
  if found then return found end
  local o, d = self.options, self.d
  if d.bidirectional then
    local mask = context.padding(self.who, o.attention_mask, self.ids.shape[1], self.T)
    if kind.window then mask = context.join(near(self.T, self.T, kind.window // 2, self.device), mask) end
    found = { mask = mask, is_causal = false }
  else
    local base = context.decoder(self.who, self.ids, o, kind.window)
    found = { mask = base.mask, is_causal = base.is_causal }
    if kind.chunk then
      context.check_whole(self.who, self.T, kind.chunk)
      local S = self.past + self.T
      local padding = o.attention_mask and #o.attention_mask.shape == 2 and o.attention_mask or nil
      local own = same_chunk(self.T, S, kind.chunk, padding, self.device)
      if not found.mask then own = own * context.causal(self.T, self.past, nil, self.device) end
      found = { mask = context.join(own, found.mask), is_causal = false }
    end
  end
  if d.alibi then found = self:biased(found) end
  self.views[key] = found
  return found
end

--- Linear biases: by slopes if positions are indices in the row, otherwise as an added mask, with positions counted over the mask.
function Context:biased(view)
  local d, mask = self.d, self.options.attention_mask
  local slopes = alibi(d.attention.heads, { dtype = "f64", device = self.device }) * (d.alibi_scale or 1)
  if not mask then
    view.slopes = slopes:to(self.dtype)
    return view
  end
  local at = (mask:ne(0):to("f64"):cumsum(2) - 1) * mask:ne(0):to("f64")
  local bias = (slopes:reshape(1, -1, 1, 1) * at:reshape(at.shape[1], 1, 1, -1)):to(self.dtype)
  local visible = view.mask
  if not visible and view.is_causal then visible = context.causal(self.T, self.past, nil, self.device) end
  return { mask = visible and context.join(visible, bias) or bias, is_causal = false }
end

---@param self accel.models.PreTrainedModel a base model
---@param d accel.models.Decoder
---@param Layer table class of layers
function M.build(self, d, Layer)
  local n = d.names
  paths.put(self, n.embed, nn.Embedding(d.vocab, d.embed_width or d.width, { padding_idx = d.padding_idx }))
  if d.positions then paths.put(self, n.positions, nn.Embedding(d.positions.n + (d.positions.offset or 0), d.width)) end
  if d.embed_norm then paths.put(self, n.embed_norm, norms.make(d.norm, d.width)) end
  if d.embed_width and d.embed_width ~= d.width then
    paths.put(self, n.project_in, nn.Linear(d.embed_width, d.width, { bias = false }))
    paths.put(self, n.project_out, nn.Linear(d.width, d.embed_width, { bias = false }))
  end
  if d.embed_dropout then self.embedding_dropout = nn.Dropout(d.embed_dropout) end
  local layers = nn.ModuleList()
  for i = 1, d.layers do layers:append(Layer(d, d.kinds[i])) end
  paths.put(self, n.layers, layers)
  if not d.no_last_norm then paths.put(self, n.norm, norms.make(d.norm, d.width)) end
  self.d, self.rotaries = d, {}
  for name, r in next, d.rotary and d.rotary.sets or {} do self.rotaries[name] = Rotary(r, r.theta) end
end

--- Places of tokens in the table of learnt positions. Families that count over the mask give padding the place before the first.
local function learnt_positions(d, ctx)
  local p, mask = d.positions, ctx.options.attention_mask
  local at = ctx:positions()
  if p.from_mask and mask and not ctx.options.position_ids then
    local one = mask:ne(0):to "i64"
    at = (one:cumsum(2) * one - 1)
    at = at:narrow(2, at.shape[2] - ctx.T + 1, ctx.T)
  end
  return p.offset and at + p.offset or at
end

--- Hidden states of ids [B, T] after the last norm, and the context of the layers.
---@param self accel.models.PreTrainedModel a base model
---@param ids accel.Tensor
---@param o table as context.options returns it
---@param router_logits? table filled by layers with a router
---@return accel.Tensor, accel.models.DecoderContext
function M.run(self, ids, o, router_logits)
  local d, n = self.d, self.d.names
  local who = self.config.model_type
  context.check_ids(who, ids)
  if o.cache and d.bidirectional then raise("%s: attention to both sides has no cache", who) end
  local x = paths.get(self, n.embed)(ids)
  local T = ids.shape[2]
  local ctx = setmetatable({
    who = who, d = d, ids = ids, options = o, cache = o.cache, past = o.cache and o.cache.past or 0, T = T, device = ids.device,
    dtype = x.dtype, position_ids = o.position_ids or context.positions(T, ids.device), rotaries = self.rotaries, turns = {}, views = {},
    router_logits = router_logits,
  }, Context)
  if d.embed_scale then x = x * d.embed_scale end
  if d.embed_width and d.embed_width ~= d.width then x = paths.get(self, n.project_in)(x) end
  if d.positions then
    local limit = d.positions.n
    if ctx.past + T > limit then raise("%s: %d tokens exceed the context of %d positions", who, ctx.past + T, limit) end
    x = x + paths.get(self, n.positions)(learnt_positions(d, ctx))
  end
  if d.embed_norm then x = paths.get(self, n.embed_norm)(x) end
  if self.embedding_dropout then x = self.embedding_dropout(x) end
  for i, layer in ipairs(paths.get(self, n.layers)) do x = run_layer(self, layer, ctx.cache, x, ctx, i) end
  if ctx.cache then ctx.cache:advance(T) end
  if not d.no_last_norm then x = paths.get(self, n.norm)(x) end
  if d.embed_width and d.embed_width ~= d.width then x = paths.get(self, n.project_out)(x) end
  return x, ctx
end

return M
