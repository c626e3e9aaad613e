-- GGUF files of Llama and GPT-2: written and read again, with tokenizers; what llama.cpp's Python package reads of them; what is
-- refused. (Values of other programs' files: tests/reference/gguf.lua.)
local accel = require "accel"
local models = accel.models
local gguf = models.gguf
local tmp = os.getenv "ACCEL_TEST_TMP"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end

accel.manual_seed(8)
local llama = {
  vocab_size = 290, hidden_size = 64, intermediate_size = 96, num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2,
  max_position_embeddings = 48, eos_token_id = 0,
}
local gpt2 = { vocab_size = 290, n_positions = 48, n_embd = 64, n_layer = 2, n_head = 4, eos_token_id = 0 }
local function with(base, more)
  local out = {}
  for _, t in ipairs { base, more } do
    for key, value in next, t do out[key] = value end
  end
  return out
end

local function fresh(Class, config)
  local model = Class(config):eval()
  local _ <close> = accel.no_grad()
  for _, p in ipairs(model:parameters()) do p:add_(accel.randn_like(p) * 0.1) end
  return model
end

local text = "the cat sat on the mat and the dog ran to the door"
local tok = accel.text.train_bpe({ text }, { vocab_size = 275, special_tokens = { "<end>", "<user>" } })
tok.eos_token, tok.chat_template = "<end>", "{{ messages[0].content }}"
local ids = accel.randint(0, 290, { 2, 12 })
local bars = { F32 = 0, F16 = 2e-3, BF16 = 2e-2, Q8_0 = 3e-2, Q4_0 = 0.45 }
local files = {}
for name, model in accel.pairs {
  llama = fresh(models.Llama, llama), gpt2 = fresh(models.GPT2, gpt2),
  tied = fresh(models.Llama, with(llama, { tie_word_embeddings = true, attention_bias = true, mlp_bias = true, head_dim = 32 })),
  untied = fresh(models.GPT2, with(gpt2, { tie_word_embeddings = false, n_inner = 128 })),
  linear = fresh(models.Llama, with(llama, { rope_parameters = { rope_type = "linear", factor = 2.0, rope_theta = 500.0 } })),
  llama3 = fresh(models.Llama, with(llama, { rope_parameters = { rope_type = "llama3", factor = 8.0, rope_theta = 500000.0,
    low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_position_embeddings = 8192 } })),
} do
  local _ <close> = accel.no_grad()
  local want = model(ids)
  for kind, bar in accel.pairs(bars) do
    local path = ("%s/%s-%s.gguf"):format(tmp, name, kind)
    files[#files + 1] = path
    assert(gguf.save(model, path, { type = kind:lower(), tokenizer = tok, name = "a " .. name }))
    local again, extra = gguf.load(path)
    assert(again, extra)
    local off = ((again(ids) - want):abs():max() / want:abs():max()):item()
    assert(off <= bar and (bar == 0 or off > 0), ("%s %s: %g"):format(name, kind, off))
    assert(again.config.eos_token_id == 0 and again.config.tie_word_embeddings == model.config.tie_word_embeddings)
    local t = extra.tokenizer
    assert(gguf.save(model, path .. ".ids", { type = kind:lower() }))
    local meta = assert(gguf.info(path .. ".ids")).metadata -- llama.cpp reads files without a tokenizer by these
    assert(meta["tokenizer.ggml.model"] == "no_vocab" and meta[meta["general.architecture"] .. ".vocab_size"] == model.config.vocab_size)
    assert(t:decode(t:encode(text).ids) == text and table.concat(t:encode(text).ids, " ") == table.concat(tok:encode(text).ids, " "))
    assert(t.eos_token == "<end>" and t.chat_template == tok.chat_template and extra.metadata["general.name"] == "a " .. name)
    if kind == "BF16" then assert(assert(gguf.load(path, { dtype = "auto" })):parameters()[1].dtype == "bf16") end
  end
end

do -- quantised models are written as what their weights stand for, tied tables once; so is a Conv1D that became a linear layer
  local dir = accel.mkdtemp(tmp .. "/quantised-")
  for name, model in accel.pairs {
    llama = fresh(models.Llama, with(llama, { tie_word_embeddings = true })), gpt2 = fresh(models.GPT2, gpt2),
  } do
    local _ <close> = accel.no_grad()
    assert(model:save_pretrained(dir .. "/" .. name))
    for what, o in accel.pairs {
      int8 = { load_in_8bit = true, skip_modules = {} }, nf4 = { load_in_4bit = true, bnb_4bit_quant_type = "nf4", skip_modules = {} },
      table_stays = { load_in_4bit = true },
    } do
      o.torch_dtype = "fp32"
      if o.load_in_4bit then o.bnb_4bit_compute_dtype = "fp32" end
      local quantised = assert(getmetatable(model).from_pretrained(dir .. "/" .. name, { quantization_config = accel.BnbQuantizationConfig(o) }))
      local table_of = quantised:get_parameter(name == "llama" and "model.embed_tokens.weight" or "transformer.wte.weight")
      assert((table_of.quant_state == nil) == (what == "table_stays"))
      local want, path = quantised(ids), ("%s/%s-%s.gguf"):format(dir, name, what)
      for kind, bar in accel.pairs { F32 = what == "int8" and 2e-2 or 1e-5, Q8_0 = 3e-2 } do -- int8 layers round what comes in, too
        assert(gguf.save(quantised, path, { type = kind, tokenizer = tok }))
        local again, extra = gguf.load(path)
        assert(again, extra)
        local off = ((again(ids) - want):abs():max() / want:abs():max()):item()
        assert(off <= bar, ("%s %s %s: %g"):format(name, what, kind, off))
        local got = again:get_parameter(name == "llama" and "model.embed_tokens.weight" or "transformer.wte.weight")
        if kind == "F32" then assert(accel.equal(got, table_of.quant_state and table_of:dequantize "f32" or table_of)) end
        assert(again.config.tie_word_embeddings)
      end
    end
  end
end

do -- a file is written tensor by tensor: memory holds one of them beside the model, whatever their number
  local function peak(layers, kind)
    local dir = accel.mkdtemp(tmp .. "/peak-")
    do
      local _ <close> = accel.scope()
      assert(models.Llama(with(llama, { hidden_size = 256, intermediate_size = 512, num_hidden_layers = layers })):save_pretrained(dir))
    end
    local quantised = assert(models.Llama.from_pretrained(dir, { quantization_config = accel.BnbQuantizationConfig {
      load_in_4bit = true, bnb_4bit_quant_type = "nf4", skip_modules = {}, torch_dtype = "fp32", bnb_4bit_compute_dtype = "fp32",
    } }))
    collectgarbage()
    collectgarbage()
    accel.reset_peak_memory()
    local before = accel.mem_stats().live_bytes
    assert(gguf.save(quantised, dir .. "/m.gguf", { type = kind }))
    return accel.mem_stats().peak_bytes - before, assert(gguf.load(dir .. "/m.gguf"))
  end
  local matrix <const> = 256 * 512 * 4 -- the largest tensor as f32
  for _, kind in ipairs { "F32", "Q8_0" } do
    local few, many = peak(2, kind), peak(12, kind)
    assert(few >= matrix and many <= few + 4096 and many <= 3 * matrix, ("%s: %d bytes for 2 layers, %d for 12"):format(kind, few, many))
  end
end

do -- sizes: a row of 32 takes 34 bytes in Q8_0 and 18 in Q4_0; vectors and norms stay f32
  local bytes = {}
  for _, kind in ipairs { "Q8_0", "Q4_0" } do
    local info = assert(gguf.info(("%s/llama-%s.gguf"):format(tmp, kind)))
    for _, t in ipairs(info.tensors) do
      local n = 1
      for _, d in ipairs(t.shape) do n = n * d end
      if #t.shape == 1 then assert(t.type == "F32" and t.bytes == 4 * n, t.name)
      else assert(t.type == kind and t.bytes == n // 32 * (kind == "Q8_0" and 34 or 18), t.name) end
      bytes[kind] = (bytes[kind] or 0) + t.bytes
    end
  end
  assert(bytes.Q4_0 < 0.56 * bytes.Q8_0)
end

do -- what cannot be written leaves what was there, and nothing beside it; a writer takes what was announced, no less and no more
  local core, model, path = require "accel.file.core", fresh(models.GPT2, gpt2), accel.mkdtemp(tmp .. "/part-") .. "/m.gguf"
  assert(gguf.save(model, path))
  local function text_of()
    local file <close> = assert(io.open(path, "rb"))
    return file:read "a"
  end
  local want = text_of()
  local list = require("accel.models.gguf.families").of_model(model)
  local tensors = list.tensors
  list.tensors = function(m)
    local out = tensors(m)
    out[#out].make = function() error "stopped in the last tensor" end
    return out
  end
  fails("stopped in the last tensor", gguf.save, model, path)
  list.tensors = tensors
  assert(text_of() == want and #accel.listdir(path:match "^(.*)/") == 1)
  local file = assert(core.create_gguf(path, "head", 32, 64))
  assert(file:append(accel.ones(4)))
  local function refused(text, ok, message)
    assert(not ok and message:find(text, 1, true), message)
  end
  refused("36 bytes are more than were announced", file:append(accel.ones(9)))
  refused("not contiguous", file:append(accel.ones(4, 2):t()))
  refused("32 bytes of tensors were written, 64 announced", file:commit())
  refused("has been committed", file:append(accel.ones(4))) -- also after a commit that failed
  refused("has been committed", file:commit())
  assert(#accel.listdir(path:match "^(.*)/") == 1)
  file:close()
  fails("the GGUF file is closed", file.commit, file)
  assert(text_of() == want and #accel.listdir(path:match "^(.*)/") == 1)
  refused("36 bytes of tensors are not a multiple of the alignment 32", core.create_gguf(path, "head", 32, 36))
  file = assert(core.create_gguf(path, "head", 32, 64))
  assert(file:append(accel.ones(9)) and file:append(accel.ones(0)))
  refused("4 bytes are more than were announced", file:append(accel.ones(1)))
  assert(file:commit())
  for _ = 1, 2 do
    refused("has been committed", file:commit())
    refused("has been committed", file:append(accel.ones(0)))
  end
  file:close()
  assert(#text_of() == 32 + 64)
end

do -- refusals name what they are about
  fails("rope_type 'dynamic' is not written", gguf.save,
    models.Llama(with(llama, { rope_parameters = { rope_type = "dynamic", factor = 2.0 } })),
    tmp .. "/x.gguf")
  fails("yarn in GGUF has beta_fast 32", gguf.save, models.Llama(with(llama, { rope_parameters = { rope_type = "yarn", factor = 2.0,
    beta_fast = 16 } })), tmp .. "/x.gguf")
  fails("gguf.save: BertModel is not written; models with a language%-model head of these architectures are: cohere2, ",
    gguf.save, models.BertModel(models.tiny.bert), tmp .. "/x.gguf")
  fails("type must be one of F32, F16, BF16, Q8_0, Q6_K, .*, got 'Q3'", gguf.save, models.GPT2(gpt2), tmp .. "/x.gguf",
    { type = "Q3" })
  local Head, core = require "accel.models.gguf.head", require "accel.file.core"
  local function file(fill)
    local head = Head()
    fill(head)
    assert(assert(core.create_gguf(tmp .. "/bad.gguf", head:bytes(), 32, 0)):commit())
    local model, message, code = gguf.load(tmp .. "/bad.gguf")
    assert(not model)
    return message, code
  end
  local message, code = file(function(h) h:string("general.architecture", "falcon") end)
  assert(code == "unsupported" and message:find "bad.gguf: the architecture 'falcon' is not read", message)
  message, code = file(function(h) h:string("general.architecture", "llama") end)
  assert(code == "format" and message:find "llama.attention.head_count is missing", message)
  message = file(function(h)
    h:string("general.architecture", "gpt2")
    h:u32("gpt2.embedding_length", 1 << 30)
    h:u32("gpt2.block_count", 4000)
  end)
  assert(message:find "bad.gguf: ", message)
  local none, why, kind = gguf.load(tmp .. "/nowhere.gguf")
  assert(not none and kind == "not_found" and why:find "nowhere.gguf")
end

do -- keys that llama.cpp knows: neutral values are read, values that change the model are refused, never passed over
  local families = require "accel.models.gguf.families"
  local path = tmp .. "/keys.gguf"
  local function with_keys(model, fill, opts)
    local family = families.of_model(model)
    local write = family.write
    family.write = function(head, ...)
      write(head, ...)
      fill(head)
    end
    assert(gguf.save(model, path, opts))
    family.write = write
    return gguf.load(path)
  end
  local plain = models.Llama(llama):eval()
  local ids_ = accel.tensor { { 1, 2, 3, 4 } }
  local want = plain(ids_)
  local function llama_reads(fill, rope)
    local model, why = with_keys(plain, fill, { type = "F32" })
    assert(model, why)
    local other = rope and models.Llama(with(llama, { rope_parameters = rope })):eval()
    if other then other:load_state_dict(plain:state_dict()) end
    assert(accel.allclose(model(ids_), other and other(ids_) or want, { atol = 1e-6 }))
    assert(not other or not accel.allclose(want, other(ids_), { atol = 1e-6 }))
  end
  llama_reads(function(h)
    h:bool("llama.attention.causal", true)
    h:f32("llama.rope.scaling.attn_factor", 1.0)
    h:f32("llama.rope.scale_linear", 1.0)
  end)
  local linear = { rope_type = "linear", factor = 4.0, rope_theta = 10000.0 }
  llama_reads(function(h) h:f32("llama.rope.scale_linear", 4.0) end, linear)
  llama_reads(function(h) h:f32("llama.rope.scaling.factor", 4.0) end, linear)
  llama_reads(function(h)
    h:string("llama.rope.scaling.type", "none")
    h:f32("llama.rope.scaling.factor", 4.0)
  end)
  for key, put in pairs {
    ["llama.attention.causal = false"] = function(h) h:bool("llama.attention.causal", false) end,
    ["llama.rope.scaling.attn_factor = 2.0"] = function(h) h:f32("llama.rope.scaling.attn_factor", 2.0) end,
    ["llama.rope.scaling.attn_factor = 0.0"] = function(h) h:f32("llama.rope.scaling.attn_factor", 0.0) end,
    ["llama.attention.sliding_window = 8"] = function(h) h:u32("llama.attention.sliding_window", 8) end,
  } do
    local model, why, code = with_keys(plain, put)
    assert(model == nil and code == "unsupported" and why:find(key .. " is not supported", 1, true), why)
  end
  local model, why, code = with_keys(models.GPT2(gpt2), function(h) h:u32("gpt2.attention.head_count_kv", 1) end)
  assert(model == nil and code == "unsupported" and why:find("gpt2.attention.head_count_kv = 1", 1, true), why)
end

do -- llama.cpp's Python package, where it is there
  local python = "python3"
  if not os.execute(python .. " -c 'import gguf, numpy' >/dev/null 2>&1") then
    print "without llama.cpp's package gguf: its reading of our files is not checked"
    return
  end
  local script = tmp .. "/read.py"
  assert(accel.write_file(script, [[
import sys, numpy as np, gguf
from gguf.quants import dequantize
for path in sys.argv[1:]:
    r = gguf.GGUFReader(path)
    for t in r.tensors:
        d = np.asarray(dequantize(t.data, t.tensor_type), dtype=np.float64)
        print(path, t.name, repr(float(np.abs(d).sum())), list(map(int, reversed(t.shape.tolist()))))
]]))
  local pipe = assert(io.popen(("%s '%s' '%s'"):format(python, script, table.concat(files, "' '"))))
  local core, n, open = require "accel.file.core", 0, {}
  for line in pipe:lines() do
    local path, name, sum = line:match "^(%S+) (%S+) (%S+)"
    open[path] = open[path] or assert(core.open_gguf(path))
    for i, t in ipairs(open[path]:tensors()) do
      if t.name == name then
        local mine = assert(open[path]:get(i)):to("f64"):abs():sum():item()
        assert(math.abs(mine - tonumber(sum)) <= 1e-9 * mine, line)
        n = n + 1
      end
    end
  end
  assert(pipe:close() and n > 300, n)
end
