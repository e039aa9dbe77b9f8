#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "sim/request_stream.h"
#include "sim/workload.h"

namespace quire::startup {
struct PolicyOptions;
}

namespace quire::cli {

class Flags;

/// The flags of a workload, drawn at random or read from a trace. Empty fields get their defaults.
struct WorkloadOptions {
  std::string trace;
  std::string trace_speed = "1";
  std::optional<uint32_t> requests;
  std::optional<std::string> rate;
  std::optional<uint32_t> burst;
  std::optional<std::string> burst_every;
  std::optional<std::string> burstiness;
  std::optional<std::string> on_ms;
  std::optional<std::string> off_ms;
  std::optional<std::string> prompt;
  std::optional<std::string> output;
  std::optional<uint32_t> shared_prefix;
  std::optional<uint32_t> shared_prefixes;
  std::optional<std::string> zipf;
  uint64_t seed = 0;

  // Requests that follow others.
  std::optional<uint32_t> users;
  std::optional<std::string> think_ms;
  std::optional<std::string> turns;
  std::optional<std::string> turn_prompt;
  bool agents = false;
  bool first_turns_only = false;  // of the conversations of a trace; not a flag

  uint32_t tenants = 1;
  uint32_t priorities = 1;
  std::string ttft_deadline_ms = "10000";
  bool lengths_known = false;
  uint32_t choices = 1;

  // The default of a command.
  uint32_t default_requests = 1000;
  const char* default_prompt = "512";
  const char* default_output = "128";
};
/// Adds the flags of requests and their arrival.
void add_workload_options(const Flags& command, WorkloadOptions& options);
/// Adds the flags of a closed loop, whose requests follow others.
void add_user_options(const Flags& command, WorkloadOptions& options);
/// Adds these and the flags of conversations.
void add_conversation_options(const Flags& command, WorkloadOptions& options);
/// Adds the flags for the scheduler: answers per request, tenants, priorities and deadlines.
void add_service_options(const Flags& command, WorkloadOptions& options);

/// How many tenants and priorities there are; nullopt: the trace may say.
std::optional<uint32_t> tenants_known(const WorkloadOptions& options);
std::optional<uint32_t> priorities_known(const WorkloadOptions& options);

/// Sets empty fields to the values of simulate's demo.
void use_demo_workload(WorkloadOptions& options);

/// Throws Error naming a flag whose value is invalid, or that has no effect without another; opens no trace.
void check_workload_options(const WorkloadOptions& options);

/// `count_tokens`: see TraceOptions. Throws Error naming the flag, also one that the trace leaves without
/// effect, or the line of the trace. What the reader of a trace changed or left out is in the workload's
/// notes.
sim::Workload make_workload(const WorkloadOptions& options, uint32_t vocab_size = 32000,
                            const std::function<uint64_t(std::string_view)>& count_tokens = {});
/// The same, but requests that are drawn are drawn when they are asked for. `check`, if there is one, is
/// given the requests of a trace.
std::unique_ptr<sim::RequestStream> make_requests(const WorkloadOptions& options,
                                                  const std::function<void(const sim::Workload&)>& check);
/// On standard error.
void print_notes(const sim::WorkloadSettings& settings);

/// Throws Error if a policy has no effect on a workload with one tenant or one priority. A workload that is
/// drawn needs no look; a trace does.
void check_policies(const startup::PolicyOptions& policies, const sim::Workload& workload);

}  // namespace quire::cli
