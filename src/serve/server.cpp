#include "serve/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "serve/api.h"
#include "serve/connection.h"

namespace quire {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

/// Connections over the maximum that may still be told so; more are dropped without a word.
constexpr size_t kMaxTurnedAway = 64;
/// How long answers whose requests are done may take to reach their clients.
constexpr std::chrono::seconds kFlushTime{2};

ServerConfig checked(ServerConfig config) {
  if (config.served_names.empty()) throw Error("the served model needs a name");
  // The resolver would take it for all addresses.
  if (config.host.empty()) throw Error("--host: the address is empty");
  if (config.max_connections == 0) throw Error("at least one connection must be allowed");
  return config;
}

}  // namespace

struct Server::Impl {
  Impl(ServerConfig the_config, Engine& the_engine, const ServedModel& the_model, MetricsText the_metrics)
      : config(checked(std::move(the_config))),
        engine(the_engine),
        model(the_model),
        metrics(std::move(the_metrics)),
        api(config, engine, model, metrics),
        work(io.get_executor()),
        acceptor(asio::make_strand(io)) {}

  void listen();
  asio::awaitable<void> accept_all();
  void take(tcp::socket socket);
  void forget(Connection* connection);
  /// Calls `what` on every connection there is.
  void each(void (Connection::*what)());
  bool wait_until_empty(std::optional<std::chrono::seconds> time);
  bool stop(Nanos timeout);

  const ServerConfig config;
  Engine& engine;
  const ServedModel model;
  const MetricsText metrics;
  Api api;

  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  tcp::acceptor acceptor;
  uint16_t port = 0;
  bool on_loopback = true;
  std::vector<std::thread> threads;
  bool stopped = false;
  std::atomic<bool> cut_short = false;  // by abort_all

  std::mutex mutex;  // guards what follows
  std::condition_variable ended;
  std::map<Connection*, std::weak_ptr<Connection>> connections;
  std::map<Connection*, std::weak_ptr<Connection>> turned_away;
};

void Server::Impl::listen() {
  const auto cannot = [&](const error_code& why) {
    return Error(fmt::format("cannot listen on {}:{}: {}", config.host, config.port, why.message()));
  };
  error_code failed;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(config.host, std::to_string(config.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, failed);
  if (failed) throw cannot(failed);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), failed);
  if (!failed) acceptor.set_option(tcp::acceptor::reuse_address(true), failed);
  if (!failed) acceptor.bind(endpoint, failed);
  if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
  if (failed) throw cannot(failed);
  port = acceptor.local_endpoint().port();
  on_loopback = acceptor.local_endpoint().address().is_loopback();
  api.bind(on_loopback);
}

asio::awaitable<void> Server::Impl::accept_all() {
  for (;;) {
    error_code failed;
    // Each connection has its own strand: one thing at a time, whatever the number of threads.
    tcp::socket socket = co_await acceptor.async_accept(asio::make_strand(io),
                                                        asio::redirect_error(asio::use_awaitable, failed));
    if (!acceptor.is_open()) co_return;
    if (!failed) {
      take(std::move(socket));
      continue;
    }
    // Out of file descriptors, mostly: wait until some are back.
    log_warning(fmt::format("accepting a connection: {}", failed.message()));
    asio::steady_timer pause(acceptor.get_executor(), std::chrono::milliseconds(100));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, failed));
  }
}

void Server::Impl::take(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  if (config.send_buffer_bytes > 0) {
    socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(config.send_buffer_bytes)),
                      ignored);
  }
  const auto connection = std::make_shared<Connection>(std::move(socket), config, api,
                                                       [this](Connection* ended_one) { forget(ended_one); });
  bool welcome = false;
  {
    const std::lock_guard lock(mutex);
    welcome = connections.size() < config.max_connections;
    if (!welcome && turned_away.size() >= kMaxTurnedAway) return;
    (welcome ? connections : turned_away).emplace(connection.get(), connection);
  }
  if (welcome) {
    connection->start();
  } else {
    connection->turn_away();
  }
}

void Server::Impl::forget(Connection* connection) {
  const std::lock_guard lock(mutex);
  connections.erase(connection);
  turned_away.erase(connection);
  ended.notify_all();
}

void Server::Impl::each(void (Connection::*what)()) {
  std::vector<std::shared_ptr<Connection>> all;
  {
    const std::lock_guard lock(mutex);
    for (const auto* some : {&connections, &turned_away}) {
      for (const auto& [unused, connection] : *some) {
        if (auto alive = connection.lock()) all.push_back(std::move(alive));
      }
    }
  }
  for (const auto& connection : all) ((*connection).*what)();
}

bool Server::Impl::wait_until_empty(std::optional<std::chrono::seconds> time) {
  std::unique_lock lock(mutex);
  const auto empty = [this] { return connections.empty() && turned_away.empty(); };
  if (time) return ended.wait_for(lock, *time, empty);
  ended.wait(lock, empty);
  return true;
}

bool Server::Impl::stop(Nanos timeout) {
  if (std::exchange(stopped, true)) return true;
  if (threads.empty()) return engine.drain(timeout);
  std::promise<void> closed;
  asio::post(acceptor.get_executor(), [&] {
    error_code ignored;
    acceptor.close(ignored);
    closed.set_value();
  });
  closed.get_future().wait();  // nothing is entered from now on
  each(&Connection::finish_soon);
  const bool clean = engine.drain(timeout);
  wait_until_empty(kFlushTime);
  each(&Connection::cut_soon);
  wait_until_empty(std::nullopt);
  work.reset();
  io.stop();
  for (std::thread& thread : threads) thread.join();
  api.join();
  return clean && !cut_short;
}

Server::Server(ServerConfig config, Engine& engine, const ServedModel& model, MetricsText metrics)
    : impl_(std::make_unique<Impl>(std::move(config), engine, model, std::move(metrics))) {}

Server::~Server() { stop(0); }

void Server::start() {
  impl_->listen();
  asio::co_spawn(impl_->acceptor.get_executor(), impl_->accept_all(), asio::detached);
  for (uint32_t i = 0; i < std::max(1U, impl_->config.http_threads); ++i) {
    impl_->threads.emplace_back([this] { impl_->io.run(); });
  }
}

uint16_t Server::port() const { return impl_->port; }
bool Server::on_loopback() const { return impl_->on_loopback; }

bool Server::stop(Nanos timeout) { return impl_->stop(timeout); }

void Server::abort_all() {
  impl_->cut_short = true;
  impl_->each(&Connection::cut_soon);
}

bool Server::run_until_signal(Nanos timeout) {
  asio::io_context io;
  asio::signal_set signals(io, SIGINT, SIGTERM);
  signals.async_wait([](error_code, int) {});
  io.run_one();
  log_info("shutting down: running requests may finish; a second signal ends them");
  signals.async_wait([this](error_code failed, int) {
    if (!failed) abort_all();
  });
  bool clean = false;
  std::thread stopper([&] {
    clean = stop(timeout);
    asio::post(io, [&] { signals.cancel(); });
  });
  io.run();
  stopper.join();
  // All is done: a signal that comes now must not turn a clean end into a killed one.
  signals.clear();
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  return clean;
}

}  // namespace quire
