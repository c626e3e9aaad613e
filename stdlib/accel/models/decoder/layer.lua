--- One layer of a decoder: attention and a feed-forward layer around the residual stream, with norms at the description's positions.
--- Norms by role (each is a name of the family, or nil for none):
---   before_attention, before_mlp   of a part's input
---   after_attention, after_mlp     of a part's output, before it is added
---   sum_attention, sum_mlp         of the stream after the addition (post-norm)
local Attention = require "accel.models.decoder.attention"
local Latent = require "accel.models.decoder.latent"
local MLP = require "accel.models.decoder.mlp"
local MoE = require "accel.models.decoder.experts"
local add_norm = require "accel.nn.add_norm"
local nn = require "accel.nn"
local norms = require "accel.models.decoder.norms"
local paths = require "accel.models.decoder.paths"

local ROLES <const> = { "before_attention", "after_attention", "sum_attention", "before_mlp", "after_mlp", "sum_mlp" }

---@class accel.models.DecoderLayer : accel.nn.Module
local Layer = nn.Module:extend("DecoderLayer")

---@param d accel.models.Decoder
---@param kind accel.models.DecoderLayerKind
function Layer:init(d, kind)
  local n = d.names
  self.names, self.norms, self.residual, self.parallel = n, d.layer_norms, d.residual_scale, d.parallel
  self.from_norm = d.residual_from_norm
  paths.put(self, n.attention, (d.attention.latent and Latent or Attention)(d, kind))
  if n.mlp == "" then -- its matrices are the layer's own
    MLP.init(self, d)
  else
    local name = kind.moe and n.moe or n.mlp
    self.mlp_name = name
    self[name] = kind.moe and MoE(d) or MLP(d)
  end
  local seen = {}
  for _, role in ipairs(ROLES) do
    local name = d.layer_norms[role]
    if name and not seen[name] and not (kind.first_norm == false and role == "before_attention") then
      seen[name] = true
      self[name] = norms.make(d.norm, d.width)
    end
  end
  if (d.branch_dropout or 0) > 0 then self.branch_dropout = nn.Dropout(d.branch_dropout) end
  if not (d.parallel or self.branch_dropout or d.residual_scale or d.residual_from_norm) then -- sum and norm in one pass
    local r = d.layer_norms
    self.plain = r.before_attention and kind.first_norm ~= false and r.before_mlp
      and not (r.after_attention or r.sum_attention or r.after_mlp or r.sum_mlp)
  end
end

function Layer:run_mlp(x, ctx, layer)
  if self.names.mlp == "" then return MLP.forward(self, x) end
  local y, logits = self[self.mlp_name](x)
  if logits and ctx.router_logits then ctx.router_logits[#ctx.router_logits + 1] = logits end
  return y
end

--- A part of the layer with the norms around it: the stream after the part, from the stream and the part's input.
local function add(self, x, y, after, sum)
  if after then y = self[after](y) end
  if self.branch_dropout then y = self.branch_dropout(y) end
  if self.residual then y = y * self.residual end
  x = x + y
  return sum and self[sum](x) or x
end

--- x [B, T, hidden] -> [B, T, hidden].
---@param ctx accel.models.DecoderContext
---@param layer integer from 1
function Layer:forward(x, ctx, layer)
  local r = self.norms
  local attention = paths.get(self, self.names.attention)
  local first = r.before_attention and self[r.before_attention] -- nil in a first layer that reads the embeddings as they are
  local read = first and first(x) or x
  if self.plain then
    local y, sum = add_norm(self[r.before_mlp], attention(read, ctx, layer), x)
    return sum + self:run_mlp(y, ctx, layer)
  end
  if self.parallel then
    local other = r.before_mlp and self[r.before_mlp](x) or read
    local y, z = attention(read, ctx, layer), self:run_mlp(other, ctx, layer)
    if self.branch_dropout then y, z = self.branch_dropout(y), self.branch_dropout(z) end
    return x + y + z
  end
  x = add(self, self.from_norm and read or x, attention(read, ctx, layer), r.after_attention, r.sum_attention)
  read = r.before_mlp and self[r.before_mlp](x) or x
  return add(self, self.from_norm and read or x, self:run_mlp(read, ctx, layer), r.after_mlp, r.sum_mlp)
end

return Layer
