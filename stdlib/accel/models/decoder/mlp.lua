--- Feed-forward layers of decoders: gated, with both products in one matrix or in two, or plain. Used by decoder/layer.lua and experts.lua.
local activation = require "accel.models.activation"
local feed_forward = require "accel.models.feed_forward"
local nn = require "accel.nn"

--- Gated: down(act(gate(x)) * up(x)). Plain: down(act(up(x))).
---@class accel.models.DecoderMLP : accel.nn.Module
local MLP = nn.Module:extend("DecoderMLP")

---@param d accel.models.Decoder
---@param width? integer in place of the description's
function MLP:init(d, width)
  local m, n = d.mlp, d.names
  width = width or m.width
  local opts = { bias = m.bias or false }
  self.names, self.fused, self.gated = n, m.fused, m.gated
  if not m.gated then
    self.act = type(m.act) == "function" and m.act or activation.find(m.act)
    self[n.up] = nn.Linear(d.width, width, opts)
  elseif m.fused then
    self[n.gate_up] = nn.Linear(d.width, 2 * width, opts)
  else
    self[n.gate] = nn.Linear(d.width, width, opts)
    self[n.up] = nn.Linear(d.width, width, opts)
  end
  if m.gated then self.gate_act = activation.gate(m.act) end
  self[n.down] = nn.Linear(width, d.width, opts)
  if m.dropout then self.dropout = nn.Dropout(m.dropout) end
end

function MLP:forward(x)
  local n, y = self.names, nil
  if not self.gated then
    y = feed_forward(self[n.up], self.act, self[n.down], x)
  elseif self.fused then
    local gate, up = table.unpack(self[n.gate_up](x):chunk(2, -1))
    y = self[n.down](self.gate_act(gate, up))
  else
    y = self[n.down](self.gate_act(self[n.gate](x), self[n.up](x)))
  end
  return self.dropout and self.dropout(y) or y
end

return MLP
