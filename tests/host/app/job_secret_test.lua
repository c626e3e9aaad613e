-- Two machines of accel-run that share a secret, or do not: where it comes from, and the one line on each side when secrets differ, one is
-- missing, or one machine runs with --insecure.
-- tier: slow
--   accel-run tests/host/app/job_secret_test.lua
local accel = require "accel"

if not accel.features().libcrypto then
  print "skipped: this build lacks libcrypto"
  os.exit(77)
end
local folder = dofile((arg[0]:match "^.*/" or "") .. "../../support/test_folder.lua") "job"
local root, R, port, write, read, has = folder.root, folder.program, folder.port, folder.write, folder.read, folder.has

local function count(text, part)
  local n = 0
  for _ in text:gmatch(part) do n = n + 1 end
  return n
end

write("w.lua", [[
local accel = require "accel"
local a = accel.Accelerator()
a:wait_for_everyone()
print(("rank %d of %d"):format(a.process_index, a.num_processes))
]])

-- Both machines with their variables, options and standard input; their statuses and texts.
local function job(zero, one, timeout)
  port = port + 1
  local running, out = {}, {}
  for machine, how in ipairs { zero, one } do
    running[machine] = accel.process.spawn("/bin/sh", { "sh", "-c", ("cd '%s' && %s exec env -i PATH=/usr/bin:/bin ACCEL_DEVICE=cpu HOME='%s' %s "
      .. "'%s' --num_threads 1 --num-processes 2 --num-machines 2 --machine-rank %d --main-process-ip 127.0.0.1 --main-process-port %d "
      .. "--timeout %g %s w.lua >'%d.out' 2>&1 <'%s'"):format(root, how.before or "", how.home or root, how.env or "", R, machine - 1, port,
      timeout or 20, how.options or "", machine, how.input or "/dev/null") }, {})
  end
  for machine, p in ipairs(running) do
    local ended, code = p:wait(60)
    p:close()
    out[2 * machine - 1], out[2 * machine] = ended == "exit" and code, read(machine .. ".out")
  end
  return table.unpack(out)
end
local function good(...)
  local a, x, b, y = job(...)
  assert(a == 0 and b == 0, x .. y)
  has(x, "rank 0 of 2")
  has(y, "rank 1 of 2")
  return x .. y
end

-- a file of the user, which one of two first starts creates
good({}, {})
local first = read ".config/accel/job_secret"
assert(#first == 65, first)
assert(io.popen(("stat -c %%a '%s/.config/accel/job_secret'"):format(root)):read "l" == "600")
good({}, {})
assert(read ".config/accel/job_secret" == first)

-- a variable, a file, standard input: the same secret by three ways; a name of the job
write("secret", "open sesame\n")
good({ env = "ACCEL_JOB_SECRET='open sesame'" }, { options = "--job-secret-file secret" })
good({ options = "--job-secret-file - --run-id night", input = "secret" }, { env = "ACCEL_JOB_SECRET_FILE=secret", options = "--run-id night" })

-- secrets that differ, one that is missing, names that differ
for _, case in ipairs {
  { { env = "ACCEL_JOB_SECRET=one" }, { env = "ACCEL_JOB_SECRET=two" }, "ACCEL_JOB_SECRET" },
  { { env = "ACCEL_JOB_SECRET=one" }, { home = root .. "/other" }, root .. "/other/.config/accel/job_secret" },
  { { options = "--run-id a" }, { options = "--run-id b" }, "job b" },
} do
  local a, x, b, y = job(case[1], case[2], 2)
  assert(a == 1 and b == 1, x .. y)
  assert(count(x, "closed a connection from 127.0.0.1: it does not know the secret of this job; if it is a machine of this job, give") == 1, x)
  has(x, "connections without the secret of the job")
  assert(count(y, "rank 1 cannot join rank 0 at 127%.0%.0%.1:%d+: it does not accept the secret of this machine") == 1, y)
  has(y, case[3])
  has(y, "give all machines the same secret (ACCEL_JOB_SECRET, --job-secret-file)")
  for _, text in ipairs { x, y } do assert(not text:find "one%f[%s]" or not text:find "two", text) end
end

-- --insecure warns, and is for all or for none
local text = good({ options = "--insecure" }, { env = "ACCEL_INSECURE=1" })
assert(count(text, "%-%-insecure: whoever reaches") == 2, text)
for _, case in ipairs {
  { {}, { options = "--insecure" }, "it runs with --insecure, unlike this machine", "it does not run with --insecure, unlike this machine" },
  { { options = "--insecure" }, {}, "it does not run with --insecure, unlike this machine", "it runs with --insecure, unlike this machine" },
} do
  local a, x, b, y = job(case[1], case[2], 2)
  assert(a == 1 and b == 1, x .. y)
  has(x, case[3])
  has(y, case[4])
  has(y, "give --insecure to all machines or to none")
end

-- a file that others can read, and one that is not there
assert(os.execute(("chmod 644 '%s/.config/accel/job_secret'"):format(root)))
local _, x = job({}, { env = "ACCEL_JOB_SECRET=x" }, 1)
has(x, "other users can read the secret of jobs (mode 0644); remove it on all machines")
_, x = job({ options = "--job-secret-file nowhere" }, { env = "ACCEL_JOB_SECRET=x" }, 1)
has(x, "--job-secret-file nowhere: No such file or directory; create it on every machine with the same contents")

-- bug reports do not hold the secret
local env = io.popen(("ACCEL_JOB_SECRET='open sesame' '%s' env"):format(R)):read "a"
assert(env:find "ACCEL_JOB_SECRET +%(hidden%)" and not env:find "sesame", env)
print "job secret ok"
