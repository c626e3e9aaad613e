#!/bin/sh
# The Dockerfile and those who use it, as far as a machine without docker can tell: the list of packages is the quickstart's alone, the
# files that an early layer copies are enough to install them, files and targets that are named exist.
#   containers.sh        run by ctest with ACCEL_TEST_* set
set -eu
work="$ACCEL_TEST_TMP/work"
rm -rf "$work"
mkdir -p "$work/bin" "$work/tree"
cd "$ACCEL_TEST_SRC"
docker=examples/containers/Dockerfile
fail() { echo "$*"; exit 1; }
# Instructions, one a line.
sed -e '/^#/d' -e ':a' -e '/\\$/N; s/\\\n//; ta' "$docker" > "$work/lines"
bad=$(grep -v -E '^(ARG|FROM|ENV|RUN|WORKDIR|COPY|ENTRYPOINT|CMD) |^$' "$work/lines" || true)
[ -z "$bad" ] || fail "$docker: not an instruction: $bad"

# The quickstart, with what the stage dev copies before it runs, on a machine that has no package: stand-ins tell what it asks for.
awk '/^FROM/ { stage = $NF } /^COPY/ && stage == "dev" { for (i = 2; i < NF; i++) print $i, $NF }' "$work/lines" > "$work/copies"
[ -s "$work/copies" ] || fail "$docker: the stage dev copies nothing"
while read -r from to; do
  [ -f "$from" ] || fail "$docker: no file $from"
  mkdir -p "$work/tree/$to"
  cp "$from" "$work/tree/$to"
done < "$work/copies"
printf '#!/bin/sh\nexit 1\n' > "$work/bin/dpkg-query"
printf '#!/bin/sh\necho "$@" >> "%s/asked"\n' "$work" > "$work/bin/apt-get"
printf '#!/bin/sh\n[ "$1" = -u ] && echo 0\n' > "$work/bin/id"
printf '#!/bin/sh\necho "Open MPI"\n' > "$work/bin/mpirun"
for tool in cmake ninja cc; do printf '#!/bin/sh\necho "%s was started"\nexit 1\n' $tool > "$work/bin/$tool"; done
chmod +x "$work/bin/"*
command=$(sed -n 's/^RUN \(sh examples\/quickstart.sh [a-z -]*[a-z]\) .*/\1/p' "$work/lines")
[ -n "$command" ] || fail "$docker does not call the quickstart"
(cd "$work/tree" && PATH="$work/bin:$PATH" $command) > "$work/out" 2>&1 || { cat "$work/out"; fail "$command failed"; }
tr ' ' '\n' < "$work/asked" | grep -E '^[a-z][a-z0-9.+-]*$' | grep -v -x -e install -e update -e env -e apt-get | sort -u > "$work/packages"
# What the build needs, read by another way.
awk -F '|' '/^[a-z]/ { gsub(/ /, "", $3); print $3 }' host/base/libraries.txt > "$work/want"
for package in build-essential cmake pkg-config liblua5.4-dev lua-filesystem libdnnl-dev ninja-build libopenmpi-dev; do
  echo $package
done >> "$work/want"
sort -u "$work/want" -o "$work/want"
diff "$work/want" "$work/packages" || fail "< the build needs, > the quickstart installs"

# Packages that are there are not asked for, also on a machine that has them for two architectures.
cat > "$work/bin/dpkg-query" << 'END'
#!/bin/sh
for architecture in arm64 amd64; do
  printf "$(printf '%s' "$2" | sed "s/^-f=//; s/[$]{Status}/install ok installed/; s/[$]{Architecture}/$architecture/")"
done
END
printf '#!/bin/sh\necho amd64\n' > "$work/bin/dpkg"
chmod +x "$work/bin/dpkg"
rm "$work/asked"
(cd "$work/tree" && PATH="$work/bin:$PATH" $command) > "$work/out" 2>&1
[ ! -e "$work/asked" ] || fail "installs packages that are installed: $(cat "$work/asked")"

# No second copy of that list in the Dockerfile.
grep -o 'apt-get install [^&]*' "$work/lines" | tr ' ' '\n' > "$work/named"
while read -r package; do
  ! grep -q -x -F -e "$package" "$work/named" || fail "$docker names $package, which the quickstart installs"
done < "$work/packages"

# Targets and stages that others name.
stages=$(sed -n 's/^FROM .* AS \([a-z]*\)$/\1/p' "$work/lines")
has_stage() { for stage in $stages; do [ "$stage" = "$1" ] && return 0; done; fail "$2: no target $1 in $docker"; }
for target in $(sed -n 's/.*--target \([a-z]*\) .*/\1/p' "$docker"); do has_stage "$target" "$docker, comment"; done
for stage in $(grep -o -e '--from=[a-z]*' "$work/lines" | cut -d= -f2); do has_stage "$stage" "$docker"; done
for file in examples/kubernetes/*.yaml; do
  targets=$(sed -n "s|.*target \([a-z]*\) of $docker.*|\1|p" "$file")
  [ -n "$targets" ] || fail "$file does not tell which target of $docker its image is"
  for target in $targets; do has_stage "$target" "$file"; done
done
"$ACCEL_TEST_BUILD/bin/accel-run" -e '
local build = assert(require "accel.util.read_json" ".devcontainer/devcontainer.json").build
print(build.target, build.dockerfile, build.context)' > "$work/devcontainer"
read -r target file context < "$work/devcontainer"
has_stage "$target" .devcontainer
[ -f ".devcontainer/$file" ] && [ -f ".devcontainer/$context/CMakeLists.txt" ] || fail ".devcontainer: no $file or no source tree at $context"
rm -rf "$work"
echo "$(echo $stages | wc -w) stages, one list of packages"
