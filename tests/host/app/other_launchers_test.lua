-- Ranks that other launchers start, by their variables: Flux, JSM, Slurm with PMI2, and launchers that do not name the number of ranks. None
-- of them runs alone in silence.
local accel = require "accel"
local R, tmp = accel.process.program(), os.getenv "ACCEL_TEST_TMP"
local script = tmp .. "/w.lua"
assert(accel.write_file(script, [[
local accel = require "accel"
local dist = require "accel.dist"
local x = accel.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(x)
print(("rank %d of %d: sum %g by %s"):format(dist.get_rank(), dist.get_world_size(), x[1]:item(), dist.get_backend()))
]]))

-- A port that nobody has now.
local port = 20000 + math.random(20000)

-- Runs a process for each set of variables at once: outputs with errors, and whether all succeeded.
local function run(sets, more)
  port = port + 1
  local parts = {}
  for i, set in ipairs(sets) do
    parts[i] = ("(env -u RANK -u WORLD_SIZE -u ACCEL_WORLD MASTER_PORT=%d %s '%s' --num-threads 1 %s '%s' >'%s/out%d' 2>&1; echo $? >'%s/rc%d') &")
      :format(port, set, R, more or "", script, tmp, i, tmp, i)
  end
  os.execute(table.concat(parts, "\n") .. "\nwait")
  local out, ok = {}, true
  for i = 1, #sets do
    local file <close> = assert(io.open(("%s/out%d"):format(tmp, i)))
    local rc <close> = assert(io.open(("%s/rc%d"):format(tmp, i)))
    out[i] = file:read "a"
    ok = ok and rc:read "l" == "0"
  end
  return out, ok
end

local function works(set, more, expected)
  local out, ok = run({ set:gsub("@", "0"), (set:gsub("@", "1")) }, more)
  for i = 1, 2 do assert(ok and out[i]:find(("rank %d of 2: sum 3 by tcp"):format(i - 1), 1, true), out[1] .. out[2]) end
  for _, text in ipairs(expected or {}) do assert(out[1]:find(text, 1, true), out[1]) end
  return out
end

local function refused(set, ...)
  local out, ok = run { set }
  assert(not ok, out[1])
  for _, text in ipairs { ... } do assert(out[1]:find(text, 1, true), out[1]) end
end

works "FLUX_TASK_RANK=@ FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=@ FLUX_JOB_NNODES=1"
works("JSM_NAMESPACE_RANK=@ JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=@ JSM_NAMESPACE_LOCAL_SIZE=2", "--backend tcp")

-- srun --mpi=pmi2: by tcp if MPI's module does not load, which is said once
local pmi2 = "PMI_RANK=@ PMI_SIZE=2 SLURM_PROCID=@ SLURM_NTASKS=2 SLURM_LOCALID=@ SLURM_STEP_NUM_TASKS=2 "
  .. "SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2"
local out = works(pmi2, "--backend tcp")
assert(not (out[1] .. out[2]):find "warning", out[1])
local has_mpi = accel.features().mpi
if not has_mpi then
  out = works(pmi2, nil, { "srun --mpi=pmi2 starts ranks of MPI" })
  assert(not out[2]:find("pmi2", 1, true), out[2])
end

refused("PMIX_RANK=1 PMIX_NAMESPACE=prte", "PMIX_RANK=1", "PMIx", "WORLD_SIZE", "ACCEL_WORLD=none")
refused("PALS_RANKID=0", "PALS_RANKID=0", "the number of ranks is missing")
refused("ALPS_APP_PE=3", "ALPS_APP_PE=3")
refused("FLUX_TASK_RANK=0", "FLUX_TASK_RANK=0")
refused("JSM_NAMESPACE_RANK=0", "JSM_NAMESPACE_RANK=0")
refused("PMI_RANK=0", "PMI_RANK=0")
refused("FLUX_TASK_RANK=0 FLUX_JOB_SIZE=5 FLUX_JOB_NNODES=2", "5 ranks on 2 machines", "tasks-per-node")
refused("PMIX_RANK=x", "PMIX_RANK='x' is not a number")

-- one process of a step, and one that says so, are alone
for _, set in ipairs { "PMIX_RANK=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1", "PMIX_RANK=1 ACCEL_WORLD=none" } do
  local alone, ok = run { set }
  assert(ok and alone[1]:find "rank 0 of 1: sum 1", alone[1])
end
-- other variables count first
works "PMIX_RANK=@ RANK=@ WORLD_SIZE=2 LOCAL_RANK=@ LOCAL_WORLD_SIZE=2"
print "ranks of other launchers: right"
