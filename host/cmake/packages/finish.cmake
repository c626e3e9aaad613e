# Run by cpack in the tree that it has installed, before it makes packages of it (AccelPackages.cmake): what Debian's policy asks for beyond
# our own installation. Each package gets its copyright and changelog, manual pages are compressed, and programs lose the run path
# that only a tree which moves needs.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
set(here "${CMAKE_CURRENT_LIST_DIR}")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # follows SOURCE_DATE_EPOCH
file(STRINGS "${here}/lintian-overrides" overrides REGEX "^(#|[*a-z])")

function(compress file)
  execute_process(COMMAND gzip -9n "${file}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

list(POP_FRONT overrides) # the file's head
foreach(pair IN LISTS ACCEL_PACKAGES)
  string(REGEX REPLACE "=.*" "" component ${pair})
  string(REGEX REPLACE ".*=" "" package ${pair})
  set(tree "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr")
  if(NOT IS_DIRECTORY "${tree}")
    message(FATAL_ERROR "nothing was installed for the package ${package}; configure with the preset \"package\"")
  endif()
  configure_file("${here}/copyright" "${tree}/share/doc/${package}/copyright" COPYONLY)
  set(changelog "${tree}/share/doc/${package}/changelog.Debian")
  file(WRITE "${changelog}" "accel (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Release ${CPACK_PACKAGE_VERSION}. The package accel-doc has its list of changes.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  compress("${changelog}")
  file(GLOB pages "${tree}/share/man/man1/*.1")
  foreach(page IN LISTS pages)
    compress("${page}")
  endforeach()
  if(IS_DIRECTORY "${tree}/share/zsh/site-functions") # on Debian that folder is for functions of the machine
    file(RENAME "${tree}/share/zsh/site-functions" "${tree}/share/zsh/vendor-completions")
  endif()
  # The file copyright takes its place.
  file(REMOVE "${tree}/share/doc/accel/LICENSE")
  file(GLOB programs "${tree}/bin/*")
  foreach(program IN LISTS programs)
    file(RPATH_REMOVE FILE "${program}")
  endforeach()
  set(lines "")
  set(reason "")
  foreach(line IN LISTS overrides)
    if(line MATCHES "^#")
      list(APPEND reason "${line}")
    else()
      string(REGEX REPLACE "^[*]:" "${package}:" line "${line}")
      if(line MATCHES "^${package}: ")
        list(APPEND lines ${reason} "${line}")
      endif()
      set(reason "")
    endif()
  endforeach()
  if(lines)
    list(JOIN lines "\n" text)
    file(WRITE "${tree}/share/lintian/overrides/${package}" "${text}\n")
  endif()
endforeach()
