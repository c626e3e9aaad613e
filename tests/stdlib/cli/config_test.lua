-- accel-run config, launch, to-fsdp2 and the refused tpu-config: what they write, show and refuse; the order of sources; where the ranks end up.
--   accel-run tests/stdlib/cli/config_test.lua
local accel = require "accel"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/config-"))
local R = accel.process.program()
local CLEAN <const> = "env -i PATH=/usr/bin:/bin ACCEL_DEVICE=cpu HOME='" .. root .. "/home' "

local function run(args, before, env)
  local pipe = assert(io.popen(("cd '%s' && %s %s %s '%s' %s 2>&1"):format(root, before or "", CLEAN, env or "", R, args)))
  local text = pipe:read "a"
  local _, _, status = pipe:close()
  return text, status
end

local function gives(args, status, ...)
  local text, got = run(args)
  assert(got == status, ("%s: status %d, wanted %d\n%s"):format(args, got, status, text))
  for _, part in ipairs { ... } do assert(text:find(part, 1, true), ("%s: lacks %q:\n%s"):format(args, part, text)) end
  return text
end

local function write(name, text)
  local file <close> = assert(io.open(root .. "/" .. name, "w"))
  file:write(text)
end

local function read(name)
  local file <close> = assert(io.open(root .. "/" .. name, "r"))
  return file:read "a"
end

write("s.lua", [[
print(os.getenv "RANK", os.getenv "ACCELERATE_MIXED_PRECISION", os.getenv "FSDP_VERSION", os.getenv "WORLD_SIZE", table.concat(arg, " "))
]])

-- default: never over a file; the user's place; JSON by its name.
gives("config default --mixed_precision bf16", 0, "home/.config/accel/config.yaml")
gives("config default", 1, "exists")
gives("config default --config_file a.json", 0)
assert(accel.json.decode(read "a.json").distributed_type ~= nil)
gives("config default --mixed_precision fp12", 2, "fp12")
assert(read("home/.config/accel/config.yaml"):find("mixed_precision: bf16", 1, true))

-- The order of sources, each with its place: flag, environment, --config_file, project, user, default.
write("f.yaml", "distributed_type: 'NO'\nnum_processes: 1\nmachine_rank: 0\n")
write("accel.yaml", "distributed_type: 'NO'\ndebug: true\n")
local text, status = run("config show --origin --config_file f.yaml --max_restarts 2 --gpu_ids 0,1", nil, "ACCELERATE_MIXED_PRECISION=fp16")
assert(status == 0, text)
for _, part in ipairs { "gpu_ids: '?0,1'?%s+# flag: %-%-gpu_ids", "mixed_precision: fp16%s+# environment: ACCELERATE_MIXED_PRECISION",
  "num_processes: 1%s+# f.yaml:2", "debug: true%s+# accel.yaml:2", "use_cpu: %a+%s+# ~/.config/accel/config.yaml:%d+",
  "fsdp_version: 1%s+# default" } do
  assert(text:find(part), part .. "\n" .. text)
