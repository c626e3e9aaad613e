-- luacheck settings; the host makes undeclared globals an error, so the linter does too.
std = "lua54"
max_line_length = 110
cache = false
exclude_files = { "build", "tests/reference", "lua/meta" }
ignore = {
  "212",     -- unused argument: callbacks take what their caller passes
  "213",     -- unused loop variable
  "411/_",   -- local _ <close> more than once
  "421/_",
}
files["lua"] = { read_globals = { "accel" } }
