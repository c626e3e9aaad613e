-- ckpt_kill_test.lua with parameters, gradients and optimizer states cut over the ranks (ZeRO 3): kill -9 at random moments, a third
-- of them inside a save, then resume, until the run ends with the bits of one that nobody disturbed.
-- tier: sampled
-- parts: a b c d e
-- 8 shots in a sample, 500 in a full run.   accel-run shard_kill_test.lua [shots]     seed: ACCEL_TEST_SEED
rawset(arg, "stage", "3")
dofile((arg[0]:match "^.*/" or "") .. "ckpt_kill_test.lua")
