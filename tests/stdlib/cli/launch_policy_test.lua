-- accel-run launch --policy: a policy is asked before every attempt, is told what the last one died of, and what it plans is what runs;
-- the examples in examples/launch do what they say.
--   accel-run tests/stdlib/cli/launch_policy_test.lua
local accel = require "accel"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/policy-"))
local source = assert(os.getenv "ACCEL_TEST_SRC" or arg[0]:match "^(.*)/tests/")
local R = accel.process.program()

local function run(args)
  local pipe = assert(io.popen(("cd '%s' && env -i PATH=/usr/bin:/bin ACCEL_DEVICE=cpu HOME='%s' '%s' %s 2>&1"):format(root, root, R, args)))
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
local batch = tonumber(os.getenv "BATCH")
print("batch", batch, os.getenv "ACCELERATE_MIXED_PRECISION", table.concat(arg, " "))
accel.zeros(batch * 1024 * 1024)
print "trained"
]])
local policy = source .. "/examples/launch/policy.lua"
local text, status = run(("launch --policy '%s' --memory-limit 100M train.lua a b"):format(policy))
assert(status == 0, text)
has(text, "batch\t64\tno\ta b")
has(text, "attempt 1 ended with status 1 (out_of_memory)")
has(text, "batch\t16")
has(text, "trained")
assert(not text:find("batch\t8", 1, true), text)

-- It ends the job where it plans nothing more; the status is that of the last attempt.
write("broken.lua", "error 'no memory is not the matter'")
text, status = run(("launch --policy '%s' broken.lua"):format(policy))
assert(status == 1, text)
assert(not text:find("attempt 2", 1, true), text)

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
