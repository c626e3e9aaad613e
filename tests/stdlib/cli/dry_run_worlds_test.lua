-- accel-run --dry-run against 1, 2, 4 and 8 real ranks with a model of some size and the collector as it is: DDP and ZeRO 1 to 3. Peaks
-- agree within 3 %; collectives exactly. Times are shown, and held to nothing: ranks share the cores of whatever machine runs this.
-- tier: slow
local here = arg[0]:match "^(.*)/[^/]*$"
local compare = dofile(here .. "/../../support/dry_runs.lua")
compare { ranks = { 1, 2, 4, 8 }, model = "5 256 6 128", within = 0.03, slack = 0, show = true }
