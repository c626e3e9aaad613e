-- luacheck settings; the host makes undeclared globals an error, so the linter does too. Run by tests/check/luacheck.sh.
std = "lua54"
max_line_length = false -- tests/check/sources.lua has a wall for all languages
cache = false
exclude_files = { "build", "tests/reference", "lua/meta" }
ignore = {
  "212",     -- unused argument: callbacks take what their caller passes
  "213",     -- unused loop variable
  "411/_",   -- local _ <close> more than once
  "421/_",
  "431/_",
  "311",     -- local a, b = x, nil: what is filled in later
  "512",     -- a loop that is left at once takes the first
  "542",     -- a branch that says in words why nothing is to do
  "581",     -- not (x < y) is true for NaN, x >= y is not
}
files["lua"] = { read_globals = { "accel" } }
-- stand-ins for those of a session; variables that are there for their <close>
files["lua/repl"] = { globals = { "coroutine", "io" }, ignore = { "211/accel", "211/guard", "211/restore", "211/done" } }
files["stdlib/accel/dist/worker.lua"] = { globals = { "arg" }, ignore = { "211/failing" } } -- gives the module its arguments
files["stdlib/accel/launch.lua"] = { ignore = { "421/rank" } }
files["examples/embed"] = { globals = { "train", "predict", "app" } } -- the program's side
files["tests"] = {
  ignore = {
    "211", "221", "231", "311", "331", "312", -- values that are made for the sake of making them
    "4..",                                    -- cases beside each other use the same names
    "61.",                                    -- expected texts
  },
}
