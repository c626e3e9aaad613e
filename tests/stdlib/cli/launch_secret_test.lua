-- accel-run launch over the machines of a hostfile: the secret of the job reaches them on the standard input of ssh, never in arguments,
-- and ranks do not have it in their environment. ssh is a program of this test, which gives each machine a home folder of its own.
--   accel-run tests/stdlib/cli/launch_secret_test.lua
local accel = require "accel"

if not accel.features().libcrypto then
  print "skipped: this build lacks libcrypto"
  os.exit(77)
end
local folder = dofile((arg[0]:match "^.*/" or "") .. "../../support/test_folder.lua") "secret"
local root, R, port, write, read, has = folder.root, folder.program, folder.port, folder.write, folder.read, folder.has

write("ssh", ([[
#!/bin/sh
[ "$1 $2" = "-o BatchMode=yes" ] || exit 3
printf '%%s\n' "$*" >>'%s/arguments'
HOME="%s/$3" && export HOME && unset XDG_CONFIG_HOME ACCEL_JOB_SECRET
shift 3
exec sh -c "$*"
]]):format(root, root))
assert(os.execute(("chmod +x '%s/ssh' && ln -s ssh '%s/other'"):format(root, root)))
write("hosts", "127.0.0.1 slots=1\nlocalhost slots=1\n")
write("w.lua", [[
local accel = require "accel"
local a = accel.Accelerator()
for _, name in ipairs { "environ", "cmdline" } do
  local text = assert(io.open("/proc/self/" .. name, "rb")):read "a"
  assert(not text:find "ACCEL_JOB_SECRET" and not text:find "open sesame", text)
end
a:wait_for_everyone()
print(("rank %d of %d"):format(a.process_index, a.num_processes))
]])

local function launch(env, words)
  port = port + 1
  write("ds.yaml", ("distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 2\nmain_process_port: %d\nmixed_precision: 'no'\n"
    .. "deepspeed_config:\n  zero_stage: 2\n  deepspeed_hostfile: hosts\n"):format(port))
  os.remove(root .. "/arguments")
  local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", ("cd '%s' && exec env -i PATH='%s':/usr/bin:/bin ACCEL_DEVICE=cpu "
    .. "HOME='%s' OMP_NUM_THREADS=1 %s '%s' launch --config_file ds.yaml --timeout 20 %s w.lua >out 2>&1 </dev/null"):format(root, root, root,
    env, R, words) }, {})
  local how, code = p:wait(120)
  return how == "exit" and code, read "out", read "arguments"
end

-- a new secret, one of the environment, one of a file
local status, out, arguments = launch("", "")
assert(status == 0, out)
has(out, "rank 0 of 2")
has(out, "rank 1 of 2")
has(arguments, "'--job-secret-file' '-'")
assert(read "127.0.0.1/.config/accel/job_secret" == "" and read "localhost/.config/accel/job_secret" == "")
status, out, arguments = launch("ACCEL_JOB_SECRET='open sesame'", "")
assert(status == 0 and not arguments:find "sesame", out)
write("secret", "open sesame\n")
status, out, arguments = launch("", "--job-secret-file secret --run-id night")
assert(status == 0 and not arguments:find "sesame", out)
has(arguments, "'--run-id' 'night'")

-- --insecure: nothing is sent, and each machine warns
status, out, arguments = launch("", "--insecure")
assert(status == 0 and not arguments:find "secret-file", out)
has(out, "--insecure: whoever reaches this job's ports can read and change it")

-- a file that is not there ends the launch
status, out = launch("", "--job-secret-file nowhere")
assert(status == 2, out)
has(out, "--job-secret-file: nowhere: cannot open: No such file or directory")

-- the other end reads one line; the script would read the rest
status, out = launch("ACCEL_JOB_SECRET=\"$(printf 'open\\nsesame')\"", "")
assert(status == 2, out)
has(out, "ACCEL_JOB_SECRET: expected a secret of one line")
print "launch secret ok"
