-- The bench of accel.compile: chains of elementwise operations as one pass over memory, beside the same calls one by one.
return function(h, suites)
  suites.compile = { about = "chains of maps by accel.compile, beside single calls", run = function()
    local got = h.alternate { h.accel("compile.lua", "") }
    for _, key in ipairs { "five", "eleven", "five_grad", "eleven_grad" } do
      local what = key:find "grad" and key:gsub("_grad", " maps, gradients") or key .. " maps"
      h.line(what, "ms", got.accel[key .. "_compiled"], got.accel[key .. "_single"],
        not key:find "grad" and { ratio = 1.15 } or { ratio = 1 })
    end
  end }
end
