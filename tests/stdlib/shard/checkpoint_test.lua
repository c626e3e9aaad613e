-- Checkpoints of sharded models: what N ranks store under one stage or strategy M ranks load under any other, and what these
-- store again is the same, bit for bit: two models in one prepare, tied and frozen parameters, buffers, an optimizer each and one
-- with nested state; as SHARDED, FULL and LOCAL_STATE_DICT; and training goes on as if nobody had stopped.
--   accel-run tests/stdlib/shard/checkpoint_test.lua
-- tier: sampled
-- parts: onto1 onto2 onto3a onto3b onto4a onto4b
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, optim, ckpt = accel.nn, accel.optim, require "accel.ckpt"
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/shard_checkpoint"

--- Of all ways: those onto so many ranks, or every second one of them.
local ONTO <const>, HALF <const> = (os.getenv "ACCEL_TEST_PART" or ""):match "^onto(%d)([ab]?)$"
local WAYS <const> = { "ddp", "zero0", "zero1", "zero2", "zero3", "SHARD_GRAD_OP", "NO_SHARD", "fsdp2", "full", "local" }

if not ranks.launched then
  local digests = {}
  os.execute(("rm -rf '%s'; mkdir -p '%s'"):format(tmp, tmp))
  for n = 1, 4 do
    for way, digest in ranks.run(n, { args = "save", capture = true }):gmatch "digest (%S+) (%x+)" do
      digests[("%d %s"):format(n, way)] = digest
    end
  end
  local taken, many, all = ranks.sample.one_of(40), 0, 0
  for m = tonumber(ONTO) or 1, tonumber(ONTO) or 4 do
    local list = {}
    for n = 1, 4 do
      for _, from in ipairs(WAYS) do
        for _, to in ipairs(WAYS) do
          if from ~= "local" or to == "local" and n == m then
            all = all + 1
            local in_part = (HALF or "") == "" or (HALF == "a") == (all % 2 == 0)
            if in_part and taken() then list[#list + 1] = ("%d:%s:%s"):format(n, from, to) end
          end
        end
      end
    end
    local out = ranks.run(m, { args = "load " .. table.concat(list, " "), capture = true })
    for _, word in ipairs(list) do
      local n, from = word:match "(%d):(%w+)"
      from = word:match "^%d:([%w_]+):"
      local digest = out:match("digest " .. word:gsub("%p", "%%%0") .. " (%x+)")
      assert(digest == digests[n .. " " .. from], ("%s on %d: %s, not %s"):format(word, m, digest, digests[n .. " " .. from]))
      many = many + 1
    end
  end
  ranks.run(3, { args = "refuse" })
  local merged = tmp .. "/merged" -- weights for everybody
  local exe = accel.process.program()
  assert(os.execute(("'%s' merge-weights '%s/2-zero3' '%s' >'%s/out'"):format(exe, tmp, merged, tmp)))
  local whole = accel.load(merged .. "/model.safetensors")
  local c <close> = assert(ckpt.open(tmp .. "/3-full"))
  local one = accel.load(tmp .. "/3-full/model.safetensors")
  for name, t in accel.pairs(whole) do assert(accel.equal(t:isfinite(), one[name]:isfinite()) and #t.shape == #one[name].shape) end
  assert(#c:tensors "model" == 8)
  print(("%d of %d ways from N ranks to M"):format(many, 16 * 91 - 12))
  assert(ONTO or all == 16 * 91 - 12)
  return
end

local Net = nn.Module:extend "Net"
function Net:init()
  self.embed, self.norm = nn.Embedding(37, 24), nn.BatchNorm1d(24)
  self.mid, self.head = nn.Linear(24, 24), nn.Linear(24, 37, { bias = false })
  self.head.weight = self.embed.weight
  self.mid.bias:requires_grad_(false)
end
function Net:forward(x) return self.head(self.norm(self.mid(self.embed(x))):tanh()) end

--- An optimizer that is not one of accel's, with state as deep as it likes.
local Nested = optim.Optimizer:extend "Nested"
Nested.defaults, Nested.counts = { lr = 0.1 }, false
function Nested:make_state(p)
  return { a = accel.zeros_like(p), deep = { b = accel.zeros_like(p), words = { "x", 7 }, { c = accel.zeros_like(p) } } }
end
function Nested:update(_, step_group, grads, lr)
  for i, p in ipairs(step_group.params) do
    local state = self.state[p]
    state.a:add_(grads[i])
    state.deep.b:copy_(state.a):mul_(0.5)
    state.deep[1].c:add_(grads[i]:abs())
    p:sub_(grads[i] * lr)
  end
end
local function load_nested(to, from)
  for key, value in accel.pairs(to) do
    if accel.is_tensor(value) then value:copy_(from[key]) elseif type(value) == "table" then load_nested(value, from[key]) end
  end
end
function Nested:load_state_dict(dict) -- as users write it
  local own = self:state_dict()
  for g, group in ipairs(self.param_groups) do
    for i, p in ipairs(group.params) do
      local saved = dict.state[own.param_groups[g].params[i]]
      if saved then
        self.state[p] = self:make_state(p)
        load_nested(self.state[p], saved)
      end
    end
    self._private[group] = { step_groups = {}, pending = {} }
    self._private[group].step_groups[1] = #group.params > 0 and { params = table.move(group.params, 1, #group.params, 1, {}) } or nil
  end
end

local function build(way)
  accel.accelerator.AcceleratorState._reset_state(true)
  local o = { gradient_accumulation_steps = 2 }
  local fsdp = { auto_wrap_policy = "SIZE_BASED_WRAP", min_num_params = 100, state_dict_type = "SHARDED_STATE_DICT" }
  if way:find "^zero" then o.deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = math.tointeger(way:match "%d"),
    gradient_clipping = 0, zero3_save_16bit_model = true }
  elseif way ~= "ddp" then
    if way == "full" then fsdp.state_dict_type = "FULL_STATE_DICT"
    elseif way == "local" then fsdp.state_dict_type = "LOCAL_STATE_DICT"
    elseif way == "fsdp2" then fsdp.fsdp_version = 2
    else fsdp.sharding_strategy = way end
    o.fsdp_plugin = accel.FullyShardedDataParallelPlugin(fsdp)
  end
  local a = accel.Accelerator(o)
  local one, two = Net(), nn.Sequential(nn.Conv2d(1, 5, 3), nn.Flatten(), nn.Linear(20, 3))
  local adam = optim.AdamW({ { params = one.embed:parameters(), lr = 0.01 },
    { params = { one.mid.weight, one.norm.weight, one.norm.bias }, weight_decay = 0 } })
  local nested = Nested(two:parameters())
  local m1, m2, o1, o2 = a:prepare(one, two, adam, nested)
  return a, { m1, m2 }, { o1, o2 }
end

--- n updates of 2 micro-batches from batch `from`; a last one that is not complete.
local function train(a, models, optimizers, from, n)
  for k = from, from + n - 1 do
    local _ <close> = a:accumulate(models[1], models[2])
    local g = accel.Generator(k * 16 + a.process_index)
    local loss = models[1](accel.randint(0, 37, { 4 }, { generator = g })):pow(2):mean()
      + models[2](accel.randn(2, 1, 4, 4, { generator = g })):pow(2):mean()
    a:backward(loss)
    for _, optimizer in ipairs(optimizers) do
      optimizer:step()
      optimizer:zero_grad()
    end
  end
end

--- FNV-1a of a checkpoint's tensors and of what its optimizers hold beside them.
local function digest(path)
  local c <close> = assert(ckpt.open(path))
  assert(c:verify())
  local h = 0xcbf29ce484222325
  local function add(bytes)
    for i = 1, #bytes do h = (h ~ bytes:byte(i)) * 0x100000001b3 end
  end
  for _, object in ipairs { "model", "model_1", "optimizer", "optimizer_1" } do
    local list = assert(c:tensors(object))
    table.sort(list, function(x, y) return x.name < y.name end)
    for _, s in ipairs(list) do
      local t = accel.empty(s.shape, { dtype = s.dtype })
      assert(c:read(object, s.name, t))
      add(("%s %s %s"):format(object, s.name, table.concat(s.shape, ",")))
      add(t:to_bytes())
    end
    local plain = c:bytes(object .. ".bin")
    if plain then add(accel.json.encode(accel.decode(plain).groups)) end
  end
  return ("%016x"):format(h)
end

--- What of a model in LOCAL_STATE_DICT can be compared: weights under their names.
local function say(word, a, path, models)
  local state = a:get_state_dict(models[1])
  a:wait_for_everyone()
  if not a.is_main_process then return end
  if word:find "^local" or word:find "^%d:local" then
    local h = 0
    for name, t in pairs(state) do
      for char in (name .. t:contiguous():to_bytes()):gmatch "." do h = (h ~ char:byte()) * 0x100000001b3 end
    end
    print(("digest %s %016x"):format(word, h))
  else
    print(("digest %s %s"):format(word, digest(path)))
  end
end

if arg[1] == "save" then
  local inside = ranks.sample.one_of(4)
  for _, way in ipairs(WAYS) do
    accel.manual_seed(3)
    local a, models, optimizers = build(way)
    train(a, models, optimizers, 1, 6)
    local path = ("%s/%d-%s"):format(tmp, ranks.size, way)
    a:save_state(path)
    say(way, a, path, models)
    if not inside() then goto next end
    -- inside of an update, and on from there
    train(a, models, optimizers, 7, 1)
    a:save_state(path .. "-inside")
    train(a, models, optimizers, 8, 3)
    a:save_state(path .. "-whole")
    a:load_state(path .. "-inside")
    train(a, models, optimizers, 8, 3)
    a:save_state(path .. "-again")
    if a.is_main_process and way ~= "local" then assert(digest(path .. "-whole") == digest(path .. "-again"), way) end
    ::next::
  end
  return
end

if arg[1] == "refuse" then -- memory as it lies, for others
  local path = tmp .. "/2-local"
  local a = build "zero3"
  ranks.fails("model: it was saved with LOCAL_STATE_DICT, sharded over 2 ranks, but now there are 3; save with state_dict_type SHARDED_STATE_DICT",
    a.load_state, a, path)
  a = build "ddp"
  ranks.fails("it was saved with LOCAL_STATE_DICT, in shards of 2 ranks, but the model is not sharded", a.load_state, a, path)
  a = build "zero3"
  ranks.fails("unit 0 is sharded differently", a.load_state, a, tmp .. "/3-local")
  return
end

for i = 2, #arg do
  local n, from, to = arg[i]:match "(%d):([%w_]+):([%w_]+)"
  accel.manual_seed(4)
  local a, models, optimizers = build(to)
  local path = ("%s/%s-%s"):format(tmp, n, from)
  a:load_state(path)
  local again = ("%s/again-%d"):format(tmp, ranks.size)
  a:save_state(again)
  if to == "local" and from ~= "local" then -- its own files are compared as others see them
    accel.manual_seed(5)
    a, models, optimizers = build "local"
    a:load_state(again)
    a.fsdp_plugin:set_state_dict_type "SHARDED_STATE_DICT"
    a:save_state(again)
  end
  say(arg[i], a, again, models)
end
