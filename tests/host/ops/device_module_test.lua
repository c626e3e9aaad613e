-- A device that comes as a library (ACCEL_DEVICE_MODULES) is one like those of the tree: dropin/tiny/try.lua says what is expected of it.
-- check/dropin_op tries the same device as a folder of the tree.
local src, plugins = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_PLUGINS"
local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"

local function output(modules, arguments)
  local p = assert(io.popen(("env -u ACCEL_DEVICE 'ACCEL_DEVICE_MODULES=%s' %s %s 2>&1"):format(modules, run, arguments)))
  local text = p:read "a"
  return text, p:close() == true
end

-- a stock interpreter loads accel for itself alone: the module finds its functions all the same
local build = os.getenv "ACCEL_TEST_BUILD"
local pipe = io.popen "command -v lua5.4"
local lua = pipe:read "l"
pipe:close()
local file <close> = assert(io.open(build .. "/lib/lua/5.4/accel/core.so", "rb"))
if lua and not file:read "a":find "__[au][sb]an_" then -- sanitized ones need an interpreter that is sanitized
  pipe = io.popen(("env -u ACCEL_DEVICE 'ACCEL_DEVICE_MODULES=%s/plugin_tiny.so' 'LUA_PATH=%s/share/lua/5.4/?/init.lua;%s/share/lua/5.4/?.lua' "
    .. "'LUA_CPATH=%s/lib/lua/5.4/?.so' %s -e 'local x = require(\"accel\").ones(1, { device = \"tiny\" }) print(x:add(x):item())' 2>&1")
    :format(plugins, build, build, build, lua))
  local said = pipe:read "a"
  assert(pipe:close() and said == "2.0\n", said)
end

local text, ok = output(plugins .. "/plugin_tiny.so", src .. "/tests/host/ops/dropin/tiny/try.lua " .. run)
assert(ok and text == "a tiny device works\n", text)

-- what is not a module of devices is said, with the reason; one that comes twice is there once
local one = [[-e 'print(require("accel").ones(1, { device = "tiny" }).device)']]
text, ok = output(plugins .. "/plugin_softcap.so", one)
assert(not ok and text:find("is not a device module: it has no ac_device_provider_get", 1, true), text)
text, ok = output(plugins .. "/plugin_stale.so", one)
assert(not ok and text:find("ACCEL_DEVICE_MODULES: " .. plugins .. "/plugin_stale.so: a device provider was built for another version of accel", 1,
  true), text)
text, ok = output("/nowhere/tiny.so", one)
assert(not ok and text:find("ACCEL_DEVICE_MODULES: /nowhere/tiny.so", 1, true), text)
text, ok = output((plugins .. "/plugin_tiny.so:"):rep(2), one)
assert(ok and text == "tiny:0\n", text)
