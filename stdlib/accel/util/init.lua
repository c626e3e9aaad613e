--- accel.util: the helpers that the training library shares with scripts, loaded on first use.
return require "accel.util.lazy" ("accel.util", {
  Progress = "progress", Random = "random",
  check = "check", class = "class", Confusion = "confusion",
  cli = "cli", compare = "compare", guard = "guard", nearest = "nearest", options = "options", ordered = "ordered",
  plot = "plot",
  raise = "raise", refuse = "refuse", tensors = "tensors", terminal = "terminal",
  writable = "writable",
})
