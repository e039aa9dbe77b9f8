#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <boost/system/error_code.hpp>

#include "serve/body_budget.h"

namespace quire::serve {

/// A body type for Beast's parsers that grows with the data that arrives (Beast's own type reserves the
/// Content-Length at once), within a claim on the memory for bodies. Without room it fails with
/// errc::not_enough_memory.
struct RequestBody {
  struct value_type {
    std::string text;
    BodyBudget::Claim* claim = nullptr;
    uint64_t max_bytes = 0;
  };

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>& length, boost::system::error_code& failed) {
      if (length) expected_ = *length;
      failed = {};
    }

    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& failed) {
      failed = {};
      const size_t before = body_.text.size();
      if (!reserve(before + boost::asio::buffer_size(buffers))) {
        failed = make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer piece = *it;
        body_.text.append(static_cast<const char*>(piece.data()), piece.size());
      }
      body_.claim->progress();
      return body_.text.size() - before;
    }

    void finish(boost::system::error_code& failed) {
      body_.claim->settle();
      failed = {};
    }

   private:
    bool reserve(uint64_t needed) {
      if (needed <= body_.text.capacity()) return true;
      const uint64_t most = expected_ > 0 ? expected_ : body_.max_bytes;
      const uint64_t room = std::max(needed, std::min<uint64_t>(most, 2 * body_.text.capacity()));
      if (!body_.claim->grow_to(room)) return false;
      body_.text.reserve(room);
      return true;
    }

    value_type& body_;
    uint64_t expected_ = 0;
  };
};

}  // namespace quire::serve
