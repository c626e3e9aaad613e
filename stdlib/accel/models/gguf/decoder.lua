--- Decoders in GGUF's words, from a description of each architecture (architectures.lua): metadata, names of tensors by the roles that
--- models/decoder gives them, and the changes of their elements. Used by families.lua.
local accel = require "accel"
local describe = require "accel.models.decoder.describe"
local names = require "accel.models.gguf.names"
local raise = require "accel.util.raise"
local rope = require "accel.models.gguf.rope"

---@class accel.models.gguf.Architecture
---@field name string of files
---@field class string of accel
---@field turned? boolean llama.cpp turns neighbouring elements: rows of q and k are interleaved
---@field offset? boolean norms are stored plus one
---@field eps? string the configuration's key of a LayerNorm's epsilon ("none": it has no key). Default: RMSNorm's
---@field part? string the configuration's key of the share of a head that turns
---@field norms? table<string, string> names of norms by role, if different
---@field acts? table<string, boolean> activations that llama.cpp computes. Default: silu
---@field window? fun(c: table): table the windows that llama.cpp computes for a configuration, by layer. Default: none
---@field declared? string further keys that are read
---@field write? fun(put: accel.models.gguf.Put, c: table, d: table) further metadata. Raises for what llama.cpp computes otherwise
---@field read? fun(key: fun(name: string): any, c: table, given: table): string? completes a configuration. Returns a problem
---@field rotary? fun(head: accel.models.gguf.Head, c: table, d: table) in place of the one set
---@field moe? {normalise: boolean} every layer has experts. Whether the weights of the chosen ones sum to one
---@field own_head? boolean llama.cpp needs output.weight, of a tied model also
---@field no_rope? boolean of read: rope_parameters are made by `read`

---@class accel.models.gguf.Put keys of the architecture
---@field u32 fun(key: string, value: integer)
---@field f32 fun(key: string, value: number)
---@field bool fun(key: string, value: boolean)

-- Keys that must be positive integers, and keys that must be numbers, if they are present.
local SIZES <const> = { "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
  "attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count", "attention.sliding_window",
  "expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length" }
local MAY_BE_ZERO <const> = { ["attention.sliding_window"] = true, expert_count = true, expert_used_count = true }
local NUMBERS <const> = { "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "rope.freq_base", "rope.freq_base_swa",
  "rope.scaling.factor", "rope.scale_linear", "attention.scale", "embedding_scale", "residual_scale", "logit_scale",
  "attn_logit_softcapping", "final_logit_softcapping" }
local MOST_LAYERS <const>, MOST_EXPERTS <const> = 4096, 4096

local NORMS <const> = { before_attention = "attn_norm", after_attention = "post_attention_norm", before_mlp = "ffn_norm",
  after_mlp = "post_ffw_norm" }
local SILU <const> = { silu = true, swish = true }

--- The description of a model's decoder. Llama's class is older than descriptions and has this one.
local function described(model)
  local d = model[model.base_model_prefix].d
  if d then return d end
  local c, set = model.config, {}
  for _, key in ipairs { "head_dim", "rope_parameters", "rope_scaling", "rope_theta", "max_position_embeddings",
    "original_max_position_embeddings", "partial_rotary_factor" } do set[key] = c[key] end
  return { names = describe.names(), layer_norms = { before_attention = "input_layernorm", before_mlp = "post_attention_layernorm" },
    attention = { heads = c.num_attention_heads, kv_heads = c.num_key_value_heads, head_dim = c.head_dim },
    mlp = { width = c.intermediate_size, act = c.hidden_act, gated = true }, norm = { kind = "rms", eps = c.rms_norm_eps }, kinds = {},
    layers = c.num_hidden_layers, rotary = { sets = { all = set } }, logits = {} }
end

