--- accel-run tpu-config, a command of Accelerate: refused.
return function()
  return require "accel.cli.command".refuse("accel-run tpu-config",
    "accel has no TPU backend; start accel-run on each machine with --num-machines")
end
