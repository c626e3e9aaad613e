--- The threads of accel.offload.overlap and accel.offload.delayed: optimizer steps on tensors in host memory, which they share with the
--- script's own thread. The answer to a job is the seconds that it took.
return function(_, endpoint)
  local accel = require "accel"
  for job in function() return endpoint:receive() end do
    local _ <close> = accel.no_grad()
    local from = accel.clock()
    local optimizer = setmetatable({}, accel.optim[job.optimizer])
    local step_group = job.lists
    for name, t in next, job.shared do step_group[name] = t end
    optimizer.inv_scale, optimizer.found_inf = job.factor, job.skip
    optimizer:update(job.group, step_group, job.grads, job.lr)
    job, step_group = nil, nil -- luacheck: ignore
    endpoint:send(accel.clock() - from)
  end
end
