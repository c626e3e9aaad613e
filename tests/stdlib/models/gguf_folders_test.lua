-- GGUF: files of llama.cpp (tensors of every type, models, tokenizers), K-quants that accel writes, every architecture written and read
-- again, scalings of Llama 3 from their factors.
--   accel-run tests/stdlib/models/gguf_folders_test.lua
local accel = require "accel"
local core = require "accel.file.core"
local types = require "accel.models.gguf.types"
local gguf, models = accel.models.gguf, accel.models
local here = arg[0]:match "^.*/" or ""
local tmp = os.getenv "ACCEL_TEST_TMP"
package.path = here .. "../../reference/?.lua;" .. package.path

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end

local function with(base, more)
  local out = {}
  for _, t in ipairs { base, more } do
    for key, v in next, t do out[key] = v end
  end
  return out
end

accel.manual_seed(3)

--- A file with one tensor of packed bytes, and its values.
local function decoded(kind, bytes, shape)
  local Head = require "accel.models.gguf.head"
  local head, path = Head(), tmp .. "/one.gguf"
  head:string("general.architecture", "none")
  head:tensor("x", shape, types.types[kind].number, bytes:numel(), 32)
  local file <close> = assert(core.create_gguf(path, head:bytes(), 32, head.at))
  assert(file:append(bytes))
  assert(file:commit())
  local reader <close> = assert(core.open_gguf(path))
  return assert(reader:get(1))
end

do -- errors of written blocks: as a share of the values' size by the step of each type, less with more bits; zeros and constants are kept
  local x = accel.randn(8, 512) * (accel.randn(8, 16, 1):exp():expand(8, 16, 32):reshape(8, 512))
  local size, before = x:square():mean():sqrt():item(), 1
  for _, row in ipairs { { "Q4_0", 0.1 }, { "Q4_1", 0.085 }, { "Q4_K", 0.074 }, { "Q5_0", 0.054 }, { "Q5_1", 0.04 }, { "Q5_K", 0.04 },
    { "Q6_K", 0.02 }, { "Q8_0", 0.006 } } do
    local kind, bar = row[1], row[2]
    local y = decoded(kind, core.gguf_quantize(x, types.types[kind].number), { 8, 512 })
    local off = (y - x):square():mean():sqrt():item() / size
    assert(off < bar and off > 0 and off < before * 1.05, ("%s: %g"):format(kind, off))
    before = off
    for _, constant in ipairs { 0.0, 1.5, -2.0 } do
      local c = accel.full({ 1, 256 }, constant)
      y = decoded(kind, core.gguf_quantize(c, types.types[kind].number), { 1, 256 })
      assert((y - c):abs():max():item() <= 0.01 * math.abs(constant), ("%s of %g"):format(kind, constant))
    end
    local hole = x:clone()
    hole[2][300] = 0 / 0
    y = decoded(kind, core.gguf_quantize(hole, types.types[kind].number), { 8, 512 })
    local block = types.types[kind].block
    local from = 299 // block * block
    assert(y[2]:isnan():to("i64"):sum():item() == block and y[2]:narrow(1, from + 1, block):isnan():all():item(), kind)
    assert(not y[3]:isnan():any():item())
    assert(core.gguf_quantize(accel.zeros(0, 256), types.types[kind].number):numel() == 0)
  end
  fails("tensors cannot be quantised to type 10", core.gguf_quantize, x, 10)
  fails("tensors cannot be quantised to type 99", core.gguf_quantize, x, 99)
  fails("rows of whole blocks of 256", core.gguf_quantize, accel.ones(2, 128), 12)
end

do -- values are fitted: a line of 16 levels is exact in Q4_K, whose blocks have a scale and a minimum
  local x = (accel.arange(256) % 16 - 5):to "f32":reshape(1, 256)
  local y = decoded("Q4_K", core.gguf_quantize(x, 12), { 1, 256 })
  assert((y - x):abs():max():item() < 0.1, (y - x):abs():max():item())
end

-- ---- every architecture ----

local base = { vocab_size = 48, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 8, num_attention_heads = 4,
  num_key_value_heads = 2, max_position_embeddings = 32, bos_token_id = 1, eos_token_id = 2, pad_token_id = 0 }
