--- from_pretrained and save_pretrained: what folders may lack or hold, ties, shards, dtypes, memory; hostile
--- files.
local accel = require "accel"
local models = accel.models

local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/folders"
assert(accel.makedirs(tmp))

local function equal(a, b)
  return a.dtype == b.dtype and accel.inspect(a.shape) == accel.inspect(b.shape)
    and (a:numel() == 0 or a:ne(b):to("i64"):sum():item() == 0)
end

--- nil, message, code with these patterns.
local function refuses(pattern, code, model, message, got)
  assert(model == nil, "expected nil with " .. pattern)
  assert(message:find(pattern), ("message %q has no %q"):format(message, pattern))
  assert(got == code, ("code %s, wanted %s: %s"):format(got, code, message))
end

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local function write(path, text)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
end

local function read(path)
  local f = io.open(path, "rb")
  local text = f and f:read "a"
  if f then f:close() end
  return text
end

local n_dirs = 0

--- A folder with a configuration (a table or text) and tensors.
local function folder(config, state, name)
  n_dirs = n_dirs + 1
  local dir = ("%s/%d"):format(tmp, n_dirs)
  assert(accel.makedirs(dir))
  for _, file in ipairs { "config.json", "model.safetensors", "model.safetensors.index.json" } do
    os.remove(dir .. "/" .. file)
  end
  if config then write(dir .. "/config.json", type(config) == "string" and config or accel.json.encode(config)) end
  if state then assert(accel.save(dir .. "/" .. (name or "model.safetensors"), state)) end
  return dir
end

local tiny = {
  model_type = "llama", architectures = { "LlamaForCausalLM" }, vocab_size = 12, hidden_size = 8,
  intermediate_size = 12, num_hidden_layers = 2, num_attention_heads = 2, max_position_embeddings = 16,
}
local function with(base, more)
  local out = {}
  for _, t in ipairs { base, more } do
    for key, value in next, t do out[key] = value end
  end
  return out
end

local ids = accel.tensor { { 1, 5, 2, 7 } }

