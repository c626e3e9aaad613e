-- accel-run --dry-run against 1, 2, 4 and 8 real ranks with a model of some size and the collector as it is, which each of eight steps finds at
-- another moment, here and there: DDP and ZeRO 1 to 3. Peaks agree within 3 %, collectives exactly. Times are shown, and held to nothing: ranks
-- share the cores of whatever machine runs this. Beside the clock they are shown against the CPU time of all ranks over the cores, which is
-- what a step takes at the least where the ranks are as many as the cores or more, however loaded the machine.
-- tier: slow
local here = arg[0]:match "^(.*)/[^/]*$"
local compare = dofile(here .. "/../../support/dry_runs.lua")
compare { ranks = { 1, 2, 4, 8 }, model = "8 256 6 128", within = 0.03, slack = 0, show = true }
