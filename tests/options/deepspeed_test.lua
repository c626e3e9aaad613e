-- Every key of a DeepSpeed configuration (deepspeed/keys.lua): in every stage, with and without offloading, it changes a short training or
-- what ranks send, is named in the warning of keys without effect, or raises. Unknown keys raise in every section. A key that
-- is used needs a value here and an effect in one configuration at least. On two ranks, over sockets.
-- tier: slow
--   accel-run tests/options/deepspeed_test.lua [KEY]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local ranks = dofile(here .. "/../support/ranks.lua")
if ranks.start { 2, backend = "tcp", args = arg[1] and ("'%s'"):format(arg[1]) } then return end
local keys = require "accel.deepspeed.keys"
local observer = require "option_observer"
local A, dist = accel.accelerator, accel.dist
local ONLY <const> = arg[1]

local FOLDER <const> = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local said
function A.Accelerator:_warn(text) said[#said + 1] = text end -- luacheck: ignore 212

local function copied(value)
  if type(value) ~= "table" then return value end
  local out = {}
  for key, each in next, value do out[key] = copied(each) end
  return out
end

local function with(config, path, value)
  config = copied(config)
  local at, last = config, path:match "[^.]*$"
  for part in path:gmatch "([^.]*)%." do
    at[part] = type(at[part]) == "table" and at[part] or {}
    at = at[part]
  end
  at[last] = copied(value)
  return config
end

local function sent(after)
  local lines, last = {}, 0
  for _, r in ipairs(dist.records()) do
    if r.number > after then lines[#lines + 1] = ("%s %s %s %d"):format(r.kind, r.dtype, r.group == 0 and "all" or "group", r.count) end
    last = math.max(last, r.number)
  end
  return lines, last
end

local STEPS <const> = 3

--- {ok =, text =, notes =} of a short training.
local function train(config, how)
  said = {}
  local was, result = warn, nil
  warn = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121
  local ok, text = pcall(function()
    A.AcceleratorState._reset_state(true)
    local _, from = sent(math.maxinteger)
    local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = copied(config) } }
    if how.only_made then return "made" end
    accel.manual_seed(3)
    local net = accel.models.GPT2(accel.models.tiny.gpt2)
    local rows = accel.randint(0, 9, { 16, 8 })
    local optimizer = config.optimizer and A.DummyOptim(net:parameters()) or accel.optim.AdamW(net:parameters(), { lr = 0.01 })
    local given = { net, optimizer, accel.data.DataLoader(accel.data.TensorDataset(rows), { batch_size = 2 }) }
    if config.scheduler then given[4] = A.DummyScheduler(optimizer, 8, 2) end
    local m, o, loader, s = a:prepare(table.unpack(given))
    local seen = { losses = {}, rates = {}, norms = {}, scales = {} }
    local n = 0
    for batch in loader() do
      n = n + 1
      a:accumulate(m, function()
        local loss = m(batch[1], { labels = batch[1] })
        if type(loss) == "table" then loss = loss[1] end
        seen.losses[n] = loss:detach():float()
        a:backward(loss * (how.scale and how.scale[n] or 1))
        o:step()
        if s then s:step() end
        o:zero_grad()
      end)
      seen.rates[n], seen.norms[n] = o.param_groups[1].lr, a.deepspeed_engine_wrapped:get_global_grad_norm() or false
      seen.betas = o.param_groups[1].betas
      seen.scales[n] = a.scaler and a.scaler:get_scale() or false
      if n == STEPS then break end
    end
    seen.sent = sent(from)
    seen.tier = accel.offload.tier(m:parameters()[1])
    local tiers = {}
    for _, state in pairs(o.optimizer.state) do
      for _, t in pairs(type(state) == "table" and state or {}) do
        if accel.is_tensor(t) then tiers[accel.offload.tier(t) or "none"] = true end
      end
    end
    seen.tiers = tiers
    local whole, state = pcall(a.get_state_dict, a, m)
    seen.state = whole and state or tostring(state)
    result = seen
    return observer.text { n = 1, seen }
  end)
  warn = was -- luacheck: ignore 121
  return { ok = ok, text = ok and text or tostring(text), notes = table.concat(said, "\n"), seen = result }
end

-- ---- configurations in which keys are set ----
local function base(stage, more)
  local config = { zero_optimization = { stage = stage } }
  for path, value in next, more or {} do config = with(config, path, value) end
  return config
end
local Z <const> = "zero_optimization."
local THREE <const> = { [Z .. "stage3_param_persistence_threshold"] = 0 }
local function three(more)
  local all = copied(THREE)
  for key, value in next, more or {} do all[key] = value end
  return base(3, all)
