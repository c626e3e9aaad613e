-- accel-run ps, top, stacks and attach on jobs of one to three ranks: what people see, and that what runs computes the same.
local accel = require "accel"
local t = dofile((arg[0]:match "^.*/" or "") .. "support.lua")

local function has(text, part, what)
  assert(text:find(part, 1, true), ("%s: no '%s' in\n%s"):format(what or "output", part, text))
end

local line_of = t.line_of
local STEP, NEXT, LOOP, BARRIER = line_of "opt:step()", line_of "opt:zero_grad()", line_of "  while true do end", line_of "if rank == 1 then dist"
local READ, BREAK = line_of "io.read()", line_of "accel.breakpoint("

-- ---- nothing runs ----
local out, err, status = t.run "attach"
assert(out == "" and status == 1)
has(err, "you have no running script")
assert(t.run "ps" == "")

-- ---- what ps finds: a job that is only about to describe itself stays as it is, and a folder that others can write in is nobody's ----
do
  local folder = t.env.XDG_RUNTIME_DIR .. "/accel"
  os.execute(("mkdir -m 700 -p '%s/0badcafe' && echo x > '%s/0badcafe/token'"):format(folder, folder))
  assert(t.run "ps" == "")
  assert(t.read(folder .. "/0badcafe/token") == "x\n", "ps took the token of a job that begins")
  local gone = '{"rank":0,"ranks":1,"pid":1,"start":1,"began":1,"segment":3,"script":"x.lua"}'
  os.execute(("echo '%s' > '%s/0badcafe/rank0.json'; chmod 755 '%s'"):format(gone, folder, folder))
  assert(t.run "ps" == "")
  assert(t.read(folder .. "/0badcafe/rank0.json") ~= "", "ps tidied up in a folder that is open to others")
  os.execute(("chmod 700 '%s'; mv '%s' '%s.real'; ln -s '%s.real' '%s'"):format(folder, folder, folder, folder, folder))
  assert(t.run "ps" == "")
  assert(t.read(folder .. "/0badcafe/rank0.json") ~= "", "ps followed a link")
  os.execute(("rm '%s'; mv '%s.real' '%s'"):format(folder, folder, folder))
  assert(t.run "ps" == "") -- its process has ended: now it is tidied up
  assert(t.read(folder .. "/0badcafe/token") == "")
end

