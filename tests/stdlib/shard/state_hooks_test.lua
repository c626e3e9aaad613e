-- State-dict hooks of modules on sharded models: they see and change whole states, on every way that parameters lie, as those of a model that
-- is not sharded do.
--   accel-run tests/stdlib/shard/state_hooks_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2 } then return end
local nn = accel.nn
local FSDP = nn.parallel.FullyShardedDataParallel
local leaves = { kind = "lambda", fn = function(m) return #m:children() == 0 and #m:parameters() > 0 end }

do -- state-dict hooks see and change whole states, as those of a model that is not sharded
  local function make()
    accel.manual_seed(2)
    local m = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6))
    local seen = {}
    m[1]:register_state_dict_pre_hook(function(_, prefix) seen[#seen + 1] = "pre " .. prefix end)
    m[1]:register_state_dict_post_hook(function(_, state, prefix)
      seen[#seen + 1] = "post " .. prefix
      state[prefix .. "extra"] = state[prefix .. "weight"]:sum()
    end)
    m:register_state_dict_post_hook(function(_, state, prefix)
      seen[#seen + 1] = "root " .. prefix
      state[prefix .. "2.bias"] = nil
    end)
    m:register_load_state_dict_pre_hook(function(_, state, prefix)
      seen[#seen + 1] = "load"
      state[prefix .. "0.extra"], state[prefix .. "2.bias"] = nil, accel.full({ 6 }, 3.0)
    end)
    m:register_load_state_dict_post_hook(function(_, result) seen[#seen + 1] = "loaded " .. #result.missing_keys end)
    return m, seen
  end
  for _, case in ipairs { { true, 3 }, { false, 3 }, { false, 2 } } do
    local share, stage = table.unpack(case)
    local plain, want = make()
    local module, got = make()
    local model = FSDP(module, { auto_wrap_policy = leaves, share_memory = share, zero_stage = stage })
    local a, b = plain:state_dict "p.", model:state_dict "p."
    for name, t in pairs(a) do assert(b[name] and accel.equal(t, b[name]), name) end
    for name in pairs(b) do assert(a[name] or name == "p.2.bias", name) end
    local state = {}
    for name, t in pairs(plain:state_dict()) do state[name] = t end
    model:state_dict()
    plain:load_state_dict(state)
    model:load_state_dict(state)
    assert(model:state_dict()["0.extra"]:item() == plain:state_dict()["0.extra"]:item())
    local _ <close> = model:summon_full_params { writeback = false }
    assert(model.module[3].bias:min():item() == 3 and plain[3].bias:max():item() == 3)
    for i, word in ipairs(want) do assert(got[i] == word, ("%s, not %s"):format(tostring(got[i]), word)) end
  end
end
