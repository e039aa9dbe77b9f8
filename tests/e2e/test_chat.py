"""quire chat, as a person at a terminal and as a program behind a pipe."""
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import termios
import time

import pytest
from server import MODEL, QUIRE

PATIENCE = 60
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PROMPT = "> "
UP, CTRL_C, CTRL_D, ALT_ENTER = "\x1b[A", "\x03", "\x04", "\x1b\r"


class Chat:
    """A person at a pseudo-terminal."""

    def __init__(self, home, *flags, **environment):
        self.ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, 200))
        self.theirs = theirs  # to look at its settings
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm", **environment}
        self.process = subprocess.Popen(
            [QUIRE, "chat", MODEL, "--temperature", "0", *map(str, flags)], stdin=theirs, stdout=theirs, stderr=theirs,
            env=env, cwd=home, preexec_fn=self._own_terminal(theirs))
        self.raw = ""
        self.seen = 0  # of the text, by what has been waited for
        self.greeting = self.expect(PROMPT)

    @staticmethod
    def _own_terminal(theirs):
        def prepare():
            os.setsid()
            import fcntl
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        return prepare

    @property
    def text(self):
        return ESCAPES.sub("", self.raw).replace("\r", "")

    def _read(self, seconds):
        if not select.select([self.ours], [], [], seconds)[0]:
            return
        try:
            self.raw += os.read(self.ours, 65536).decode(errors="replace")
        except OSError:  # the other side has closed it
            time.sleep(0.05)

    def expect(self, what):
        """Waits for it behind what was waited for before; what came until its end."""
        end = time.monotonic() + PATIENCE
        while (at := self.text.find(what, self.seen)) < 0:
            assert time.monotonic() < end, f"{what!r} did not come: {self.text[self.seen:]!r}"
            self._read(0.1)
        begin, self.seen = self.seen, at + len(what)
        return self.text[begin:self.seen]

    def write(self, keys):
        os.write(self.ours, keys.encode())

    def say(self, line, answer=PROMPT):
        """What comes after the line, until the next prompt."""
        self.write(line)
        self.expect(line[-20:])
        self.write("\r")
        return self.expect("\n" + answer)

    def wait(self):
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            self._read(0.1)
        return self.process.poll()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


def conversation(home, name="talk.json"):
    return [(each["role"], each["content"]) for each in json.loads((home / name).read_text())["messages"]]


def questions(home, name="talk.json"):
    return [text for role, text in conversation(home, name) if role == "user"]


def test_a_pasted_text_of_three_lines_is_one_message(tmp_path):
    with Chat(tmp_path, "--max-tokens", 8) as chat:
        assert "\x1b[?2004h" in chat.raw  # or the terminal would not mark it
        chat.write("\x1b[200~Write a story\rabout a dog\nand a café 🎉\x1b[201~")
        chat.expect("café")
        chat.write("\r")
        chat.expect("\n" + PROMPT)
        chat.say("/save talk.json")
    assert questions(tmp_path) == ["Write a story\nabout a dog\nand a café 🎉"]


def test_lines_go_on_by_backslash_and_alt_enter(tmp_path):
    with Chat(tmp_path, "--max-tokens", 8) as chat:
        chat.write("first\\\rsecond" + ALT_ENTER + "third\r")
        chat.expect("third")
        chat.expect("\n" + PROMPT)
        chat.say("/save talk.json")
    assert questions(tmp_path) == ["first\nsecond\nthird"]


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(tmp_path):
    with Chat(tmp_path, "--isa", "reference", "--threads", 1, "--ignore-eos") as chat:
        chat.write("Tell me a story about a bridge.\r")
        chat.expect("Once upon")
        chat.write(CTRL_C)
        chat.expect("(stopped")
        chat.expect(PROMPT)
        chat.say("/save talk.json")
        (_, asked), (role, answer) = conversation(tmp_path)
        assert asked == "Tell me a story about a bridge." and role == "assistant" and answer.startswith("Once upon")
        assert len(answer) < 1000
        # The conversation goes on, and knows what came.
        chat.say("/set max-tokens 5")
        chat.say("Who was there?")
        chat.say("/save")
        assert len(conversation(tmp_path)) == 4 and conversation(tmp_path)[1] == ("assistant", answer)
        # One more does not end it at once; two do.
        chat.write(CTRL_C)
        chat.expect("Ctrl-C again")
        chat.expect(PROMPT)
        chat.write(CTRL_C)
        assert chat.wait() == 0


