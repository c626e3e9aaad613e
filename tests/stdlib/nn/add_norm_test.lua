--- Norms of a sum: nn.LayerNorm and nn.RMSNorm given a residual, and the blocks that use it: every bit is that of an
--- addition and a norm, norms that are watched or replaced are called with the sum.
local accel = require "accel"
local passes = 0 -- norms take these ops when they are loaded
for _, op in ipairs { "add_layer_norm", "add_rms_norm" } do
  local real = accel[op]
  accel[op] = function(...)
    passes = passes + 1
    return real(...)
  end
end
local add_norm = require "accel.nn.add_norm"
local nn = accel.nn
local models = accel.models

accel.manual_seed(5)
local x, r = accel.randn(3, 4, 8), accel.randn(3, 4, 8)
for _, norm in ipairs { nn.LayerNorm(8), nn.RMSNorm(8), nn.LayerNorm({ 4, 8 }, { bias = false }),
  nn.RMSNorm(8, { elementwise_affine = false }) } do
  for _, p in ipairs(norm:parameters()) do accel.no_grad(p.normal_, p) end
  local y, sum, more = norm(x, r)
  assert(more == nil and accel.equal(sum, r + x) and accel.equal(y, norm(r + x)))
  assert(select("#", norm(x)) == 1)

  -- one pass; hooks see what they would see without it, and may replace y
  local leaf = x:clone():requires_grad_()
  local z = add_norm(norm, leaf, r)
  assert(tostring(z.grad_fn):find "add_", tostring(z.grad_fn))
  local seen
  local hook = norm:register_forward_hook(function(_, args, out)
    seen = args
    return out * 2
  end)
  z, sum = add_norm(norm, x, r)
  assert(seen.n == 1 and accel.equal(seen[1], r + x) and accel.equal(sum, r + x) and accel.equal(z, y * 2))
  hook:remove()
end

-- other modules in the place of a norm
local Own, Called = nn.LayerNorm:extend "Own", nn.LayerNorm:extend "Called"
function Own:forward(t) return nn.LayerNorm.forward(self, t) + 1 end
function Called.__call(self, t) return nn.LayerNorm.__call(self, t) + 1 end
for _, norm in ipairs { Own(8), Called(8), nn.Identity() } do
  local y, sum = add_norm(norm, x, r)
  assert(accel.equal(y, norm(r + x)) and accel.equal(sum, r + x))
end

-- a branch that is taken out: its output replaced by nothing, by a mean
for _, norm in ipairs { nn.LayerNorm(8), nn.RMSNorm(8) } do
  for _, branch in ipairs { 0, x[1][1], x:mean({ 1, 2 }, true), x[1]:unsqueeze(1) } do
    for _, stream in ipairs { r, r:narrow(1, 1, 1):narrow(2, 1, 1) } do
      local y, sum = add_norm(norm, branch, stream)
      assert(accel.equal(sum, stream + branch) and accel.equal(y, norm(stream + branch)))
    end
  end
end

--- Outputs and gradients, as a list.
local function outcome(model, run)
  model:zero_grad()
  accel.manual_seed(4)
  local loss = run(model):sin():sum()
  loss:backward()
  local out = { loss:detach() }
  for _, p in ipairs(model:parameters()) do out[#out + 1] = p.grad or false end
  return out
end

local ids = accel.tensor { { 1, 2, 3, 4 }, { 5, 6, 7, 0 } }
local function of_ids(m) return (m(ids)) end
local function of_images(m)
  local c = m.config
  return (m(accel.randn({ 2, c.num_channels, c.image_size, c.image_size }, { dtype = m:parameters()[1].dtype })))
end
local function of_rows(m) return m(accel.randn({ 5, 2, 8 }, { dtype = m:parameters()[1].dtype })) end
local function of_two(m)
  local o = { dtype = m:parameters()[1].dtype }
  return m(accel.randn({ 5, 2, 8 }, o), accel.randn({ 3, 2, 8 }, o))
end
local function encoder(first) return nn.TransformerEncoderLayer(8, 2, { dim_feedforward = 6, norm_first = first }) end
local function decoder(first) return nn.TransformerDecoderLayer(8, 2, { dim_feedforward = 6, norm_first = first }) end
local tiny = models.tiny
local cases = {
  -- passes: of every layer
  { models.GPT2(tiny.gpt2), of_ids, tiny.gpt2.n_layer }, { models.Llama(tiny.llama), of_ids, tiny.llama.num_hidden_layers },
  { models.MixtralForCausalLM(tiny.mixtral), of_ids, tiny.mixtral.num_hidden_layers },
  { models.BertForMaskedLM(tiny.bert), of_ids, 2 * tiny.bert.num_hidden_layers },
  { models.ViTForImageClassification(tiny.vit), of_images, tiny.vit.num_hidden_layers },
  { encoder(false), of_rows, 2 }, { encoder(true), of_rows, 1 }, { decoder(false), of_two, 3 }, { decoder(true), of_two, 2 },
}
for _, case in ipairs(cases) do
  local model, run, n_passes = table.unpack(case)
  for _, dtype in ipairs { "f32", "f64" } do
    model:to(dtype)
    passes = 0
    local got = outcome(model, run)
    assert(passes == n_passes, ("%s: %d norms of a sum in one pass"):format(tostring(model):match "%w+", passes))
    local calls, hooks = 0, {} -- a watched norm is called with a sum
    model:apply(function(m)
      if not m.forward or (m.forward ~= nn.LayerNorm.forward and m.forward ~= nn.RMSNorm.forward) then return end
      hooks[#hooks + 1] = m:register_forward_hook(function(_, args)
        assert(args.n == 1)
        calls = calls + 1
      end)
    end)
    passes = 0
    local want = outcome(model, run)
    assert(passes == 0 and calls == #hooks and calls > 1 and #want == #got)
    for i, w in ipairs(want) do
      local what = ("%s, %s: value %d differs"):format(tostring(model):match "%w+", dtype, i)
      assert(got[i] == w or accel.equal(got[i], w), what)
    end
    for _, h in ipairs(hooks) do h:remove() end
  end
end
