-- Every way in which one rank of three can spoil a job: the last line, the launcher's, names that rank and the line where it did so, even
-- where another rank was the first to end.
--   accel-run tests/host/app/blame_test.lua
-- tier: sampled
local accel = require "accel"
local sample = dofile((arg[0]:match "^.*/" or "") .. "../../support/sample.lua")

local tmp = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/blame-"))
assert(accel.write_file(tmp .. "/w.lua", [[
local accel = require "accel"
local dist = accel.dist
local what, who, t = arg[1], tonumber(arg[2]), accel.ones(16)
local me = dist.get_rank() == who
local function kill(name) os.execute("kill -" .. name .. " " .. io.open("/proc/self/stat"):read "n") end
for step = 1, 30 do
  local bad = me and step == 20
  if bad and what == "exit0" then os.exit(0) end
  if bad and what == "closed" then os.exit(0, true) end
  if bad and what == "return" then return end
  if bad and what == "exit3" then os.exit(3) end
  if bad and what == "error" then error "boom" end
  if bad and what == "nil" then error(nil) end
  if bad and what == "table" then error {} end
  if bad and what == "segv" then kill "SEGV" end
  if bad and what == "coroutine" then coroutine.wrap(function() error "inside" end)() end
  if bad and what == "shape" then t = accel.ones(17) end
  if bad and what == "dtype" then t = accel.ones(16, { dtype = "f64" }) end
  if bad and what == "op" then dist.broadcast(t, 0) end
  if bad and what == "order" then dist.barrier() end
  if bad and what == "loop" then while true do end end
  if not (bad and what == "missing") then dist.all_reduce(t) end
end
if me and what == "extra" then dist.all_reduce(t) end
]]))

local WANTED <const> = { -- what the last line says; %d: the rank
  { "exit0", "rank %d left at w.lua:8 while rank %%d waits" }, { "closed", "rank %d left at w.lua:9 while rank %%d waits" },
  { "return", "rank %d left at w.lua:%%d+ while rank %%d waits" }, { "exit3", "^accel%%-run: rank %d .*status 3 at w.lua:11$" },
  { "error", "^accel%%-run: rank %d .*status 1 at w.lua:12$" }, { "nil", "^accel%%-run: rank %d .*status 1 at w.lua:13$" },
  { "table", "^accel%%-run: rank %d .*status 1 at w.lua:14$" }, { "segv", "^accel%%-run: rank %d .*SIGSEGV.*w.lua:22$" },
  { "coroutine", "^accel%%-run: rank %d .*status 1 at w.lua:16$" }, { "shape", "ranks differ in count .*rank %d in all_reduce f32 %%(17%%)" },
  { "dtype", "ranks differ in dtype .*rank %d in all_reduce f64" }, { "op", "ranks differ in operation .*rank %d in broadcast" },
  { "order", "ranks differ in operation .*rank %d in barrier" }, { "loop", "waiting for rank %d .*, which was ended" },
  { "missing", "rank %d left at w.lua:%%d+ while rank %%d waits" }, { "extra", "while rank %d waits for it in all_reduce .* at w.lua:24" },
}

local taken, n = sample.one_of(4), 0
for _, case in ipairs(WANTED) do
  for who = 0, 1 do
    if taken() and not (case[1] == "segv" and sample.sanitized) then -- whose handler ends the rank with status 1
      local command = ("cd '%s' && '%s' --num-processes 3 --timeout 5 w.lua %s %d 2>&1 > /dev/null; echo \"status $?\""):format(tmp,
        accel.process.program(), case[1], who)
      local pipe <close> = assert(io.popen(command))
      local text = pipe:read "a"
      local last, status = text:match "([^\n]*)\nstatus (%d+)\n$"
      assert(last and status ~= "0", text)
      assert(last:find((case[2]:format(who))), ("%s of rank %d: the last line is %q of\n%s"):format(case[1], who, last, text))
      if case[1] == "loop" then assert(text:find(("rank %d made its last call at w.lua:22"):format(who), 1, true)
        or text:find(("rank %d was last at w.lua:22"):format(who), 1, true), text) end
      n = n + 1
    end
  end
end
os.execute(("rm -rf '%s'"):format(tmp))
print(("%d jobs, each names who spoiled it"):format(n))