do -- what is written is read; twice the same
  local model = models.Llama(tiny)
  local dir = tmp .. "/deep/er/llama"
  assert(model:save_pretrained(dir) and model:save_pretrained(dir))
  local again, info = assert(models.from_pretrained(dir))
  assert(not again.training and equal(again(ids), model(ids)))
  assert(#info.missing_keys == 0 and #info.unexpected_keys == 0 and #info.mismatched_keys == 0)
  local c = accel.json.decode(read(dir .. "/config.json"))
  assert(c.architectures[1] == "LlamaForCausalLM" and c.dtype == "float32" and c.model_type == "llama")
  assert(c.num_labels == nil and c.torch_dtype == nil)
  local metadata = accel.open_safetensors(dir .. "/model.safetensors"):metadata()
  assert(metadata.format == "pt")
  for _, p in ipairs(again:parameters()) do assert(p.requires_grad) end
  local called = assert(models.Llama:from_pretrained(dir))
  assert(equal(called(ids), model(ids)))
  fails("dir must be a string, got nil", models.from_pretrained)
  fails("dir must be a string, got a class", models.Llama.from_pretrained, models.GPT2)
  fails("unknown option 'dtipe'; did you mean 'dtype'", models.from_pretrained, dir, { dtipe = "f32" })
  fails("'vocab_size' is a key of the configuration: config = { vocab_size = ... }", models.from_pretrained, dir,
    { vocab_size = 3 })
  local _, wrong = models.from_pretrained(dir, { config = { vocab_size = 3 } })
  assert(wrong:find("(set ignore_mismatched_sizes = true to", 1, true), wrong)

  -- dtypes: as written, or as asked for; the configuration says what it is
  assert(models.from_pretrained(dir, { dtype = "bf16" }):parameters()[1].dtype == "bf16")
  assert(models.Llama(tiny, { dtype = "f16" }):save_pretrained(tmp .. "/half"))
  local half = assert(models.from_pretrained(tmp .. "/half"))
  assert(half:parameters()[1].dtype == "f16")
  assert(accel.json.decode(read(tmp .. "/half/config.json")).dtype == "float16")
  assert(models.from_pretrained(tmp .. "/half", { dtype = "float64" }):parameters()[1].dtype == "f64")
  fails("dtype 'i64' is not a floating one", models.from_pretrained, tmp .. "/half", { dtype = "i64" })

  -- on meta there is nothing to read
  local meta = assert(models.from_pretrained(dir, { device = "meta" }))
  assert(meta:parameters()[1].device == "meta" and meta(ids:to "meta").shape[3] == 12)

  -- overrides of the configuration
  local less = assert(models.from_pretrained(dir, { config = { attention_dropout = 0.5 } }))
  assert(less.config.attention_dropout == 0.5 and less.model.layers[1].self_attn.dropout == 0.5)
  fails("unknown key 'atention_dropout' in config; did you mean 'attention_dropout'", models.from_pretrained, dir,
    { config = { atention_dropout = 0.5 } })
  fails("config: attention_dropout must be a number", models.from_pretrained, dir,
    { config = { attention_dropout = 2 } })
end

do -- prefixes: a base model's file in a model with a head, and the other way round
  local base = models.LlamaModel(tiny)
  assert(base:save_pretrained(tmp .. "/base"))
  assert(read(tmp .. "/base/model.safetensors"):find('"embed_tokens.weight"', 1, true))
  warn "@off"
  local head, info = assert(models.Llama.from_pretrained(tmp .. "/base"))
  warn "@on"
  assert(equal(head.model(ids), base(ids)) and accel.inspect(info.missing_keys) == accel.inspect { "lm_head.weight" })
  assert(head.lm_head.weight:abs():max():item() > 0)
  refuses("missing 'lm_head.weight'", "format", models.Llama.from_pretrained(tmp .. "/base", { strict = true }))
  assert(head:save_pretrained(tmp .. "/head"))
  local stripped, more = assert(models.LlamaModel.from_pretrained(tmp .. "/head"))
  assert(equal(stripped(ids), base(ids)) and more.unexpected_keys[1] == "lm_head.weight")
  refuses("unexpected 'lm_head.weight'", "format", models.LlamaModel.from_pretrained(tmp .. "/head", { strict = true }))
end

do -- a new head on an old body: other numbers of classes, old spellings, buffers of the past
  local bert = {
    model_type = "bert", vocab_size = 12, hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
    intermediate_size = 8, max_position_embeddings = 6,
  }
  local lm = models.BertForMaskedLM(bert)
  local state = {}
  for name, t in pairs(lm:state_dict()) do
    name = name:gsub("LayerNorm%.weight$", "LayerNorm.gamma"):gsub("LayerNorm%.bias$", "LayerNorm.beta")
    if not name:find "decoder" then state[name] = t end
  end
  state["bert.embeddings.position_ids"] = accel.arange(6):unsqueeze(1)
  local dir = folder(bert, state)
  local again, info = assert(models.BertForMaskedLM.from_pretrained(dir, { strict = true }))
  assert(equal(again:eval()(ids), lm:eval()(ids)) and #info.unexpected_keys == 0)
  assert(again.cls.predictions.decoder.weight == again.bert.embeddings.word_embeddings.weight)
  assert(again.cls.predictions.decoder.bias == again.cls.predictions.bias)
  warn "@off"
  local Classification = models.BertForSequenceClassification
  local classifier, more = assert(Classification.from_pretrained(dir, { config = { num_labels = 5 } }))
  warn "@on"
  assert(classifier(ids).shape[2] == 5 and classifier.config.id2label["4"] == "LABEL_4")
  assert(accel.inspect(more.missing_keys) == accel.inspect { "bert.pooler.dense.weight", "bert.pooler.dense.bias",
    "classifier.weight", "classifier.bias" })
  assert(#more.unexpected_keys == 5 and classifier.classifier.bias:abs():max():item() == 0)
  assert(classifier:save_pretrained(tmp .. "/five"))
  refuses("'classifier.weight' has shape %(5, 8%), the model needs %(2, 8%)", "format",
    models.from_pretrained(tmp .. "/five", { config = { num_labels = 2 } }))
  warn "@off"
  local two, third = assert(models.from_pretrained(tmp .. "/five",
    { config = { num_labels = 2 }, ignore_mismatched_sizes = true }))
  warn "@on"
  assert(two(ids).shape[2] == 2 and #third.mismatched_keys == 2)
end

do -- ties: absent, equal, different, and only under the other name
  local c = with(tiny, { tie_word_embeddings = true })
  local model = models.Llama(c)
  assert(model.lm_head.weight == model.model.embed_tokens.weight)
  local dir = tmp .. "/tied"
  assert(model:save_pretrained(dir))
  local state = assert(accel.load(dir .. "/model.safetensors"))
  assert(state["lm_head.weight"] == nil)
  local embedding = state["model.embed_tokens.weight"]
  state["lm_head.weight"] = embedding:clone()
  local same = assert(models.from_pretrained(folder(c, state)))
  assert(same.lm_head.weight == same.model.embed_tokens.weight and same.config.tie_word_embeddings)
  state["model.embed_tokens.weight"] = nil
  local other = assert(models.from_pretrained(folder(c, state)))
  assert(other.lm_head.weight == other.model.embed_tokens.weight and equal(other.lm_head.weight:detach(), embedding))
  state["model.embed_tokens.weight"] = embedding
  state["lm_head.weight"] = embedding + 1
  local apart = assert(models.from_pretrained(folder(c, state)))
  assert(apart.lm_head.weight ~= apart.model.embed_tokens.weight and not apart.config.tie_word_embeddings)
  assert(equal(apart.lm_head.weight:detach(), embedding + 1))
  assert(apart:save_pretrained(tmp .. "/apart"))
  assert(accel.json.decode(read(tmp .. "/apart/config.json")).tie_word_embeddings == false)
  assert(equal(assert(models.from_pretrained(tmp .. "/apart"))(ids), apart(ids)))
  -- the same through load_state_dict
  local fresh = models.Llama(c)
  fresh:load_state_dict(model:state_dict())
  assert(equal(fresh(ids), model(ids)))
  fails("missing 'model.layers.0", fresh.load_state_dict, fresh, { ["lm_head.weight"] = embedding })
  fails("expected a table of tensors, got nil", fresh.load_state_dict, fresh)
end

do -- GPT-2's oldest files: no prefix, no head, causal masks among the weights
  local c = { model_type = "gpt2", vocab_size = 12, n_positions = 6, n_embd = 8, n_layer = 1, n_head = 2 }
  local model, state = models.GPT2(c):eval(), {}
  for name, t in pairs(model:state_dict()) do
    if name ~= "lm_head.weight" then state[name:gsub("^transformer%.", "")] = t end
  end
  state["h.0.attn.bias"] = accel.ones(1, 1, 6, 6)
  state["h.0.attn.masked_bias"] = accel.tensor(-1e4)
  local again, info = assert(models.GPT2.from_pretrained(folder(c, state), { strict = true }))
  assert(equal(again(ids), model(ids)) and #info.unexpected_keys == 0)
  local other = models.GPT2(c):eval()
  other:load_state_dict(state)
  assert(equal(other(ids), model(ids)))
end

do -- T5's older files name the shared embedding three times; buffers and integers of batch norms
  local c = { model_type = "t5", vocab_size = 12, d_model = 8, d_kv = 4, d_ff = 8, num_layers = 1, num_heads = 2 }
  local model = models.T5ForConditionalGeneration(c):eval()
  local state = {}
  for name, t in pairs(model:state_dict()) do state[name] = t end
  state["shared.weight"], state["lm_head.weight"] = nil, nil
  state["encoder.embed_tokens.weight"] = model.shared.weight:detach()
  state["decoder.embed_tokens.weight"] = model.shared.weight:detach()
  state["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = accel.ones(32, 2)
  local again = assert(models.from_pretrained(folder(c, state), { strict = true }))
  local o = { decoder_input_ids = ids }
  assert(equal(again(ids, o), model(ids, o)))
  local encoder = assert(models.T5EncoderModel.from_pretrained(folder(c, state), { strict = true }))
  assert(equal(encoder(ids), model:encode(ids)))

  local r = { model_type = "resnet", embedding_size = 4, hidden_sizes = { 4 }, depths = { 1 }, layer_type = "basic" }
  local net = models.ResNetModel(r)
  local images = accel.randn(2, 3, 16, 16)
  net(images)
  state = {}
  for name, t in pairs(net:eval():state_dict()) do
    if not name:find "num_batches_tracked" then state[name] = t end
  end
  local back = assert(models.from_pretrained(folder(r, state)))
  assert(equal(back(images), net(images)))
  assert(net:save_pretrained(tmp .. "/resnet"))
  local kept = assert(models.from_pretrained(tmp .. "/resnet", { dtype = "f64" }))
  local norm = kept.embedder.embedder.normalization
  assert(norm.running_mean.dtype == "f64" and norm.num_batches_tracked:item() == 1)
end

do -- shards: as full as allowed, whatever was there before is gone, and back to one file
  local model = models.Llama(tiny):eval()
  local dir = tmp .. "/shards"
  local function listing()
    local names = {}
    for i = 1, 99 do
      for n = i, 99 do
        local name = ("model-%05d-of-%05d.safetensors"):format(i, n)
        if read(dir .. "/" .. name) then names[#names + 1] = name end
      end
    end
    return names
  end
  for _, name in ipairs(listing()) do os.remove(dir .. "/" .. name) end -- of an earlier run
  assert(model:save_pretrained(dir, { max_shard_size = 1000 }))
  local first = listing()
  local index = accel.json.decode(read(dir .. "/model.safetensors.index.json"))
  local bytes, seen = 0, {}
  for _, name in ipairs(first) do
    local part, sum = assert(accel.load(dir .. "/" .. name)), 0
    for key, t in pairs(part) do
      assert(index.weight_map[key] == name)
      seen[key], sum = true, sum + 4 * t:numel()
    end
    assert(sum <= 1000)
    bytes = bytes + sum
  end
  assert(#first > 3 and bytes == index.metadata.total_size and bytes == 4 * index.metadata.total_parameters)
  for name in pairs(model:state_dict()) do assert(seen[name], name) end
  assert(equal(assert(models.from_pretrained(dir))(ids), model(ids)))
  assert(model:save_pretrained(dir, { max_shard_size = "2KB" }))
  local second = listing()
  assert(#second < #first and second[1]:find(("of-%05d"):format(#second), 1, true), "files of the first save are left")
  assert(equal(assert(models.from_pretrained(dir))(ids), model(ids)))
  assert(model:save_pretrained(dir, { max_shard_size = "1GB" }))
  assert(#listing() == 0 and not read(dir .. "/model.safetensors.index.json") and read(dir .. "/model.safetensors"))
  assert(model:save_pretrained(dir, { max_shard_size = "1.5KB" }) and not read(dir .. "/model.safetensors"))
  for _, bad in ipairs { "5XB", "GB", "-1", "", -5, 0 / 0, true } do
    fails("max_shard_size must be", model.save_pretrained, model, dir, { max_shard_size = bad })
  end
  fails("max_shard_size must be", model.save_pretrained, model, dir, { max_shard_size = "5 things" })
  fails("dir must be a string", model.save_pretrained, model)
end

do -- where nothing can be written
  local model = models.LlamaModel(tiny)
  write(tmp .. "/plain", "x")
  refuses("cannot make the folder", "io", model:save_pretrained(tmp .. "/plain"))
  refuses("cannot make the folder", "io", model:save_pretrained(tmp .. "/plain/below"))
  assert(read(tmp .. "/plain") == "x")
end

do -- memory: the model, and one tensor beside it
  local c = { vocab_size = 4000, hidden_size = 256, intermediate_size = 512, num_hidden_layers = 2,
    num_attention_heads = 4 }
  local model = models.Llama(c)
  local bytes = 0
  for _, p in ipairs(model:parameters()) do bytes = bytes + 4 * p:numel() end
  assert(model:save_pretrained(tmp .. "/large", { max_shard_size = "3MB" }))
  for _, dtype in ipairs { "f32", "bf16" } do
    collectgarbage()
    collectgarbage()
    local before = accel.mem_stats().live_bytes
    accel.reset_peak_memory()
    assert(models.from_pretrained(tmp .. "/large", { dtype = dtype }))
    local peak = accel.mem_stats().peak_bytes - before
    local own = dtype == "f32" and bytes or bytes / 2
    local most = own + 4000 * 256 * 4 + 2 ^ 20
    assert(peak >= own and peak < most, ("%s: peak %d, model %d"):format(dtype, peak, own))
  end
end