-- ---- a rank that took a pause which another came too late for goes on, before both are asked anew ----
do
  local asked, let_go = {}, {}
  local self = setmetatable({ size = 2, ranks = {}, news = {} }, accel.host_chunk("attach/client").Client)
  local answers = { [0] = { "step 5", "armed", "none", "step 9", "armed" }, { "step 6", "late 8", "step 9", "armed" } }
  for rank = 0, 1 do
    self.ranks[rank] = { away = true, control = { ask = function(_, text)
      asked[#asked + 1] = rank .. " " .. text
      return table.remove(answers[rank], 1)
    end } }
  end
  function self.channels()
    if self.ranks[0].away then self:arrived(0, { why = { reason = "step" }, step = 8, at = "x" }) end
    return {}
  end
  function self.go(_, how, ranks)
    let_go[#let_go + 1] = how .. " " .. table.concat(ranks, ",")
    self.ranks[ranks[1]].away = true
  end
  self.places = {}
  assert(self:agree())
  assert(table.concat(let_go, ";") == "continue 0" and #self.news == 0, table.concat(let_go, ";"))
  local all = table.concat(asked, ";")
  assert(all == "0 status;1 status;0 pause 8;1 pause 8;0 cancel;0 status;1 status;0 pause 13;1 pause 13", all)
  -- Ctrl-C right behind :c: ranks that have not read it are not taken for ranks that nobody needs
  asked, answers = {}, { [0] = { "paused 9", "step 10", "armed" }, { "step 9", "step 9", "armed" } }
  self.ranks[0].away = true
  self.channels = function() return {} end
  assert(self:agree())
  all = table.concat(asked, ";")
  assert(all == "0 status;1 status;0 status;1 status;0 pause 12;1 pause 12", all)
end

-- ---- a stopped process: an answer that comes late is not taken for the next request's, and no client waits at its full queue ----
do
  local jobs = accel.host_chunk "attach/jobs"
  function jobs.folder() return t.env.XDG_RUNTIME_DIR .. "/accel" end
  local job = t.start(("'%s' 1000000 slow"):format(t.case))
  local row = t.running(1, 2)
  local found = assert(jobs.find(row.id))
  local c <close> = assert(jobs.connect(found, 0))
  os.execute(("kill -STOP %d"):format(row.pid))
  t.wait("its stop", function() return jobs.process_state(row.pid) == "T" end)
  local answer, why = c:ask("status", 0.1)
  assert(not answer and why == "no answer", why)
  local began = accel.clock()
  for _ = 1, 40 do assert(not jobs.connect(found, 0, 0.02)) end
  assert(accel.clock() - began < 10)
  os.execute(("kill -CONT %d"):format(row.pid))
  answer = c:ask "cancel"
  assert(answer == "none", answer)
  answer = c:ask "status"
  assert(answer:find "^step %d+$", answer)
  t.kill(job)
end

-- ---- the prompt of three ranks: locals, one step, breakpoints on one rank, NaN by a watch, all or none ----
do
  local job = t.start(("--num-processes 3 --timeout 5 '%s' 1000000 slow"):format(t.case))
  local row = t.running(3, 5)
  assert(row.script == t.case)
  out = t.run("top --count 1")
  has(out, "RANK     STEP")
  for rank = 0, 2 do assert(out:find("\n   " .. rank .. " +%d+ +%S+ +%S+"), out) end
  local nothing
  nothing, err, status = t.run "attach nowhere"
  assert(status == 1)
  has(err, "no job 'nowhere'")
  out = t.run("attach " .. row.id:sub(1, 4), [[
i
rank
:up
mode
:step 3
:step 2
@1 i
:detach]])
  local first = tonumber(out:match("^%[all%] at %S+job.lua:" .. STEP .. ", after step (%d+)\n"))
  assert(first, out)
  has(out, ("[all] %d\n"):format(first)) -- i of the function that called the step
  has(out, "[rank 0] 0\n[rank 1] 1\n[rank 2] 2\n")
  has(out, '[all] "slow"')
  has(out, ("after step %d\n"):format(first + 3))
  has(out, ("after step %d\n"):format(first + 5))
  has(out, ("[rank 1] %d"):format(first + 5))

  -- an assignment that fails on one rank is taken back on the others
  out, err = t.run("attach", [[
scale = rank == 1 and error "not here" or 2.0
scale
scale = 3.0
scale
:detach]])
  has(out, "[rank 1] stdin:1: not here")
  has(out, "taken back on ranks 0, 2, since it failed on 1")
  has(out, "[all] 1\n")
  has(out, "[all] 3\n")

  -- the others wait for the one rank at the breakpoint for longer than their timeout
  out, err = t.run("attach", ([[
:break job.lua:LINE if rank == 1 and i % 5 == 0
:break
:c
#6.5
:ranks
:stacks
@1 scale = 0/0
:delete 1
:watch loss
:c
#1.5
:c
#1.5
loss:item()
scale = 1.0
:next
:out
:detach]]):gsub("LINE", tostring(NEXT)))
  has(out, ("1  job.lua:%d if rank == 1 and i %% 5 == 0"):format(NEXT))
  has(out, "[rank 1] at ")
  has(out, ("job.lua:%d, after step"):format(NEXT))
  has(out, "(breakpoint 1)")
  assert(out:find "%[rank 0%] waits in all_reduce [^\n]* for rank 1", out)
  has(out, "rank 1  pid ")
  assert(out:find("(loss: tensor<f32 (), = nan", 1, true) or out:find("(loss: tensor<f32 (), = -nan", 1, true), out .. err)
  assert(out:find "nan", out)
  has(out, "(after a step of lines)")
  assert(#t.ps() == 1, "the job has ended:\n" .. t.read(job.err))
  has(t.read(job.err), "which stands at a prompt")

  -- a client that is killed leaves ranks that train on; another comes
  local before = t.ps()[1].step
  t.run("attach", ":kill\n") -- no such command, then the end of the input: it leaves
  out = t.run("attach --rank 2", "rank\n")
  has(out, "\n2\n")
  t.wait("further steps", function() return t.ps()[1].step > before + 20 end)
  t.kill(job)
end

-- ---- where ranks hang: a loop, a collective, a read; and a stopped process ----
do
  local job = t.start(("--num-processes 4 '%s' 1000000 hang"):format(t.case))
  t.wait("ranks that hang", function()
    local row = t.ps()[1]
    return row and row.step == 20
  end)
  accel.process.spawn("/bin/sleep", { "sleep", "0.5" }, {}):wait(1)
  local stopped = tonumber(t.run("stacks"):match "rank 3 %(pid (%d+)%)")
  os.execute(("kill -STOP %d"):format(stopped))
  local began = accel.clock()
  out = t.run "stacks"
  local seconds = accel.clock() - began
  assert(seconds < 4, ("%.1f s"):format(seconds))
  assert(out:find("rank 2 %(pid %d+%), step 20\n  %S+job.lua:" .. LOOP .. ": in local 'hang'"), out)
  assert(out:find("rank 1 %(pid %d+%), step 20, waits in barrier at %S+job.lua:" .. BARRIER .. " for ranks 0, 2, 3 for"), out)
  assert(out:find("job.lua:" .. BARRIER .. ": in local 'hang'"), out)
  assert(out:find("rank 0[^\n]*\n[^\n]*in field 'read'\n  %S+job.lua:" .. READ .. ": in local 'hang'"), out)
  assert(out:find "rank 3 [^\n]*is stopped; kill %-CONT %d+ lets it continue\n  last seen at %S+job.lua", out)
  os.execute(("kill -CONT %d"):format(stopped))
  t.kill(job)
end

-- ---- accel.breakpoint on one rank, and an error with --pdb ----
do
  local job = t.start(("--num-processes 2 --timeout 4 '%s' 40 breakpoint"):format(t.case))
  t.wait("the breakpoint", function() return t.read(job.err):find("has stopped at %S+job.lua:" .. BREAK .. " %(accel.breakpoint%(%)%)") end)
  accel.process.spawn("/bin/sleep", { "sleep", "5" }, {}):wait(9) -- longer than the timeout of the rank that waits
  out = t.run("attach --here", "#1\ni, rank\n:c\n")
  assert(out:find("%[rank 1%] at %S+job.lua:" .. BREAK .. ", after step 9 %(accel.breakpoint%(%)%)"), out)
  has(out, "10  1")
  assert(job.process:wait(60) == "exit", t.read(job.err))
  has(t.read(job.out), "digest ")
end
do
  local path = t.tmp .. "/wrong.lua"
  local file = assert(io.open(path, "w"))
  file:write 'local shape = { 4, 5 }\nlocal function f(x)\n  local y = x + 1\n  error "boom"\nend\nf(41)\n'
  file:close()
  local job = t.start(("--pdb '%s'"):format(path))
  t.wait("the error", function() return t.read(job.err):find "has stopped at %S+wrong.lua:4 %(an error%)" end)
  out = t.run("attach", "x, y\n:up\nshape[2]\n:detach\n")
  has(out, "41  42")
  has(out, "\n5\n")
  local how, code = job.process:wait(30)
  assert(how == "exit" and code == 1, how)
  has(t.read(job.err), "wrong.lua:4: boom")
end
