-- accel-run --num_processes N repl, and accel.repl() in a script on several ranks: one prompt, equal and different
-- answers, ranks that err, wait, loop and die, Ctrl-C, comparison of tensors; nothing stays behind.
--   accel-run tests/host/app/repl_ranks_test.lua
local accel = require "accel"
local pty = dofile((arg[0]:match "^.*/" or "") .. "../../support/pty.lua")
local function ranks(n) return ("'%s' --num_processes %d --num_threads 1"):format(pty.run, n) end

local function has(text, part)
  assert(text:find(part, 1, true), ("'%s' is not in\n%s"):format(part, text))
end

-- ---- a script on standard input ----
local status, out, err = pty.pipe([[
1 + 1
dist.get_rank()
x = accel.arange(6):view(2, 3):to("f32")
x
y = x + dist.get_rank() * 0.5
y
:diff x
:diff y
:diff { same = x, other = y, flag = x:gt(2) }
@0,2 print("two")
print("all of us")
print("rank", dist.get_rank())
t = accel.ones(2) dist.all_reduce(t) return t:sum():item()
:ranks
:on 1 x:sum()
@0-1 @2
if dist.get_rank() == 1 then error("only here") end
1
]], ranks(3) .. " repl")
local all = out .. "\n---- " .. err
assert(status == 1, all) -- the line before the last one failed
has(out, "[all] 2\n[rank 0] 0\n[rank 1] 1\n[rank 2] 2\n[all]\nf32 (2, 3) cpu")
has(out, "f32 (2, 3): the same on ranks 0-2")
has(out, "max abs difference 0.5 at [1, 1] (0, here 0.5)")
has(out, "6 of 6 differ, the first at [1, 1] (0, here 1)")
has(out, "1 of 3 tensors differ between ranks 0-2")
has(out, "[ranks 0, 2] two\nall of us\n[rank 0] rank\t0\n[rank 1] rank\t1\n[rank 2] rank\t2\n")
has(out, "[all] 6\n")
has(out, "rank 2  pid ")
has(out, "[rank 1]\nf32 () cpu\ntensor(15.)")
assert(not out:find "only here\n[^\n]*[^\n]\n1\n", all)

