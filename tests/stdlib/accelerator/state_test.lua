-- PartialState and AcceleratorState: facts, resets, precision, what the environment says; on 1 and 3 ranks.
--   accel-run tests/stdlib/accelerator/state_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, dist = accel.accelerator, accel.dist
local PartialState, AcceleratorState = A.PartialState, A.AcceleratorState

if ranks.start { 1, 3 } then return end
local R, P, says = ranks.rank, ranks.size, ranks.fails

local function read(state, key) return function() return state[key] end end

assert(not AcceleratorState.initialized)
says("there is no Accelerator yet", AcceleratorState)

local s = PartialState()
assert(s.initialized and s.device == "cpu" and s.num_processes == P and s.process_index == R)
assert(s.local_process_index == R and s.is_main_process == (R == 0) and s.is_local_main_process == (R == 0))
assert(s.is_last_process == (R == P - 1) and s.use_distributed == (P > 1))
assert(s.distributed_type == (P > 1 and "MULTI_CPU" or "NO") and s.backend == dist.get_backend())
assert(s.debug == false and s.fork_launched == false)
assert(tostring(s):find(("process %d of %d"):format(R, P), 1, true))
says("no attribute 'num_proceses'; did you mean 'num_processes'?", read(s, "num_proceses"))

do -- one set of facts, whoever looks
  local other = PartialState()
  other.device = "meta"
  assert(s.device == "meta")
  says("cannot become 'cpu'", PartialState, true)
  says("cannot become 'cpu'", PartialState, { cpu = true })
  s:set_device()
  assert(other.device == "cpu")
end

do -- reset
  PartialState._reset_state()
  assert(not s.initialized and tostring(s) == "PartialState(reset)")
  says("after its reset", read(s, "device"))
  says("after its reset", read(s, "is_main_process"))
  says("no attribute 'devise'", read(s, "devise"))
  assert(PartialState().device == "cpu" and s.device == "cpu", "an old view sees the new state")
end

do -- precision
  local a = AcceleratorState { mixed_precision = "bf16", _from_accelerator = true }
  assert(a.initialized and a.mixed_precision == "bf16" and a.num_processes == P and a.is_main_process == (R == 0))
  assert(AcceleratorState().mixed_precision == "bf16")
  assert(AcceleratorState("bf16").mixed_precision == "bf16", "the same again is fine")
  says("'bf16' since the first Accelerator, and cannot become 'no'", AcceleratorState, "no")
  says("mixed_precision must be one of no, fp16, bf16", AcceleratorState, "fp17")
  says("'bf16' since the first Accelerator, and cannot become 'fp8'", AcceleratorState, "fp8")
  assert(a.deepspeed_plugin == nil and a.parallelism_config == nil)
  says("no attribute 'mixed_precison'", read(a, "mixed_precison"))
  AcceleratorState._reset_state()
  says("after its reset", read(a, "mixed_precision"))
  assert(a.device == "cpu" and not a.initialized, "PartialState stays")
  AcceleratorState._reset_state(true)
  says("after its reset", read(a, "device"))
end

do -- plugins, as Accelerate's state has them, until it is reset
  local plugin = accel.FullyShardedDataParallelPlugin {}
  local a = accel.Accelerator { fsdp_plugin = plugin }
  assert(a.state.fsdp_plugin == plugin and AcceleratorState().fsdp_plugin == plugin and a.state.megatron_lm_plugin == nil)
  AcceleratorState._reset_state(true)
  assert(a.state.fsdp_plugin == nil)
end

do -- environment
  A.patch_environment({ ACCELERATE_MIXED_PRECISION = "FP16", ACCELERATE_DEBUG_MODE = "yes" }, function()
    local a = AcceleratorState { _from_accelerator = true }
    assert(a.mixed_precision == "fp16" and a.debug == true)
    AcceleratorState._reset_state(true)
    assert(AcceleratorState { mixed_precision = "no", _from_accelerator = true }.mixed_precision == "no", "given wins")
    AcceleratorState._reset_state(true)
  end)
  A.patch_environment({ ACCELERATE_MIXED_PRECISION = "bf61" }, function()
    says("did you mean 'bf16'?", AcceleratorState, { _from_accelerator = true })
  end)
  A.patch_environment({ ACCELERATE_MIXED_PRECISION = "fp8" }, function()
    assert(AcceleratorState { _from_accelerator = true }.mixed_precision == "fp8")
    AcceleratorState._reset_state(true)
  end)
  A.patch_environment({ ACCELERATE_TORCH_DEVICE = "cuda" }, function() says("no such device", PartialState) end)
  A.patch_environment({ ACCELERATE_TORCH_DEVICE = "meta" }, function()
    assert(PartialState().device == "meta")
    PartialState._reset_state()
    A.patch_environment({ ACCELERATE_USE_CPU = 1 }, function() assert(PartialState().device == "cpu") end)
    PartialState._reset_state()
    assert(PartialState(true).device == "cpu")
    PartialState._reset_state()
  end)
end

do -- joining the world
  assert(PartialState({ timeout = 77 }).num_processes == P and dist.get_timeout() == 77)
  PartialState._reset_state()
  AcceleratorState { init_handler = A.InitProcessGroupKwargs { timeout = 78 }, _from_accelerator = true }
  assert(dist.get_timeout() == 78)
  says("unknown option 'time_out'", PartialState, { time_out = 1 })
end
