--- Writes lua/meta/config.lua from the schema of configurations. The target `meta` runs it:
---   accel-run lua/gen/config_stub.lua OUT
local text = require "accel.config.describe".stub()
local file <close> = assert(io.open(arg[1], "wb"))
assert(file:write(text))
