-- Folders whose weights another tool quantised: the weights and logits of the reference folders, what does not fit, what accel cannot
-- read, and the memory of loading.
--   accel-run tests/stdlib/models/packed_test.lua
local accel = require "accel"
local models = accel.models
local here = arg[0]:match "^.*/" or ""
local tmp = os.getenv "ACCEL_TEST_TMP"
package.path = here .. "../../reference/?.lua;" .. package.path

local n = 0
local function folder(config, state)
  n = n + 1
  local dir = ("%s/packed-%d"):format(tmp, n)
  assert(accel.makedirs(dir))
  assert(accel.write_file(dir .. "/config.json", accel.json.encode(config)))
  assert(accel.save(dir .. "/model.safetensors", state))
  return dir
end

local function with(base, more)
  local out = {}
  for _, t in ipairs { base, more } do
    for key, v in next, t do out[key] = v end
  end
  return out
end

accel.manual_seed(11)
local tiny = { model_type = "llama", architectures = { "LlamaForCausalLM" }, vocab_size = 24, hidden_size = 32, intermediate_size = 64,
  num_hidden_layers = 1, num_attention_heads = 2, max_position_embeddings = 16, dtype = "float16" }
local model = models.Llama(tiny):eval()

--- Integers of 4 bits in words along a dim: t is [n, m] with n a multiple of 8.
local function packed(t)
  local m = t.shape[2]
  local rows = t:to "i64":reshape(-1, 8, m)
  local sum = accel.zeros(rows.shape[1], m, { dtype = "i64" })
  for k = 1, 8 do sum = sum + rows:select(2, k) * (1 << 4 * (k - 1)) end
  return accel.where(sum:ge(1 << 31), sum - (1 << 32), sum):to "i32"
end

--- A state dict in GPTQ's form, and the weights that it stands for.
local function gptq(size)
  local state, dense = {}, {}
  for name, p in pairs(model:named_parameters()) do
    local w = p:detach()
    if name:find "_proj%.weight$" then
      local stem, out, inputs = name:gsub("weight$", ""), w.shape[1], w.shape[2]
      local groups = inputs // size
      local q = accel.randint(0, 16, { inputs, out })
      local z, s = accel.randint(1, 16, { groups, out }), (accel.rand(groups, out) * 0.02 + 0.01):to "f16"
      state[stem .. "qweight"], state[stem .. "scales"] = packed(q), s
      state[stem .. "qzeros"] = packed((z - 1):t():contiguous()):t():contiguous()
      local big = s:to "f32":repeat_interleave(size, 1)
      dense[name] = ((q - z:repeat_interleave(size, 1)):to "f32" * big):t():contiguous()
    else
      state[name], dense[name] = w:to "f16", w:to "f16":to "f32"
    end
  end
  return state, dense
end

local config = { quant_method = "gptq", bits = 4, group_size = 8 }
local state, dense = gptq(8)

do -- the weights, in each dtype; one line names the method; nothing of the quantization is left in the model or in what it saves
  local dir = folder(with(tiny, { quantization_config = config }), state)
  for _, dtype in ipairs { "f32", "bf16" } do
    local got = assert(models.from_pretrained(dir, { dtype = dtype }))
    for name, p in pairs(got:named_parameters()) do
      assert(p.dtype == dtype and accel.equal(p:detach(), dense[name]:to(dtype)), name)
    end
    assert(got.config.quantization_config == nil)
    assert(got:save_pretrained(dir .. "/plain"))
    assert(accel.equal(assert(models.from_pretrained(dir .. "/plain")):parameters()[1]:detach(), got:parameters()[1]:detach()))
  end
  assert(assert(models.from_pretrained(dir)):parameters()[1].dtype == "f16")
  local none, why, code = models.from_pretrained(dir, { quantization_config = accel.BnbQuantizationConfig { load_in_4bit = true } })
  assert(none == nil and code == "unsupported", tostring(why))
  assert(why:find "its weights are quantised already %(gptq, 4 bits%); leave out quantization_config", why)
end

