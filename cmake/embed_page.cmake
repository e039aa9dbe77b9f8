# cmake -DFOLDER=src/record/page -DOUTPUT=page_source.cpp -P embed_page.cmake
# Puts the styles and the scripts into page.html, and the whole into C++, cut in two where the data goes.
file(READ ${FOLDER}/page.html page)
file(READ ${FOLDER}/colours.css colours)
file(READ ${FOLDER}/page.css style)
file(GLOB scripts ${FOLDER}/*.js)
list(SORT scripts)
set(script "")
foreach(file IN LISTS scripts)
  file(READ ${file} text)
  # One script needs no imports; the live page loads some of the files as modules.
  string(REGEX REPLACE "(^|\n)import [^\n]*" "\\1" text "${text}")
  string(REGEX REPLACE "(^|\n)export " "\\1" text "${text}")
  string(APPEND script "${text}")
endforeach()
string(REPLACE "@STYLE@" "${colours}${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")

set(marker "@DATA@")
string(FIND "${page}" "${marker}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "page.html: no ${marker}")
endif()
string(SUBSTRING "${page}" 0 ${at} before)
string(LENGTH "${marker}" length)
math(EXPR after_at "${at} + ${length}")
string(SUBSTRING "${page}" ${after_at} -1 after)
file(WRITE ${OUTPUT} "#include \"record/page_source.h\"

namespace quire::record {

const std::string_view kPageBeforeData = R\"QuirePage(${before})QuirePage\";
const std::string_view kPageAfterData = R\"QuirePage(${after})QuirePage\";

}  // namespace quire::record
")