end
local CONTEXTS <const> = {
  { "stage 0", base(0) }, { "stage 1", base(1) }, { "stage 2", base(2) }, { "stage 3", three() },
  { "optimizer in host memory", base(2, { [Z .. "offload_optimizer.device"] = "cpu" }) },
  { "all in host memory", three { [Z .. "offload_optimizer.device"] = "cpu", [Z .. "offload_param.device"] = "cpu" } },
  { "fp16", base(2, { ["fp16.enabled"] = true, ["fp16.initial_scale_power"] = 8 }) },
  { "optimizer and schedule", base(2, { ["optimizer.type"] = "AdamW", ["optimizer.params.lr"] = 0.01, ["scheduler.type"] = "WarmupLR",
    ["scheduler.params"] = { warmup_num_steps = 4, warmup_max_lr = 0.01 } }) },
}

--- Values of the keys that are used; a table with what else a key needs is { value, more = {path = value}, scale = of losses }.
local VALUES <const> = {
  train_batch_size = { 7 }, train_micro_batch_size_per_gpu = { 3 }, gradient_accumulation_steps = { 3 }, gradient_clipping = { 0.01 },
  ["zero_optimization.stage"] = { 3 }, ["zero_optimization.reduce_bucket_size"] = { 100 },
  ["zero_optimization.overlap_comm"] = { false }, ["zero_optimization.compute_grad_norm"] = { false },
  ["zero_optimization.stage3_param_persistence_threshold"] = { 3000 },
  ["zero_optimization.stage3_model_persistence_threshold"] = { 40, more = { [Z .. "stage3_param_persistence_threshold"] = 3000 } },
  ["zero_optimization.stage3_prefetch_bucket_size"] = { 0 },
  ["zero_optimization.stage3_gather_16bit_weights_on_model_save"] = { true },
  ["zero_optimization.stage3_gather_fp16_weights_on_model_save"] = { true },
  ["zero_optimization.zero_hpz_partition_size"] = { 2 }, ["zero_optimization.zero_quantized_weights"] = { true },
  ["zero_optimization.zero_quantized_gradients"] = { true },
  ["zero_optimization.leaf_module.classes"] = { { "GPT2MLP" } }, ["zero_optimization.sub_group_size"] = { 2048 },
  ["zero_optimization.offload_param.device"] = { "cpu" }, ["zero_optimization.offload_optimizer.device"] = { "cpu" },
  ["zero_optimization.offload_param.nvme_path"] = { FOLDER }, ["zero_optimization.offload_optimizer.nvme_path"] = { FOLDER },
  ["activation_checkpointing.cpu_checkpointing"] = { true },
  ["fp16.enabled"] = { true }, ["fp16.loss_scale"] = { 4 }, ["fp16.initial_scale_power"] = { 5 },
  ["fp16.loss_scale_window"] = { 1 }, ["fp16.hysteresis"] = { 1, scale = { 1e38 } },
  ["fp16.consecutive_hysteresis"] = { true, scale = { 1e38, 1, 1e38 } }, ["fp16.min_loss_scale"] = { 1024, scale = { 1e38, 1e38 } },
  ["bf16.enabled"] = { true },
  ["optimizer.type"] = { "SGD" }, ["optimizer.params"] = { { lr = 0.01, weight_decay = 0.5 } },
  ["scheduler.type"] = { "LRRangeTest" }, ["scheduler.params"] = { { warmup_num_steps = 3, warmup_max_lr = 0.3 } },
}

--- Keys whose effect is where things lie, or when: the test that sees it.
local ELSEWHERE <const> = {
  ["zero_optimization.overlap_comm"] = "tests/stdlib/deepspeed/cuts_test.lua",
  ["zero_optimization.sub_group_size"] = "tests/stdlib/offload/training_test.lua",
  ["zero_optimization.offload_optimizer.device"] = "tests/stdlib/offload/training_test.lua",
  ["zero_optimization.offload_optimizer.nvme_path"] = "tests/stdlib/offload/training_test.lua",
  ["zero_optimization.offload_param.nvme_path"] = "tests/stdlib/offload/training_test.lua",
  ["zero_optimization.stage3_param_persistence_threshold"] = "tests/stdlib/deepspeed/cuts_test.lua", -- ranks of one machine read
  ["zero_optimization.stage3_prefetch_bucket_size"] = "tests/stdlib/deepspeed/cuts_test.lua", -- each other's parts, and send nothing
  ["zero_optimization.zero_quantized_weights"] = "tests/stdlib/deepspeed/zeropp_test.lua",
  train_micro_batch_size_per_gpu = "tests/stdlib/deepspeed/config_test.lua",
  ["activation_checkpointing.cpu_checkpointing"] = "tests/stdlib/offload/activations_test.lua",
}