def test_ctrl_c_at_the_prompt_after_a_stopped_answer_ends(tmp_path):
    with Chat(tmp_path, "--isa", "reference", "--threads", 1, "--ignore-eos") as chat:
        chat.write("Tell me a story about a bridge.\r")
        chat.expect("Once upon")
        chat.write(CTRL_C)
        chat.expect("(stopped")
        chat.expect(PROMPT)
        chat.write(CTRL_C)
        assert chat.wait() == 0


def test_ctrl_c_drops_what_is_written(tmp_path):
    with Chat(tmp_path, "--max-tokens", 8) as chat:
        chat.write("this is dropped" + CTRL_C)
        chat.expect("dropped^C")
        chat.expect(PROMPT)
        chat.say("this is not")
        chat.say("/save talk.json")
        chat.write(CTRL_D)
        assert chat.wait() == 0
    assert questions(tmp_path) == ["this is not"]


def test_history_is_there_by_arrow_up_also_the_next_time(tmp_path):
    with Chat(tmp_path, "--max-tokens", 8) as chat:
        chat.say("Tell me a story about a bridge.")
        chat.say("And a fox?")
        chat.write(UP + UP)
        chat.expect("about a bridge.")
        chat.write("\r")
        chat.expect("\n" + PROMPT)
        chat.say("/save talk.json")
        chat.write(CTRL_D)
        assert chat.wait() == 0
    assert questions(tmp_path) == ["Tell me a story about a bridge.", "And a fox?", "Tell me a story about a bridge."]
    kept = tmp_path / ".local/state/quire/chat_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    state = tmp_path / "state"
    (state / "quire").mkdir(parents=True)
    (state / "quire/chat_history").write_text("from elsewhere\n")
    with Chat(tmp_path) as chat:
        chat.write(UP)
        chat.expect("/save talk.json")
    with Chat(tmp_path, XDG_STATE_HOME=str(state)) as chat:
        chat.write(UP)
        chat.expect("from elsewhere")
    before = kept.read_text()
    with Chat(tmp_path, "--no-history", "--max-tokens", 4) as chat:
        chat.say("a secret")
        chat.write(UP)
        chat.expect("a secret")
    assert kept.read_text() == before


def test_a_line_is_edited(tmp_path):
    with Chat(tmp_path, "--max-tokens", 4) as chat:
        chat.write("Tell a bridge\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x1b[Dme \x05!\x7f?\x01\x1b[3~T\r")
        chat.expect("\n" + PROMPT)
        chat.write("/sa\ttalk.json\r")
        chat.expect("saved in")
    assert questions(tmp_path) == ["Tell me a bridge?"]


def test_what_is_typed_during_an_answer_is_the_next_message(tmp_path):
    with Chat(tmp_path, "--isa", "reference", "--threads", 1, "--max-tokens", 60, "--ignore-eos") as chat:
        chat.write("Tell me a story about a bridge.\r")
        chat.expect("Once upon")
        chat.write("\x1b[200~two\rlines\x1b[201~\r")
        shown = chat.expect(PROMPT)
        assert "lines" not in shown  # not in the midst of the answer
        chat.expect("lines")
        chat.expect("\n" + PROMPT)
        chat.say("/save talk.json")
    assert questions(tmp_path) == ["Tell me a story about a bridge.", "two\nlines"]


def test_commands(tmp_path):
    with Chat(tmp_path, "--max-tokens", 8, "--system", "Be kind.") as chat:
        assert "/help lists the commands" in chat.greeting
        said = chat.say("/help")
        for name in "/help /set /system /save /load /stats /regen /undo /forget /new /show /quit Alt-Enter".split():
            assert name in said
        assert all(len(line) <= 80 for line in said.splitlines())
        assert "there is no command /hlep: did you mean /help?" in chat.say("/hlep")
        assert "there is no command /usr/bin/env" in chat.say("/usr/bin/env what is this?")
        assert "Be kind." in chat.say("/system")
        chat.say("/system Be short.")
        assert "temperature: 300 is not a number from 0 to 100" in chat.say("/set temperature 300")
        chat.say("/set temperature 0.3")
        assert re.search(r"temperature +0.3\n", chat.say("/set"))
        assert "did you mean top-p;" in chat.say("/set topp 1")
        assert "no question" in chat.say("/regen") and "nothing to save" in chat.say("/save x.json")
        chat.say("Tell me a story about a bridge.")
        chat.say("/set temperature 5")
        chat.say("/save one.json")
        chat.say("/regen")
        chat.say("/save two.json")
        chat.say("Another one.")
        stats = chat.say("/stats")
        assert re.search(r"so far +3 answers, \d+ tokens generated", stats)
        assert re.search(r"prefix hits +[1-9]\d* of \d+ tokens", stats)
        assert re.search(r"K/V +[1-9]\d* of 32 blocks of 16 tokens in use", stats)
        assert re.search(r"conversation +2 questions, \d+ of 512 tokens", stats)
        assert re.search(r"on average +prompts at [1-9][\d.]* tok/s, answers at [1-9][\d.]* tok/s", stats)
        chat.write("/quit\r")
        assert chat.wait() == 0
    one, two = conversation(tmp_path, "one.json"), conversation(tmp_path, "two.json")
    assert [role for role, _ in one] == ["system", "user", "assistant"] and one[0][1] == "Be short."
    assert one[:2] == two[:2] and one[2] != two[2] and len(two) == 3


