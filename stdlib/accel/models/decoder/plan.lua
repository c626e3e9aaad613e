--- Plans of tensor parallelism that follow from a description (models/plans.lua).
local plans = require "accel.models.plans"

local M = {}

--- nil if a part of the description cannot be cut by heads or columns.
local function of_attention(d, at, plan)
  local a, n = d.attention, d.names
  if a.latent or a.sinks or a.qk_norm == "whole" or a.qk_norm == "each" or a.qk_norm == "list" or d.alibi then return nil end
  plan[at] = "attention"
  if a.fused == "rows" then
    if a.heads ~= a.kv_heads then return nil end
    plan[at .. "." .. n.qkv] = { "colwise", pieces = 3 }
  elseif a.fused then
    plan[at .. "." .. n.qkv] = "colwise"
  else
    for _, role in ipairs { "q", "k", "v" } do plan[at .. "." .. n[role]] = "colwise" end
  end
  plan[at .. "." .. n.o] = "rowwise"
  return plan
end

local function of_mlp(d, at, plan)
  local m, n = d.mlp, d.names
  if m.gated and m.fused then
    plan[at .. n.gate_up] = { "colwise", pieces = 2 }
  else
    if m.gated then plan[at .. n.gate] = "colwise" end
    plan[at .. n.up] = "colwise"
  end
  plan[at .. n.down] = "rowwise"
end

--- {base=, with_prefix=, with_head=}. Empty if the model cannot be cut.
---@param d accel.models.Decoder
---@return table
function M.of(d)
  local n, plan = d.names, {}
  local layer = n.layers .. ".*."
  if d.moe or not of_attention(d, layer .. n.attention, plan) then return {} end
  of_mlp(d, n.mlp == "" and layer or layer .. n.mlp .. ".", plan)
  for _, name in next, d.layer_norms do plan[layer .. name] = "sequence_parallel" end
  plan[n.embed] = "embedding_rowwise"
  if d.positions then plan[n.positions] = "sequence_parallel" end
  if d.embed_norm then plan[n.embed_norm] = "sequence_parallel" end
  if not d.no_last_norm then plan[n.norm] = "sequence_parallel" end
  return plans.family { layers = plan, head = { [n.head] = "colwise_rep" } }
end

--- Names of modules in the order in which forward comes to them (pipeline_plan).
---@param d accel.models.Decoder
---@param head? string
---@return string[]
function M.pipeline(d, head)
  local n, out = d.names, { d.names.embed }
  local projected = d.embed_width and d.embed_width ~= d.width
  if projected then out[#out + 1] = n.project_in end
  if d.positions then out[#out + 1] = n.positions end
  if d.embed_norm then out[#out + 1] = n.embed_norm end
  out[#out + 1] = n.layers .. ".*"
  if not d.no_last_norm then out[#out + 1] = n.norm end
  if projected then out[#out + 1] = n.project_out end
  out[#out + 1] = head
  return out
end

return M
