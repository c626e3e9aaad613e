-- Trains the golden models of a reference folder for ten steps in f64, f32 and bf16 autocast and compares losses, gradient norms, first
-- logits and final weights with PyTorch's (see README.md here for the bars).
--   accel-run tests/reference/golden.lua DIR [--only MODEL] [--verbose]
-- Ends with "N passed, M failed, K skipped"; exit status 1 if anything failed.
local accel = require "accel"
local nn, optim = accel.nn, accel.optim

local dir, only, verbose
do
  local i = 1
  while arg[i] do
    if arg[i] == "--only" then only, i = arg[i + 1], i + 1
    elseif arg[i] == "--verbose" then verbose = true
    else dir = arg[i] end
    i = i + 1
  end
end
if not dir then
  io.stderr:write("usage: accel-run tests/reference/golden.lua DIR [--only MODEL] [--verbose]\n")
  os.exit(2)
end
local function exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end
if not exists(dir .. "/golden.json") and exists(dir .. "/golden/golden.json") then dir = dir .. "/golden" end

-- The cases there are. A folder without them counts as one failure, in the same last line as any other.
local function read_cases(path)
  local f, why = io.open(path, "rb")
  local s = f and f:read "a"
  if f then f:close() end
  local ok, decoded, message = pcall(accel.json.decode, s or "")
  if s and ok and type(decoded) == "table" then return decoded end
  if s then why = path .. ": " .. tostring(decoded or message) end
  print(("FAIL %s: no reference results here (%s)"):format(dir, why))
  print "0 passed, 1 failed, 0 skipped"
  os.exit(1, true)
end

-- ---- models: every width comes from the weights ----
local MLP = nn.Module:extend("MLP")
function MLP:init(w)
  for _, name in ipairs { "fc1", "fc2", "out" } do
    local s = w[name .. ".weight"].shape
    self[name] = nn.Linear(s[2], s[1])
  end
end
function MLP:forward(x) return self.out(self.fc2(self.fc1(x):tanh()):relu()) end

local Block = nn.Module:extend("Block")
function Block:init(w, prefix, heads, kv)
  self.heads, self.kv = heads, kv
  for _, name in ipairs { "q", "k", "v", "o", "gate", "up", "down" } do
    local s = w[prefix .. name .. ".weight"].shape
    self[name] = nn.Linear(s[2], s[1], { bias = false })
  end
  for _, name in ipairs { "norm1", "norm2" } do
    self[name] = nn.RMSNorm(w[prefix .. name .. ".weight"].shape[1], { eps = 1e-5 })
  end
end
function Block:forward(x)
  local B, T, C = table.unpack(x.shape)
  local hd = C // self.heads
  local h = self.norm1(x)
  local q = self.q(h):view(B, T, self.heads, hd):transpose(2, 3):rope()
  local k = self.k(h):view(B, T, self.kv, hd):transpose(2, 3):rope()
  local v = self.v(h):view(B, T, self.kv, hd):transpose(2, 3)
  local y = accel.scaled_dot_product_attention(q, k, v, { is_causal = true, enable_gqa = true })
  x = x + self.o(y:transpose(2, 3):reshape(B, T, C))
  h = self.norm2(x)
  return x + self.down(self.gate(h):silu() * self.up(h))
end