end
for line in text:gmatch "[^\n]+" do assert(#line <= 200) end
assert(not run("config show --diff --config_file f.yaml"):find("fsdp_version", 1, true))
text = run("config show --origin --main_process_ip " .. ("long."):rep(12) .. "example --config_file f.yaml")
assert(text:find "\nmain_process_ip: [%w.]+example\n  # flag: %-%-main_process_ip\n", text)
text, status = run("config show", nil, "FSDP_VERSION=seven")
assert(status == 1 and text:find("FSDP_VERSION=seven in the environment must be a whole number", 1, true), text)
write("accel.json", "{}")
gives("config show", 1, "accel.yaml and accel.json: keep one")
os.remove(root .. "/accel.json")
os.remove(root .. "/accel.yaml")

-- validate: all faults, in the order of lines; what has no effect.
write("w.yaml", "distributed_type: 'NO'\nnum_proceses: 1\nfsdp_config:\n  fsdp_version: two\n")
gives("config validate w.yaml", 1, "w.yaml:2: unknown key 'num_proceses'; did you mean 'num_processes'?", "w.yaml:4: fsdp_version must be")
write("e.yaml", "distributed_type: 'NO'\nfsdp_config:\n  fsdp_offload_params: true\n")
gives("config validate e.yaml", 1, "e.yaml:3: fsdp_offload_params has no effect here: it is for FSDP")
gives("config validate f.yaml", 0, "f.yaml: right")
gives("config validate nowhere.yaml", 1, "nowhere.yaml")
gives("config frob", 2, "unknown action 'frob'")

-- update: an old file in today's words.
write("old.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nfp16: true\nnum_processes: 2\n")
gives("config update --config_file old.yaml", 0)
assert(read("old.yaml"):find("mixed_precision: fp16", 1, true) and not read("old.yaml"):find("fp16: true", 1, true))

-- Questions: plain typing, numbers of choices, going back, a wrong answer asked again, the end of input.
local function answers(name, ...)
  write("in.txt", table.concat({ ... }, "\n") .. "\n")
  return run("config --config_file " .. name .. " < in.txt")
end
gives("config --yes --config_file q0.yaml", 0)
gives("config validate q0.yaml", 0)
text = answers("q1.yaml", "FSDP", "yes", "<", "no", "x", "4", "", "", "2", "yes", "no", "0", "Block", "", "", "", "bf16", "")
assert(text:find("that is not a whole number", 1, true), text)
assert(read("q1.yaml"):find("distributed_type: FSDP", 1, true) and read("q1.yaml"):find("mixed_precision: bf16", 1, true), read "q1.yaml")
gives("config validate q1.yaml", 0)
text, status = answers("q2.yaml", "NO")
assert(status == 1 and text:find("nothing was written", 1, true), text)

-- launch: flags, files, ranks; what cannot be is one line.
write("two.yaml", "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n")
text = gives("launch --config_file two.yaml s.lua --lr 0.1", 0, "bf16")
assert(text:find "0\tbf16\t2\t2\t%-%-lr 0.1" and text:find "1\tbf16\t2\t2\t%-%-lr 0.1", text)
assert(gives("--config_file two.yaml --num-processes 1 --seed 3 s.lua a", 0):find "bf16\t2\t.-\ta")
gives("launch --cpu s.lua", 0, "nil")

-- A launch begins anew in its own process, with the variables of its plan; several ranks are that process's children.
write("pid.lua", "print('pid ' .. assert(io.open '/proc/self/stat'):read 'n', "
  .. "os.getenv 'ACCELERATE_MIXED_PRECISION', package.loaded['accel.config.plan'])")
write("one.yaml", "distributed_type: 'NO'\nnum_processes: 1\nmixed_precision: bf16\nuse_cpu: true\n")
for _, line in ipairs { "--config_file one.yaml pid.lua", "launch --config_file one.yaml pid.lua" } do
  local pipe = assert(io.popen(("cd '%s' && %s sh -c 'echo shell $$; exec \"%s\" %s' 2>&1"):format(root, CLEAN, R, line)))
  local said = pipe:read "a"
  assert(pipe:close(), said)
  assert(said:match "shell (%d+)" == said:match "pid (%d+)\tbf16\tnil", said)
end
write("ppid.lua", "print('parent ' .. (assert(io.open '/proc/self/stat'):read 'a'):match '^%d+ %b() %a (%d+)')")
do
  local pipe = assert(io.popen(("cd '%s' && %s sh -c 'echo shell $$; exec \"%s\" --config_file two.yaml ppid.lua' 2>&1"):format(root, CLEAN, R)))
  local said = pipe:read "a"
  assert(pipe:close(), said)
  local shell, n = said:match "shell (%d+)", 0
  for parent in said:gmatch "parent (%d+)" do
    assert(parent == shell, said)
    n = n + 1
  end
  assert(n == 2, said)
end
gives("launch --config_file w.yaml s.lua", 2, "w.yaml:2: unknown key 'num_proceses'")
gives("launch --num_proceses 2 s.lua", 2, "did you mean '--num-processes'")
gives("launch --tpu s.lua", 2, "accel has no TPU backend")
write("dynamo.lua", "print(require 'accel'.Accelerator().dynamo_plugin.backend)")
gives("launch --dynamo_backend inductor --cpu dynamo.lua", 0, "INDUCTOR")
gives("launch", 2, "no script given")
write("fails.lua", "os.exit(7)")
gives("launch --cpu fails.lua", 7)
gives("launch --help", 0, "--num-processes N", "--help=fsdp")
gives("launch --help=fsdp", 0, "--fsdp-version")
for line in gives("launch --help=all", 0):gmatch "[^\n]+" do assert(#line <= 80, line) end

-- Several machines of a hostfile, by an ssh, or a pdsh, that runs the command here. PATH has nothing else that could.
assert(accel.makedirs(root .. "/bin"))
local function remote(name, text)
  write("bin/" .. name, text)
  assert(os.execute(("chmod +x '%s/bin/%s'"):format(root, name)))
end
for _, name in ipairs { "sh", "env" } do
  assert(os.execute(("ln -s $(command -v %s) '%s/bin/%s'"):format(name, root, name)))
end
local by = "PATH='" .. root .. "/bin' PWD='" .. root .. "'"
write("hosts", "# machines\nm0 slots=1\nm1 slots=1\nm2 slots=1\n")
write("ds.yaml", "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 2\nmain_process_ip: 127.0.0.1\nmain_process_port: "
  .. 20000 + math.random(20000) .. "\ndeepspeed_config:\n  zero_stage: 2\n  deepspeed_hostfile: hosts\n  deepspeed_exclusion_filter: m1\n")
local by_hosts, ended
for _, program in ipairs { "ssh", "pdsh" } do
  write("w.lua", "local a = require('accel').Accelerator()\n"
    .. "print(a.process_index, a.num_processes, os.getenv 'ACCELERATE_DEEPSPEED_ZERO_STAGE', arg[1])")
  remote(program, program == "ssh" and "#!/bin/sh\nshift 2\necho \"on $1\" >&2\nshift\nexec sh -c \"$*\"\n"
    or "#!/bin/sh\n[ \"$1 $2\" = '-S -w' ] || exit 3\necho \"on pdsh $3\" >&2\nshift 3\nexec sh -c \"$*\"\n")
  local on = program == "ssh" and "on " or "on pdsh "
  by_hosts, ended = run("launch --config_file ds.yaml w.lua \"it's\"", nil, by)
  assert(ended == 0, by_hosts)
  for _, part in ipairs { on .. "m0", on .. "m2", "0\t2\t2\tit's", "1\t2\t2\tit's" } do
    assert(by_hosts:find(part, 1, true), part .. "\n" .. by_hosts)
  end
  assert(not by_hosts:find(on .. "m1", 1, true))
  write("w.lua", "os.exit(tonumber(os.getenv 'RANK') == 1 and 9 or 0)")
  by_hosts, ended = run("launch --config_file ds.yaml w.lua", nil, by)
  assert(ended ~= 0 and by_hosts:find("ended with status", 1, true), by_hosts)
end

-- Options of accel-run itself that launch lets through are those that accel-run has.
local help = run "--help"
for _, name in ipairs { "device", "num-threads", "memory-limit", "seed", "no-strict", "backend", "timeout", "cpu-affinity", "resume" } do
  assert(help:find("--" .. name, 1, true), name)
end

-- to-fsdp2, and tpu-config, which accel refuses.
write("v1.yaml", "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 1\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
  .. "  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_use_orig_params: true\n  fsdp_offload_params: true\n")
gives("to-fsdp2 --config_file v1.yaml", 1, "say --output_file, or --overwrite")
gives("to-fsdp2 --config_file nowhere.yaml --output_file v2.yaml", 1, "nowhere.yaml")
gives("to-fsdp2 --config_file v1.yaml --output_file v2.yaml", 0)
local v2 = assert(accel.config.load(root .. "/v2.yaml")).fsdp_config
assert(v2.fsdp_version == 2 and v2.fsdp_reshard_after_forward == false and v2.fsdp_offload_params == true)
assert(v2.fsdp_backward_prefetch == nil and v2.fsdp_use_orig_params == nil and v2.fsdp_sharding_strategy == nil)
gives("to-fsdp2 --config_file v1.yaml --output_file v2.yaml", 1, "exists")
gives("to-fsdp2 --config_file v2.yaml --overwrite", 0, "already has version 2")
gives("tpu-config --tpu_name t --tpu_zone z --command 'echo 1'", 1, "accel has no TPU backend; start accel-run on each machine")
print "ok"
