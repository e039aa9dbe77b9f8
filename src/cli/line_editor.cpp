// LineEditor: line editing with libedit.
#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <histedit.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/message_reader.h"
#include "cli/terminal.h"
#include "record/display_text.h"

namespace quire::cli {
namespace {

constexpr size_t kLongestPaste = size_t{1} << 20;  // bytes
constexpr std::string_view kPasteEnd = "\033[201~";
constexpr std::string_view kPasteOn = "\033[?2004h";
constexpr std::string_view kPasteOff = "\033[?2004l";
constexpr char kInterrupt = 3;
// Bound to libedit's own end of a line, which leaves the cursor below it. No key sends it.
constexpr const wchar_t* kFinish = L"\033[=J";
constexpr const wchar_t* kNoMore = nullptr;  // ends a list of arguments
constexpr wchar_t kEscapes = L'\1';          // encloses text that does not move the cursor

/// `text` is valid UTF-8.
std::wstring to_wide(std::string_view text) {
  std::wstring out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_at(text, at);
    out += static_cast<wchar_t>(next.code);
    at += next.size;
  }
  return out;
}

std::string to_utf8(std::wstring_view text) {
  std::string out;
  for (const wchar_t c : text) append_utf8(out, static_cast<char32_t>(c));
  return out;
}

/// Cleans pasted text for a message: lines end in
/// , and tabs are the only other control characters kept.
std::string clean(std::string_view pasted) {
  std::string out;
  for (size_t i = 0; i < pasted.size(); ++i) {
    const char c = pasted[i];
    if (c == '\r') {
      out += '\n';
      if (i + 1 < pasted.size() && pasted[i + 1] == '\n') ++i;
    } else if (c == '\n' || c == '\t' || (static_cast<uint8_t>(c) >= 0x20 && c != 0x7F)) {
      out += c;
    }
  }
  return record::valid_utf8(out);
}

}  // namespace

struct LineEditor::Impl {
  Impl(ChatHistory the_history, std::vector<std::string> the_commands)
      : history(std::move(the_history)), commands(std::move(the_commands)) {
    // All text is UTF-8 here, whatever the user's locale is.
    if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
    const char* terminal = std::getenv("TERM");
    knows_paste = terminal != nullptr && std::string_view(terminal) != "dumb";
    edit = el_init("quire", stdin, stdout, stderr);
    lines = history_winit();
    if (edit == nullptr || lines == nullptr) throw Error("the terminal cannot be used for editing");
    HistEventW event;
    history_w(lines, &event, H_SETSIZE, static_cast<int>(ChatHistory::kMostEntries));
    history_w(lines, &event, H_SETUNIQUE, 1);
    for (const std::string& entry : history.entries()) remember(entry);
    set_prompt();
    el_wset(edit, EL_CLIENTDATA, this);
    el_wset(edit, EL_EDITOR, L"emacs");
    el_wset(edit, EL_SIGNAL, 1);  // a resized terminal; the end of the program leaves it as it was
    el_wset(edit, EL_HIST, history_w, lines);
    el_wset(edit, EL_GETCFN, &next_character);
    // Ctrl-C and Ctrl-Z are keys like others.
    el_wset(edit, EL_SETTY, L"-d", L"-isig", kNoMore);
    bind_keys();
  }

  ~Impl() {
    if (edit != nullptr) el_end(edit);
    if (lines != nullptr) history_wend(lines);
  }

  void set_prompt() {
    constexpr std::string_view kPrompt = "> ";
    const std::string painted =
        paint(stdout, kPrompt, fmt::fg(fmt::terminal_color::cyan) | fmt::emphasis::bold);
    const size_t at = painted.find(kPrompt);
    const auto escape = [](std::string_view part) {
      return part.empty() ? std::wstring() : kEscapes + to_wide(part) + kEscapes;
    };
    prompt = escape(std::string_view(painted).substr(0, at)) + to_wide(kPrompt) +
             escape(std::string_view(painted).substr(at + kPrompt.size()));
    const auto of = [](EditLine* e) { return self(e).prompt.data(); };
    el_wset(edit, EL_PROMPT_ESC, static_cast<wchar_t* (*)(EditLine*)>(of), kEscapes);
  }

