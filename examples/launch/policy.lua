-- A launch policy: a function of the machine that plans an attempt. It is asked again with what the last attempt died of: here a rank
-- that found no memory is answered with half the batch, three times at most; anything else ends the job.
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
    env = { BATCH = batch },
  }
end
