#pragma once

#include <string_view>

// The page of src/record/page, assembled when quire is built (cmake/embed_page.cmake).
namespace quire::record {

extern const std::string_view kPageBeforeData;
extern const std::string_view kPageAfterData;

}  // namespace quire::record
