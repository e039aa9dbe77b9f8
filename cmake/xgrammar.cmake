# XGrammar as the target `xgrammar`, in a prefix of its own for each compiler and sanitizer. tools/build_xgrammar.py makes
# it, and does nothing where it is made already.
string(JOIN "-" name xgrammar ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${QUIRE_SANITIZE})
string(REPLACE "," "-" name ${name})
set(QUIRE_XGRAMMAR_PREFIX "${PROJECT_SOURCE_DIR}/build/deps/${name}" CACHE PATH "Where XGrammar is, or is to be, installed")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tools/xgrammar.txt tools/xgrammar.ed)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/build_xgrammar.py ${QUIRE_XGRAMMAR_PREFIX}
                        --cxx ${CMAKE_CXX_COMPILER} --sanitize "${QUIRE_SANITIZE}"
                RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "tools/build_xgrammar.py could not make XGrammar (see above). -DQUIRE_XGRAMMAR=OFF builds without")
endif()
add_library(xgrammar STATIC IMPORTED GLOBAL)
set_target_properties(xgrammar PROPERTIES IMPORTED_LOCATION ${QUIRE_XGRAMMAR_PREFIX}/lib/libxgrammar.a)
target_include_directories(xgrammar SYSTEM INTERFACE ${QUIRE_XGRAMMAR_PREFIX}/include)
