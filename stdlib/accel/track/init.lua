--- accel.track: what runs log, on its way to files. Trackers by name are an Accelerator's log_with; SummaryWriter writes TensorBoard's
--- event files without one.
local lazy = require "accel.util.lazy"

return lazy("accel.track", { SummaryWriter = "summary_writer", TensorBoardTracker = "tensorboard", JsonLinesTracker = "lines",
  CsvTracker = "lines" })