do -- GPT-2's Conv1D has its weight the other way round
  local gpt = { model_type = "gpt2", architectures = { "GPT2LMHeadModel" }, vocab_size = 24, n_positions = 16, n_embd = 32, n_layer = 1,
    n_head = 2 }
  local plain, gpt_state = models.GPT2(gpt), {}
  for name, p in pairs(plain:named_parameters()) do gpt_state[name] = p:detach():clone() end
  local stem = "transformer.h.0.attn.c_proj."
  local q, s = accel.randint(0, 16, { 32, 32 }), accel.ones(4, 32, { dtype = "f16" })
  gpt_state[stem .. "weight"] = nil
  gpt_state[stem .. "qweight"], gpt_state[stem .. "scales"] = packed(q), s
  gpt_state[stem .. "qzeros"] = packed(accel.full({ 32, 4 }, 7, { dtype = "i64" })):t():contiguous()
  local got = assert(models.from_pretrained(folder(with(gpt, { quantization_config = config }), gpt_state)))
  assert(accel.equal(got:get_parameter(stem .. "weight"):detach(), (q - 8):to "f32"))
end

-- ---- what does not fit is named ----

local function refused(pattern, code, change, quantization)
  local other = with(state, {})
  change(other)
  local none, why, got = models.from_pretrained(folder(with(tiny, { quantization_config = quantization or config }), other))
  assert(none == nil and got == code, tostring(why))
  assert(why:find(pattern), why)
end

local first = "model.layers.0.self_attn.q_proj."
local function nothing() end
refused("qweight' has no '" .. first .. "scales'", "format", function(s) s[first .. "scales"] = nil end)
refused("q_proj.weight' has scales of shape %(2, 32%); 4 groups of 32 outputs need %(4, 32%)", "format",
  function(s) s[first .. "scales"] = s[first .. "scales"]:narrow(1, 1, 2):contiguous() end)
refused("q_proj.weight' has qzeros of shape", "format", function(s) s[first .. "qzeros"] = s[first .. "qzeros"]:narrow(1, 1, 1):contiguous() end)
refused("has g_idx beyond its 4 groups", "format", function(s) s[first .. "g_idx"] = accel.full({ 32 }, 4, { dtype = "i32" }) end)
refused("has g_idx of 31 values for 32 inputs", "format", function(s) s[first .. "g_idx"] = accel.zeros(31, { dtype = "i32" }) end)
refused("qweight' is not a matrix of i32 words", "format", function(s) s[first .. "qweight"] = s[first .. "qweight"]:to "i64" end)
refused("does not fit LlamaForCausalLM: 'model.layers.0.self_attn.q_proj.weight' has shape %(32, 24%)", "format",
  function(s) s[first .. "qweight"] = s[first .. "qweight"]:narrow(1, 1, 3):contiguous() end)
refused("gptq with 5 bits cannot be read; 2, 3, 4 and 8 can", "unsupported", nothing, with(config, { bits = 5 }))
refused("checkpoint_format 'marlin' cannot be read", "unsupported", nothing, with(config, { checkpoint_format = "marlin" }))
refused("group_size must be a positive integer or %-1, got 0", "format", nothing, with(config, { group_size = 0 }))
refused("names the method 'hqq', which accel cannot read; .* one of awq, bitsandbytes, compressed%-tensors, ", "unsupported", nothing,
  { quant_method = "hqq" })
refused("names the method a table", "unsupported", nothing, { quant_method = {} })
refused("awq's version 'gemv' cannot be read", "unsupported", nothing, { quant_method = "awq", bits = 4, group_size = 8, version = "gemv" })
refused("weight_block_size must be two positive integers", "format", nothing, { quant_method = "fp8", weight_block_size = { 1, 0 } })
refused("config_groups must be an object", "format", nothing, { quant_method = "compressed-tensors" })
refused("format 'marlin%-24' of compressed%-tensors cannot be read", "unsupported", nothing, { quant_method = "compressed-tensors",
  format = "marlin-24", config_groups = { a = { targets = { "Linear" }, weights = { num_bits = 4 } } } })

