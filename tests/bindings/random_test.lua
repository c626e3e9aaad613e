-- math.random follows the seed as accel's own numbers do: --seed, ACCEL_SEED, manual_seed, states, ranks, data workers. An
-- interpreter that accel is loaded into keeps its own.
local accel = require "accel"

local run = ("'%s'"):format(accel.process.program())
local function output(command)
  local p = assert(io.popen(command))
  local text = p:read "a"
  assert(p:close(), text)
  return text
end

local DRAW <const> = [[ -e 'io.write(math.random(1 << 40), " ", require "accel".rand(1):item(), "\n")']]
local function draw(options, env) return output((env or "") .. " " .. run .. " " .. (options or "") .. DRAW) end

-- Two runs are the same; --seed and ACCEL_SEED are one thing.
local default = draw()
assert(default == draw() and default == draw "--seed 0", default)
local seeded = draw "--seed 3"
assert(seeded ~= default and seeded == draw "--seed 3" and seeded == draw("", "ACCEL_SEED=3"), seeded)
math.randomseed(3)
assert(seeded:match "^%d+" == tostring(math.random(1 << 40)), "as math.randomseed(3)")

-- Ranks agree.
local lines = {}
for line in draw("--num_processes 2 --seed 3"):gmatch "[^\n]+" do lines[#lines + 1] = line:match "%d+ 0%.%d+$" end
assert(#lines == 2 and lines[1] == lines[2] and lines[1] .. "\n" == seeded, lines[1])

-- manual_seed is math.randomseed as well.
math.randomseed(11)
local a, b = math.random(), math.random(100)
accel.manual_seed(11)
assert(a == math.random() and b == math.random(100))

-- The state holds it, survives the codec, and gives back what came after.
local state = accel.decode(accel.encode(accel.get_rng_state()))
assert(#state.math == 4)
local x, y = math.random(), accel.rand(2)
math.random()
accel.set_rng_state(state)
assert(x == math.random() and accel.equal(y, accel.rand(2)))
-- a state without it leaves it alone; one that is broken changes nothing
state.math = nil
local was = accel.get_rng_state().math
accel.set_rng_state(state)
for i = 1, 4 do assert(was[i] == accel.get_rng_state().math[i]) end
for _, bad in ipairs { 5, { 1, 2, 3 }, { 1, 2, 3, "x" }, { 1, 2, 3, 0.5 } } do
  local now = accel.get_rng_state()
  local broken = accel.get_rng_state()
  broken.math, broken.step = bad, 99
  local ok, err = pcall(accel.set_rng_state, broken)
  assert(not ok and tostring(err):find("option 'math'", 1, true), tostring(err))
  assert(accel.get_rng_state().step == now.step and accel.get_rng_state().math[1] == now.math[1])
end
-- a generator of its own has no part in it
assert(accel.Generator(1):get_state().math == nil)

-- What is computed again draws the same numbers: a branch by math.random.
accel.manual_seed(1)
local calls = {}
local w = accel.ones(2, { requires_grad = true })
local function branch(t)
  local n = math.random(1 << 30)
  calls[#calls + 1] = n
  return (t * (n % 7 + 1)):exp()
end
local out = accel.checkpoint(branch, w)
local after = math.random()
out:sum():backward()
assert(#calls == 2 and calls[1] == calls[2], "computed again with other numbers")
accel.manual_seed(1)
math.random(1 << 30)
assert(after == math.random(), "the forward's numbers go on")

-- The seed of another interpreter is its own business.
local build = os.getenv "ACCEL_TEST_BUILD"
if build and os.getenv "ACCEL_TEST_SANITIZE" == "" and os.execute "command -v lua5.4 > /dev/null" then
  local path = ("LUA_PATH='%s/share/lua/5.4/?.lua;%s/share/lua/5.4/?/init.lua;;' LUA_CPATH='%s/lib/lua/5.4/?.so;;'"):format(
    build, build, build)
  local code = [[
    math.randomseed(5)
    local want = math.random()
    math.randomseed(5)
    local accel = require "accel"
    accel.manual_seed(9)
    assert(accel.get_rng_state().math == nil)
    accel.set_rng_state { seed = 1, math = { 1, 2, 3, 4 } }
    assert(math.random() == want)]]
  assert(os.execute(("%s lua5.4 -e '%s'"):format(path, code)))
end
