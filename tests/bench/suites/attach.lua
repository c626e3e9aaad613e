-- The bench of attach: steps of a small network in a job that nobody can attach to (ACCEL_ATTACH=0), in one that listens, and in one that
-- accel-run stacks looks at twice a second.
return function(h, suites)
  suites.attach = { about = "cost of a step that accel-run attach could inspect", run = function()
    local ours = h.ours "attach_step.lua"
    local looked = ([[%s & job=$!; while sleep 0.5 && kill -0 $job 2>/dev/null; do %s stacks $job >/dev/null; done; wait $job]]):format(
      ours, h.quote(h.exe))
    local got = h.alternate {
      { name = "accel", command = ours },
      { name = "looked", command = "sh -c " .. h.quote(looked) },
      { name = "off", command = "env ACCEL_ATTACH=0 " .. ours },
    }
    for _, row in ipairs { { "median", "a step" }, { "p99", "its 99th percentile" } } do
      local key, what = row[1], row[2]
      h.row { what = what, unit = "us", ours = got.accel[key], peers = { off = got.off[key] }, goal = { ratio = 1 / 1.01 } }
      h.row { what = "  looked at twice a second", unit = "us", ours = got.looked[key], peers = { off = got.off[key] } }
    end
  end }
end
