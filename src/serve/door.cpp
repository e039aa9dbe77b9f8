#include "serve/door.h"

#include <algorithm>
#include <array>
#include <future>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "base/describe.h"
#include "base/error.h"
#include "base/log.h"
#include "serve/listen_address.h"
#include "serve/openai_response.h"

namespace quire::serve {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

/// The longest time until a place that has become free, or is little used, is noticed.
constexpr std::chrono::milliseconds kLook{10};
constexpr std::chrono::milliseconds kPauseAfterFailure{100};
constexpr uint32_t kMostAtOnce = 256;  // new connections accepted in one turn of an I/O thread
constexpr std::chrono::seconds kBetweenComplaints{5};
/// Files of the process other than connections: the model's files, logs, the reactor.
constexpr uint64_t kOtherFiles = 64;

}  // namespace

Peer peer_of(const tcp::endpoint& endpoint) {
  asio::ip::address address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  if (address.is_v4()) return {.address = address.to_v4().to_uint(), .is_local = address.is_loopback()};
  Peer peer{.is_local = address.is_loopback()};
  const auto bytes = address.to_v6().to_bytes();
  for (size_t i = 0; i < 8; ++i) peer.address = peer.address << 8 | bytes[i];
  return peer;
}

uint64_t Door::files_needed(uint64_t max_connections) {
  return max_connections + kCrowdedPlaces + kLeavingPlaces + kOtherFiles;
}

Door::Door(asio::io_context& io, const ServerConfig& config, Factory factory)
    : config_(config),
      factory_(std::move(factory)),
      io_(io),
      acceptor_(asio::make_strand(io)),
      news_(acceptor_.get_executor()),
      no_place_(acceptor_.get_executor(),
                [this](uint64_t times) {
                  return fmt::format(
                      "refused with status 503 because all connections were in use: {} connections; "
                      "--max-connections ({}) allows more",
                      times, config_.max_connections);
                }),
      no_share_(acceptor_.get_executor(), [this](uint64_t times) {
        const std::string share = config_.max_connections_per_client == 0
                                      ? "the default is a quarter of --max-connections"
                                      : fmt::format("{}", config_.max_connections_per_client);
        return fmt::format(
            "refused with status 503 because one address had its share of connections: {} connections; "
            "--max-connections-per-client ({}) allows more",
            times, share);
      }) {}

void Door::listen() {
  error_code failed;
  bind_address(acceptor_, config_.host, config_.port);
  acceptor_.listen(asio::socket_base::max_listen_connections, failed);
  if (failed) throw cannot_listen(config_.host, config_.port, failed);
  acceptor_.non_blocking(true);
  endpoint_ = acceptor_.local_endpoint();
}

void Door::open() { asio::co_spawn(acceptor_.get_executor(), accept_all(), asio::detached); }

void Door::close() {
  std::promise<void> closed;
  asio::post(acceptor_.get_executor(), [&] {
    error_code ignored;
    acceptor_.close(ignored);
    news_.cancel();
    no_place_.close();
    no_share_.close();
    closed.set_value();
  });
  closed.get_future().wait();
}

// ---- Accepting ----

/// Ends only with the acceptor, whatever is thrown.
asio::awaitable<void> Door::accept_all() {
  while (acceptor_.is_open()) {
    std::string trouble;
    error_code failed;
    try {
      co_await wait_for_place();
      if (!acceptor_.is_open()) break;
      // Each connection has its own strand: one thing at a time, whatever the number of threads.
      tcp::socket socket = co_await acceptor_.async_accept(asio::make_strand(io_),
                                                           asio::redirect_error(asio::use_awaitable, failed));
      if (!acceptor_.is_open()) break;
      if (!failed) {
        take(std::move(socket));
        take_those_that_wait();
        continue;
      }
    } catch (const boost::system::system_error& error) {
      failed = error.code();  // its text would show where in the program it was thrown
    } catch (const std::exception& error) {
      trouble = describe(error);
    }
    // Out of file descriptors or memory: wait until some is free, whether or not this can be logged.
    try {
      make_way();
      complain(failed ? failed.message() : trouble);
    } catch (const std::exception&) {
      complained_ = {};  // the next time logs it
    }
    try {
      co_await pause(kPauseAfterFailure);
    } catch (const std::exception&) {
      continue;
    }
  }
}