for line in out:gmatch "[^\n]+" do assert(#line <= 80, line) end

-- Wrong targets, wrong commands.
for input, why in pairs {
  ["@7 1"] = "ranks are 0 to 1", ["@0 :typee 1"] = "did you mean :type?", [":diff 3"] = "it has no tensor",
  [":diff nil + 1"] = "[all] stdin:1: attempt to perform arithmetic", ["@x 3"] = "stdin:1: '@x': ranks are 0 to 1",
  ["@1"] = "stdin:1: nothing is to be run on '@1'", [":foo"] = "[all] stdin:1: no command :foo",
  ["@1 no_such"] = "[rank 1] stdin:1: undeclared global 'no_such'", ["no_such?"] = "nothing is known of 'no_such'",
} do
  status, out, err = pty.pipe(input .. "\n", ranks(2) .. " repl")
  assert(status == 1, out .. err)
  has(out .. err, why)
end

-- ---- collectives that end, while all ranks live: they work again ----
pty.write("anew.lua", [[
local accel = require "accel"
local dist = accel.dist
local rank = dist.get_rank()
local pair = dist.new_group { 0, 1 }
accel.repl()
dist.barrier()
print("end", rank)
]])
local anew = ("cd '%s' && %s anew.lua"):format(pty.tmp, ranks(3))
status, out, err = pty.pipe([[
dist.all_reduce(accel.ones(2 + rank))
t = accel.ones(2) dist.all_reduce(t) return t:sum():item()
select(2, pcall(dist.all_reduce, accel.ones(2 + rank)))
if rank < 2 then dist.all_reduce(accel.ones(2 + rank), { group = pair }) end
t = accel.ones(90000) if rank < 2 then dist.all_reduce(t, { group = pair }) end return t:sum():item()
if rank == 0 then w = dist.all_reduce(accel.ones(4), { async_op = true }) else dist.barrier() end
dist.barrier() return "back"
more = dist.new_group(rank == 2 and { 0, 1 } or { 0, 2 })
more = dist.new_group { 0, 2 }
t = accel.ones(3) if rank ~= 1 then dist.all_reduce(t, { group = more }) end return t:sum():item()
]], anew)
all = out .. "\n---- " .. err
assert(status == 0, all)
has(out, "collectives work again\n[all] 6\n")
has(out, "[ranks 0, 1] 180000\n[rank 2] 90000\n")
has(out, '[all] "back"\n')
has(out, "[ranks 0, 2] 6\n[rank 1] 3\n")
has(out, "end\t2")
local told = all:gsub("stopped: ranks differ", "") -- by ranks that came when it was over
assert(select(2, told:gsub("ranks differ", "")) == 5, all) -- once each
assert(select(2, out:gsub("collectives work again\n", "")) == 5, all)
-- The same over sockets.
status, out, err = pty.pipe("dist.all_reduce(accel.ones(2 + rank))\nsum = accel.ones(2)\ndist.all_reduce(sum)\nsum[1]:item()\nrank\n",
  (anew:gsub(" anew.lua", " --backend tcp%0")))
has(out, "collectives work again\n")
assert(out:find("[all] 3\n", 1, true) and out:find("[rank 2] 2", 1, true), out .. err)

-- ---- how it ends ----
for input, want in accel.pairs { ["os.exit(3)"] = 3, ["os.exit()"] = 0, ["@1 os.exit(4)"] = 4, ["error 'x'"] = 1,
  ["@1 os.execute 'kill -9 $PPID'"] = 137, ["@1 os.exit(0)"] = 0 } do
  status, out, err = pty.pipe(input .. "\n", ranks(2) .. " repl")
  assert(status == want, ("%s: status %d\n%s\n%s"):format(input, status, out, err))
end

-- ---- accel.repl() is a call that all ranks make ----
for rank = 0, 1 do
  pty.write("some_stop.lua", ([[
local accel = require "accel"
local dist = accel.dist
if dist.get_rank() == %d then accel.repl() end
dist.%s
print "never"
]]):format(rank, rank == 0 and "barrier()" or "all_reduce(accel.ones(3))"))
  status, out, err = pty.pipe("1\n", ("cd '%s' && %s some_stop.lua"):format(pty.tmp, ranks(3)))
  assert(status == 1 and not out:find "never", out .. err)
  has(err, ("rank %d in accel.repl() at some_stop.lua:3"):format(rank))
  assert(err:find(("ranks? [%d, 2]+ in %s at some_stop.lua:4"):format(1 - rank, -- those that were there by then
    rank == 0 and "barrier" or "all_reduce f32 %(3%) sum")), err)
end

-- ---- in a terminal ----
pty.editors() -- or skip
pty.play("three ranks", [[
expect 3 ranks
expect [0-2] >\x20
line 1 + 41
expect [all] 42
expect [0-2] >\x20
line dist.get_rank() * 2
expect [rank 1] 2
expect [rank 2] 4
expect [0-2] >\x20
line @1 dist.barrier()
expect [rank 1] waits in barrier at stdin:3 for ranks 0, 2, which are at the prompt
expect [0-2; 1 busy] >\x20
line @0,2 5 + 5
expect [ranks 0, 2] 10
expect >\x20
line @0,2 dist.barrier()
expect [rank 1] done, no value
expect [0-2] >\x20
line @2 while true do end
expect [rank 2] still runs stdin:6
expect [0-2; 2 busy] >\x20
line @0 7 * 7
expect [rank 0] 49
expect >\x20
send \x03
expect [rank 2] stdin:6: interrupted
expect [0-2] >\x20
line if dist.get_rank() == 1 then error("boom") else return 5 end
expect [ranks 0, 2] 5
expect [rank 1] stdin:8: boom
expect [0-2] >\x20
line function f(x)
expect >>\x20
line return x + dist.get_rank() end
expect [0-2] >\x20
line f(1)
expect [rank 2] 3
expect [0-2] >\x20
line for i = 1, 3 do print(i) end
expect \n1\n2\n3\n
expect [0-2] >\x20
line while true do accel.step() end
expect busy] >\x20
send \x03
expect stdin:13: step: interrupted by signal 2
expect [0-2] >\x20
line dist.barrier() return "still a world"
expect [all] "still a world"
expect [0-2] >\x20
line @1 os.execute("kill -9 $PPID")
expect rank 1 (pid
expect was killed by signal 9 (Killed), at stdin:15
expect collectives no longer work: rank 1 is gone
expect [0, 2] >\x20
line 7 + 7
expect [all] 14
expect >\x20
line dist.barrier()
expect rank 1
line accel.ones(2):sum():item()
expect [all] 2
expect >\x20
line :quit
end 0
]], ranks(3) .. " repl")

pty.play("Ctrl-C in a collective that the others never enter", [[
expect [0-2] >\x20
line @0 dist.barrier()
expect [rank 0] waits in barrier at stdin:1
expect busy] >\x20
send \x03
expect was interrupted in barrier at stdin:1
expect collectives work again
quiet 0.5
line dist.barrier() return "met"
expect [all] "met"
line @0 dist.barrier()
expect [rank 0] waits in barrier
line @1 while true do end
expect [rank 1] still runs
line @2 dist.all_reduce(accel.ones(3))
expect collectives do not work until all ranks are at the prompt
send \x03
expect interrupted
expect collectives work again
line dist.barrier() return "again"
expect [all] "again"
line 3 + 3
expect [all] 6
expect >\x20
line @1 os.exit(3)
expect rank 1 (pid
expect exited with status 3
expect >\x20
quiet 0.1
send \x04
end 0
]], ranks(3) .. " repl")

pty.write("stop_ranks.lua", [[
local accel = require "accel"
local dist = accel.dist
local rank = dist.get_rank()
local x = accel.ones(2) * (rank + 1)
accel.repl()
print("after", rank, x:sum():item())
dist.barrier()
accel.repl("second")
print("end", rank)
]])
pty.play("accel.repl() in a script on two ranks", [[
expect stop_ranks.lua:5: in main chunk
expect [0, 1] stop_ranks.lua:5>\x20
line rank
expect [rank 1] 1
expect >\x20
line x = x * 10
expect >\x20
line :diff x
expect max abs difference 10 at [1] (10, here 20)
expect >\x20
line :c
expect after\t0\t20
expect second
expect stop_ranks.lua:8>\x20
send \x03
expect ^C
expect >\x20
line while true do end
expect busy] stop_ranks.lua:8>\x20
send \x03
expect stdin:1: interrupted
expect [0, 1] stop_ranks.lua:8>\x20
quiet 0.1
send \x04
expect end\t0
end 0
]], ("sh -c \"cd '%s' && exec %s stop_ranks.lua\""):format(pty.tmp, ranks(2)))

