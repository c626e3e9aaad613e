--- The function accel.compile. compile.lua has the rest of its module.
return require("accel.compile").compile
