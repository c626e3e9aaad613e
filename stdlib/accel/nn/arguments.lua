--- accel.util.arguments, under the name by which layers know it.
return require "accel.util.arguments"
