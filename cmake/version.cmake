# cmake -DSOURCE=CHECKOUT -DVERSION=1.2.3 -DOUTPUT=version.cpp -P version.cmake
# Writes the version as C++, with the commit if SOURCE is a git checkout: 1.2.3+0123abcd, or 1.2.3+0123abcd-dirty if
# tracked files were changed. OUTPUT is written only if its content changes.
set(version ${VERSION})
find_program(GIT git)
if(GIT)
  # Sources that were unpacked inside another repository do not belong to its commits.
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-prefix
                  OUTPUT_VARIABLE folder RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND folder STREQUAL "")
    execute_process(COMMAND ${GIT} -C ${SOURCE} --no-optional-locks describe --always --dirty --abbrev=8 --exclude=*
                    OUTPUT_VARIABLE commit RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
      string(APPEND version "+${commit}")
    endif()
  endif()
endif()

file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "cli/version.h"

const char* quire::cli::version() { return "@version@"; }
]])