  void bind_keys() {
    using Action = unsigned char (*)(EditLine*, wint_t);
    const auto add = [this](const wchar_t* name, Action action, std::initializer_list<const wchar_t*> keys) {
      el_wset(edit, EL_ADDFN, name, name, action);
      for (const wchar_t* key : keys) el_wset(edit, EL_BIND, key, name, kNoMore);
    };
    add(L"quire-enter", &on_enter, {L"^J", L"^M"});
    add(L"quire-newline", &on_newline, {L"\\e^J", L"\\e^M"});
    add(L"quire-interrupt", &on_interrupt, {L"^C"});
    add(L"quire-suspend", &on_suspend, {L"^Z"});
    add(L"quire-paste", &on_paste, {L"\\e[200~"});
    add(L"quire-complete", &on_tab, {L"^I"});
    constexpr std::array<std::pair<const wchar_t*, const wchar_t*>, 11> kKeys = {{
        {L"\\e[=J", L"ed-newline"},
        {L"^R", L"em-inc-search-prev"},
        {L"^W", L"ed-delete-prev-word"},
        {L"\\e[1;5D", L"ed-prev-word"},
        {L"\\e[1;5C", L"em-next-word"},
        {L"\\e[H", L"ed-move-to-beg"},
        {L"\\e[F", L"ed-move-to-end"},
        {L"\\eOH", L"ed-move-to-beg"},
        {L"\\eOF", L"ed-move-to-end"},
        {L"\\e[3~", L"ed-delete-next-char"},
        {L"\\e[201~", L"ed-ignore"},
    }};
    for (const auto& [key, action] : kKeys) el_wset(edit, EL_BIND, key, action, kNoMore);
  }

  void remember(const std::string& message) {
    HistEventW event;
    history_w(lines, &event, H_ENTER, to_wide(record::valid_utf8(message)).c_str());
  }

  static Impl& self(EditLine* edit) {
    void* data = nullptr;
    el_wget(edit, EL_CLIENTDATA, &data);
    return *static_cast<Impl*>(data);
  }

  /// False at the end of the input.
  bool next_byte(char& byte) {
    while (taken == ready.size()) {
      std::array<char, 4096> block{};
      const ssize_t got = ::read(STDIN_FILENO, block.data(), block.size());
      if (got < 0 && errno == EINTR && InterruptNote::interrupted().exchange(false)) {
        ready = kInterrupt;  // a signal, and not from this terminal
        taken = 0;
        break;
      }
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return false;
      ready.assign(block.data(), static_cast<size_t>(got));
      taken = 0;
    }
    byte = ready[taken++];
    return true;
  }

  static int next_character(EditLine* edit, wchar_t* character) {
    Impl& me = self(edit);
    std::string bytes(1, '\0');
    if (!me.next_byte(bytes[0])) return 0;
    const auto lead = static_cast<uint8_t>(bytes[0]);
    const size_t length = lead < 0xC2 || lead > 0xF4 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    for (char more = 0; bytes.size() < length; bytes += more) {
      if (!me.next_byte(more)) return 0;
      if (continues_utf8(more)) continue;
      --me.taken;  // the character before it is cut off
      break;
    }
    *character = to_wide(record::valid_utf8(bytes)).front();
    return 1;
  }

  static unsigned char finish(EditLine* edit) {
    el_wpush(edit, kFinish);
    return CC_REFRESH;
  }

  static unsigned char on_enter(EditLine* edit, wint_t) {
    const LineInfoW* line = el_wline(edit);
    const bool goes_on =
        line->cursor == line->lastchar && line->cursor > line->buffer && line->cursor[-1] == L'\\';
    if (!goes_on) return finish(edit);
    el_deletestr(edit, 1);
    return on_newline(edit, 0);
  }

  static unsigned char on_newline(EditLine* edit, wint_t) {
    el_winsertstr(edit, L"\n");
    return CC_REFRESH;
  }

  static unsigned char on_interrupt(EditLine* edit, wint_t) {
    const LineInfoW* line = el_wline(edit);
    self(edit).interrupt = line->lastchar == line->buffer ? Input::Kind::kInterrupt : Input::Kind::kDropped;
    el_cursor(edit, static_cast<int>(line->lastchar - line->cursor));
    el_winsertstr(edit, L"^C");
    return finish(edit);
  }