--- What is wrong with a file's metadata, or nil.
local function fault(arch, key, moe)
  for _, name in ipairs { "attention.head_count", "embedding_length", "block_count" } do
    if key(name) == nil then return ("%s.%s is missing"):format(arch, name) end
  end
  for _, name in ipairs(SIZES) do
    local v = key(name)
    local least = MAY_BE_ZERO[name] and 0 or 1
    if v ~= nil and (math.type(v) ~= "integer" or v < least or v > 1 << 31) then
      return ("%s.%s must be a positive integer, got %s"):format(arch, name, type(v) == "table" and "a list" or tostring(v))
    end
  end
  for _, name in ipairs(NUMBERS) do
    local v = key(name)
    if v ~= nil and (type(v) ~= "number" or v ~= v) then return ("%s.%s must be a number, got %s"):format(arch, name, type(v)) end
  end
  if key "block_count" > MOST_LAYERS then return ("%s.block_count = %d exceeds %d"):format(arch, key "block_count", MOST_LAYERS) end
  local experts = key "expert_count" or 0
  if experts ~= 0 and not moe then return ("a mixture of experts of %s is not read"):format(arch) end
  if moe and (experts < 1 or experts > MOST_EXPERTS or (key "expert_used_count" or 0) < 1) then
    return ("%s.expert_count or expert_used_count is missing, zero or above %d"):format(arch, MOST_EXPERTS)
  end
end

local function plus_one(t) return t + 1 end
local function minus_one(t) return t - 1 end

--- Rows of a fused matrix: each head's (or group's) queries, key and value -> all queries, all keys, all values, and back.
local function rows_of(a)
  local each, groups, D = a.fused == "heads" and 1 or a.heads // a.kv_heads, a.kv_heads, a.head_dim
  local function write(t)
    local x = t:reshape(groups, each + 2, D, -1)
    local q, k, v = x:narrow(2, 1, each), x:narrow(2, each + 1, 1), x:narrow(2, each + 2, 1)
    local parts = {}
    for i, part in ipairs { q, k, v } do parts[i] = part:reshape(-1, x.shape[4]) end
    return accel.cat(parts, 1):reshape(t.shape)
  end
  local function read(t)
    local x = t:reshape((each + 2) * groups * D, -1)
    local n = groups * D
    local q, k, v = x:narrow(1, 1, each * n), x:narrow(1, each * n + 1, n), x:narrow(1, (each + 1) * n + 1, n)
    return accel.cat({ q:reshape(groups, each, D, -1), k:reshape(groups, 1, D, -1), v:reshape(groups, 1, D, -1) }, 2):reshape(t.shape)
  end
  return write, read
end

