-- Checkpoints that DeepSpeed wrote (make_deepspeed.py): accel-run merge-weights makes of them what DeepSpeed's own zero_to_fp32.py does, from
-- the folder of a run and of a step, with tied, frozen and buffer tensors; what is missing is said in one line.
-- tier: every change, memory
--   accel-run tests/stdlib/ckpt/deepspeed_test.lua
local accel = require "accel"
local deepspeed = require "accel.ckpt.deepspeed"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local here = ranks.tests .. "stdlib/ckpt/deepspeed"
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/deepspeed-"))

local function merge(dir, status)
  local pipe = assert(io.popen(("'%s' merge-weights '%s' '%s/out' 2>&1"):format(accel.process.program(), dir, root)))
  local text = pipe:read "a"
  local _, _, code = pipe:close()
  assert(code == status, text)
  return text
end

for _, stage in ipairs { 2, 3 } do
  local dir = ("%s/stage%d"):format(here, stage)
  local want = assert(accel.load(dir .. "/expected.safetensors"))
  for _, folder in ipairs { dir, dir .. "/global_step3" } do
    assert(deepspeed.is(folder) and not deepspeed.is(here))
    merge(folder, 0)
    local got, n = assert(accel.load(root .. "/out/model.safetensors")), 0
    for name, t in pairs(want) do
      n = n + 1
      assert(got[name] and accel.equal(got[name]:to "f32", t:to "f32"), name) -- zero_to_fp32.py makes floats of counters
    end
    assert(n == 13 and got["bn.num_batches_tracked"].dtype == "i64")
  end
end

do -- stage 0 beside fused kernels: one flat master and state for each group, made here of what the others keep
  local model = assert(accel.load(here .. "/stage0_bf16/global_step3/mp_rank_00_model_states.pt"))
  local names, shapes = { { "emb.weight", "a.weight", "b.weight" }, { "a.bias", "bn.weight", "bn.bias", "b.bias" } }, {}
  for name, t in pairs(model.module) do shapes[name] = t.shape end
  local stage0 = require "accel.ckpt.deepspeed_stage0"
  local want, inner = stage0.optimizer(model, names, shapes), model.optimizer.optimizer_state_dict
  local flat = { optimizer_state_dict = { state = {}, param_groups = inner.param_groups }, fp32_groups_flat = {} }
  for g, group in ipairs(inner.param_groups) do
    local function cat(of)
      local list = {}
      for k, index in ipairs(group.params) do list[k] = of(index, k):reshape(-1) end
      return accel.cat(list, 1)
    end
    flat.fp32_groups_flat[g] = cat(function(_, k) return model.optimizer.fp32_groups[g][k] end)
    flat.optimizer_state_dict.state[g - 1] = { step = inner.state[0].step }
    for _, key in ipairs { "exp_avg", "exp_avg_sq" } do
      flat.optimizer_state_dict.state[g - 1][key] = cat(function(index) return inner.state[index][key] end)
    end
  end
  model.optimizer = flat
  local got = stage0.optimizer(model, names, shapes)
  for _, group in ipairs(names) do
    for _, name in ipairs(group) do
      assert(got.steps[name] == 4 and want.steps[name] == 4)
      assert(accel.equal(got.masters[name].read(), want.masters[name].read()))
      for _, key in ipairs { "exp_avg", "exp_avg_sq" } do
        assert(accel.equal(got.states[key][name].read(), want.states[key][name].read()))
      end
    end
  end
  table.remove(names[2])
  ranks.fails("parameter group 1: 33 elements are stored", stage0.optimizer, model, names, shapes)
end

-- names that DeepSpeed's files need, with other arguments than theirs
for _, name in ipairs(accel.listdir(here .. "/refuse")) do
  local t, message = accel.load(here .. "/refuse/" .. name)
  assert(t == nil and message:find("rule arguments", 1, true), name .. ": " .. tostring(message))
end

-- a rank's file is missing; a folder without a step
local step = here .. "/stage3/global_step3"
os.execute(("mkdir -p '%s/part' && cp '%s'/zero_pp_rank_0* '%s/zero_pp_rank_1_mp_rank_00_model_states.pt' '%s/part'"):format(root, step,
  step, root))
os.execute(("cd '%s/part' && mv zero_pp_rank_0_mp_rank_00_optim_states.pt zero_pp_rank_1_mp_rank_00_optim_states.pt"):format(root))
assert(merge(root .. "/part", 1):find("it has files of 1 ranks, but none of rank 0", 1, true))
assert(not deepspeed.is(root))
os.execute(("rm -rf '%s'"):format(root))
print "ok"
