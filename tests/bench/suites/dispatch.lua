-- The bench of calls that compute next to nothing: what a call from the script costs. One thread on either side.
return function(h, suites)
  suites.dispatch = { about = "cost of small calls: add, matmul, Linear, a chain", run = function()
    local got = h.alternate(h.both("dispatch.lua", "dispatch", "", { "tuned" }))
    local function row(what, key, goal)
      h.row { what = what, unit = "ns", ours = got.accel[key], peers = h.peers(got, key), goal = goal }
    end
    row("add, 1 element", "add", { most = 120 })
    row("add, 1 element, gradient", "add_grad", { most = 250 })
    row("matmul 8x8", "mm8")
    row("nn.Linear(8,8) forward", "linear8")
    row("3-op chain, there and back", "chain")
  end }
end
