-- Options of accel.dist.init_process_group: each one changes the world that a new process begins, or raises
-- (support/option_sweep.lua).
-- tier: slow
--   accel-run tests/options/process_group_test.lua
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder({ "dist.lua" }, function(entry) return entry.name == "accel.dist.init_process_group" end)

local tmp = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/world-")
local script, given_to = tmp .. "/world.lua", tmp .. "/arguments"
local file = assert(io.open(script, "wb"))
file:write [[
local accel = require "accel"
local dist = accel.dist
local args = accel.decode(assert(io.open(arg[1], "rb")):read "a")
local ok, why = pcall(dist.init_process_group, table.unpack(args, 1, args.n))
if not ok then print("failed " .. tostring(why)) os.exit(0, true) end
dist.all_reduce(accel.ones(3)) -- of no other rank: alone, or simulated
print(dist.get_backend(), dist.get_timeout(), dist.get_rank(), dist.get_world_size(), dist.get_num_nodes())
print(require "accel.shard.core".shares(dist.group.WORLD))
]]
file:close()

-- A process has one world, so that each call is made by a new one.
for _, entry in ipairs(s.entries) do
  entry.target = function(...)
    local out = assert(io.open(given_to, "wb"))
    out:write((accel.encode(table.pack(...))))
    out:close()
    local pipe = assert(io.popen(("'%s' '%s' '%s' 2>&1"):format(accel.process.program(), script, given_to)))
    local text = pipe:read "a"
    pipe:close()
    if text:find "^failed" then error(text, 0) end
    return text
  end
end

s:recipe("accel.dist.init_process_group", {
  values = { backend = { "solo", "sim", any = true }, timeout = { 77 }, rank = { 1 }, world_size = { 4 }, device_id = { "nodevice" },
    machines = { 2 }, shares_memory = { true } },
  with = { rank = { backend = "sim", world_size = 4 }, world_size = { backend = "sim", world_size = 2 },
    machines = { backend = "sim", world_size = 4 }, shares_memory = { backend = "sim", world_size = 4 } },
  raises = { device_id = "nodevice", backend = "world_size" },
})
s:finish()
