-- accel-run launch --policy: a policy is asked before every attempt, is told what the last one died of, and what it plans is what runs;
-- the examples in examples/launch do what they say.
--   accel-run tests/stdlib/cli/launch_policy_test.lua
local accel = require "accel"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/policy-"))
local source = assert(os.getenv "ACCEL_TEST_SRC" or arg[0]:match "^(.*)/tests/")
local R = accel.process.program()

local function run(args)
  local command = ("cd '%s' && env -i PATH=/usr/bin:/bin ACCEL_DEVICE=cpu TMPDIR='%s' HOME='%s' '%s' %s 2>&1"):format(root, root, root, R, args)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  local _, _, status = pipe:close()
  return text, status
end

local function write(name, text)
  local file <close> = assert(io.open(root .. "/" .. name, "w"))
  file:write(text)
end

local function has(text, part) assert(text:find(part, 1, true), ("lacks %q:\n%s"):format(part, text)) end

-- Fails for lack of memory until the batch is small enough.
write("train.lua", [[
local accel = require "accel"
local batch = tonumber(arg[#arg])
print("batch", batch, os.getenv "ACCELERATE_MIXED_PRECISION", table.concat(arg, " "))
accel.zeros(batch * 1024 * 1024)
print "trained"
]])
local policy = source .. "/examples/launch/policy.lua"
local text, status = run(("launch --policy '%s' --memory-limit 100M train.lua a b"):format(policy))
assert(status == 0, text)
has(text, "batch\t64\tno\ta b --batch 64")
has(text, "attempt 1 ended with status 1 (out_of_memory)")
has(text, "batch\t16")
has(text, "trained")
assert(not text:find("batch\t8", 1, true), text)

-- It ends the job where it plans nothing more; the status is that of the last attempt.
write("broken.lua", "error 'no memory is not the matter'")
text, status = run(("launch --policy '%s' broken.lua"):format(policy))
assert(status == 1, text)
assert(not text:find("attempt 2", 1, true), text)

-- Its logs: those of an attempt that failed stay where its message names them, those of others go, and so do those of a killed launch.
local function folders()
  local out = {}
  for _, name in ipairs(accel.listdir(root)) do
    if name:find "^accel%-launch%-" then out[#out + 1] = name end
  end
  return out
end
write("twice.lua", "return function(m) if m.attempt < 2 then return { num_processes = 2, cpu = true, args = { '' .. m.attempt } } end end")
write("second.lua", "if arg[#arg] == '0' then print 'the first try' error 'on purpose' end print 'well'")
for _, name in ipairs(folders()) do os.execute(("rm -r '%s/%s'"):format(root, name)) end
text, status = run "launch --policy twice.lua second.lua"
assert(status == 0 and #folders() == 1, text)
local named = assert(text:match "see ([^\n]-/rank_%d%.log)", text)
local log <close> = assert(io.open(named))
has(log:read "a", "on purpose")
write("slow.lua", "local t = os.time() while os.time() < t + 20 do end")
write("kill.sh", ("cd '%s' || exit 1\nenv -i PATH=/usr/bin:/bin ACCEL_DEVICE=cpu TMPDIR=. HOME=. '%s' launch --policy twice.lua slow.lua &\n"
  .. "n=0\nwhile [ $(ls -d accel-launch-*/rank_1.log | wc -l) -lt 2 ] && [ $n -lt 400 ]; do sleep 0.05; n=$((n+1)); done\n"
  .. "kill -9 $!\nwait $!\n"):format(root, R))
os.execute(("sh '%s/kill.sh' 2>/dev/null"):format(root))
assert(#folders() == 2, text)
text, status = run "launch --policy twice.lua second.lua"
assert(status == 0 and #folders() == 2, text) -- the killed one's went, and this one's first attempt failed

-- What is planned is typed like flags; flags count more.
write("p.lua", "return function(m) if m.attempt > 0 then return end\n"
  .. "return { num_processes = 2, mixed_precision = 'bf16', args = { 'c' }, cpu = true } end")
write("s.lua", "print(os.getenv 'RANK', os.getenv 'WORLD_SIZE', os.getenv 'ACCELERATE_MIXED_PRECISION', table.concat(arg, ' '))")
text, status = run "launch --policy p.lua --mixed_precision fp16 s.lua a"
assert(status == 0, text)
has(text, "1\t2\tfp16\ta c")
write("bad.lua", "return function() return { num_proceses = 2 } end")
text, status = run "launch --policy bad.lua s.lua"
assert(status == 2, text)
has(text, "bad.lua: a plan has no 'num_proceses'; did you mean 'num_processes'?")
write("bad.lua", "return function() return { num_processes = 'many' } end")
has(run "launch --policy bad.lua s.lua", "bad.lua: num_processes must be a whole number, got many")
write("bad.lua", "return function() os.execute 'touch x' end")
text, status = run "launch --policy bad.lua s.lua"
assert(status == 2, text)
has(text, "attempt to index a nil value (global 'os')")
-- Variables that name programs, libraries or files are refused, before anything runs; others must be allowed by name.
local function env(names, flags)
  write("bad.lua", "return function(m) if m.attempt > 0 then return end\nreturn { cpu = true, env = { " .. names .. " } } end")
  return run(("launch --policy bad.lua %s env.lua"):format(flags or ""))
end
write("env.lua", "for _, name in ipairs { 'MINE', 'ACCEL_SEED', 'OMP_NUM_THREADS' } do print(name, os.getenv(name)) end")
for _, name in ipairs { "LD_PRELOAD", "LD_LIBRARY_PATH", "LUA_INIT", "LUA_PATH", "PATH", "ACCEL_COMPILE_CC", "ACCEL_DEVICE_MODULES", "ACCEL_NCCL",
  "NCCL_NET_PLUGIN", "CUDA_INJECTION64_PATH", "OMPI_MCA_mca_base_component_path", "ACCEL_INSECURE", "MINE" } do
  text, status = env(name .. " = 'x'")
  assert(status == 2, text)
  has(text, ("bad.lua: env.%s is not a variable that a policy may set; allow it with --policy_env %s"):format(name, name))
  assert(not text:find("ACCEL_SEED", 1, true), text)
end
text, status = env("['A=B; id'] = 'x'")
assert(status == 2, text)
has(text, "env: 'A=B; id' is not the name of a variable")
text, status = env("MINE = 3, ACCEL_SEED = 7, OMP_NUM_THREADS = 1", "--policy_env OTHER,MINE")
assert(status == 0, text)
has(text, "MINE\t3")
has(text, "ACCEL_SEED\t7")
has(text, "OMP_NUM_THREADS\t1")

write("none.lua", "return function() end")
text, status = run "launch --policy none.lua s.lua"
assert(status == 2, text)
has(text, "plans nothing")

-- A machine that fails is left out, and the job ends on the rest. ssh runs its command here; one of its machines is dead.
assert(accel.makedirs(root .. "/bin"))
write("bin/ssh", "#!/bin/sh\nshift 2\n[ $1 = m1 ] && exit 255\nshift\nexec sh -c \"$*\"\n")
assert(os.execute(("chmod +x '%s/bin/ssh' && cd '%s/bin' && ln -s $(command -v sh) $(command -v env) ."):format(root, root)))
write("hosts", "m0 slots=1\nm1 slots=1\nm2 slots=1\n")
write("ds.yaml", "distributed_type: DEEPSPEED\nnum_machines: 3\nnum_processes: 3\nmain_process_ip: 127.0.0.1\nmain_process_port: "
  .. 20000 + math.random(20000) .. "\ndeepspeed_config:\n  zero_stage: 2\n  deepspeed_hostfile: hosts\n")
write("drop.lua", [[
return function(machine)
  if machine.attempt > 1 then return nil end
  return { deepspeed_exclusion_filter = machine.last and machine.last.machine }
end]])
write("w.lua", "local a = require('accel').Accelerator() print('rank', a.process_index, a.num_processes)")
do
  local pipe = assert(io.popen(("cd '%s' && env -i PATH='%s/bin' PWD='%s' ACCEL_DEVICE=cpu HOME='%s' '%s' %s 2>&1"):format(root, root,
    root, root, R, "launch --policy drop.lua --config_file ds.yaml w.lua")))
  local said = pipe:read "a"
  local _, _, ended = pipe:close()
  assert(ended == 0, said)
  has(said, "machine 1 (m1) ended with status 255")
  has(said, "rank\t0\t2")
  has(said, "rank\t1\t2")
end

-- A configuration in Lua is one like others.
local example = source .. "/examples/launch/accel.lua"
text, status = run(("launch --config_file '%s' s.lua"):format(example))
assert(status == 0, text)
has(text, "1\t2\tbf16")
write("accel.lua", "return { distributed_type = 'NO', num_proceses = 1 }")
has(run "config validate", "accel.lua: unknown key 'num_proceses'; did you mean 'num_processes'?")
write("accel.lua", "while true do end")
has(run "config validate", "accel.lua ran longer than its time")
print "ok"
