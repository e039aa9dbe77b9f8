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

/// Who connects: what counts as one client where no key tells.
struct Peer {
  uint64_t address = 0;  // of IPv4; of IPv6 the network (/64): what one customer of a provider has
  bool is_local = false;
};
Peer peer_of(const asio::ip::tcp::endpoint& endpoint);

/// Where a server listens, and the connections that it has accepted. Each has one of these places:
///
/// - one of max_connections, with all rights. Where all are taken, a newcomer gets the place of a connection
///   that makes little use of it (Connection::little_use): of one that has sent nothing since it was
///   accepted, or else nothing but a part of a request's head, or else is idle between two requests, the one
///   for the longest first; or else of the one whose body arrives the slowest. An upload keeps its place as
///   long as it comes at a fair pace, and a slower one as long as others are slower still.
/// - one of kCrowdedPlaces for those beyond, which get a short time and an answer to vital requests alone;
///   where others wait behind them, no more than Connection::kTimeToBegin to begin.
/// - one of kLeavingPlaces for those that have had their last answer and may still read it.
///
/// A warning now and then says how many were told 503 for want of a place.
///
/// Where there is none either, connections wait in the system's queue.
///
/// All methods are thread-safe but listen(), which is the first and called once.
class Door {
 public:
  static constexpr uint32_t kCrowdedPlaces = 64;
  static constexpr uint32_t kLeavingPlaces = 256;
  /// File descriptors that a server needs for its connections and itself.
  static uint64_t files_needed(uint64_t max_connections);

  /// Makes a connection; it may throw, then the client's socket is closed.
  using Factory = std::function<std::shared_ptr<Connection>(asio::ip::tcp::socket socket, uint64_t address,
                                                            Connection::Hooks hooks)>;

  /// `io` and `config` must outlive it.
  Door(asio::io_context& io, const ServerConfig& config, Factory factory);

  /// Binds and listens. Throws Error ("cannot listen on HOST:PORT: WHY").
  void listen();
  uint16_t port() const { return endpoint_.port(); }
  bool on_loopback() const { return endpoint_.address().is_loopback(); }
  /// Accepts from now on.
  void open();

  /// Accepts nothing more. Waits for `io`, so not on its threads.
  void close();
  void finish_all();  // Connection::finish_soon
  void cut_all();     // Connection::cut_soon
  /// Waits until there is no connection left; false after `time`.
  bool wait_until_empty(std::chrono::milliseconds time);
  void wait_until_empty();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Place : uint8_t { kFull, kCrowded, kLeaving };
  struct Entry {
    std::weak_ptr<Connection> connection;
    Place place = Place::kFull;
    uint64_t address = 0;
    bool over_share = false;  // why it is crowded, if it is
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

  // With the mutex held. What is in connections_ lives as long; a reference to it must not be the last to go
  // there, as the connection's end takes the mutex.
  uint32_t& count(Place place) { return counts_[static_cast<size_t>(place)]; }
  void add(const std::shared_ptr<Connection>& connection, Entry entry);
  void remove_from_place(const Entry& entry);
  std::weak_ptr<Connection> find_useless(Place place) const;
  bool has_share(const Peer& peer) const;

  const ServerConfig& config_;
  const Factory factory_;
  asio::io_context& io_;
  asio::ip::tcp::acceptor acceptor_;  // on a strand, as the next three are
  asio::steady_timer news_;
  Clock::time_point complained_;
  uint64_t complaints_ = 0;  // since then
  CountedLine no_place_;
  CountedLine no_share_;
  asio::ip::tcp::endpoint endpoint_;
  std::atomic<bool> waiting_ = false;  // for a place

  std::mutex mutex_;  // guards what follows
  std::condition_variable ended_;
  std::map<Connection*, Entry> connections_;
  std::map<uint64_t, uint32_t> by_address_;  // of those with all rights
  uint32_t counts_[3] = {};                  // by Place
};

}  // namespace quire::serve