local Llama = nn.Module:extend("Llama")
function Llama:init(w)
  local s = w["emb.weight"].shape
  self.emb = nn.Embedding(s[1], s[2])
  local layers, i = {}, 0
  while w["layers." .. i .. ".q.weight"] do
    layers[#layers + 1] = Block(w, "layers." .. i .. ".", 4, 2)
    i = i + 1
  end
  self.layers = nn.ModuleList(layers)
  self.norm = nn.RMSNorm(s[2], { eps = 1e-5 })
  self.head = nn.Linear(s[2], w["head.weight"].shape[1], { bias = false })
end
function Llama:forward(x)
  x = self.emb(x)
  for _, block in ipairs(self.layers) do x = block(x) end
  return self.head(self.norm(x))
end

local function gpt2(w)
  local layers = 0
  while w[("transformer.h.%d.ln_1.weight"):format(layers)] do layers = layers + 1 end
  local s = w["transformer.wte.weight"].shape
  return accel.models.GPT2 {
    vocab_size = s[1], n_embd = s[2], n_positions = w["transformer.wpe.weight"].shape[1], n_layer = layers, n_head = 4,
    resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0,
  }
end

local CNN = nn.Module:extend("CNN")
function CNN:init(w)
  local a, b = w["conv1.weight"].shape, w["conv2.weight"].shape
  self.conv1 = nn.Conv2d(a[2], a[1], 3, { padding = 1 })
  self.bn1 = nn.BatchNorm2d(a[1])
  self.conv2 = nn.Conv2d(b[2], b[1], 3, { stride = 2, padding = 1, bias = false })
  self.gn = nn.GroupNorm(4, b[1])
  self.fc = nn.Linear(w["fc.weight"].shape[2], w["fc.weight"].shape[1])
end
function CNN:forward(x)
  x = self.bn1(self.conv1(x)):relu()
  x = self.gn(self.conv2(x)):silu():max_pool2d(2)
  return self.fc(x:flatten(2))
end

local models = { mlp = MLP, llama = Llama, gpt2 = gpt2, cnn = CNN }

-- ---- the run ----
local function weights(data, prefix)
  local w = {}
  for name, t in accel.pairs(data) do
    if name:sub(1, #prefix) == prefix then w[name:sub(#prefix + 1)] = t end
  end
  return w
end

local function max_error(got, want)
  local d = (got:detach():to("f64") - want:to("f64")):abs():max():item()
  return d / math.max(want:to("f64"):abs():max():item(), 1e-30)
end

local function train(make, data, rec, mode, want_final)
  local w = weights(data, "init/")
  local model = make(w)
  local dtype = mode == "f64" and "f64" or "f32"
  local state = {}
  for k, t in accel.pairs(w) do state[k] = t:to(dtype) end
  for k, source in accel.pairs(rec.tied or {}) do state[k] = state[source] end
  model:to(dtype)
  model:load_state_dict(state)
  model:train()
  local options = {}
  for k, v in accel.pairs(rec.options) do options[k] = v end
  local opt = optim[rec.optimizer](model:parameters(), options)
  local losses, norms, logits = {}, {}, nil
  local i, moved = 0, {}
  while data["batch" .. i .. "/x"] do
    local x, y = data["batch" .. i .. "/x"], data["batch" .. i .. "/y"]
    if x.dtype ~= "i64" then x = x:to(dtype) end
    local loss
    do
      local _ <close> = accel.autocast { device = "cpu", dtype = "bf16", enabled = mode == "bf16" }
      local z = model(x)
      if type(z) == "table" then z = z.logits or z[1] end
      if i == 0 then logits = z end
      if #z.shape == 3 then z = z:reshape(-1, z.shape[3]) end
      loss = accel.cross_entropy(z, y:reshape(-1))
    end
    loss:backward()
    local clip = rec.clip_grad_norm
    if clip == accel.json.null then clip = nil end
    local norm = nn.utils.clip_grad_norm_(model:parameters(), clip or math.huge)
    if want_final then
      for name, p in model:named_parameters() do
        moved[name] = moved[name] or p.grad:abs():max():item() > 1e-13 * norm:item()
      end
    end
    opt:step()
    opt:zero_grad()
    losses[#losses + 1], norms[#norms + 1] = loss:item(), norm:item()
    i = i + 1
  end
  -- A bias in front of a batch norm has no gradient but rounding noise, which AdamW divides by its eps of 1e-8: where
  -- it ends is known to 1e-8, PyTorch's own repetition being 3e-9 off, and with it the running mean behind it.
  local noisy = false
  for name in model:named_parameters() do noisy = noisy or (want_final and not moved[name]) end
  return losses, norms, logits, want_final and model:state_dict(), noisy
end

-- Largest of the errors; NaN is an infinite one (math.max would pass over it).
local function largest(a, b, error_of)
  local worst = #a == #b and 0.0 or math.huge
  for i = 1, #b do
    local e = error_of(a[i], b[i])
    worst = e == e and math.max(worst, e) or math.huge
  end
  return worst
end
local function relative(a, b) return largest(a, b, function(x, y) return math.abs(x - y) / math.abs(y) end) end
local function absolute(a, b) return largest(a, b, function(x, y) return math.abs(x - y) end) end

local passed, failed, skipped = 0, 0, 0
local function verdict(label, err, bar)
  if err <= bar then
    passed = passed + 1
    if verbose then print(("ok   %s: %.3g (bar %.3g)"):format(label, err, bar)) end
  else
    failed = failed + 1
    print(("FAIL %s: error %.3g, bar %.3g"):format(label, err, bar))
  end
end

local golden = read_cases(dir .. "/golden.json")
for name, rec in accel.pairs(golden) do
  if not only or name == only then
    local make = models[name]
    if not make then
      skipped = skipped + 1
      if verbose then print(("skip %s: its layers do not exist here"):format(name)) end
    else
      local data = assert(accel.load(dir .. "/" .. name .. ".safetensors"))
      for _, mode in ipairs { "f64", "f32", "bf16" } do
        local ok, losses, norms, logits, final, noisy = pcall(train, make, data, rec, mode, mode == "f64")
        if not ok then
          failed = failed + 1
          print(("FAIL %s %s: %s"):format(name, mode, tostring(losses)))
        elseif mode == "bf16" then
          local own = math.max(absolute(rec.loss_bf16, rec.loss_f64), 1e-3 / 3)
          verdict(name .. " bf16 losses", absolute(losses, rec.loss_f64), 3 * own)
        else
          local bar = mode == "f64" and 1e-9 or 1e-5
          verdict(("%s %s losses"):format(name, mode), relative(losses, rec["loss_" .. mode]), bar)
          verdict(("%s %s gradient norms"):format(name, mode), relative(norms, rec["grad_norm_" .. mode]), mode == "f64" and 1e-9 or 1e-5)
          if mode == "f64" then
            verdict(name .. " f64 first logits", max_error(logits, data.logits64), 1e-9)
            local worst = 0.0
            for k, t in accel.pairs(weights(data, "final64/")) do
              local e = max_error(final[k], t)
              worst = e == e and math.max(worst, e) or math.huge
            end
            verdict(name .. " f64 final weights", worst, noisy and 1e-8 or 1e-9)
          end
        end
      end
    end
  end
end
print(("%d passed, %d failed, %d skipped"):format(passed, failed, skipped))
if failed > 0 then os.exit(1, true) end
