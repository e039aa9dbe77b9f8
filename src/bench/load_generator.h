#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json/object.hpp>

#include "base/clock.h"
#include "bench/load_client.h"
#include "bench/load_report.h"
#include "bench/server_footprint.h"
#include "bench/server_timeline.h"
#include "sim/workload.h"
#include "sim/workload_source.h"

namespace quire::bench {

/// The server to load, and the form of the requests.
struct LoadTarget {
  std::string url = "http://127.0.0.1:8000";
  std::string model;  // empty: the first model that the server lists
  std::string api_key;
  bool is_chat = false;  // otherwise completions
  bool words = false;    // prompts of words, otherwise of token ids; always for chats
  bool stop_at_eos = false;
  double timeout = 600;  // seconds of silence after which a request is given up
};

/// Whether requests are of several tenants.
bool has_tenants(const sim::Workload& workload);

/// Sends the requests of a workload over HTTP and keeps the result of each. For one run. Of what a trace says
/// for the scheduling policies it sends a priority other than 0, a deadline that the trace names, in whole
/// milliseconds from 1 on, and where there are several tenants, each as a `user`, by which a server without
/// API keys tells them apart. With LoadTarget::api_key all requests are of that key's tenant.
class LoadGenerator {
 public:
  /// `concurrency`: the number of clients, each of which sends its next request when its last one has ended;
  /// 0: requests are sent when they are due, those that follow another (sim::SimRequest::follows) after it
  /// has ended; none may continue a conversation. `watch`: read the server's metrics meanwhile. `target` and
  /// `workload` must outlive it.
  LoadGenerator(const LoadTarget& target, const sim::Workload& workload, uint32_t concurrency,
                bool watch = false);

  /// Runs until all requests have ended, or until SIGINT or SIGTERM. Throws Error if the server cannot be
  /// asked for its model. Calls `ended` after each request.
  void run(const std::function<void()>& ended = {});

  /// In the order in which they ended.
  const std::vector<LoadSample>& samples() const { return samples_; }
  Nanos elapsed() const { return last_end_ - start_; }
  const std::string& model() const { return model_; }
  /// The signal that ended it, or 0.
  int signal() const { return signal_; }
  /// What its metrics said; empty without `watch`.
  const ServerFootprint& footprint() const { return footprint_; }
  const sim::Timeline& timeline() const { return timeline_.timeline(); }

 private:
  LoadClient client(std::chrono::milliseconds patience);
  LoadClient client();
  boost::asio::awaitable<void> drive();
  boost::asio::awaitable<void> one_after_the_other();
  boost::asio::awaitable<void> when_due();
  boost::asio::awaitable<void> alone(size_t index, Nanos due);
  /// `due`: if absent, the request counts from when it is sent.
  boost::asio::awaitable<void> request(LoadClient& own, size_t index, std::optional<Nanos> due);
  /// Reads the server's metrics, if it has any, until all requests have ended.
  boost::asio::awaitable<void> watch_server();
  std::string body_of(size_t index) const;
  void add_service(boost::json::object& body, const sim::SimRequest& request) const;

  const LoadTarget& target_;
  const sim::Workload& workload_;
  uint32_t concurrency_;
  bool watch_;
  ServerUrl url_;
  std::string model_;
  std::function<void()> ended_;
  SteadyClock clock_;
  std::vector<LoadSample> samples_;
  ServerFootprint footprint_;
  ServerTimeline timeline_;
  size_t next_ = 0;
  sim::WorkloadSource source_;
  bool sends_tenants_;
  bool keeps_connections_;  // of users, from request to request
  size_t open_ = 0;
  bool all_ended_ = false;
  Nanos start_ = 0;
  Nanos last_end_ = 0;
  int signal_ = 0;
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_{io_, SIGINT, SIGTERM};
  boost::asio::steady_timer watch_timer_{io_};
  boost::asio::steady_timer due_timer_{io_};       // cancelled when a request has ended
  std::vector<std::unique_ptr<LoadClient>> idle_;  // their sockets need io_
};

}  // namespace quire::bench
