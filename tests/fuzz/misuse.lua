--- Calls everything that scripts can reach with wrong values: each call returns or raises an error of Lua; never less.
---   accel-run tests/fuzz/misuse.lua [--seed N] [--calls N] [--seconds S] [--part I/N] [--only PATTERN] [--weak]
---
--- --calls: of each function. --seconds: for all functions together. --part: of the functions, for several processes. --only: names
--- that match a Lua pattern. --weak: list errors that Lua itself raised inside the library ("attempt to index a nil value").
--- The call in flight stands in the file misuse.call of the working folder, so that a crash names it; run as a user who may harm
--- nothing, with limits (tests/fuzz/run.sh does). Ends with one line of totals; exit status 1 when a rule was broken.
local source = os.getenv "ACCEL_TEST_SRC" or (arg[0]:match "^(.*)/[^/]*$" or ".") .. "/../.."
local build = os.getenv "ACCEL_TEST_BUILD" or source .. "/build/dev"
package.path = ("%s/tests/fuzz/?.lua;%s/lua/gen/?.lua;%s"):format(source, source, package.path)

local accel = require "accel"
local targets = require "misuse.targets"
local values = require "misuse.values"

local o = accel.util.cli {
  name = "misuse.lua", summary = "Calls everything with wrong values.",
  { "seed", "int", 1, "N", "of the calls" },
  { "calls", "int", 60, "N", "calls of each function" },
  { "seconds", "number", 20, "S", "for all functions" },
  { "part", "string", "1/1", "I/N", "this part of the functions" },
  { "only", "string", nil, "PATTERN", "functions whose names match" },
  { "weak", "flag", false, nil, "list errors that Lua raised inside the library" },
}

-- The generator's own, whatever calls do to the tables they are given.
local print, exit, pairs, ipairs, pcall, type, error, tostring = print, os.exit, pairs, ipairs, pcall, type, error, tostring
local TOO_LONG = "misuse: too long" -- what the hook raises
local EXIT = "misuse: os.exit was called"
os.exit = function() error(EXIT, 0) end -- luacheck: ignore
local CALL_SECONDS = 0.5
local broken, weak, n_calls, n_errors, n_slow = {}, {}, 0, 0, 0

-- ---- one call ----
local call_file = assert(io.open("misuse.call", "w"))
call_file:setvbuf "full"

local function note(text)
  call_file:seek "set"
  call_file:write(text:sub(1, 400), (" "):rep(math.max(0, 400 - #text)), "\n")
  call_file:flush()
end

local deadline = math.huge
debug.sethook(function()
  if os.clock() > deadline then error(TOO_LONG, 0) end
end, "", 1000000)

local function inspect(target, args, ok, err)
  if ok then return end
  n_errors = n_errors + 1
  if type(err) == "table" and type(rawget(err, "code")) == "string" then
    if err.code == "internal" then broken[#broken + 1] = values.text(target.name, args) .. ": " .. tostring(err) end
  elseif type(err) == "string" then
    if err == EXIT and not targets.exits[target.name] then
      broken[#broken + 1] = values.text(target.name, args) .. " ends the process"
    elseif err == TOO_LONG then
      n_slow = n_slow + 1
    elseif err:find("stdlib/accel", 1, true) or err:find("/lua/5.4/accel/", 1, true) then
      local key = err:gsub("^%S*/accel/", "")
      weak[key] = weak[key] or values.text(target.name, args)
    end
  end
end

local function finish_calls(r, ...)
  for i = 1, math.min(select("#", ...), 3) do values.keep(r, (select(i, ...))) end
end

local function try(r, target, args)
  local f = targets.callable(target)
  if f == nil then return end
  n_calls = n_calls + 1
  note(values.text(target.name, args))
  deadline = os.clock() + CALL_SECONDS
  local results = table.pack(pcall(f, table.unpack(args, 1, args.n)))
  deadline = math.huge
  inspect(target, args, results[1], results[2])
  if results[1] and r:chance(20) then finish_calls(r, table.unpack(results, 2, results.n)) end
end

-- ---- all calls of one function ----
-- Modes that a call may have left behind.
local function reset()
  if not accel.is_grad_enabled() then
    collectgarbage() -- a guard that nobody holds ends its mode
    if not accel.is_grad_enabled() then accel.set_grad_enabled(true) end
  end
  pcall(accel.set_default_device, "cpu")
  pcall(accel.set_num_threads, 1)
end

local function fuzz(target, n, seconds)
  local r = values.random(o.seed * 7919 + #target.name * 104729 + target.name:byte(-1))
  targets.record({ target }, target.examples, function(x) values.keep(r, x) end) -- fresh objects
  local calls, until_ = targets.calls(target), os.clock() + seconds
  for _ = 1, n do
    local args
    if #calls > 0 and r:chance(70) then args = values.spoil(r, r:pick(calls))
    else args = values.wild(r, r:int(6) - 1) end
    if not targets.builds_large(target, args) then try(r, target, args) end
    if os.clock() > until_ then break end
  end
  reset()
end

-- ---- all functions ----
local part, parts = o.part:match "^(%d+)/(%d+)$"
part, parts = assert(tonumber(part), "--part: I/N"), tonumber(parts)
local all, chosen = targets.collect(source, build), {}
for i, target in ipairs(all) do
  if (not o.only or target.name:find(o.only)) and i % parts == part - 1 then chosen[#chosen + 1] = target end
end
assert(#chosen > 0, "no function has such a name")
do
  local r, lines, seen = values.random(o.seed), {}, {}
  for _, target in ipairs(all) do
    for _, line in ipairs(seen[target.examples] and {} or target.examples) do lines[#lines + 1] = line end
    seen[target.examples] = true
  end
  targets.record(all, lines, function(x) values.keep(r, x) end)
end
local began = os.clock()
for i, target in ipairs(chosen) do
  local left = o.seconds - (os.clock() - began)
  local share = math.max(0.005, left / (#chosen - i + 1)) * 4 -- most need less than their share
  if left <= 0 then
    chosen[i] = nil
    for k = i + 1, #chosen do chosen[k] = nil end
    break
  end
  fuzz(target, o.calls, share)
end

debug.sethook()
values.drop()
targets.forget()
note "collecting"
accel.collect()
for _, text in ipairs(broken) do print("BROKEN " .. text) end
local n_weak = 0
for key, text in pairs(weak) do
  n_weak = n_weak + 1
  if o.weak then print(("weak: %s\n      %s"):format(key, text)) end
end
print(("seed %d: %d of %d functions, %d calls, %d errors, %d stopped for their length, %d raised by Lua itself, %d broken"):format(
  o.seed, #chosen, #all, n_calls, n_errors, n_slow, n_weak, #broken))
exit(#broken == 0, true)
