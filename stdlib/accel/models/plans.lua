--- Plans of tensor parallelism of the model families, for accel.parallel.parallelize_module: tables of module names and styles. Names
--- are those below the base model, which models with a head hold under their base_model_prefix.
local M = {}

--- Tables in one, later ones first.
---@param ... table
---@return table
function M.merge(...)
  local out = {}
  for _, plan in ipairs { ... } do
    for name, style in next, plan do out[name] = style end
  end
  return out
end

--- The common part of Llama and Mixtral.
M.rotary_decoder = {
  ["layers.*.self_attn"] = "attention", ["layers.*.self_attn.q_proj"] = "colwise", ["layers.*.self_attn.k_proj"] = "colwise",
  ["layers.*.self_attn.v_proj"] = "colwise", ["layers.*.self_attn.o_proj"] = "rowwise",
  ["layers.*.input_layernorm"] = "sequence_parallel", ["layers.*.post_attention_layernorm"] = "sequence_parallel",
  embed_tokens = "embedding_rowwise", norm = "sequence_parallel",
}

--- The plans of a family: of the base model, whose output is gathered if a head does not do so, and of models around it.
---@param p {layers: table, head: table?}
---@return {base: table, with_prefix: table, with_head: table}
function M.family(p)
  local base = M.merge(p.layers)
  if not base.encoder then base[""] = "sequence_gather" end
  return { base = base, with_prefix = p.layers, with_head = M.merge(p.layers, p.head or {}) }
end

return M