---@param f accel.models.gguf.Architecture
return function(f)
  local family = { name = f.name, declared = {}, part = f.part ~= nil }
  for word in (f.declared or ""):gmatch "%S+" do family.declared[word] = true end

  function family.class() return accel.models[f.class] end

  --- Names here -> rows as names.of has them.
  function family.names(model)
    local d = described(model)
    local a, n = d.attention, d.names
    local each, attention, mlp = {}, n.attention .. ".", n.mlp .. "."
    if d.moe then
      local moe = n.moe .. "."
      each[moe .. n.router .. ".weight"] = { name = "ffn_gate_inp.weight", keep = true }
      each[moe .. "shared_expert_gate.weight"] = { name = "ffn_gate_inp_shexp.weight", keep = true, flat = true,
        write = function(t) return t:reshape(-1) end, read = function(t) return t:reshape(1, -1) end }
      for _, part in ipairs { "gate", "up", "down" } do
        for e = 1, d.moe.n do
          each[("%sexperts.%d.%s.weight"):format(moe, e - 1, n[part])] = { name = ("ffn_%s_exps.weight"):format(part), part = e }
        end
        each[("%s%s.%s.weight"):format(moe, n.shared, n[part])] = ("ffn_%s_shexp.weight"):format(part)
      end
    end
    local function norm(name, to, kept)
      each[name .. ".weight"] = { name = to .. ".weight", keep = true, write = f.offset and plus_one, read = f.offset and minus_one }
      if not kept then each[name .. ".bias"] = to .. ".bias" end
    end
    for _, kind in ipairs { "weight", "bias" } do
      local function role(group, name, to, write, read)
        if name then each[group .. name .. "." .. kind] = { name = to .. "." .. kind, write = write, read = read } end
      end
      if a.fused then
        local write, read
        if a.fused ~= "rows" then write, read = rows_of(a) end
        role(attention, n.qkv, "attn_qkv", write, read)
      else
        local turned = f.turned
        role(attention, n.q, "attn_q", turned and names.interleaved(a.heads), turned and names.parted(a.heads))
        role(attention, n.k, "attn_k", turned and names.interleaved(a.kv_heads), turned and names.parted(a.kv_heads))
        role(attention, n.v, "attn_v")
      end
      role(attention, n.o, "attn_output")
      role(mlp, d.mlp.gated and not d.mlp.fused and n.gate, "ffn_gate")
      role(mlp, d.mlp.fused and n.gate_up or n.up, "ffn_up")
      role(mlp, n.down, "ffn_down")
    end
    for role, name in next, d.layer_norms do norm(name, (f.norms or NORMS)[role] or NORMS[role]) end
    if a.qk_norm then
      norm(attention .. n.q_norm, "attn_q_norm", true)
      norm(attention .. n.k_norm, "attn_k_norm", true)
    end
    local base = model.base_model_prefix .. "."
    local last = { name = "output_norm.weight", keep = true, write = f.offset and plus_one, read = f.offset and minus_one }
    return names.of({
      [base .. n.embed .. ".weight"] = "token_embd.weight", [base .. n.norm .. ".weight"] = last,
      [base .. n.norm .. ".bias"] = "output_norm.bias",
      [n.head .. ".weight"] = "output.weight", [n.head .. ".bias"] = "output.bias",
    }, d.layers, base .. n.layers .. ".%d.", each)
  end

  function family.write(head, c, model)
    local d = described(model)
    local a, arch = d.attention, f.name
    local act = d.mlp.act
    if not (f.acts or SILU)[act] then raise("gguf.save: llama.cpp does not compute %s with the activation %s", arch, tostring(act)) end
    local windows = f.window and f.window(c, d) or {}
    for i, kind in ipairs(d.kinds) do
      local short = kind.window and kind.window < (c.max_position_embeddings or 0) and kind.window or nil
      if short ~= windows[i] or kind.chunk then
        raise("gguf.save: llama.cpp computes no window of %s in layer %d of %s", tostring(kind.window or kind.chunk), i - 1, arch)
      end
    end
    if d.moe then
      for i, kind in ipairs(d.kinds) do
        if not kind.moe then raise("gguf.save: every layer of %s in GGUF has experts, layer %d of this model has none", arch, i - 1) end
      end
      if (d.moe.normalise or false) ~= f.moe.normalise then
        raise("gguf.save: llama.cpp %s the weights of %s's chosen experts, this model %s (norm_topk_prob)",
          f.moe.normalise and "normalises" or "does not normalise", arch, f.moe.normalise and "does not" or "does")
      end
    end
    if d.bidirectional then raise("gguf.save: %s in GGUF attends to earlier tokens only", arch) end
    local put = {}
    for _, kind in ipairs { "u32", "f32", "bool", "string" } do
      put[kind] = function(key, value) head[kind](head, arch .. "." .. key, value) end
    end
    put.u32("block_count", d.layers)
    put.u32("context_length", c.max_position_embeddings)
    put.u32("embedding_length", c.hidden_size)
    put.u32("feed_forward_length", d.mlp.width)
    put.u32("attention.head_count", a.heads)
    put.u32("attention.head_count_kv", a.kv_heads)
    put.u32("attention.key_length", a.head_dim)
    put.u32("attention.value_length", a.head_dim)
    put.f32(f.eps and "attention.layer_norm_epsilon" or "attention.layer_norm_rms_epsilon", d.norm.eps)
    if f.rotary then f.rotary(head, c, d) else rope.write(head, arch, d.rotary.sets.all) end
    if d.moe then
      put.u32("expert_count", d.moe.n)
      put.u32("expert_used_count", d.moe.k)
      put.u32("expert_feed_forward_length", d.moe.width)
      if d.moe.shared then put.u32("expert_shared_feed_forward_length", d.moe.shared) end
    end
    if f.write then f.write(put, c, d) end
    put.u32("vocab_size", c.vocab_size)
  end

  --- Tensors that are not the model's own.
  function family.extra(_, model)
    local d, out = described(model), {}
    local set = d.rotary and d.rotary.sets.all
    local factors = set and rope.slower(set)
    if factors then
      local function make() return accel.tensor(factors, { dtype = "f32" }) end
      out[1] = { name = "rope_freqs.weight", shape = { #factors }, make = make, keep = true }
    end
    if f.own_head and model:is_tied() then
      local w = model[d.names.head].weight
      out[#out + 1] = { name = "output.weight", shape = w.quant_state and w.quant_state.shape or w.shape, make = function()
        return w.quant_state and w:dequantize "f32" or w:detach()
      end }
    end
    return out
  end

  --- The configuration of a file. nil and the reason if it cannot be.
  function family.read(meta, given, get)
    local function key(name) return meta[f.name .. "." .. name] end
    local problem = fault(f.name, key, f.moe)
    if problem then return nil, problem end
    local heads, width = key "attention.head_count", key "embedding_length"
    local eps = f.eps or "rms_norm_eps"
    local c = {
      vocab_size = given["token_embd.weight"] and given["token_embd.weight"].shape[1] or key "vocab_size", hidden_size = width,
      intermediate_size = key "feed_forward_length", num_hidden_layers = key "block_count", num_attention_heads = heads,
      num_key_value_heads = key "attention.head_count_kv" or heads, head_dim = key "attention.key_length" or width // heads,
      [eps] = key(f.eps and "attention.layer_norm_epsilon" or "attention.layer_norm_rms_epsilon"),
      max_position_embeddings = key "context_length", tie_word_embeddings = given["output.weight"] == nil,
      attention_bias = given["blk.0.attn_q.bias"] ~= nil, mlp_bias = given["blk.0.ffn_up.bias"] ~= nil,
      bos_token_id = meta["tokenizer.ggml.bos_token_id"], eos_token_id = meta["tokenizer.ggml.eos_token_id"],
      pad_token_id = meta["tokenizer.ggml.padding_token_id"],
    }
    if f.moe then
      c.num_experts, c.num_experts_per_tok = key "expert_count", key "expert_used_count"
      c.num_local_experts, c.norm_topk_prob, c.decoder_sparse_step = c.num_experts, f.moe.normalise, 1
      c.moe_intermediate_size = key "expert_feed_forward_length" or (c.intermediate_size or 1) // c.num_experts_per_tok
      c.shared_expert_intermediate_size = key "expert_shared_feed_forward_length" or c.intermediate_size
    end
    local columns = key "rope.dimension_count" or c.head_dim
    if f.part then c[f.part] = columns / c.head_dim end
    if not f.no_rope then
      local factors = given["rope_freqs.weight"]
      if factors then
        local t, message = get(factors.index)
        if not t then return nil, message end
        factors = t:to("f64"):reshape(-1):tolist()
      end
      c.rope_parameters, problem = rope.read(key, { head_dim = columns, max_position_embeddings = c.max_position_embeddings }, factors)
      if not c.rope_parameters then return nil, problem end
    end
    problem = f.read and f.read(key, c, given)
    if problem then return nil, problem end
    local fields = family.class().schema.fields
    if not fields.head_dim and c.head_dim * heads ~= width then
      return nil, ("%s.attention.key_length = %s is not supported"):format(f.name, tostring(c.head_dim))
    end
    for name in next, c do
      if not fields[name] then c[name] = nil end
    end
    return c
  end

  return family
end
