--- The function accel.graph. graph.lua has the rest of its module.
return require("accel.graph").graph