/// Accepts at once all connections in the system's queue for which there is a place: a turn of a busy I/O
/// thread is long, and one new connection per turn would be slow.
void Door::take_those_that_wait() {
  for (uint32_t i = 0; i < kMostAtOnce; ++i) {
    {
      const std::lock_guard lock(mutex_);
      if (count(Place::kFull) >= config_.max_connections) return;
    }
    tcp::socket socket(asio::make_strand(io_));
    error_code none;
    acceptor_.accept(socket, none);
    if (none) return;
    take(std::move(socket));
  }
}

void Door::make_way() {
  std::weak_ptr<Connection> useless;
  {
    const std::lock_guard lock(mutex_);
    useless = find_useless(Place::kFull);
  }
  if (const auto found = useless.lock()) found->make_way_soon();
}

void Door::complain(const std::string& what) {
  ++complaints_;
  const Clock::time_point now = Clock::now();
  if (now - complained_ < kBetweenComplaints) return;
  complained_ = now;
  const uint64_t times = std::exchange(complaints_, 0);
  log_warning(fmt::format("accepting a connection: {}{}", what,
                          times > 1 ? fmt::format(" ({} times since the last such message)", times) : ""));
}

asio::awaitable<void> Door::pause(std::chrono::milliseconds time) {
  error_code ignored;
  news_.expires_after(time);
  co_await news_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

/// Returns when the next connection has a place.
asio::awaitable<void> Door::wait_for_place() {
  bool newcomer = false;
  while (acceptor_.is_open()) {
    std::weak_ptr<Connection> useless;
    {
      const std::lock_guard lock(mutex_);
      if (count(Place::kFull) < config_.max_connections) co_return;
      if (newcomer) {
        useless = find_useless(Place::kFull);
        const bool none = useless.expired();
        if (none && count(Place::kCrowded) < kCrowdedPlaces) co_return;
        if (none) useless = find_useless(Place::kCrowded);
      }
    }
    if (!newcomer) {
      // No connection is closed before a new one is waiting.
      error_code failed;
      co_await acceptor_.async_wait(tcp::acceptor::wait_read,
                                    asio::redirect_error(asio::use_awaitable, failed));
      newcomer = true;
      continue;
    }
    waiting_ = true;  // set first, since the connection may end at once
    if (const auto found = useless.lock()) found->make_way_soon();
    co_await pause(kLook);
    waiting_ = false;
  }
}

/// A place has become free. Any thread.
void Door::changed() {
  ended_.notify_all();
  if (!waiting_.exchange(false)) return;
  try {
    asio::post(acceptor_.get_executor(), [this] { news_.cancel(); });
  } catch (const std::exception&) {
    // If there is no memory, the next check notices it.
  }
}

bool Door::has_share(const Peer& peer) const {
  const auto found = by_address_.find(peer.address);
  const uint64_t its = found == by_address_.end() ? 0 : found->second;
  if (config_.max_connections_per_client > 0) return its < config_.max_connections_per_client;
  const uint64_t all = config_.max_connections;
  const uint64_t taken = counts_[static_cast<size_t>(Place::kFull)];
  return peer.is_local || taken < all - all / 4 || its < std::max<uint64_t>(1, all / 4);
}

void Door::take(tcp::socket socket) {
  error_code ignored;
  const tcp::endpoint from = socket.remote_endpoint(ignored);
  const Peer peer = ignored ? Peer{} : peer_of(from);
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  if (config_.send_buffer_bytes > 0) {
    socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(config_.send_buffer_bytes)),
                      ignored);
  }
  Entry entry{.connection = {}, .place = Place::kFull, .address = peer.address};
  {
    const std::lock_guard lock(mutex_);
    const bool full = count(Place::kFull) >= config_.max_connections;
    entry.over_share = !full && !has_share(peer);
    if (full || entry.over_share) entry.place = Place::kCrowded;
    if (entry.place == Place::kCrowded && count(Place::kCrowded) >= kCrowdedPlaces)
      entry.place = Place::kLeaving;
  }
  if (entry.place == Place::kLeaving) {
    turn_away(std::move(socket), entry.over_share);
    return;
  }
  const auto connection = factory_(std::move(socket), peer.address,
                                   {.on_refuse = [this](Connection* one) { refused(one); },
                                    .on_leave = [this](Connection* one) { left(one); },
                                    .on_end = [this](Connection* one) { forget(one); }});
  const bool crowded = entry.place == Place::kCrowded;
  entry.connection = connection;
  {
    const std::lock_guard lock(mutex_);
    add(connection, std::move(entry));
  }
  // If this throws, the connection is destroyed with its last owner here, and removes itself.
  connection->start(crowded);
}