local failures, n = {}, { keys = 0, values = 0, effect = 0, warns = 0, raises = 0, refused = 0, elsewhere = 0 }
local function fail(...) failures[#failures + 1] = (...):format(select(2, ...)) end

local function other(plain)
  if type(plain) == "boolean" then return not plain end
  if plain == math.huge then return 10 end
  if type(plain) == "number" then return plain + 1 end
  if type(plain) == "string" then return plain .. "2" end
  if type(plain) == "table" then return { autotp_size = 2 } end
  return 1
end

--- The key by its last words, as warnings and errors name it.
local function names(text, path, value)
  if type(value) == "string" and text:find(value, 1, true) or text:find("%f[%w_]" .. path:match "^[^.]*" .. "%f[^%w_]") then return true end
  return text:find(path, 1, true) or text:find(path:match "[^.]*$", 1, true)
end

local function at(config, path)
  for part in path:gmatch "[^.]+" do config = type(config) == "table" and config[part] or nil end
  return config
end

local plain_of = {} -- the training of a context without the key

local function sweep_used(path, given)
  if not given then return fail("%s: is used, but has no value here", path) end
  local how, effects = { scale = given.scale }, 0
  for _, context in ipairs(CONTEXTS) do
    local config = context[2]
    if at(config, path) == given[1] then goto continue end
    for key, value in next, given.more or {} do config = with(config, key, value) end
    local plain = not given.more and not given.scale
    local before = plain and plain_of[context] or train(config, how)
    if plain then plain_of[context] = before end
    local after = train(with(config, path, given[1]), how)
    n.values = n.values + 1
    if not before.ok then fail("%s: the plain training of '%s' raises: %s", path, context[1], before.text)
    elseif not after.ok then
      n.raises = n.raises + 1
      effects = effects + 1
      if not names(after.text, path, given[1]) then fail("%s: in '%s' the error does not name it: %s", path, context[1], after.text) end
    elseif after.text ~= before.text then
      n.effect, effects = n.effect + 1, effects + 1
    elseif after.notes:find(path, 1, true) and not before.notes:find(path, 1, true) then n.warns = n.warns + 1
    elseif ELSEWHERE[path] then n.elsewhere = n.elsewhere + 1
    else fail("%s: SILENT in '%s'", path, context[1]) end
    ::continue::
  end
  if effects == 0 and not ELSEWHERE[path] then fail("%s: has an effect nowhere", path) end
end

local MADE <const> = { only_made = true }

local function sweep(known, prefix)
  local list = {}
  for key in next, known do list[#list + 1] = key end
  table.sort(list)
  local unknown = train(with(base(2), prefix .. "zzzz", 1), MADE)
  if unknown.ok or not unknown.text:find("'" .. prefix .. "zzzz' is not a key", 1, true) then fail("%szzzz: an unknown key is taken", prefix) end
  n.refused = n.refused + 1
  for _, key in ipairs(list) do
    local entry, path = known[key], prefix .. key
    local leaf = entry == keys.used or entry.use or entry.why or entry.needs
    if not leaf then sweep(entry, path .. ".")
    elseif not ONLY or ONLY == path then
      n.keys = n.keys + 1
      if entry == keys.used or entry.needs then sweep_used(path, VALUES[path])
      else
        local got = train(with(base(2), path, other(entry.plain)), MADE)
        n.values = n.values + 1
        if entry.use then
          n.raises = n.raises + 1
          if got.ok or not got.text:find(path, 1, true) then fail("%s: is not refused: %s", path, got.text) end
        else
          n.warns = n.warns + 1
          if not got.ok then fail("%s: raises: %s", path, got.text)
          elseif not got.notes:find(path, 1, true) then fail("%s: SILENT: %s", path, got.notes) end
        end
      end
    end
  end
end

for path, file in next, ELSEWHERE do
  local handle <close> = assert(io.open(here .. "/../../" .. file, "rb"))
  local text, name = handle:read "a", path:match "[^.]*$"
  if not text:find(name, 1, true) and not text:find(path:match "offload_.*" and path:match "(offload_.*)":gsub("%.", "_") or name, 1, true) then
    fail("%s: %s does not speak of it", path, file)
  end
end
sweep(keys.known, "")
table.sort(failures)
if ranks.rank == 0 then
  print(("deepspeed: %d keys, %d values: %d effects, %d warn, %d raise; %d sections refuse unknown keys"):format(n.keys, n.values, n.effect,
    n.warns, n.raises, n.refused))
end
assert(#failures == 0, table.concat(failures, "\n"))
