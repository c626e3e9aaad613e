-- Context parallelism (a ring, or all keys at once) and sequence parallelism by exchanged heads: losses of 10 steps are those of one
-- rank, also with tensor parallelism and, by heads, with dropout; buffers are parts inside the scope and whole behind it; attention of
-- scripts takes part; what is wrong is said.
--   accel-run tests/stdlib/parallel/context_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local ring = require "accel.parallel.ring"
local A, R = accel.accelerator, ranks.rank

-- kind, ranks of it, family, how keys travel, tp, dropout
local cases = {
  { "cp", 2, "gpt2", "allgather", 1, 0 }, { "cp", 4, "gpt2", "alltoall", 1, 0 }, { "cp", 2, "llama", "alltoall", 2, 0 },
  { "cp", 4, "llama", "allgather", 1, 0 }, { "sp", 2, "gpt2", "-", 1, 0.2 }, { "sp", 2, "llama", "-", 1, 0 },
  { "sp", 4, "gpt2", "-", 1, 0.2 }, { "sp", 2, "gpt2", "-", 2, 0 },
}

local function train(case, alone)
  local kind, n, family, comm, tp, p = table.unpack(case)
  local a = accel.Accelerator { parallelism_config = not alone and accel.ParallelismConfig {
    [kind .. "_size"] = n, tp_size = tp, cp_handler = kind == "cp" and A.TorchContextParallelConfig { cp_comm_strategy = comm } or nil,
  } or nil }
  accel.manual_seed(3)
  local model = family == "gpt2" and accel.models.GPT2 { vocab_size = 33, n_positions = 16, n_embd = 16, n_layer = 2, n_head = 4,
      resid_pdrop = p, embd_pdrop = p, attn_pdrop = p }
    or accel.models.Llama { vocab_size = 33, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2,
      num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 16 }
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  model, optimizer = a:prepare(model, optimizer)
  for step = 1, 10 do
    local ids = accel.randint(0, 33, { 4, 16 }, { generator = accel.Generator(step) })
    local labels = accel.cat({ ids:narrow(2, 2, 15), ids:narrow(2, 1, 1) }, 2)
    local before = ids:tolist()
    accel.micro_batch(0)
    local loss
    do
      local _ <close> = a:maybe_context_parallel { buffers = { ids, labels }, buffer_seq_dims = { 2, 2 },
        no_restore_buffers = { labels } }
      assert(ids.shape[2] == (alone and 16 or 16 // n))
      loss = model(ids, { shift_labels = labels })
      a:backward(loss)
    end
    ranks.same(ids:tolist(), before, "ids behind the scope")
    assert(labels.shape[2] == (alone and 16 or 16 // n))
    optimizer:step()
    optimizer:zero_grad()
    local mean = a:reduce(loss:detach(), "mean")
    if R == 0 then print(("loss %.9g"):format(mean:item())) end
  end
end

local function numbers(text)
  local list = {}
  for x in text:gmatch "loss (%S+)" do list[#list + 1] = tonumber(x) end
  return list
end

if not ranks.launched then
  if arg[1] then return train(cases[tonumber(arg[1])], true) end
  local take = ranks.sample.one_of(3)
  for i, case in ipairs(cases) do
    if take() then
      local one = numbers(ranks.run(nil, { args = tostring(i), capture = true }))
      local many = numbers(ranks.run(case[2] * case[5], { args = tostring(i), capture = true }))
      assert(#one == 10 and #many == 10)
      for k, want in ipairs(one) do
        assert(math.abs(many[k] - want) <= 1e-5 * want, ("case %d, step %d: %.9g, on one rank %.9g"):format(i, k, many[k], want))
      end
    end
  end
  ranks.run(4, { args = "ring" })
  return
end
if arg[1] ~= "ring" then return train(cases[tonumber(arg[1])]) end

-- ---- the ring against attention of the whole: values and gradients, both ways, both layouts, grouped heads, f64 ----
local P = ranks.size
local axis = accel.parallel.init_device_mesh("cpu", { P }, { mesh_dim_names = { "cp" } }):axis "cp"
local g = accel.Generator(4)
local q, k, v = accel.randn(2, 4, 16, 8, { generator = g, dtype = "f64" }), accel.randn(2, 2, 16, 8, { generator = g, dtype = "f64" }),
  accel.randn(2, 2, 16, 8, { generator = g, dtype = "f64" })
local dy = accel.randn(2, 4, 16, 8, { generator = g, dtype = "f64" })
local function part(t, chunks)
  local c = 16 // (P * chunks)
  local first = t:narrow(3, R * c + 1, c)
  if chunks == 1 then return first:clone() end
  return accel.cat({ first, t:narrow(3, (2 * P - 1 - R) * c + 1, c) }, 3)
end
for _, causal in ipairs { true, false } do
  local whole = {}
  for i, t in ipairs { q, k, v } do whole[i] = t:clone():requires_grad_(true) end
  local want = accel.scaled_dot_product_attention(whole[1], whole[2], whole[3], { is_causal = causal, enable_gqa = true })
  want:backward(dy)
  for chunks = 1, 2 do
    for _, gather in ipairs { true, false } do
      local own = {}
      for i, t in ipairs { q, k, v } do own[i] = part(t, chunks):requires_grad_(true) end
      local y = ring(own[1], own[2], own[3], axis, { is_causal = causal, gather = gather, chunks = chunks })
      ranks.close(y:detach(), part(want:detach(), chunks), "ring", 1e-12)
      y:backward(part(dy, chunks))
      for i = 1, 3 do ranks.close(own[i].grad, part(whole[i].grad, chunks), "gradient " .. i, 1e-12) end
    end
  end
end

local a = accel.Accelerator { parallelism_config = accel.ParallelismConfig { cp_size = 4 } }
local function scope(o, fn) return function() return a:maybe_context_parallel(o, fn or function() end) end end
do -- a script's own attention, and the order of positions
  local t, at = q:to "f32", accel.arange(16)
  local want = accel.scaled_dot_product_attention(t, t, t, { is_causal = true })
  local x = t:clone()
  a:maybe_context_parallel({ buffers = { x, at }, buffer_seq_dims = { 3, 1 } }, function()
    local y = accel.scaled_dot_product_attention(x, x, x, { is_causal = true })
    ranks.close(y, want:index_select(3, at), "attention of a script", 1e-5)
    for form, fn in accel.pairs { -- all forms of the op
      by_position = function() return accel.scaled_dot_product_attention(x, x, x, nil, 0.0, true) end,
      both = function() return accel.scaled_dot_product_attention(x, x, x, nil, { is_causal = true }) end,
      method = function() return x:scaled_dot_product_attention(x, x, nil, 0, true) end,
      functional = function() return accel.nn.functional.scaled_dot_product_attention(x, x, x, { is_causal = true }) end,
    } do ranks.same(fn(), y, form) end
    ranks.same(accel.scaled_dot_product_attention(x, x, x), accel.scaled_dot_product_attention(x, x, x, { is_causal = false }), "no options")
    ranks.fails("unknown option 'causal'", accel.scaled_dot_product_attention, x, x, x, { causal = true })
    ranks.fails("alibi_slopes is not supported in context parallelism", accel.scaled_dot_product_attention, x, x, x,
      { alibi_slopes = accel.ones(4) })
    ranks.same(require("accel.parallel.context").positions(4, "cpu"), at, "positions")
  end)
  ranks.same(at, accel.arange(16), "buffers behind the scope")
  assert(x.shape[3] == 16)
end
ranks.fails("a sequence of 6 does not divide by 4", scope { buffers = { accel.ones(2, 6) }, buffer_seq_dims = { 2 } })
ranks.fails("1 buffers, but 2 buffer_seq_dims", scope { buffers = { accel.ones(2, 8) }, buffer_seq_dims = { 2, 1 } })
ranks.fails("a scope is under way already", scope({}, scope {}))
ranks.fails("only causal masks work", scope({}, function()
  accel.scaled_dot_product_attention(q, q, q, { attn_mask = accel.ones(16, 16) })
end))
ranks.fails("shift labels before they are cut", scope({}, function()
  local ids = accel.ones(1, 4, { dtype = "i64" })
  accel.models.Llama(accel.models.tiny.llama)(ids, { labels = ids })
end))
