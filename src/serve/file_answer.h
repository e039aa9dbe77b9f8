#pragma once

#include <string_view>

#include "page/files.h"
#include "serve/http.h"

namespace quire::serve {

/// The answer with a file of the page: compressed where the client takes that, and a 304 where it has the
/// file already. Its headers let the page load nothing from anywhere else, nor be shown within another page.
HttpResponse file_answer(const page::File& file, const HttpRequest& request);

/// Whether a client with this Accept-Encoding takes gzip (RFC 9110, section 12.5.3). Without the header it is
/// not asked to.
bool takes_gzip(std::string_view accept_encoding);

/// Whether an If-None-Match names `tag`, which has its quotes (RFC 9110, section 13.1.2: the weak
/// comparison).
bool names_tag(std::string_view if_none_match, std::string_view tag);

}  // namespace quire::serve
