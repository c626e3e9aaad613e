-- Every public class, function and method of accel that takes options belongs to a sweep of options: its entry is among those of a test in
-- this folder, which sweeps it or leaves it out with the reason. Entries come from annotations and declarations
-- (support/option_reader.lua), so that a new function with options fails here until a test sweeps it.
--   accel-run tests/options/covered_test.lua
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local reader = require "option_reader"

--- Modules whose options a test of their own form sweeps, and modules without options; both with what stands for the sweep.
local OTHER <const> = {
  offload = { nil, "its functions take no options: tests/stdlib/offload" },
}
--- Folders of stdlib that no name of accel leads to.
local INTERNAL <const> = {
  shard = "FSDP and ZeRO: options of nn.parallel.FullyShardedDataParallel and of plugins, tests/stdlib/shard/options_test.lua",
  cli = "commands, whose options accel-run checks: tests/stdlib/cli",
  elastic = "of the launcher",
}
--- Files of lua/meta: the stubs of C.
local STUBS <const> = {
  ["ops.lua"] = "tests/options/ops_test.lua", ["config.lua"] = "generated from the schema of config",
  ["modules.lua"] = "names of modules",
}
-- ---- what the tests sweep ----
-- Each test is loaded up to its call of sweep.folder, which notes the folder and the filter.
local swept, tests = {}, 0 -- by name and by class or function, which may have several names
local own, memory = {}, {}
local function entries_of(folder)
  if type(folder) == "table" then return reader.stubs(folder) end
  if not memory[folder] then memory[folder] = reader.entries(folder) end
  return memory[folder]
end
local noted
local real_dofile, real_arg = dofile, arg
package.loaded.option_sweep = { none = {}, folder = function(folder, keep)
  noted = { folder = folder, keep = keep }
  error(noted, 0)
end }
dofile = function(path) -- luacheck: ignore 121
  if path:find "ranks%.lua$" then return { start = function() return false end } end
  return real_dofile(path)
end
for _, file in ipairs(assert(accel.listdir(here))) do
  local f = file:find "_test%.lua$" and file ~= "covered_test.lua" and assert(io.open(here .. "/" .. file, "rb"))
  local text = f and f:read "a"
  if f then f:close() end
  if text and text:find("sweep.folder", 1, true) then
    tests = tests + 1
    noted, arg = nil, { [0] = here .. "/" .. file } -- luacheck: ignore 121
    local ok, why = pcall(assert(loadfile(here .. "/" .. file)))
    if ok or why ~= noted then error(("%s does not call sweep.folder: %s"):format(file, tostring(why)), 0) end
    if type(noted.folder) == "table" then
      for _, stub in ipairs(noted.folder) do own[stub] = file end
    else
      own[noted.folder] = file
    end
    for _, entry in ipairs(entries_of(noted.folder)) do
      if not noted.keep or noted.keep(entry) then swept[entry.name], swept[entry.target or entry.name] = file, file end
    end
  end
end
dofile, arg = real_dofile, real_arg -- luacheck: ignore 121

-- ---- what there is ----
local failures, n, with = {}, 0, 0
local function fail(...) failures[#failures + 1] = string.format(...) end
local function file_is_there(path)
  local f = path and io.open(reader.root .. "/" .. path)
  if f then f:close() end
  return f ~= nil
end
local function check(entries)
  for _, entry in ipairs(entries) do
    n = n + 1
    local takes = next(entry.options) ~= nil or entry.takes_table or entry.open
    if takes then with = with + 1 end
    if takes and not (swept[entry.name] or swept[entry.target]) then
      fail("%s takes options, and no test in tests/options sweeps it", entry.name)
    end
  end
end
for name in accel.pairs(getmetatable(accel).__names) do
  local f = type(name) == "string" and file_is_there("stdlib/accel/" .. name .. "/init.lua")
  if f and OTHER[name] then
    if OTHER[name][1] and not file_is_there(OTHER[name][1]) then fail("%s is not there", OTHER[name][1]) end
  elseif f and not own[name] then
    fail("accel.%s: no test in tests/options sweeps it (sweep.folder \"%s\"), nor is it in OTHER", name, name)
  end
  if f and (own[name] or name == "offload") then check(entries_of(name)) end
end
for _, folder in ipairs(assert(accel.listdir(reader.root .. "/stdlib/accel"))) do
  local public = getmetatable(accel).__names[folder]
  if not folder:find "%.lua$" and not public and not own[folder] and not INTERNAL[folder] then
    fail("stdlib/accel/%s: no test in tests/options sweeps it, nor is it in INTERNAL", folder)
  end
end
for _, file in ipairs(assert(accel.listdir(reader.root .. "/lua/meta"))) do
  if not own[file] and not STUBS[file] then fail("lua/meta/%s: no test in tests/options sweeps its functions, nor is it in STUBS", file) end
  if own[file] then check(reader.stubs { file }) end
end
for _, line in ipairs(failures) do print("FAIL " .. line) end
print(("options: %d tests have all %d public entries with options among %d; %d failures"):format(tests, with, n, #failures))
if #failures > 0 then os.exit(1, true) end