  /// libedit's handler of the signal leaves the terminal as it was, and comes back to it.
  static unsigned char on_suspend(EditLine*, wint_t) {
    kill(0, SIGTSTP);
    return CC_NORM;
  }

  static unsigned char on_paste(EditLine* edit, wint_t) {
    Impl& me = self(edit);
    std::string pasted;
    std::string end;  // of what is dropped
    size_t size = 0;
    for (char byte = 0; !pasted.ends_with(kPasteEnd) && !end.ends_with(kPasteEnd);) {
      if (!me.next_byte(byte) || byte == kInterrupt) return CC_REFRESH;
      if (++size <= kLongestPaste) {
        pasted += byte;
      } else {
        if (end.empty()) end = pasted.substr(pasted.size() - kPasteEnd.size());
        end = end.substr(1) + byte;
      }
    }
    if (!end.empty()) {
      el_winsertstr(edit, L"[a pasted text of more than 1 MiB was dropped]");
      return CC_REFRESH_BEEP;
    }
    pasted.resize(pasted.size() - kPasteEnd.size());
    el_winsertstr(edit, to_wide(clean(pasted)).c_str());
    return CC_REFRESH;
  }

  /// Commands, and the files that they take.
  static unsigned char on_tab(EditLine* edit, wint_t key) {
    const LineInfoW* line = el_wline(edit);
    const std::string before = to_utf8({line->buffer, static_cast<size_t>(line->cursor - line->buffer)});
    if (before.starts_with("/load ") || before.starts_with("/save ")) {
      return _el_fn_complete(edit, static_cast<int>(key));
    }
    std::vector<std::string> fitting;
    for (const std::string& command : self(edit).commands) {
      if (!before.empty() && command.starts_with(before)) fitting.push_back(command);
    }
    if (fitting.empty()) return CC_ERROR;
    std::string common = fitting.size() == 1 ? fitting.front() + ' ' : fitting.front();
    for (const std::string& each : fitting) {
      const auto differ = std::mismatch(common.begin(), common.end(), each.begin(), each.end()).first;
      if (fitting.size() > 1) common.erase(differ, common.end());
    }
    if (common.size() == before.size()) return CC_ERROR;
    el_winsertstr(edit, to_wide(common.substr(before.size())).c_str());
    return CC_REFRESH;
  }

  Input read() {
    interrupt.reset();
    // Before the prompt, so that Ctrl-C is a key as soon as it is there.
    el_wset(edit, EL_PREP_TERM, 1);
    // Ctrl-C may have been pressed just after the last answer ended and meant for it.
    if (InterruptNote::interrupted().exchange(false)) {
      el_wset(edit, EL_PREP_TERM, 0);
      return {Input::Kind::kInterrupt};
    }
    if (knows_paste) print_now(kPasteOn);
    int length = 0;
    const wchar_t* line = el_wgets(edit, &length);
    if (line == nullptr || length <= 0) {
      if (knows_paste) print_now(kPasteOff);
      print_now("\n");
      return {};
    }
    if (interrupt) return {*interrupt};
    Input input{Input::Kind::kMessage, to_utf8({line, static_cast<size_t>(length)})};
    input.text.erase(input.text.find_last_not_of(" \t\n") + 1);
    if (input.text.empty()) return input;
    remember(input.text);
    try {
      history.add(input.text);
    } catch (const Error& error) {
      log_warning(fmt::format("{}: messages are kept for this conversation only", error.what()));
    }
    return input;
  }

  const InterruptNote note;
  ChatHistory history;
  std::vector<std::string> commands;
  EditLine* edit = nullptr;
  HistoryW* lines = nullptr;
  std::wstring prompt;
  bool knows_paste = false;
  std::string ready;  // read and not yet taken
  size_t taken = 0;
  std::optional<Input::Kind> interrupt;  // set by Ctrl-C
};

LineEditor::LineEditor(ChatHistory history, std::vector<std::string> commands)
    : impl_(std::make_unique<Impl>(std::move(history), std::move(commands))) {}

LineEditor::~LineEditor() {
  if (impl_->knows_paste && is_terminal(stdout)) fmt::print("{}", kPasteOff);
}

Input LineEditor::read() { return impl_->read(); }

}  // namespace quire::cli
