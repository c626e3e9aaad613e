--- What workers run in tests/bindings/worker_test.lua: sends back what it gets, or does what a job asks for.
return function(setup, endpoint)
  local accel = require "accel"
  endpoint:send { hello = setup }
  for job in function() return endpoint:receive() end do
    local act = type(job) == "table" and not accel.is_tensor(job) and job.act
    if act == "loop" then while true do end end
    if act == "catch" then while true do pcall(function() while true do end end) end end
    if act == "fail" then error "asked to fail" end
    if act == "raise" then error({ code = "shape" }) end
    if act == "exit" then os.exit(4) end
    if act == "rank" then accel.dist.get_rank() end
    if act == "global" then return undeclared end -- luacheck: ignore
    if act == "binary" then assert(load(string.dump(function() end))) end
    if act == "closure" then endpoint:send { f = print } end
    if act == "many" then for i = 1, job.n do endpoint:send(i) end end
    if act == "state" then
      endpoint:send { path = package.path, threads = accel.num_threads and accel.num_threads() or 1,
        live = accel.mem_stats().live_bytes }
    end
    if act == "fill" then endpoint:send(accel.full({ 1024, 1024 }, 3.0, { device = job.device })) end
    if act == "flags" then endpoint:send { flags = accel.device_flags(job.x.device), sum = job.x:add(job.x) } end
    if act == "add" then endpoint:send(job.x + job.x) end
    if act == "collect" then
      accel.collect()
      endpoint:send "collected"
    end
    if act == "end" then return end
    if not act then endpoint:send(job) end
  end
end