def test_settings_are_confirmed_and_checked(tmp_path):
    with Chat(tmp_path, "--max-tokens", 8) as chat:
        for command, said in [
            ("/set temperature 0.5", "temperature: 0.5\n"),
            ("/set temperature", "temperature: 0.5\n"),
            ("/set top_k=7", "top-k: 7\n"),
            ("/set temperature default", "temperature: 0\n"),
            ("/set top-k 9", "top-k: 9, which changes nothing while the temperature is 0\n"),
            ("/set seed -1", "seed: '-1' is not a whole number from 0 up, or is too large\n"),
            ("/set seed 18446744073709551616", "seed: '18446744073709551616' is not a whole number from 0 up, or is too large\n"),
            ("/set ignore-eos maybe", "ignore-eos: 'maybe' is neither true nor false\n"),
            ("/set ignore-eos on", "ignore-eos: true\n"),
            ('/set stop "the end"', 'stop: "the end"\n'),
            ("/set foo 3", "there is no setting 'foo'; /set lists all\n"),
            ("/set temp 3", "there is no setting 'temp': did you mean temperature; /set lists all\n"),
            ("/system Be short.", "the system prompt from now on\n"),
            ("/system none", "no system prompt from now on\n"),
        ]:
            assert said in chat.say(command), command


def test_commands_that_do_not_exist_are_not_sent_and_guessed_with_care(tmp_path):
    with Chat(tmp_path) as chat:
        for command in ("/", "//", "/ help", "/x"):
            said = chat.say(command)
            assert "/help lists them" in said and "did you mean" not in said, said
        assert "did you mean /set, /system, /show, /save or /stats?" in chat.say("/s")
        assert "did you mean /help?" in chat.say("/hlp") and "did you mean /regenerate?" in chat.say("/regenrate")
        assert "another answer to the last question" in chat.say("/HELP")
        chat.write(CTRL_D)
        assert chat.wait() == 0


def test_stats_tell_no_speed_before_there_is_one(tmp_path):
    with Chat(tmp_path, "--max-tokens", 1) as chat:
        before = chat.say("/stats")
        assert "so far         no answers" in before and "tok/s" not in before and "prefix hits  " not in before
        chat.say("Tell me a story.")
        after = chat.say("/stats")  # one token has no time after the first
        assert "1 answer, 1 token" in after and "prompts at" in after and "answers at" not in after and " 0.0 tok/s" not in after


def test_a_developer_in_a_loaded_conversation_is_heard(tmp_path):
    """By a template that does not mention the role, as a server has it."""
    model = tmp_path / "model"
    model.mkdir()
    for file in MODEL.iterdir():
        if not file.name.startswith("chat_template"):
            (model / file.name).symlink_to(file)
    (model / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}{{ m.content }} {% endif %}{% endfor %}")

    def asked(role):
        (tmp_path / "talk.json").write_text(json.dumps([{"role": role, "content": "There was a fox."}, {"role": "user", "content": "It"}]))
        done = subprocess.run([QUIRE, "chat", model, "--temperature", "0", "--max-tokens", "12"], input=b"/load talk.json\n/regen\n/stats\n",
                              capture_output=True, timeout=PATIENCE, env={"HOME": str(tmp_path)}, cwd=tmp_path)
        assert done.returncode == 0 and done.stderr == b""
        return done.stdout.decode().splitlines()[0], re.search(r"(\d+) tokens of prompts", done.stdout.decode())[1]

    assert asked("developer") == asked("system")


def test_a_conversation_that_the_template_refuses_is_told_at_once(tmp_path):
    calls = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]
    (tmp_path / "talk.json").write_text(json.dumps([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}]))
    with Chat(tmp_path) as chat:
        assert "this model cannot continue it: messages[1].tool_calls" in chat.say("/load talk.json")


