#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "serve/connection.h"
#include "serve/counted_line.h"
#include "serve/server.h"

namespace quire::serve {

/// The remote end of a connection; it identifies a client if there is no key.
struct Peer {
  uint64_t address =
      0;  // the IPv4 address, or the IPv6 network (/64), which is what a provider assigns to one customer
  bool is_local = false;
};
Peer peer_of(const asio::ip::tcp::endpoint& endpoint);

/// The listening socket of a server, and the connections that it has accepted. Each has one of these places:
///
/// - one of max_connections, with all rights. When all are taken, a new connection gets the place of one that
///   makes little use of it (Connection::little_use): first of one that has sent nothing since it was
///   accepted, then of one that has sent only a part of a request's head, then of one that is idle between
///   two requests, each time the longest-lasting first; then of the one whose body arrives most slowly. An
///   upload keeps its place as long as it arrives fast enough, and a slower one as long as others are slower
///   still.
/// - one of kCrowdedPlaces for further connections, which get a short time and answers to vital requests
///   only; if others wait behind them, they have at most Connection::kTimeToBegin to begin.
/// - one of kLeavingPlaces for connections whose last answer was sent and which may still read it.
///
/// An occasional warning says how many got 503 because there was no place.
///
/// Without any of these places, connections wait in the system's queue.
///
/// All methods are thread-safe except listen(), which must be called first and once.
class Door {
 public:
  static constexpr uint32_t kCrowdedPlaces = 64;
  static constexpr uint32_t kLeavingPlaces = 256;
  /// File descriptors that a server needs for its connections and itself.
  static uint64_t files_needed(uint64_t max_connections);

  /// Creates a connection; if it throws, the client's socket is closed.
  using Factory = std::function<std::shared_ptr<Connection>(asio::ip::tcp::socket socket, uint64_t address,
                                                            Connection::Hooks hooks)>;

  /// `io` and `config` must outlive it.
  Door(asio::io_context& io, const ServerConfig& config, Factory factory);

  /// Binds and listens. Throws Error ("cannot listen on HOST:PORT: WHY").
  void listen();
  uint16_t port() const { return endpoint_.port(); }
  bool on_loopback() const { return endpoint_.address().is_loopback(); }
  /// Starts to accept connections.
  void open();

  /// Stops accepting. Waits for `io`, so it must not be called on its threads.
  void close();
  void finish_all();  // Connection::finish_soon
  void cut_all();     // Connection::cut_soon
  /// Waits until no connection is left; false after `time`.
  bool wait_until_empty(std::chrono::milliseconds time);
  void wait_until_empty();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Place : uint8_t { kFull, kCrowded, kLeaving };
  struct Entry {
    std::weak_ptr<Connection> connection;
    Place place = Place::kFull;
    uint64_t address = 0;
    bool over_share = false;  // the reason, if it is crowded
  };
  asio::awaitable<void> accept_all();
  void take_those_that_wait();
  asio::awaitable<void> wait_for_place();
  asio::awaitable<void> pause(std::chrono::milliseconds time);
  void take(asio::ip::tcp::socket socket);
  void turn_away(asio::ip::tcp::socket socket, bool over_share);
  void make_way();
  void complain(const std::string& what);
  void refused(Connection* connection);
  void left(Connection* connection);
  void forget(Connection* connection);
  void changed();
  void each(void (Connection::*what)());

  // REQUIRES: the mutex is held. Do not release the last reference to a connection there, since its
  // destructor takes the mutex.
  uint32_t& count(Place place) { return counts_[static_cast<size_t>(place)]; }
  void add(const std::shared_ptr<Connection>& connection, Entry entry);
  void remove_from_place(const Entry& entry);
  std::weak_ptr<Connection> find_useless(Place place) const;
  bool has_share(const Peer& peer) const;

  const ServerConfig& config_;
  const Factory factory_;
  asio::io_context& io_;
  asio::ip::tcp::acceptor acceptor_;  // used on a strand, as are the next three
  asio::steady_timer news_;
  Clock::time_point complained_;
  uint64_t complaints_ = 0;  // since the last complaint
  CountedLine no_place_;
  CountedLine no_share_;
  asio::ip::tcp::endpoint endpoint_;
  std::atomic<bool> waiting_ = false;  // connections wait for a place

  std::mutex mutex_;  // guards the following members
  std::condition_variable ended_;
  std::map<Connection*, Entry> connections_;
  std::map<uint64_t, uint32_t> by_address_;  // connections with all rights
  uint32_t counts_[3] = {};                  // by Place
};

}  // namespace quire::serve
