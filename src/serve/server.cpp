#include "serve/server.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include "base/describe.h"
#include "base/error.h"
#include "base/log.h"
#include "serve/api.h"
#include "serve/connection.h"
#include "serve/door.h"

namespace quire::serve {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

/// How long answers whose requests are done may take to reach their clients.
constexpr std::chrono::seconds kFlushTime{2};

ServerConfig checked(ServerConfig config) {
  if (config.served_names.empty()) throw Error("the served model needs a name");
  // The resolver would take it for all addresses.
  if (config.host.empty()) throw Error("--host: the address is empty");
  if (config.max_connections == 0) throw Error("at least one connection must be allowed");
  if (config.max_body_memory < 2 * config.max_body_bytes) {
    throw Error("the memory for request bodies must hold two bodies of the largest size");
  }
  return config;
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

bool has_terminal() {
  if (isatty(STDERR_FILENO) == 1) return true;
  const int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) return false;
  close(terminal);
  return true;
}

}  // namespace

struct Server::Impl {
  Impl(ServerConfig the_config, engine::Engine& the_engine, const ServedModel& the_model,
       MetricsText the_metrics)
      : config(checked(std::move(the_config))),
        engine(the_engine),
        model(the_model),
        metrics(std::move(the_metrics)),
        api(config, engine, model, metrics),
        bodies(config.max_body_memory),
        work(io.get_executor()),
        door(io, config, [this](tcp::socket socket, uint64_t address, Connection::Hooks hooks) {
          return std::make_shared<Connection>(std::move(socket), config, api, bodies, address,
                                              std::move(hooks));
        }) {}

  void run_io();
  bool stop(Nanos timeout);

  const ServerConfig config;
  engine::Engine& engine;
  const ServedModel model;
  const MetricsText metrics;
  Api api;
  BodyBudget bodies;

  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  Door door;
  std::vector<std::thread> threads;
  bool stopped = false;

  asio::io_context signal_io;
  std::optional<asio::signal_set> signals;
  bool at_terminal = false;
};

void Server::Impl::run_io() {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const boost::system::system_error& error) {
      // Its own text would show where in the program it was thrown.
      log_error(fmt::format("a connection is dropped: {}", error.code().message()));
    } catch (const std::exception& error) {
      // It has ended what it was thrown in; the others go on.
      log_error(fmt::format("a connection is dropped: {}", describe(error)));
    }
  }
}

bool Server::Impl::stop(Nanos timeout) {
  if (std::exchange(stopped, true)) return true;
  if (threads.empty()) return engine.drain(timeout);
  door.close();  // nothing is entered from now on
  door.finish_all();
  const bool clean = engine.drain(timeout);
  api.interrupt();
  door.wait_until_empty(kFlushTime);
  door.cut_all();
  door.wait_until_empty();
  work.reset();
  io.stop();
  for (std::thread& thread : threads) thread.join();
  api.join();
  return clean;
}

Server::Server(ServerConfig config, engine::Engine& engine, const ServedModel& model, MetricsText metrics)
    : impl_(std::make_unique<Impl>(std::move(config), engine, model, std::move(metrics))) {}

Server::~Server() { stop(0); }

uint64_t Server::files_needed(uint64_t max_connections) { return Door::files_needed(max_connections); }

void Server::start() {
  impl_->door.listen();
  impl_->api.bind(impl_->door.on_loopback());
  impl_->door.open();
  for (uint32_t i = 0; i < std::max(1U, impl_->config.http_threads); ++i) {
    impl_->threads.emplace_back([this] { impl_->run_io(); });
  }
}

uint16_t Server::port() const { return impl_->door.port(); }
bool Server::on_loopback() const { return impl_->door.on_loopback(); }

bool Server::stop(Nanos timeout) { return impl_->stop(timeout); }

void Server::abort_all() { impl_->engine.drain(0); }

void Server::catch_signals() {
  if (impl_->signals) return;
  impl_->signals.emplace(impl_->signal_io, SIGINT, SIGTERM);
  // A program that was started with SIGHUP ignored (nohup) is meant to outlive the terminal.
  if (!is_ignored(SIGHUP)) impl_->signals->add(SIGHUP);
  impl_->at_terminal = has_terminal();
}

bool Server::run_until_signal(Nanos timeout) {
  catch_signals();
  asio::io_context& io = impl_->signal_io;
  asio::signal_set& signals = *impl_->signals;
  const bool at_terminal = impl_->at_terminal;
  bool ending = false;
  std::thread stopper;
  bool clean = false;
  std::function<void(error_code, int)> on_signal = [&](error_code failed, int number) {
    if (failed) return;
    signals.async_wait(on_signal);
    if (number == SIGHUP && !at_terminal) {
      log_info("SIGHUP is ignored: the server has no terminal; SIGTERM ends the server");
    } else if (!std::exchange(ending, true)) {
      log_info("shutting down: running requests may finish; a second signal aborts them");
      stopper = std::thread([&] {
        clean = stop(timeout);
        asio::post(io, [&] { signals.cancel(); });
      });
    } else if (number != SIGHUP) {  // a shell and the system each send one when a terminal hangs up
      abort_all();
    }
  };
  signals.async_wait(on_signal);
  io.run();
  stopper.join();
  // All is done: a signal that comes now must not turn a clean end into a killed one.
  // Until it is ignored it is held back, as clear() sets the default.
  sigset_t ends{};
  sigemptyset(&ends);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, number);
  sigset_t before{};
  pthread_sigmask(SIG_BLOCK, &ends, &before);
  signals.clear();
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_IGN);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return clean;
}

}  // namespace quire::serve
