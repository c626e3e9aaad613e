--- The examples about gradients say what they promise; wrong arguments are named in one line.
local examples = dofile(os.getenv "ACCEL_TEST_SRC" .. "/tests/support/examples.lua")

examples.of("22_custom_function", function()
  local out = examples.run "@22_custom_function.lua"
  assert(out:find("points classified correctly: at least 95 %; values of the first weights: at most 15\n", 1, true), out)
  assert(out:find("right backward:\ttrue\nwrong backward:\tfalse\n", 1, true), out)
  assert(out:find "anomaly:\tfalse\tbackward of mul gave NaN.*22_custom_function.lua:%d+", out)
  examples.refused("@22_custom_function.lua --nothing", "--nothing")
end)

examples.of("23_recompute", function()
  local out = examples.run "@23_recompute.lua"
  assert(out:find("the same losses to the last bit:\ttrue", 1, true), out)
  assert(examples.number(out, "([%d.]+) times less") >= 4, out)
  examples.refused("@23_recompute.lua --layers x", "--layers")
end)
