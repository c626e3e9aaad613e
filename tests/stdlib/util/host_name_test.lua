-- Names of machines on their way to ssh: none becomes an option, a shell word of its own or a control sequence. A hostfile with one is refused.
--   accel-run tests/stdlib/util/host_name_test.lua
local accel = require "accel"
local host_name = require "accel.util.host_name"

for _, name in ipairs { "node1", "node-1.cluster.example", "user@host", "10.0.0.1", "[fe80::1%eth0]", "fe80::1", "a", "N_1" } do
  assert(host_name(name) == name, name)
end
for _, name in ipairs { "", "-oProxyCommand=touch x", "--", "-", "a b", "a;id", "$(id)", "a\nb", "a\27[2J", "a'b", "@host", ".x" } do
  local ok, why = host_name(name)
  assert(ok == nil and why:find "is not a host name", name)
end

local path = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/hosts"
local read = require "accel.cli.launch_hosts".read
local function hosts(text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return read(path)
end
assert(table.concat(hosts "m0 slots=1\n# -x\nm1\n", " ") == "m0 m1")
local list, why = hosts "m0\n-oProxyCommand=id slots=1\n"
assert(list == nil and why == path .. ': "-oProxyCommand=id" is not a host name; expected letters, digits and .-_:@ after a letter or a digit', why)
