-- accel-run --dry-run against 1, 2, 4 and 8 real ranks with a model of some size and the collector as it is: DDP and ZeRO 1 to 3. Peaks
-- agree within 3 %, and what the collector may leave for a moment (8 times the heap of Lua); collectives exactly. Times are shown only.
-- tier: slow
local here = arg[0]:match "^(.*)/[^/]*$"
local compare = dofile(here .. "/../../support/dry_runs.lua")
compare { ranks = { 1, 2, 4, 8 }, model = "5 256 6 128", within = 0.03, slack = 2 << 20, show = true }
