-- accel-run --dry-run against 1, 2, 4 and 8 real ranks with a model of some size and the collector as it is: DDP and ZeRO 1 to 3. Peaks
-- agree within 3 %, and what the collector leaves at the least lucky moment, of which the dry run takes the worst; collectives exactly.
-- Times are shown, and held to nothing: ranks share the cores of whatever machine runs this.
-- tier: slow
local here = arg[0]:match "^(.*)/[^/]*$"
local compare = dofile(here .. "/../../support/dry_runs.lua")
compare { ranks = { 1, 2, 4, 8 }, model = "6 256 6 128", within = 0.03, slack = 2 << 20, show = true }