local yarn = { rope_type = "yarn", factor = 2.0, rope_theta = 10000.0, original_max_position_embeddings = 16 }
local gemma = { head_dim = 8, query_pre_attn_scalar = 8, sliding_window = 8, hidden_activation = "gelu_pytorch_tanh" }
local CASES <const> = {
  LlamaForCausalLM = { {}, { rope_parameters = yarn } }, MistralForCausalLM = { { sliding_window = 64 } },
  Qwen2ForCausalLM = { {}, { tie_word_embeddings = true } },
  Qwen3ForCausalLM = { { head_dim = 16 }, { head_dim = 8, rope_parameters = yarn } }, GemmaForCausalLM = { { head_dim = 8 } },
  Gemma2ForCausalLM = { gemma }, Gemma3ForCausalLM = { gemma, with(gemma, { sliding_window = 64 }) }, PhiForCausalLM = { {} },
  Phi3ForCausalLM = { { sliding_window = 64 }, { partial_rotary_factor = 0.5 } }, Olmo2ForCausalLM = { {}, { tie_word_embeddings = true } },
  GPTNeoXForCausalLM = { { rotary_pct = 0.5 }, { use_parallel_residual = false } },
  StableLmForCausalLM = { { use_qkv_bias = true }, { use_parallel_residual = true, partial_rotary_factor = 0.5 } },
  GraniteForCausalLM = { { attention_multiplier = 0.3, embedding_multiplier = 3.0, residual_multiplier = 0.5, logits_scaling = 2.0 } },
  SmolLM3ForCausalLM = { {} }, CohereForCausalLM = { { logit_scale = 0.5 } },
  Cohere2ForCausalLM = { { sliding_window = 8 } },
  Qwen3MoeForCausalLM = { { num_local_experts = 4, num_experts_per_tok = 2, moe_intermediate_size = 32, norm_topk_prob = true, head_dim = 8,
    num_hidden_layers = 2 } },
  Qwen2MoeForCausalLM = { { num_experts = 4, num_experts_per_tok = 2, moe_intermediate_size = 32, shared_expert_intermediate_size = 64,
    num_hidden_layers = 2 } }, OlmoForCausalLM = { {}, { clip_qkv = 0.5 } },
  Starcoder2ForCausalLM = { {} }, NemotronForCausalLM = { {} }, Glm4ForCausalLM = { { head_dim = 8, attention_bias = true } },
}
local seen = {}
for _, description in ipairs(require "accel.models.gguf.architectures") do
  local class = description.class
  local cases = assert(CASES[class], class .. " has no case here")
  for i, more in ipairs(cases) do
    local fields, c = models[class].schema.fields, {}
    for key, v in next, with(base, more) do
      if fields[key] then c[key] = v end
    end
    local model = models[class](c):eval()
    local _ <close> = accel.no_grad()
    for _, p in ipairs(model:parameters()) do p:add_(accel.randn_like(p) * 0.2) end
    local ids = accel.randint(3, 48, { 2, 20 })
    local want, path = model(ids), tmp .. "/arch.gguf"
    assert(gguf.save(model, path, { type = "F32" }))
    local again, extra = gguf.load(path)
    assert(again, ("%s %d: %s"):format(class, i, tostring(extra)))
    local off = ((again(ids) - want):abs():max() / want:abs():max()):item()
    assert(off < 1e-5, ("%s %d: %g"):format(class, i, off))
    seen[class] = true
    if i == 1 and (class == "LlamaForCausalLM" or class == "Phi3ForCausalLM" or class == "Qwen2MoeForCausalLM") then
      -- rows of 32 and 64 have no blocks of 256: their type is the one with smaller blocks
      for kind, usual in accel.pairs { q4_k_m = "Q5_0", q5_k_m = "Q5_1", q6_k = "Q8_0" } do
        assert(gguf.save(model, path, { type = kind }))
        for _, t in ipairs(assert(gguf.info(path)).tensors) do
          assert(#t.shape == 1 or t.type == "F32" or t.type == usual or t.type == "Q8_0" or t.type == "Q5_1", t.name .. " " .. t.type)
        end
        assert(gguf.load(path))
      end
    end
  end
end
for class in accel.pairs(CASES) do assert(seen[class], class) end

do -- what llama.cpp computes by constants of its own
  local function refused(pattern, class, more)
    local c = {}
    for key, v in next, with(base, more) do
      if models[class].schema.fields[key] then c[key] = v end
    end
    fails(pattern, gguf.save, models[class](c), tmp .. "/x.gguf")
  end
  refused("computes no window of 8 in layer 0 of llama", "MistralForCausalLM", { sliding_window = 8 })
  refused("computes no window of 8 in layer 0 of qwen2", "Qwen2ForCausalLM",
    { use_sliding_window = true, sliding_window = 8, max_window_layers = 0 })
  refused("scales these scores by 1 / sqrt%(8%), this model by 1 / sqrt%(16%)", "Gemma2ForCausalLM",
    with(gemma, { query_pre_attn_scalar = 16 }))
  refused("computes no window of", "Gemma3ForCausalLM", with(gemma, { sliding_window_pattern = 3 }))
  local experts = { num_local_experts = 2, num_experts_per_tok = 1, moe_intermediate_size = 32, norm_topk_prob = true,
    num_hidden_layers = 2 }
  refused("normalises the weights of qwen3moe's chosen experts, this model does not", "Qwen3MoeForCausalLM",
    with(experts, { norm_topk_prob = false }))
  refused("layer 1 of this model has none", "Qwen3MoeForCausalLM", with(experts, { mlp_only_layers = { 1 } }))
  refused("in every fourth layer of smollm3", "SmolLM3ForCausalLM", { no_rope_layer_interval = 3 })
  refused("gemma in GGUF has no head of its own", "GemmaForCausalLM", { head_dim = 8, tie_word_embeddings = false })
  refused("norms of queries and keys of command%-r from 64 layers on", "CohereForCausalLM", { use_qk_norm = true })
  refused("does not compute qwen2 with the activation gelu", "Qwen2ForCausalLM", { hidden_act = "gelu" })
end

do -- K types by llama.cpp's rules: values, the second part of each layer and the head have more bits in some layers
  local wide = { hidden_size = 256, intermediate_size = 256, num_hidden_layers = 9 }
  local function kinds(kind, more)
    local model, out, name_of = models.Llama(with(base, with(wide, more or {})), { device = "meta" }), {}, {}
    for name, t in next, types.types do name_of[t] = name end
    for _, entry in ipairs(require "accel.models.gguf.families".of_model(model).tensors(model)) do
      out[entry.name] = name_of[types.place(types.files[kind], entry, 9, more and "token_embd.weight" or "output.weight")]
    end
    return out
  end
  local more = { [0] = true, [3] = true, [6] = true, [7] = true, [8] = true } -- of 9: the first, from the eighth on, every third between
  for kind, usual in accel.pairs { Q4_K_M = "Q4_K", Q5_K_M = "Q5_K" } do
    local t = kinds(kind)
    for i = 0, 8 do
      local high = more[i] and "Q6_K" or usual
      assert(t[("blk.%d.attn_v.weight"):format(i)] == high and t[("blk.%d.ffn_down.weight"):format(i)] == high, ("%s %d"):format(kind, i))
      assert(t[("blk.%d.attn_q.weight"):format(i)] == usual and t[("blk.%d.attn_norm.weight"):format(i)] == "F32")
    end
    assert(t["output.weight"] == "Q6_K" and t["token_embd.weight"] == usual)
  end
  local t = kinds "Q4_K_S"
  assert(t["blk.3.attn_v.weight"] == "Q5_K" and t["blk.4.attn_v.weight"] == "Q4_K" and t["blk.0.ffn_down.weight"] == "Q5_K")
  for name, kind in accel.pairs(kinds "Q6_K") do assert(kind == "Q6_K" or kind == "F32", name) end
  assert(kinds("Q4_K_M", { tie_word_embeddings = true })["token_embd.weight"] == "Q6_K") -- the embedding is the head
  local model, path = models.Llama(with(base, with(wide, { num_hidden_layers = 1, tie_word_embeddings = true }))):eval(), tmp .. "/mixed.gguf"
  assert(gguf.save(model, path, { type = "Q4_K_M" }))
  local written, ids = {}, accel.randint(0, 48, { 1, 16 })
  for _, row in ipairs(assert(gguf.info(path)).tensors) do written[row.name] = row.type end
  assert(written["token_embd.weight"] == "Q6_K" and written["blk.0.attn_v.weight"] == "Q6_K" and written["blk.0.attn_q.weight"] == "Q4_K")
  local want = model(ids)
  assert(((assert(gguf.load(path))(ids) - want):abs():max() / want:abs():max()):item() < 0.2)
end

do -- Llama 3's scaling: its numbers come back from the factors, other factors turn as they are
  for _, given in ipairs { { 8.0, 1.0, 4.0, 8192, 500000.0, 128 }, { 32.0, 1.0, 4.0, 8192, 500000.0, 64 }, { 8.0, 1.0, 4.0, 16, 10000.0, 16 },
    { 4.0, 2.0, 6.0, 512, 10000.0, 64 }, { 2.0, 1.0, 4.0, 4096, 1e6, 32 } } do
    local p = { rope_type = "llama3", factor = given[1], low_freq_factor = given[2], high_freq_factor = given[3],
      original_max_position_embeddings = given[4], rope_theta = given[5] }
    local config = with(base, { hidden_size = 4 * given[6], rope_parameters = p, max_position_embeddings = 64 })
    local model = models.Llama(config):eval()
    local path = tmp .. "/l3.gguf"
    assert(gguf.save(model, path, { type = "F32" }))
    local again = assert(gguf.load(path))
    assert(again.config.rope_parameters.rope_type == "llama3", accel.json.encode(again.config.rope_parameters))
    local ids = accel.randint(0, 48, { 1, 64 })
    local want, got = model(ids), again(ids)
    assert(((got - want):abs():max() / want:abs():max()):item() < 1e-4)
  end
  local rope = require "accel.models.gguf.rope"
  local odd = assert(rope.scaling_of({ head_dim = 8, rope_theta = 10000.0, max_position_embeddings = 64 }, { 1.0, 3.0, 2.0, 5.0 }))
  assert(odd.rope_type == "longrope" and odd.short_factor[3] == 2.0 and odd.attention_factor == 1.0)
  local none, why = rope.scaling_of({ head_dim = 8, rope_theta = 10000.0 }, { 1.0, 2.0 })
  assert(none == nil and why:find "2 factors for 4 pairs")
  none, why = rope.scaling_of({ head_dim = 4, rope_theta = 10000.0 }, { 1.0, 0 / 0 })
  assert(none == nil and why:find "has the factor")
end

do -- hostile metadata: named, whatever the type
  local families = require "accel.models.gguf.families"
  local values = { 0, -1, 1 << 40, 0.5, -3.0, 0 / 0, "x", true, {}, { 1, 2 } }
  local keys = { "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor",
    "attention.sliding_window", "attention.layer_norm_rms_epsilon", "logit_scale", "final_logit_softcapping", "expert_count" }
  for _, description in ipairs(require "accel.models.gguf.architectures") do
    local arch = description.name
    for _, key in ipairs(keys) do
      for _, value in ipairs(values) do
        local meta = { ["general.architecture"] = arch }
        for name, n in next, { block_count = 1, embedding_length = 8, ["attention.head_count"] = 2, context_length = 8, feed_forward_length = 8,
          vocab_size = 4 } do meta[arch .. "." .. name] = n end
        meta[arch .. "." .. key] = value
        local family = assert(families.of_file(meta))
        local problem = families.unread(family, meta)
        if not problem then
          local c, why = family.read(meta, {}, function() return nil, "none" end)
          assert(c or type(why) == "string", key)
          if c then pcall(family.class(), c, { device = "meta" }) end
        end
      end
    end
  end
end

-- ---- the reference files ----

local dir = here .. "../../../../shared/reference/folders/"
local file = io.open(dir .. "manifest.json", "rb")
if not file then
  print "without ../shared/reference/folders: files of llama.cpp are not read"
  return
end
local manifest = accel.json.decode(file:read "a")
file:close()
local check, wrong = require("folders_gguf").check, {}
for _, row in ipairs(manifest.rows) do
  if row.name:find "^gguf/" then
    check(dir .. row.name, function(quantity, distance, bar)
      wrong[#wrong + 1] = ("%s: %s: %s (bar %s)"):format(row.name, quantity, tostring(distance), tostring(bar))
    end, row)
    if row.files then -- the parts are one file: the second alone is none
      local none, why = gguf.load(dir .. row.name .. "/" .. row.files[2])
      assert(none == nil and why:find("part 00002 of " .. #row.files .. "; open .*00001", 1), why)
    end
  end
end
assert(#wrong == 0, "\n" .. table.concat(wrong, "\n"))
local case = assert(gguf.load(here .. "../../../../shared/cases/models/l3.gguf"))
assert(case.config.rope_parameters.original_max_position_embeddings == 16 and case.config.rope_parameters.factor == 8)
