#include <chrono>
#include <openssl/crypto.h>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "serve/openai_schema.h"
#include "tests/fuzz/targets.h"
#include "tests/serve/service.h"

namespace quire::fuzz {
namespace {

test::Service& service() {
  // Before the service, so that OpenSSL cleans up after the service's threads have ended.
  OPENSSL_init_crypto(0, nullptr);
  set_log_level(LogLevel::kOff);
  // Longer than anything takes on a busy machine: a client that has sent all ends its side.
  constexpr Nanos kPatience = 30 * serve::kSecond;
  static test::Service service(
      {.server = {.idle_timeout = kPatience, .header_timeout = kPatience, .body_timeout = kPatience}});
  return service;
}

}  // namespace

void http_request(std::string_view input) {
  {
    test::HttpClient client(service().port());
    client.send(input);
    // What a client asks that has gone is not worked off.
    client.read_rest(std::chrono::milliseconds(1));
    client.shutdown_send();
    client.read_rest();
  }
  if (const std::string failure = service().engine().failure(); !failure.empty()) {
    throw std::logic_error("the engine has failed: " + failure);
  }
  // Nobody else is disturbed.
  static uint32_t runs = 0;
  if (++runs % 64 == 0) {
    const test::Answer health = service().get("/health");
    if (health.status != 200) {
      throw std::logic_error(fmt::format("the server is not well: {} {}", health.status, health.body));
    }
  }
}

void json_body(std::string_view input) {
  static const serve::SchemaContext context{.vocab_size = 256, .defaults = {}};
  try {
    const json::value body = parse_json(input, "body");
    (void)serve::parse_completion(body, context);
    (void)serve::parse_chat(body, context);
    (void)serve::parse_tokenize(body);
    (void)serve::parse_detokenize(body, context);
  } catch (const Error&) {
    return;
  }
}

}  // namespace quire::fuzz
