-- Every public function and method refuses an argument beyond its parameters, if a script calls it: with a fixed number of parameters by
-- the check that accel.util.checked puts in front, which this test calls; with `...` by a check of its own, which the sweeps of options
-- call (support/option_sweep.lua). The names are those of the reference pages.
--   accel-run tests/options/surplus_test.lua
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local checked = require "accel.util.checked"
local class = require "accel.util.class"
local reader = require "option_reader"

local failures, seen, n = {}, {}, { called = 0, own = 0, any = 0, native = 0, forwards = 0 }
local function fail(...) failures[#failures + 1] = string.format(...) end

--- The source of a function.
local function body(f)
  local info, lines, i = debug.getinfo(f, "S"), {}, 0
  for line in io.lines(info.source:sub(2)) do
    i = i + 1
    if i >= info.linedefined and i <= info.lastlinedefined then lines[#lines + 1] = line end
  end
  return table.concat(lines, "\n")
end

--- A module's call refuses what forward has no parameter for, with the names of the parameters. forward alone is called by code that
--- knows it.
local function check_forward(entry, cls)
  local forward = cls.forward
  local info = debug.getinfo(forward, "u")
  if info.isvararg or seen[cls] then return end
  seen[cls] = true
  local room, names = info.nparams - 1, {}
  for i = 1, room do names[i] = debug.getlocal(forward, i + 1) end
  local takes = "; forward takes " .. (room == 0 and "no arguments" or table.concat(names, ", "))
  for extra, value in ipairs { { zzzz = 1 }, accel.ones(1), "zzzz" } do
    local args = {}
    args[room + extra] = value
    local ok, why = pcall(setmetatable({}, cls), table.unpack(args, 1, room + extra))
    n.forwards = n.forwards + 1
    if ok or not tostring(why):find(("unexpected argument %d, "):format(room + extra), 1, true) or not tostring(why):find(takes, 1, true) then
      fail("%s: argument %d of %d: %s", entry.name, room + extra, room, tostring(why))
    end
  end
end

local function check(entry)
  local f = entry.target
  if entry.kind == "class" and class.isinstance(setmetatable({}, f), accel.nn.Module) then return check_forward(entry, f) end
  if type(f) ~= "function" or seen[f] or entry.name:find ":forward$" and not debug.getinfo(f, "u").isvararg then return end
  seen[f] = true
  local own = checked.original(f)
  local info = debug.getinfo(own, "Su")
  if info.what == "C" then n.native = n.native + 1 return end -- ops and bindings check their signature
  if info.isvararg then
    if entry.open then n.any = n.any + 1 return end
    n.own = n.own + 1
    -- a check, a parser of options, or another function that is given all; some only raise
    local text = body(own)
    if select(2, text:gsub("%.%.%.", "")) < 2 and not text:find "raise" then fail("%s: drops its '...'", entry.name) end
    return
  end
  local owner = accel
  for key in entry.name:gsub("^accel%.", ""):gsub("[:.][^:.]*$", ""):gmatch "[^.]+" do owner = type(owner) == "table" and owner[key] or nil end
  if own == f then return fail("%s takes %d arguments and drops any further one", entry.name, info.nparams) end
  local takes = info.nparams
  local base = class.isclass(owner) and (getmetatable(owner) or {}).__index
  local above = type(base) == "table" and checked.original(base[entry.name:match "[^:.]*$"]) or nil
  if type(above) == "function" then takes = math.max(takes, debug.getinfo(above, "u").nparams) end -- what its base class takes
  for extra = 1, 3 - (takes - info.nparams) do
    local args = {}
    args[takes + extra] = extra == 1 and {} or extra
    local ok, why = pcall(f, table.unpack(args, 1, takes + extra))
    n.called = n.called + 1
    if ok or not tostring(why):find "surplus_test%.lua:%d+: [%w_.:]+: unexpected argument, " then
      fail("%s: argument %d of %d parameters: %s", entry.name, takes + extra, takes, tostring(why))
    end
  end
end

for name in accel.pairs(getmetatable(accel).__names) do
  local path = reader.root .. "/stdlib/accel/" .. name
  if type(name) == "string" and accel.listdir(path) then
    for _, entry in ipairs(reader.entries(name)) do check(entry) end
  end
end
assert(n.called > 1500, n.called)
assert(n.forwards > 300, n.forwards)

-- Calls from inside the library pass what they have: an override takes what it needs.
local taken
local hooked = accel.nn.Sequential(accel.nn.Linear(1, 1))
hooked:register_forward_hook(function(...) taken = select("#", ...) end)
hooked(accel.ones(1, 1))
assert(taken == 3)
assert(pcall(hooked.apply, hooked, accel.nn.Module.is_module), "a callback may be given more")

for _, line in ipairs(failures) do print("FAIL " .. line) end
print(("surplus arguments: %d calls refused, and %d of modules; %d functions check their own, %d take any number, %d are of C; "
  .. "%d failures"):format(n.called, n.forwards, n.own, n.any, n.native, #failures))
if #failures > 0 then os.exit(1, true) end
