# Writes the commit being built into a header. It runs in every build and touches the header only if the commit changed.
execute_process(COMMAND git --no-optional-locks describe --always --dirty=+changes --abbrev=12 --exclude=*
  WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define FARSIDE_COMMIT \"${commit}\"\n")
