--- accel.track: transfers logged values of runs to files and servers. Trackers by name are an Accelerator's log_with. Run logs into a run
--- store, which Store reads, and SummaryWriter writes TensorBoard's event files, without one.
local lazy = require "accel.util.lazy"

return lazy("accel.track", { SummaryWriter = "summary_writer", TensorBoardTracker = "tensorboard", JsonLinesTracker = "lines",
  CsvTracker = "lines", Run = "run", Store = "store", StoreTracker = "store_tracker",
  MLflowTracker = "mlflow", TrackioTracker = "trackio", ClearMLTracker = "clearml", CometMLTracker = "comet_ml", DVCLiveTracker = "dvclive",
  WandBTracker = "wandb", AimTracker = "by_events", SwanLabTracker = "by_events", Alerts = "alerts" })
