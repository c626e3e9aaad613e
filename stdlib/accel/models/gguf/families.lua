--- Llama and GPT-2 in GGUF's words: metadata, names of tensors, and how their elements are ordered there. Used by models.gguf.
---
--- llama.cpp turns neighbouring elements of a head by their position, Hugging Face elements half a head apart: rows of q and k are
--- interleaved in the file. GPT-2's Conv1D weights are [in, out] here, [out, in] there.
local accel = require "accel"
local Rotary = require "accel.models.rotary"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local M = {}

local function transposed(t) return t:t():contiguous() end

--- Rows (or entries of a bias) of each head: halves side by side -> pairs.
local function interleaved(heads)
  return function(t)
    local n, shape = t.shape[1], t.shape
    return t:reshape(heads, 2, n // heads // 2, -1):transpose(2, 3):reshape(shape):contiguous()
  end
end

local function parted(heads)
  return function(t)
    local n, shape = t.shape[1], t.shape
    return t:reshape(heads, n // heads // 2, 2, -1):transpose(2, 3):reshape(shape):contiguous()
  end
end

--- Names here -> {name in files, write = , read = , keep = stays f32}.
local function names_of(fixed, layers, prefix, each)
  local out = {}
  for name, row in next, fixed do out[name] = type(row) == "string" and { name = row } or row end
  for i = 0, layers - 1 do
    for name, row in next, each do
      local copy = type(row) == "string" and { name = row } or row
      out[prefix:format(i) .. name] = { name = ("blk.%d.%s"):format(i, copy.name), write = copy.write, read = copy.read, keep = copy.keep }
    end
  end
  return out
end

local llama = { name = "llama" }

function llama.class() return accel.models.Llama end

function llama.names(c)
  local q, k = c.num_attention_heads, c.num_key_value_heads
  local each = {
    ["input_layernorm.weight"] = "attn_norm.weight", ["post_attention_layernorm.weight"] = "ffn_norm.weight",
  }
  for _, kind in ipairs { "weight", "bias" } do
    each["self_attn.q_proj." .. kind] = { name = "attn_q." .. kind, write = interleaved(q), read = parted(q) }
    each["self_attn.k_proj." .. kind] = { name = "attn_k." .. kind, write = interleaved(k), read = parted(k) }
    each["self_attn.v_proj." .. kind], each["self_attn.o_proj." .. kind] = "attn_v." .. kind, "attn_output." .. kind
    for _, part in ipairs { "gate", "up", "down" } do each[("mlp.%s_proj.%s"):format(part, kind)] = ("ffn_%s.%s"):format(part, kind) end
  end
  return names_of({
    ["model.embed_tokens.weight"] = "token_embd.weight", ["model.norm.weight"] = "output_norm.weight", ["lm_head.weight"] = "output.weight",
  }, c.num_hidden_layers, "model.layers.%d.", each)
end

--- The factor by which each pair rotates slower than without scaling. nil: no scaling of this kind.
local function slower(c)
  local kind = Rotary.parameters(c, 10000.0)
  if kind ~= "llama3" then return nil end
  local scaled, theta = Rotary(c, 10000.0):inverse_frequencies(0), c.rope_theta
  local out, d = {}, c.head_dim
  for i, f in ipairs(scaled) do out[i] = theta ^ (-2 * (i - 1) / d) / f end
  return out
end

function llama.write(head, c)
  local kind, theta, p = Rotary.parameters(c, 10000.0)
  if kind ~= "default" and kind ~= "llama3" and kind ~= "linear" then raise("gguf.save: rope_type '%s' is not written", kind) end
  if c.hidden_act ~= "silu" then raise("gguf.save: llama in GGUF has silu, this model %s", c.hidden_act) end
  head:u32("llama.block_count", c.num_hidden_layers)
  head:u32("llama.context_length", c.max_position_embeddings)
  head:u32("llama.embedding_length", c.hidden_size)
  head:u32("llama.feed_forward_length", c.intermediate_size)
  head:u32("llama.attention.head_count", c.num_attention_heads)
  head:u32("llama.attention.head_count_kv", c.num_key_value_heads)
  head:u32("llama.attention.key_length", c.head_dim)
  head:u32("llama.attention.value_length", c.head_dim)
  head:f32("llama.attention.layer_norm_rms_epsilon", c.rms_norm_eps)
  head:u32("llama.rope.dimension_count", c.head_dim)
  head:f32("llama.rope.freq_base", theta)
  if kind == "linear" then
    head:string("llama.rope.scaling.type", "linear")
    head:f32("llama.rope.scaling.factor", p.factor)
  end
  head:u32("llama.vocab_size", c.vocab_size)
end

function llama.extra(c)
  local factors = slower(c)
  if not factors then return {} end
  return { { name = "rope_freqs.weight", shape = { #factors }, make = function() return accel.tensor(factors, { dtype = "f32" }) end, keep = true } }
end

--- Llama 3's scaling from the factors in a file, which hold its result only.
local function scaling_of(c, factors)
  local most = 1
  for _, f in ipairs(factors) do most = math.max(most, f) end
  for _, original in ipairs { 8192, c.max_position_embeddings, 4096, 2048 } do
    local try = {}
    for key, value in next, c do try[key] = value end
    try.rope_parameters = {
      rope_type = "llama3", rope_theta = c.rope_theta, factor = most, low_freq_factor = 1.0, high_freq_factor = 4.0,
      original_max_position_embeddings = original,
    }
    local got, same = slower(try) or {}, #factors == c.head_dim // 2
    for i, f in ipairs(factors) do same = same and got[i] and math.abs(got[i] - f) < 1e-3 * f end
    if same then return try.rope_parameters end
  end
end

function llama.read(meta, given, get)
  local function key(name) return meta["llama." .. name] end
  local heads, width = key "attention.head_count", key "embedding_length"
  local c = {
    vocab_size = given["token_embd.weight"] and given["token_embd.weight"].shape[1] or key "vocab_size", hidden_size = width,
    intermediate_size = key "feed_forward_length", num_hidden_layers = key "block_count", num_attention_heads = heads,
    num_key_value_heads = key "attention.head_count_kv" or heads, head_dim = key "attention.key_length",
    rms_norm_eps = key "attention.layer_norm_rms_epsilon", max_position_embeddings = key "context_length",
    rope_theta = key "rope.freq_base" or 10000.0, tie_word_embeddings = given["output.weight"] == nil,
    attention_bias = given["blk.0.attn_q.bias"] ~= nil, mlp_bias = given["blk.0.ffn_up.bias"] ~= nil,
    bos_token_id = meta["tokenizer.ggml.bos_token_id"], eos_token_id = meta["tokenizer.ggml.eos_token_id"],
    pad_token_id = meta["tokenizer.ggml.padding_token_id"],
  }
  if type(heads) ~= "number" or type(width) ~= "number" then return nil, "llama.attention.head_count or llama.embedding_length is missing" end
  if math.type(heads) ~= "integer" or heads < 1 then return nil, "llama.attention.head_count must be a positive integer" end
  c.head_dim = c.head_dim or width // heads
  if (key "expert_count" or 0) ~= 0 then return nil, "a mixture of experts is not read" end
  local scaling, factor = key "rope.scaling.type", key "rope.scaling.factor" or key "rope.scale_linear"
  if scaling == nil and factor then scaling = "linear" end -- as llama.cpp reads a file without a type
  if scaling == "linear" then
    if factor and factor ~= 0 then c.rope_parameters = { rope_type = "linear", factor = factor, rope_theta = c.rope_theta } end -- 0: none
  elseif scaling ~= nil and scaling ~= "none" then
    return nil, ("rope scaling '%s' is not read"):format(tostring(scaling))
  end
  local freqs = given["rope_freqs.weight"]
  if freqs then
    local t, message = get(freqs.index)
    if not t then return nil, message end
    c.rope_parameters = scaling_of(c, t:to("f64"):reshape(-1):tolist())
    if not c.rope_parameters then return nil, "rope_freqs.weight is not a scaling that is known here" end
  end
  return c
end

local gpt2 = { name = "gpt2" }

function gpt2.class() return accel.models.GPT2 end

function gpt2.names(c)
  local function turned(name) return { name = name, write = transposed, read = transposed } end
  return names_of({
    ["transformer.wte.weight"] = "token_embd.weight", ["transformer.wpe.weight"] = { name = "position_embd.weight", keep = true },
    ["transformer.ln_f.weight"] = "output_norm.weight", ["transformer.ln_f.bias"] = "output_norm.bias", ["lm_head.weight"] = "output.weight",
  }, c.n_layer, "transformer.h.%d.", {
    ["ln_1.weight"] = "attn_norm.weight", ["ln_1.bias"] = "attn_norm.bias", ["ln_2.weight"] = "ffn_norm.weight", ["ln_2.bias"] = "ffn_norm.bias",
    ["attn.c_attn.weight"] = turned "attn_qkv.weight", ["attn.c_attn.bias"] = "attn_qkv.bias",
    ["attn.c_proj.weight"] = turned "attn_output.weight", ["attn.c_proj.bias"] = "attn_output.bias",
    ["mlp.c_fc.weight"] = turned "ffn_up.weight", ["mlp.c_fc.bias"] = "ffn_up.bias",
    ["mlp.c_proj.weight"] = turned "ffn_down.weight", ["mlp.c_proj.bias"] = "ffn_down.bias",
  })
end

function gpt2.write(head, c)
  if c.activation_function ~= "gelu_new" then raise("gguf.save: gpt2 in GGUF has gelu_new, this model %s", c.activation_function) end
  if not c.scale_attn_weights or c.scale_attn_by_inverse_layer_idx then raise "gguf.save: gpt2 in GGUF scales its scores in the usual way" end
  head:u32("gpt2.block_count", c.n_layer)
  head:u32("gpt2.context_length", c.n_positions)
  head:u32("gpt2.embedding_length", c.n_embd)
  head:u32("gpt2.feed_forward_length", c.n_inner or 4 * c.n_embd)
  head:u32("gpt2.attention.head_count", c.n_head)
  head:f32("gpt2.attention.layer_norm_epsilon", c.layer_norm_epsilon)
  head:u32("gpt2.vocab_size", c.vocab_size)
end

function gpt2.extra() return {} end

function gpt2.read(meta, given)
  local function key(name) return meta["gpt2." .. name] end
  return {
    vocab_size = given["token_embd.weight"] and given["token_embd.weight"].shape[1], n_positions = key "context_length",
    n_embd = key "embedding_length", n_layer = key "block_count", n_head = key "attention.head_count",
    n_inner = key "feed_forward_length", layer_norm_epsilon = key "attention.layer_norm_epsilon",
    tie_word_embeddings = given["output.weight"] == nil,
    bos_token_id = meta["tokenizer.ggml.bos_token_id"], eos_token_id = meta["tokenizer.ggml.eos_token_id"],
    pad_token_id = meta["tokenizer.ggml.padding_token_id"],
  }
end

local families = { llama = llama, gpt2 = gpt2 }

for _, family in next, families do
  --- The tensors of a model: list of {name =, shape =, make =, keep =}, in the order of the model. make returns the tensor. It creates one
  --- if elements are reordered or the tensor is quantised (f32).
  function family.tensors(model)
    local names, out, seen = family.names(model.config), family.extra(model.config), {}
    for name, slot in pairs(model:_slots()) do
      local row = names[name] or raise("gguf.save: '%s' has no name in the format", name)
      if not seen[slot.tensor] then
        seen[slot.tensor] = true
        local t, write, state = slot.tensor, row.write, slot.tensor.quant_state
        if state and write == transposed then write = nil end -- a Conv1D that is quantised is a linear layer, [out, in] as there
        local shape = state and state.shape or t.shape
        out[#out + 1] = {
          name = row.name, shape = write == transposed and { shape[2], shape[1] } or shape, keep = row.keep or row.name:find "_norm" ~= nil,
          make = function()
            local plain = state and t:dequantize "f32" or t:detach()
            return write and write(plain) or plain
          end,
        }
      end
    end
    return out
  end
end

function M.of_model(model)
  for _, family in next, families do
    if class.isinstance(model, family.class()) then return family end
  end
  local name = class.of(model) and class.of(model).__name or type(model)
  raise("gguf.save: only Llama and GPT2 with their heads are written, got %s", name)
end

--- The family of a file. nil and the error otherwise.
function M.of_file(meta)
  local name = meta["general.architecture"]
  if families[name] then return families[name] end
  return nil, ("the architecture '%s' is not read (llama and gpt2 are)"):format(tostring(name))
end

-- Keys of a family's metadata that are read, and those that change nothing: training lengths, converters' notes.
local DECLARED <const> = {}
for word in ([[block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv
  attention.key_length attention.value_length attention.layer_norm_rms_epsilon attention.layer_norm_epsilon rope.dimension_count
  rope.freq_base rope.scaling.type rope.scaling.factor rope.scaling.original_context_length rope.scaling.finetuned vocab_size
  rope.scale_linear tensor_data_layout expert_count]]):gmatch "%S+" do DECLARED[word] = true end

-- The values of further keys for which accel's computation is correct, by llama.cpp's defaults. Of a key that is not among these 0 and
-- false are the values that turn something off.
local NEUTRAL <const> = { ["attention.causal"] = true, ["rope.scaling.attn_factor"] = 1, ["rope.scaling.yarn_attn_factor"] = 1 }

--- The first key of a file's metadata that requires an unsupported computation, with its value, or nil.
---@param family {name: string}
---@param meta table<string, any>
---@return string?
function M.unread(family, meta)
  local function key(name) return meta[family.name .. "." .. name] end
  local heads, width = key "attention.head_count", key "embedding_length"
  local head_dim = key "attention.key_length" or type(heads) == "number" and type(width) == "number" and heads > 0 and width // heads
  for name, value in accel.pairs(meta) do
    local own = name:match("^" .. family.name .. "%.(.+)$")
    local fits = not own or DECLARED[own] or value == 0 or value == false
    if own and NEUTRAL[own] ~= nil then fits = value == NEUTRAL[own] end
    if family.name == "gpt2" and own == "attention.head_count_kv" then fits = value == heads end
    if family.name == "gpt2" and own == "attention.key_length" then fits = type(heads) == "number" and value * heads == width end
    if head_dim and (own == "attention.value_length" or own == "rope.dimension_count") then fits = value == head_dim end
    if not fits then return ("%s = %s is not supported"):format(name, type(value) == "table" and "a list" or tostring(value)) end
  end
end

return M