/// For a connection beyond its address's share while the crowded places are taken: others must not wait
/// behind it.
void Door::turn_away(tcp::socket socket, bool over_share) {
  (over_share ? no_share_ : no_place_).count();
  HttpResponse response{.status = 503,
                        .body = error_body("too many connections", "server_error", "", "overloaded")};
  response.headers.emplace_back("Retry-After", "1");
  const std::string head = response_head(response, Framing::kLength, false);
  const std::array<asio::const_buffer, 2> both = {asio::buffer(head), asio::buffer(response.body)};
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(both, ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

// ---- The connections ----

void Door::add(const std::shared_ptr<Connection>& connection, Entry entry) {
  const Place place = entry.place;
  const uint64_t address = entry.address;
  if (place == Place::kFull) ++by_address_[address];
  try {
    connections_.emplace(connection.get(), std::move(entry));
  } catch (...) {
    if (place == Place::kFull && --by_address_[address] == 0) by_address_.erase(address);
    throw;
  }
  ++count(place);
}

void Door::remove_from_place(const Entry& entry) {
  --count(entry.place);
  if (entry.place != Place::kFull) return;
  const auto its = by_address_.find(entry.address);
  if (--its->second == 0) by_address_.erase(its);
}

/// The connection that makes the least use of its place, if there is one that makes little use of it.
std::weak_ptr<Connection> Door::find_useless(Place place) const {
  const Clock::time_point now = Clock::now();
  std::weak_ptr<Connection> found;
  Connection::Use least;
  for (const auto& [connection, entry] : connections_) {
    if (entry.place != place) continue;
    const auto use = connection->little_use(now);
    if (!use || *use >= least) continue;
    least = *use;
    found = entry.connection;
  }
  return found;
}

/// It got 503. A connection that had a place gives it to another, since places are short.
void Door::refused(Connection* connection) {
  bool over_share = false;
  {
    const std::lock_guard lock(mutex_);
    const auto its = connections_.find(connection);
    over_share = its != connections_.end() && its->second.over_share;
  }
  (over_share ? no_share_ : no_place_).count();
}

void Door::left(Connection* connection) {
  std::weak_ptr<Connection> oldest;
  {
    const std::lock_guard lock(mutex_);
    const auto its = connections_.find(connection);
    if (its == connections_.end()) return;
    remove_from_place(its->second);
    its->second.place = Place::kLeaving;
    if (++count(Place::kLeaving) > kLeavingPlaces) {
      Clock::time_point since = Clock::time_point::max();
      for (const auto& [other, entry] : connections_) {
        if (entry.place != Place::kLeaving || other->stage_since() >= since) continue;
        since = other->stage_since();
        oldest = entry.connection;
      }
    }
  }
  if (const auto found = oldest.lock()) found->cut_soon();
  changed();
}

void Door::forget(Connection* connection) {
  {
    const std::lock_guard lock(mutex_);
    const auto its = connections_.find(connection);
    if (its == connections_.end()) return;
    remove_from_place(its->second);
    connections_.erase(its);
  }
  changed();
}

void Door::each(void (Connection::*what)()) {
  std::vector<std::shared_ptr<Connection>> all;
  {
    const std::lock_guard lock(mutex_);
    all.reserve(connections_.size());  // an exception below would release last references with the mutex held
    for (const auto& [unused, entry] : connections_) {
      if (auto alive = entry.connection.lock()) all.push_back(std::move(alive));
    }
  }
  for (const auto& connection : all) ((*connection).*what)();
}

void Door::finish_all() { each(&Connection::finish_soon); }

void Door::cut_all() { each(&Connection::cut_soon); }

bool Door::wait_until_empty(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, time, [this] { return connections_.empty(); });
}

void Door::wait_until_empty() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return connections_.empty(); });
}

}  // namespace quire::serve
