-- One rank of a row of several processes: folders_accelerate.lua starts it. Prints "DIFFERS <quantity> <distance> <bar>", separated by tabs.
--   accel-run --num_processes 2 tests/reference/folders_accelerate_ranks.lua ROW
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
require("folders_accelerate").on_ranks(arg[1], function(quantity, distance, bar)
  io.write(("DIFFERS\t%s\t%s\t%s\n"):format(quantity, tostring(distance), tostring(bar)))
end)