do -- FP8: scales of blocks, of rows, missing, of a shape that does not fit
  local f8 = accel.fp8_cast(accel.randn(32, 32), accel.ones(1))
  local plain = {}
  for name, p in pairs(model:named_parameters()) do plain[name] = p:detach():clone() end
  local name = first .. "weight"
  local function load(scale, quantization, suffix)
    local s = with(plain, { [name] = f8, [name .. (suffix or "_scale_inv")] = scale })
    local c = with(tiny, { quantization_config = with({ quant_method = "fp8" }, quantization or {}) })
    local got, why = models.from_pretrained(folder(c, s), { dtype = "f32" })
    return got and got:get_parameter(name):detach(), why
  end
  local values, blocks = f8:to "f32", accel.rand(4, 2) + 0.5
  local got = assert(load(blocks, { weight_block_size = { 9, 20 } }))
  for _, at in ipairs { { 1, 1 }, { 9, 20 }, { 10, 21 }, { 32, 32 }, { 28, 20 } } do
    local i, j = at[1], at[2]
    local want = values[i][j] * blocks[(i - 1) // 9 + 1][(j - 1) // 20 + 1]
    assert(got[i][j]:item() == want:item(), i)
  end
  local rows = accel.rand(32) + 0.5
  assert(accel.equal(assert(load(rows, nil, "_scale")), values * rows:unsqueeze(2)))
  assert(accel.equal(assert(load(accel.tensor(2.0))), values * 2))
  local _, why = load(accel.ones(3, 2), { weight_block_size = { 9, 20 } })
  assert(why:find "q_proj.weight' has scales of shape %(3, 2%); blocks of 9 x 20 in %(32, 32%) need %(4, 2%)", why)
  _, why = load(accel.ones(3, 2))
  assert(why:find "weight_block_size is missing", why)
  local none
  none, why = models.from_pretrained(folder(with(tiny, { quantization_config = { quant_method = "fp8" } }), with(plain, { [name] = f8 })))
  assert(none == nil and why:find "q_proj.weight' has neither a _scale_inv nor a _scale", why)
end

do -- bitsandbytes: absmax of another shape or dtype is named, not spread
  local dir = tmp .. "/bnb"
  assert(model:save_pretrained(dir .. "/plain"))
  local q = assert(models.from_pretrained(dir .. "/plain", { quantization_config = accel.BnbQuantizationConfig { load_in_4bit = true,
    bnb_4bit_quant_type = "nf4" } }))
  assert(q:save_pretrained(dir))
  local good = assert(accel.load(dir .. "/model.safetensors"))
  local key = first .. "weight.absmax"
  for pattern, absmax in accel.pairs {
    ["absmax has shape %(4, 4%), the shape in its state needs %(16%)"] = good[key]:reshape(4, 4),
    ["absmax has shape %(15%), the shape in its state needs %(16%)"] = good[key]:narrow(1, 1, 15):contiguous(),
    ["absmax is u8, expected f32"] = good[key]:to "u8",
  } do
    assert(accel.save(dir .. "/model.safetensors", with(good, { [key] = absmax })))
    local none, why, code = models.from_pretrained(dir)
    assert(none == nil and code == "format" and why:find(pattern), tostring(why))
  end
end

do -- memory: the model and the parts of one weight, whatever the number of layers
  local function peak(layers)
    local deep, parts = {}, 0
    for key, t in next, state do
      for i = 0, key:find "layers%.0%." and layers - 1 or 0 do deep[key:gsub("layers%.0%.", ("layers.%d."):format(i))] = t end
      parts = parts + t:numel()
    end
    local dir = folder(with(tiny, { quantization_config = config, num_hidden_layers = layers }), deep)
    collectgarbage()
    collectgarbage()
    accel.reset_peak_memory()
    local before = accel.mem_stats().live_bytes
    local got = assert(models.from_pretrained(dir, { dtype = "f32" }))
    local stats = accel.mem_stats()
    assert(#got:parameters() > layers)
    return stats.peak_bytes - stats.live_bytes, stats.live_bytes - before
  end
  local few, many = peak(2), peak(24)
  assert(many <= few + 4096, ("%d bytes beside 2 layers, %d beside 24"):format(few, many))
end

-- ---- the reference folders ----

local dir = here .. "../../../../shared/reference/folders/"
local file = io.open(dir .. "manifest.json", "rb")
if not file then
  print "without ../shared/reference/folders: folders of other tools are not read"
  return
end
local manifest = accel.json.decode(file:read "a")
file:close()
local check, wrong = require("folders_quantised").check, {}
for _, row in ipairs(manifest.rows) do
  if row.name:find "^quantised/" then
    check(dir .. row.name, function(quantity, distance, bar)
      wrong[#wrong + 1] = ("%s: %s: %s (bar %s)"):format(row.name, quantity, tostring(distance), tostring(bar))
    end, row)
  end
end
assert(#wrong == 0, "\n" .. table.concat(wrong, "\n"))