def test_a_conversation_is_saved_and_loaded_and_overwrites_nothing_else(tmp_path):
    (tmp_path / "notes.txt").write_text("dear to somebody")
    (tmp_path / "array.json").write_text('[{"role": "user", "content": "an array"}]')
    (tmp_path / "other.json").write_text('{"model": "m", "messages": [{"role": "user", "content": "old"}]}')
    with Chat(tmp_path, "--max-tokens", 8) as chat:
        chat.say("Tell me a story about a bridge.")
        for name in ("notes.txt", "other.json"):
            assert "exists already and is not overwritten" in chat.say(f"/save {name}")
        assert "cannot be written" in chat.say("/save no/such/folder")
        chat.say("/save ~/talk.json")
        first = conversation(tmp_path)
        assert len(first) == 2 and stat.S_IMODE((tmp_path / "talk.json").stat().st_mode) == 0o600
        chat.say("/load other.json")
        assert "> old" in chat.say("/show")
        chat.say("/load array.json")
        assert "array.json: is not a saved conversation and is not overwritten" in chat.say("/save")
        chat.say("/load other.json")
        chat.say("/regen")
        chat.say("/save")
        assert conversation(tmp_path, "other.json")[0] == ("user", "old") and conversation(tmp_path) == first
        for name, why in [("notes.txt", "notes.txt: at byte 0"), ("none", "none: ")]:
            assert why in chat.say(f"/load {name}")
        assert "> old" in chat.say("/show")  # what was there still is
        chat.say("/load talk.json")
        chat.say("And then?")
        chat.say("/save")
        assert conversation(tmp_path)[:2] == first and len(conversation(tmp_path)) == 4
    assert (tmp_path / "notes.txt").read_text() == "dear to somebody"


def test_a_conversation_that_grows_too_long_is_told_and_goes_on(tmp_path):
    with Chat(tmp_path, "--max-tokens", 170, "--ignore-eos") as chat:
        for _ in range(2):
            chat.say("Tell me a story about a bridge.")
        assert "cut off: the conversation has the 512 tokens" in chat.say("Tell me a story about a bridge.")
        assert "reads 512: the message was not taken. /forget" in chat.say("Tell me a story about a fox.")
        chat.say("/forget")
        chat.say("Tell me a story about a fox.")
        chat.say("/save talk.json")
        assert "it must be shorter" not in chat.say("/new")
        assert "it must be shorter" in chat.say("word " * 600)
    assert len(questions(tmp_path)) == 3


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_colours_are_for_those_who_want_them(tmp_path, environment):
    with Chat(tmp_path, **environment) as chat:
        chat.say("/nonsense")
        coloured = re.search(r"\x1b\[[0-9;]*3[0-9]m", chat.raw) is not None
        assert coloured == (environment == {})


def test_the_terminal_is_left_as_it_was(tmp_path):
    for end in ["ctrl-d", "at the prompt", "answering", "after an answer"]:
        with Chat(tmp_path, "--isa", "reference", "--threads", 1, "--ignore-eos") as chat:
            if end in ("answering", "after an answer"):
                chat.write("Tell me a story about a bridge.\r")
                chat.expect("Once upon")
            if end == "after an answer":
                chat.write(CTRL_C)
                chat.expect(PROMPT)
            if end == "ctrl-d":
                chat.write(CTRL_D)
                assert chat.wait() == 0
            else:
                chat.process.send_signal(signal.SIGTERM)
                assert chat.wait() == -signal.SIGTERM
            flags = termios.tcgetattr(chat.theirs)[3]
            assert flags & termios.ECHO and flags & termios.ICANON and flags & termios.ISIG, end


def test_a_pipe_has_one_message_a_line(tmp_path):
    def chat(text, **more):
        return subprocess.run([QUIRE, "chat", MODEL, "--temperature", "0", "--max-tokens", "20"], input=text.encode(),
                              capture_output=True, timeout=PATIENCE, env={"HOME": str(tmp_path)}, cwd=tmp_path, **more)

    done = chat("Tell me a story about a bridge.\n\n/new\nTell me a story about a bridge.\n/save talk.json\n")
    first, second = done.stdout.decode().splitlines()
    assert first == second and first and done.stderr == b"" and done.returncode == 0
    assert questions(tmp_path) == ["Tell me a story about a bridge."]
    assert not (tmp_path / ".local").exists()  # what programs write is nobody's history
    wrong = chat("/nonsense\nTell me a story about a bridge.\n")
    assert wrong.stdout.decode().splitlines() == [first]
    assert wrong.stderr.decode().startswith("quire: there is no command /nonsense") and wrong.returncode == 1
