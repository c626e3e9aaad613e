-- accel-run ckpt: what it lists, shows, verifies, compares and removes, and what it says of folders that are none.
--   accel-run tests/stdlib/cli/ckpt_test.lua
local accel = require "accel"
local ckpt = require "accel.ckpt"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/ckpt-"))
local parent = root .. "/checkpoints"
assert(accel.makedirs(parent))

--- Output and exit status of accel-run ckpt.
local function run(args)
  local pipe = assert(io.popen(("cd '%s' && '%s' ckpt %s 2>&1"):format(root, accel.process.program(), args)))
  local text = pipe:read "a"
  local _, _, status = pipe:close()
  return text, status
end

local function gives(args, status, ...)
  local text, got = run(args)
  assert(got == status, ("ckpt %s: status %d, wanted %d\n%s"):format(args, got, status, text))
  for _, pattern in ipairs { ... } do
    assert(text:find(pattern), ("ckpt %s: %q lacks %q"):format(args, text, pattern))
  end
  for line in text:gmatch "[^\n]+" do assert(#line <= 200, line) end
  return text
end

local function write(name, step, w)
  local save = assert(ckpt.create(parent .. "/" .. name))
  save:add_tensors("model.safetensors", { { name = "w", tensor = w }, { name = "n", tensor = accel.full({}, 3, { dtype = "i64" }) } })
  save:add_bytes("scheduler.accel", accel.encode { last = { 0.5, 1 / 3 }, name = "x" .. step })
  save:start { state = { step = step, epoch = 2, world = { num_processes = 1 } } }
  assert(save:wait())
end

local w = accel.arange(6):reshape(2, 3):to "f32"
write("checkpoint_0", 10, w)
write("checkpoint_1", 20, w)
w[2][3] = 7.5
w[1][1] = 0 / 0
write("checkpoint_2", 30, w)
write("checkpoint_10", 40, w)

do -- ls: in the order of numbers, also of the folder itself; what is not a checkpoint says why
  local text = gives("ls", 0, "NAME +STEP +EPOCH +RANKS +SIZE +STATUS", "checkpoint_0 +10 +2 +1 +[%d.]+ %a+ +ok\n",
    "checkpoint_2.*checkpoint_10")
  assert(text == gives("ls checkpoints", 0))
  assert(accel.makedirs(parent .. "/checkpoint_11"))
  gives("ls", 0, "checkpoint_11 .* foreign: ")
  local list = accel.json.decode((run "ls --json"))
  assert(#list == 5 and list[1].state.step == 10 and list[4].name == "checkpoint_10" and list[5].status == "foreign")
  gives("ls /nowhere", 1, "ls: /nowhere: .*No such file")
  assert(accel.makedirs(root .. "/nothing"))
  gives("ls nothing", 0, "no checkpoints in nothing\n", "project_dir/checkpoints")
  gives("ls --jsn", 2, "did you mean '%-%-json'")
end

do -- show
  gives("show checkpoints/checkpoint_1", 0, "checkpoint_1: written %d%d%d%d%-%d%d%-%d%d", "step = 20", "model +2 +7 +32 bytes",
    "scheduler.accel +%d+ bytes")
  gives("show checkpoints/checkpoint_1 model", 0, "w +f32 +%(2, 3%) +24 bytes", "n +i64 +%(%) +8 bytes")
  gives("show checkpoints/checkpoint_1 scheduler.accel", 0, "name = \"x20\"")
  gives("show checkpoints/checkpoint_1 optimizer", 1, "has no object and no file 'optimizer'")
  gives("show checkpoints", 1, "not a checkpoint: it has no MANIFEST.json; the newest checkpoint in it is checkpoints/")
  gives("show", 2, "needs CHECKPOINT")
  assert(accel.json.decode((run "show --json checkpoints/checkpoint_1")).state.step == 20)
end

do -- diff: as diff does; NaN is the same as NaN
  assert(gives("diff checkpoints/checkpoint_1 checkpoints/checkpoint_1", 0) == "")
  gives("diff checkpoints/checkpoint_2 checkpoints/checkpoint_10", 1, "^scheduler.accel.name: \"x30\", \"x40\"\nrecord.step: 30, 40\n$")
  gives("diff checkpoints/checkpoint_1 checkpoints/checkpoint_2", 1, "model w: 2 values differ, at most by ")
  gives("diff checkpoints/checkpoint_1", 2, "needs CHECKPOINT CHECKPOINT")
  gives("diff checkpoints/checkpoint_1 /nowhere", 1, "/nowhere")
end

do -- verify
  gives("verify checkpoints/checkpoint_1 checkpoints/checkpoint_2", 0, "checkpoint_1: ok\n.*checkpoint_2: ok\n")
  local path = parent .. "/checkpoint_1/model.safetensors"
  local f = assert(io.open(path, "r+b"))
  f:seek("end", -1)
  f:write "\x7f"
  f:close()
  gives("verify checkpoints/checkpoint_1 checkpoints/checkpoint_2", 1, "checkpoint_2: ok", "model.safetensors.*'[wn]'")
  gives("show checkpoints/checkpoint_1 model", 0)
  gives("diff checkpoints/checkpoint_1 checkpoints/checkpoint_0", 1, "model.safetensors")
end

do -- prune
  gives("prune checkpoints", 2, "needs %-%-keep N")
  gives("prune --keep 0 checkpoints", 2, "needs %-%-keep N")
  gives("prune --keep 2 --dry-run checkpoints", 0, "would remove .*checkpoint_0\nwould remove .*checkpoint_1\n")
  gives("prune --keep 2 .", 0, "removed ./checkpoints/checkpoint_0\nremoved ./checkpoints/checkpoint_1\n$")
  assert(accel.inspect(accel.listdir(parent)) == accel.inspect { "checkpoint_10", "checkpoint_11", "checkpoint_2" })
end

gives("", 2, "Usage: accel%-run ckpt ACTION")
gives("--help", 0, "prune %-%-keep N")
gives("prunne", 2, "unknown action 'prunne'; did you mean 'prune'")
