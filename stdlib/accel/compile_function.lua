--- accel.compile, the function: what else belongs to it is in compile.lua.
return require("accel.compile").compile
