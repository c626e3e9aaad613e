-- ckpt_kill_test.lua with a model that 4 ranks share, by tensor parallelism over 2 and a pipeline of 2 stages: kill -9 at random moments, a
-- third of them inside a save, then resume, until the run ends with the bits of one that nobody disturbed.
-- tier: sampled
-- parts: a b c d e
-- 4 shots in a sample, 500 in a full run, 100 in each part of it.   accel-run mesh_kill_test.lua [shots]     seed: ACCEL_TEST_SEED
rawset(arg, "stage", "mesh")
if not arg[1] and os.getenv "ACCEL_TEST_FULL" ~= "1" then rawset(arg, 1, "4") end
dofile((arg[0]:match "^.*/" or "") .. "ckpt_kill_test.lua")
