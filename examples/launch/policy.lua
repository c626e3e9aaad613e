-- A launch policy: a function of the machine that plans an attempt. It is called again with the failure of the last attempt: here the
-- batch is halved if a rank ran out of memory, three times at most. Any other failure ends the job.
--   accel-run launch --policy examples/launch/policy.lua train.lua
---@type accel.LaunchPolicy
return function(machine)
  local batch = 64
  if machine.last then
    if machine.last.reason ~= "out_of_memory" or machine.attempt > 3 then return nil end
    batch = batch >> machine.attempt
  end
  return {
    cpu = machine.gpus == 0, num_processes = math.max(1, machine.gpus),
    args = { "--batch", tostring(batch) }, -- after the arguments of the command line
  }
end
