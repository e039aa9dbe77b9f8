// explain: what a recorded run decided, and why.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "record/display_text.h"
#include "record/log_files.h"
#include "record/run_page.h"
#include "record/run_story.h"
#include "record/run_summary.h"
#include "sim/replay.h"

namespace quire::cli {
namespace {

struct ExplainOptions {
  std::string log;
  std::string request;
  std::string html;
  std::string steps;
  std::string sort;  // empty: in order of arrival, or "waited" if there are many
  std::optional<uint32_t> top;
  bool has_request = false;
  bool has_steps = false;
  bool replay = false;
};

constexpr size_t kRowsShown = 50;
constexpr uint64_t kReplayedForPage = uint64_t{8} << 20;  // bytes of the longest log

std::string or_dash(const std::optional<uint64_t>& number) {
  return number ? fmt::format("{}", *number) : "-";
}

std::string or_dash(const std::optional<Nanos>& time) { return time ? record::duration_text(*time) : "-"; }

/// The value by which --sort orders the rows, the highest first.
uint64_t measure(const record::SequenceStory& s, std::string_view by) {
  if (by == "waited") return s.steps_waited();
  if (by == "preempted") return s.preemptions;
  if (by == "again") return s.again_tokens;
  return s.hit_tokens;
}

/// The rows to print, and in which order.
std::vector<const record::SequenceStory*> rows_of(const record::RunStory& run,
                                                  const ExplainOptions& options) {
  std::vector<const record::SequenceStory*> rows;
  for (const record::SequenceStory& s : run.sequences) rows.push_back(&s);
  const size_t most = options.top.value_or(kRowsShown);
  const std::string by = !options.sort.empty() ? options.sort : rows.size() > most ? "waited" : "";
  if (by == "id") {
    std::ranges::stable_sort(rows, {}, &record::SequenceStory::id);
  } else if (!by.empty()) {
    std::ranges::stable_sort(rows, std::ranges::greater{},
                             [&](const record::SequenceStory* s) { return measure(*s, by); });
  }
  rows.resize(std::min(rows.size(), most));
  return rows;
}

/// A column of the table: two lines of head, a cell for each row.
struct Column {
  const char* above;
  const char* head;
  bool left;
  std::function<std::string(const record::SequenceStory&)> cell;
  int dispensable =
      0;  // the order in which columns are omitted where all would be wider than kWidth; 0: never
};

/// A column and its text in each line.
struct Cells {
  Column column;
  std::vector<std::string> lines;
  size_t width = 0;
};

std::vector<Column> columns_of(const record::RunStory& run, const record::TenantNames& tenants) {
  const auto number = [](uint64_t value) { return fmt::format("{}", value); };
  std::vector<Column> columns = {
      {"", "id", false, [=](const auto& s) { return number(s.id); }},
      {"prompt", "tokens", false, [=](const auto& s) { return number(s.prompt_tokens); }},
      {"of it", "cached", false, [=](const auto& s) { return number(s.hit_tokens); }, 2},
      {"tokens", "made", false, [=](const auto& s) { return number(s.generated); }},
      {"came", "after", false, [=](const auto& s) { return number(s.arrived); }, 4},
      {"ended", "in step", false, [](const auto& s) { return or_dash(s.ended); }, 5},
      {"waited be-", "fore start", false, [=](const auto& s) { return number(s.queued); }, 6},
      {"waited", "in all", false, [=](const auto& s) { return number(s.steps_waited()); }},
      {"", "that took", false, [](const auto& s) { return record::duration_text(s.waited_time); }, 3},
      {"first", "token", false, [](const auto& s) { return or_dash(s.ttft); }},
      {"", "total", false, [](const auto& s) { return or_dash(s.total); }},
      {"preemp-", "tions", false, [=](const auto& s) { return number(s.preemptions); }, 1},
      {"tokens", "again", false, [=](const auto& s) { return number(s.again_tokens); }, 7},
  };
  const record::GivenToRequests given = record::given_to_requests(run);
  if (given.tenants) {
    columns.push_back({"", "tenant", false, [&](const auto& s) { return tenants.name(s.tenant); }});
  }
  if (given.priorities) {
    columns.push_back({"pri-", "ority", false, [](const auto& s) { return fmt::format("{}", s.priority); }});
  }
  if (given.deadlines) {
    columns.push_back({"", "deadline", false, [](const auto& s) {
                         return record::duration_text(s.ttft_deadline) + (s.ttft && !s.in_time() ? "!" : "");
                       }});
  }
  columns.push_back({"", "ended by", true, [](const auto& s) { return std::string(record::end_text(s)); }});
  columns.push_back(
      {"", "waited most for", true, [&](const auto& s) { return record::main_reason(run, s); }});
  return columns;
}

constexpr size_t kWidth = 110;

/// Prints text in lines of at most kWidth columns, the first after `first`, the others indented.
void print_wrapped(std::string_view text, std::string first = "", size_t column = 0) {
  const size_t width = kWidth - column;
  do {
    size_t end = text.size() <= width ? text.size() : text.rfind(' ', width);
    if (end == std::string_view::npos) end = text.size();
    fmt::print("{:<{}}{}\n", first, column, text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    first.clear();
  } while (!text.empty());
}

/// The columns that fit into a line, and the heads of the others.
std::vector<Cells> fitting_columns(const record::RunStory& run, const record::TenantNames& tenants,
                                   const std::vector<const record::SequenceStory*>& rows,
                                   std::string_view sort, std::vector<std::string>& left_out) {
  const std::string_view kept =
      sort == "preempted" ? "tions" : sort;  // the heads are "cached" and "again" else
  std::vector<Cells> columns;
  size_t total = 0;
  for (Column& column : columns_of(run, tenants)) {
    Cells& cells = columns.emplace_back(Cells{std::move(column), {}, 0});
    cells.lines = {cells.column.above, cells.column.head};
    for (const record::SequenceStory* s : rows) cells.lines.push_back(cells.column.cell(*s));
    for (const std::string& line : cells.lines) cells.width = std::max(cells.width, line.size());
    if (cells.column.head == kept) cells.column.dispensable = 0;
    total += cells.width + 2;
  }
  while (total > kWidth) {
    auto next = columns.end();
    for (auto each = columns.begin(); each != columns.end(); ++each) {
      if (each->column.dispensable == 0) continue;
      if (next == columns.end() || each->column.dispensable < next->column.dispensable) next = each;
    }
    if (next == columns.end()) break;
    std::string name = next->column.above;
    if (name.ends_with('-')) {
      name.pop_back();  // a word in two lines
    } else if (!name.empty()) {
      name += ' ';
    }
    left_out.push_back(name + next->column.head);
    total -= next->width + 2;
    columns.erase(next);
  }
  return columns;
}

void print_table(const record::RunStory& run, const ExplainOptions& options) {
  record::TenantNames tenants;
  for (const record::SequenceStory& s : run.sequences) tenants.add(s.tenant);
  const std::vector<const record::SequenceStory*> rows = rows_of(run, options);
  std::vector<std::string> lines(rows.size() + 2);
  std::vector<std::string> left_out;
  for (const Cells& cells : fitting_columns(run, tenants, rows, options.sort, left_out)) {
    for (size_t i = 0; i < lines.size(); ++i) {
      lines[i] += cells.column.left ? fmt::format("  {:<{}}", cells.lines[i], cells.width)
                                    : fmt::format("  {:>{}}", cells.lines[i], cells.width);
    }
  }
  for (std::string& line : lines) fmt::print("{}\n", line.erase(line.find_last_not_of(' ') + 1));
  std::string notes;
  if (rows.size() < run.sequences.size()) {
    const std::string what = options.sort.empty() || options.sort == "waited"
                                 ? "that waited longest"
                                 : "first by --sort " + options.sort;
    notes += fmt::format(
        "These are the {} of {} {}; --top N and --sort waited|preempted|again|cached|id choose others. ",
        with_commas(rows.size()), record::plural(run.sequences.size(), "request"), what);
  }
  notes +=
      "Waits are in steps: before the request started running, and in all (after preemptions too). Tokens "
      "again: "
      "computed again after a preemption. \"Blocks, behind #7 (+2)\": #7 and two others came first and "
      "waited "
      "for blocks. \"A slot, 3 overtook it\": three that arrived later were admitted before it.";
  if (record::given_to_requests(run).deadlines) notes += " Deadline!: missed.";
  if (!left_out.empty()) {
    notes += " Left out because the lines are too narrow (see --request and --html):";
    for (size_t i = 0; i < left_out.size(); ++i) {
      std::string head = left_out[i];
      head.erase(0, head.find_first_not_of(' '));
      notes += fmt::format("{} \"{}\"", i == 0 ? "" : ",", head);
    }
    notes += ".";
  }
  print_wrapped(notes, "", 2);
}

/// `what` in a column of its own.
void print_item(std::string_view what, std::string_view text, size_t indent, size_t width = 16) {
  print_wrapped(text, fmt::format("{:{}}{}", "", indent, what), indent + std::max(width, what.size() + 1));
}

std::string when_text(const record::StoryLine& line) {
  if (line.to == 0) return "at the start";
  return line.from == line.to ? fmt::format("step {}", line.from)
                              : fmt::format("steps {}-{}", line.from, line.to);
}

void print_what_is_missing(const record::RunStory& run) {
  if (const std::string begins = record::late_begin_text(run); !begins.empty()) print_wrapped(begins);
  if (!run.ended_well()) print_wrapped(record::early_end_text(run) + " What follows is as far as it goes.");
}

void print_run(const record::RunStory& run, const ExplainOptions& options) {
  print_what_is_missing(run);
  print_table(run, options);
  fmt::print("\n");
  for (const record::SummaryLine& line : record::summarize(run)) print_item(line.what, line.text, 0);
  print_item("checked",
             "the checksum of each log block; --replay repeats the run and compares every decision", 0);
}

void print_story(const record::SequenceStory& s) {
  fmt::print("request {}{}{}\n", s.id, s.name.empty() ? "" : fmt::format(" ({})", record::printable(s.name)),
             s.fork_of ? fmt::format(", a fork of {}", *s.fork_of) : "");
  size_t width = 16;
  for (const record::StoryLine& line : s.lines) width = std::max(width, when_text(line).size() + 2);
  for (const record::StoryLine& line : s.lines) print_item(when_text(line), line.text, 2, width);
  if (!s.refused.empty()) {
    fmt::print("  refused: {}\n", s.refused);
    return;
  }
  fmt::print("in all\n");
  std::string waited = record::plural(s.steps_waited(), "step");
  if (s.steps_waited() > 0) {
    waited += fmt::format(" ({}): {}", record::duration_text(s.waited_time),
                          record::waited_for_text(s.waited, with_commas));
  }
  print_item("waited", waited, 2);
  if (s.overtaken > 0) {
    print_item("overtaken",
               fmt::format("{} that arrived later {} admitted before it",
                           record::plural(s.overtaken, "request"), s.overtaken == 1 ? "was" : "were"),
               2);
  }
  if (s.preemptions > 0) {
    print_item("preempted",
               fmt::format(
                   "{}, and waited {} ({}) to come back; of {} whose K/V it lost, {} were found in the "
                   "prefix cache, {} moved back from the host, {} computed again",
                   s.preemptions == 1 ? "once" : fmt::format("{} times", s.preemptions),
                   record::plural(s.steps_waited() - s.queued, "step"),
                   record::duration_text(s.waited_time - s.queued_time),
                   record::plural(s.lost_tokens, "token"), s.found_tokens, s.returned_tokens, s.again_tokens),
               2);
  }
  if (s.needed_evicted > 0) {
    print_item("evicted",
               fmt::format("{} that it would have found in the prefix cache had been evicted",
                           record::plural(s.needed_evicted, "block")),
               2);
  }
  print_item("first token", s.ttft ? "after " + record::duration_text(*s.ttft) : "none", 2);
  print_item("ended",
             s.total ? fmt::format("after {}: {}", record::duration_text(*s.total), record::end_text(s))
                     : "not within the log",
             2);
}

void print_request(const ExplainOptions& options) {
  const record::RunIndex index = record::read_run_index(options.log);
  if (std::ranges::none_of(index.sequences,
                           [&](const auto& s) { return record::is_called(s.id, s.name, options.request); })) {
    throw Error("--request: " + record::no_such_request_text(index, options.request));
  }
  const record::RunStory run = record::tell_run(options.log, [&](SeqId id, std::string_view name) {
    return record::is_called(id, name, options.request);
  });
  print_what_is_missing(run);
  bool found = false;
  for (const record::SequenceStory& s : run.sequences) {
    if (!record::is_called(s.id, s.name, options.request)) continue;
    if (std::exchange(found, true)) fmt::print("\n");
    print_story(s);
  }
  if (!found) throw Error("--request: its record is not in the log");
}

int print_replay(const std::string& log) {
  const record::Replay again = sim::replay(log);
  if (!again.has_beginning) {
    fmt::print(
        "Not replayed: the log begins after step {}, and only a log with its beginning can be replayed.\n"
        "Checked: the checksums and the form of what there is ({} decisions of {} steps)\n",
        with_commas(again.steps_before), with_commas(again.decisions), with_commas(again.steps));
    return 0;
  }
  const std::string decisions =
      fmt::format("{} decisions of {} steps, digest {:016x}", with_commas(again.decisions),
                  with_commas(again.steps), again.digest);
  if (again.differs()) {
    fmt::print("{}\n", record::difference_text(again));
    fmt::print("The log is damaged before or there, or another quire wrote it.\n");
  } else if (!again.recorded) {
    fmt::print(
        "Checked: replaying the log gives the same {}, as far as it goes (it ends before the run did)\n",
        decisions);
  } else if (again.same()) {
    fmt::print("Checked: replaying the log gives the same {}\n", decisions);
  } else {
    fmt::print("All {} are the same, but the log says digest {:016x}: it is damaged\n", decisions,
               *again.recorded);
  }
  return again.differs() || (again.recorded && !again.same()) ? 1 : 0;
}

/// "100-900", "100-", "-900" or "100".
void parse_steps(const std::string& text, record::PageOptions& page) {
  const auto wrong = [&] {
    return Error(
        fmt::format("--steps: \"{}\" is not a range of steps; expected FROM-TO, FROM-, -TO or one step, "
                    "counted from 1",
                    record::printable(text)));
  };
  const auto number = [&](std::string_view digits) -> std::optional<uint64_t> {
    if (digits.empty()) return std::nullopt;
    if (digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string_view::npos) throw wrong();
    return std::stoull(std::string(digits));
  };
  const size_t dash = text.find('-');
  page.first = number(std::string_view(text).substr(0, dash));
  page.last = dash == std::string::npos ? page.first : number(std::string_view(text).substr(dash + 1));
  if ((!page.first && !page.last) || page.first == 0U || page.last == 0U) throw wrong();
  if (page.first && page.last && *page.first > *page.last) {
    throw Error(fmt::format("--steps: {} ends before it starts", text));
  }
}

void write_page(const ExplainOptions& options) {
  record::PageOptions wanted;
  if (options.has_steps) parse_steps(options.steps, wanted);
  if (options.has_request) wanted.request = options.request;
  uint64_t log_bytes = 0;
  const record::OpenLog log = record::open_log(options.log);
  for (const record::OpenLog::Part& part : log.parts) {
    log_bytes += part.blocks.num_bytes();
    std::error_code none;
    if (std::filesystem::equivalent(part.blocks.path(), options.html, none)) {
      throw Error("--html: this is the log itself");
    }
  }
  check_output_file(options.html, record::run_page_kind());
  std::optional<tl::expected<record::Replay, std::string>> again;
  if (log.parts.front().header.part == 1 && log_bytes <= kReplayedForPage)
    again = sim::try_replay(options.log);
  const record::Page page = record::make_page(options.log, again, wanted);
  write_output_file(options.html, record::run_page_kind(), page.html);
  fmt::print("{}: {}, open it in a browser\n", options.html, human_bytes(page.html.size()));
  if (page.last - page.first + 1 < page.run_steps) {
    fmt::print("it shows steps {} to {} of {}; --steps FROM-TO chooses others\n", page.first, page.last,
               page.run_steps);
  }
}

int explain(const ExplainOptions& options) {
  if (options.has_request && options.request.find_first_not_of("# ") == std::string::npos) {
    throw Error("--request: expected a request's number (7 or #7) or the id of its answer");
  }
  if (options.replay) return print_replay(options.log);
  if (!options.html.empty()) {
    write_page(options);
  } else if (options.has_request) {
    print_request(options);
  } else {
    print_run(record::tell_run(options.log), options);
  }
  return 0;
}

}  // namespace

void add_explain(const Flags& app, Command& run) {
  auto options = std::make_shared<ExplainOptions>();
  const Flags command =
      app.add_command("explain", "Explain what the scheduler of a recorded run decided, and why");
  command.footer(
      "Without options: a table of the requests and a summary of the run. Steps count from 1; a "
      "request\n\"waits\" in each step in which it has arrived and has no slot. #7 is request 7.\n"
      "\n"
      "  quire serve MODEL --decision-log run.log ...     (end it with Ctrl-C)\n"
      "  quire explain run.log\n"
      "  quire explain run.log --request 7\n"
      "  quire explain run.log --html run.html\n");
  command
      .add_option("log", options->log,
                  "Decision log, as --decision-log writes it: with all its parts, or one part by its own "
                  "name (LOG.3)")
      .required()
      .value_name("LOG");
  const Flag request =
      command
          .add_option("--request", options->request,
                      "Show one request: why it waited and behind which requests, what was preempted and "
                      "what it cost. ID: its number in the table, or the id of its answer")
          .value_name("ID");
  const Flag html =
      command
          .add_option("--html", options->html,
                      "Write an HTML page (one file, works offline): every step of the run with its blocks, "
                      "requests and reasons; with --request it opens at that request")
          .value_name("FILE");
  const Flag steps = command
                         .add_option("--steps", options->steps,
                                     "Steps on the page: FROM-TO. Default: all, or the first 20,000")
                         .value_name("RANGE")
                         .needs(html);
  const Flag replay =
      command
          .add_flag("--replay", options->replay,
                    "Repeat the run from its inputs and compare every decision; exits with 1 if one differs")
          .excludes(request)
          .excludes(html)
          .excludes(steps);
  command
      .add_option("--sort", options->sort,
                  "Order of the table's rows: waited, preempted, again (tokens computed again) and cached "
                  "put the highest first; id")
      .one_of({"waited", "preempted", "again", "cached", "id"})
      .value_name("BY")
      .excludes(request)
      .excludes(html)
      .excludes(replay);
  command.add_option("--top", options->top, "Rows of the table; default: all, or the 50 that waited longest")
      .range(uint32_t{1}, UINT32_MAX)
      .value_name("N")
      .excludes(request)
      .excludes(html)
      .excludes(replay);
  command.callback([options, request, steps, &run] {
    options->has_request = request.is_given();
    options->has_steps = steps.is_given();
    run = [options] { return explain(*options); };
  });
}

}  // namespace quire::cli
