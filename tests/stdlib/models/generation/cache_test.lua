-- Caches of keys and values: every kind gives the logits of a whole forward pass, after growing, forgetting, going back,
-- changing rows and being copied; memory follows from the kind. tier: every change, memory
local accel = require "accel"
local models = accel.models

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end

accel.manual_seed(3)
local llama = models.Llama {
  vocab_size = 40, hidden_size = 32, intermediate_size = 24, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, max_position_embeddings = 256,
}
local WINDOW <const> = 6
local mixtral = models.MixtralForCausalLM {
  vocab_size = 40, hidden_size = 32, intermediate_size = 24, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, num_local_experts = 3, max_position_embeddings = 256, sliding_window = WINDOW,
}
local _ <close> = accel.no_grad()
for _, model in ipairs { llama, mixtral } do
  model:eval()
  for _, p in ipairs(model:parameters()) do p:mul_(2):add_(accel.randn_like(p) * 0.05) end
end

local function worst(a, b) return ((a - b):abs():max() / b:abs():max()):item() end

--- Feeds ids in pieces and compares the logits.
local function pieces(model, cache, ids, cuts, want, bar, what)
  local at = 1
  for _, n in ipairs(cuts) do
    local got = model(ids:narrow(2, at, n), cache)
    local off = worst(got, want:narrow(2, at, n))
    assert(off <= bar, ("%s, %d tokens at %d: %g"):format(what, n, at, off))
    at = at + n
    assert(cache.past == at - 1)
  end
end

local T <const> = 200
local ids = accel.randint(0, 40, { 2, T })
local ones = {}
for i = 1, T do ones[i] = 1 end
local orders = { { T }, { 5, 1, 1, 60, 1, 70, 62 }, { 3, 100, 1, 1, 1, 1, 93 }, ones }

for _, case in ipairs {
  { "static", {}, 1e-5 }, { "dynamic", {}, 1e-5 }, { "static", { dtype = "bf16" }, 0.03 }, { "dynamic", { dtype = "f16" }, 4e-3 },
  { "quantized", {}, 0.03 }, { "static", { dtype = "int8" }, 0.03 },
} do
  local want = llama(ids)
  for _, cuts in ipairs(orders) do
    local cache = llama:new_cache(2, T, { implementation = case[1], config = case[2] })
    pieces(llama, cache, ids, cuts, want, case[3], case[1] .. " " .. (case[2].dtype or ""))
    fails("do not fit after 200 of 200", llama.forward, llama, ids:narrow(2, 1, 1), cache)
  end
end

do -- a window, whose cache forgets: also in pieces longer than its buffer
  local want = mixtral(ids)
  for _, kind in ipairs { "static", "dynamic", "sliding_window" } do
    for _, cuts in ipairs(orders) do
      pieces(mixtral, mixtral:new_cache(2, T, { implementation = kind }), ids, cuts, want, 1e-5, "window " .. kind)
    end
  end
  local cache = mixtral:new_cache(2, T) -- the kind that the model asks for
  pieces(mixtral, cache, ids, { 150, 3 }, want, 1e-5, "window")
  cache:crop(151)
  assert(worst(mixtral(ids:narrow(2, 152, 2), cache), want:narrow(2, 152, 2)) <= 1e-5)
  assert(cache:held() == WINDOW - 1 and cache:nbytes() < mixtral:new_cache(2, T, { implementation = "static" }):nbytes() / 2)
  fails("the keys before 100 tokens are dropped", cache.crop, cache, 100)
end

do -- going back, other rows, copies
  local want = llama(ids)
  for _, kind in ipairs { "static", "dynamic", "quantized" } do
    local bar = kind == "quantized" and 0.03 or 1e-5
    local cache = llama:new_cache(2, T, { implementation = kind })
    llama(ids:narrow(2, 1, 50), cache)
    cache:crop(20)
    assert(worst(llama(ids:narrow(2, 21, 4), cache), want:narrow(2, 21, 4)) <= bar, kind)
    fails("cannot go back to 30 tokens of 24", cache.crop, cache, 30)
    cache:reorder(accel.tensor({ 1, 0 }, { dtype = "i64" }))
    local swapped = ids:index_select(1, accel.tensor({ 1, 0 }, { dtype = "i64" }))
    assert(worst(llama(swapped:narrow(2, 25, 3), cache), llama(swapped):narrow(2, 25, 3)) <= bar, kind)
    cache:expand(2)
    local four = swapped:repeat_interleave(2, 1)
    assert(worst(llama(four:narrow(2, 28, 3), cache), llama(four):narrow(2, 28, 3)) <= bar, kind)
    fails("made for a batch of 4, got 2 rows", llama.forward, llama, ids:narrow(2, 1, 1), cache)
    cache:reset()
    assert(cache.past == 0)
  end
end

do -- memory: int8 with a scale per token and head, narrower floats, growth by doubling
  local function bytes(kind, dtype) return llama:new_cache(1, 128, { implementation = kind, config = { dtype = dtype } }):nbytes() end
  local all = 2 * 2 * 2 * 128 * 8 -- layers, keys and values, heads, tokens, width
  assert(bytes "static" == 4 * all and bytes("static", "bf16") == 2 * all and bytes "quantized" == all + all // 8 * 4)
  local cache = llama:new_cache(1, 128, { implementation = "dynamic" })
  assert(cache:nbytes() == 0)
  llama(ids:narrow(1, 1, 1):narrow(2, 1, 3), cache)
  assert(cache:nbytes() == 2 * all)
  llama(ids:narrow(1, 1, 1):narrow(2, 1, 70), cache)
  assert(cache:nbytes() == 4 * all)
end

fails("unknown cache 'statik'", llama.new_cache, llama, 1, 8, { implementation = "statik" })
fails("has no sliding_window", llama.new_cache, llama, 1, 8, { implementation = "sliding_window" })
fails("unknown option 'dtyp'; did you mean 'dtype'", llama.new_cache, llama, 1, 8, { config = { dtyp = "bf16" } })
fails("'i64' is not a floating one", llama.new_cache, llama, 1, 8, { config = { dtype = "i64" } })
fails("nbits 4 is not supported", llama.new_cache, llama, 1, 8, { config = { nbits = 4 } })