-- Callers' locals on all ranks; the prompt follows what is selected.
pty.write("caller_ranks.lua", [[
local accel = require "accel"
local rank = accel.dist.get_rank()
local function inner(x)
  accel.repl()
  return x
end
local function outer()
  local mine = rank * 10
  local got = inner(1)
  return got + mine
end
print("sum", outer())
]])
pty.play("callers' locals on two ranks", [[
expect [0, 1] caller_ranks.lua:4>\x20
line mine
expect undeclared global 'mine'; a local of that name is at :up (caller_ranks.lua:9)
expect >\x20
line :up
expect [all] caller_ranks.lua:9: in local 'outer'
expect [0, 1] caller_ranks.lua:9>\x20
line mine
expect [rank 1] 10
expect >\x20
line mine = mine + 5
expect >\x20
line @1 :down
expect [rank 1] caller_ranks.lua:4: in
expect [0, 1] >\x20
line :c
expect sum\t6
end 0
]], ("sh -c \"cd '%s' && exec %s caller_ranks.lua\""):format(pty.tmp, ranks(2)))

-- One rank that does not come is named.
pty.write("one_stops.lua", [[
local accel = require "accel"
if accel.dist.get_rank() == 0 then
  accel.repl()
end
]])
status, out, err = pty.pipe("1\n", ("cd '%s' && %s one_stops.lua"):format(pty.tmp, ranks(2)))
assert(status == 1, out .. err)
has(err, "rank 1 left at one_stops.lua:")
has(err, "one_stops.lua:3")

-- :quit ends the script on all ranks.
status, out, err = pty.pipe("rank\n:quit\n", ("cd '%s' && %s stop_ranks.lua"):format(pty.tmp, ranks(2)))
assert(status == 0, out .. err)
has(out, "[rank 1] 1")
assert(not out:find "after", out)

-- ---- nothing is left ----
local function left() -- of this build: others may be tested at the same time
  local pipe <close> = io.popen "ps -ww -eo stat=,args= | grep -v '^Z' | grep -E '[s]top_ranks.lua|[r]epl:front|[1] repl$'"
  local list = {}
  for line in pipe:lines() do
    if line:find(pty.run, 1, true) then list[#list + 1] = line end
  end
  return table.concat(list, "\n")
end
local limit = accel.clock() + 30
while left() ~= "" and accel.clock() < limit do os.execute "sleep 0.1" end
assert(left() == "", left())
