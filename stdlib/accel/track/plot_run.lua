--- accel.plot (plot.lua) as a file that returns a function, for accel/init.lua.
return require("accel.track.plot").plot
