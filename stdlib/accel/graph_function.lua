--- accel.graph, the function: what else belongs to it is in graph.lua.
return require("accel.graph").graph
