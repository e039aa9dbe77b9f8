"""What a person reads who wrote a command line that cannot be, or asks what there is."""
import pytest

from test_cli import DEMO, ROOT, quire

README = ROOT / "README.md"
COMMANDS = ["serve", "run", "chat", "bench", "bench latency", "bench throughput", "bench serve", "bench ops", "simulate", "explain",
            "inspect", "plan", "logits", "perplexity", "tokenize", "detokenize", "render", "convert", "make-model"]


def line_of(*args):
    done = quire(*args, check=False)
    message = done.stderr.decode()
    assert done.stdout == b"" and message.startswith("quire: ") and message.count("\n") == 1, message
    return done.returncode, message


@pytest.mark.parametrize("args", [
    ["run"], ["chat"], ["serve"], ["inspect"], ["plan"], ["bench", "latency"], ["bench", "throughput"],
    ["perplexity", README, README], ["logits", README, "--ids-file", "x", "-o", "y"], ["convert", README, "x"],
])
def test_what_is_no_model_is_told_alike(args):
    status, message = line_of(*args, *([] if README in args else [README]))
    assert status == 1 and message.startswith(f"quire: {README}: is not a model"), message
    assert "config.json" in message and "at byte" not in message


def test_a_folder_without_a_config_is_no_model(tmp_path):
    for args in (["inspect", tmp_path], ["convert", tmp_path, tmp_path / "x.gguf"], ["bench", "latency", tmp_path]):
        assert line_of(*args)[1].startswith(f"quire: {tmp_path}: is not a model: there is no config.json in it")
    for args in (["inspect", tmp_path / "no"], ["convert", tmp_path / "no", "x"], ["perplexity", tmp_path / "no", README]):
        assert line_of(*args)[1].startswith(f"quire: {tmp_path / 'no'}: no such file or directory (a model is ")


@pytest.mark.parametrize("args,said", [
    (["serve", "extra"], "help: 'extra' is one argument too many"), (["bench", "serve", "x"], "help: 'x' is one argument too many"),
    (["serve", "--port", "3"], "help: '--port' is one argument too many"), (["bench", "x"], "bench: there is no command 'x'"),
    (["help", "serve"], "there is no command 'help'"),
])
def test_help_takes_the_names_of_commands_alone(args, said):
    status, message = line_of("help", *args)
    assert status == 2 and said in message, message


def test_help_of_help_is_help():
    assert quire("help", "help").stdout == quire("help").stdout == quire("--help").stdout


def test_a_commands_help_does_not_send_to_itself():
    assert b"quire help COMMAND" in quire("--help").stdout
    for command in COMMANDS:
        text = quire(*command.split(), "--help").stdout.decode()
        assert "quire COMMAND --help" not in text, command
        assert f"quire {command} --help" not in text, command


def test_help_shows_numbers_and_flags_as_they_are_written():
    for command in COMMANDS:
        text = quire(*command.split(), "--help").stdout.decode()
        for ugly in ("{false}", "{true}", "e-0", "e+0", ":FLOAT", ":INT", "=[", " \n"):
            assert ugly not in text, (command, ugly)
    text = quire("run", "--help").stdout.decode()
    assert "  --no-enable-prefix-caching,--enable-prefix-caching\n" in text
    assert "  --top-p P (0.000001 to 1) " in text
    assert "  --timeout S=600 (0.001 to 1000000) " in quire("bench", "serve", "--help").stdout.decode()


@pytest.mark.parametrize("args,said", [
    (["run", DEMO, "--top-p", "1.5"], "--top-p: 1.5 is not a number from 0.000001 to 1"),
    (["bench", "serve", "--timeout", "1e9"], "--timeout: 1e9 is not a number from 0.001 to 1000000"),
    (["simulate", "--watermark", "100.5"], "--watermark: 100.5 is not a number from 0 to 100"),
    (["serve", DEMO, "--port", "8.5"], "--port: 8.5 is not a whole number from 0 to 65535"),
])
def test_limits_are_told_as_they_are_written(args, said):
    assert line_of(*args) == (2, f"quire: {said}\n")


@pytest.mark.parametrize("args,said", [
    (["--enable-auto-tool-choice"], "tool calls are parsed as the chat template teaches them; --tool-call-parser NAME chooses another way"),
    (["--tool-call-parser", "hermit"], "--tool-call-parser: there is no 'hermit'; it may be auto, none, qwen3_coder"),
    (["--reasoning-parser", "deepseek_r1"], "--reasoning-parser: there is no 'deepseek_r1'; it may be auto, none, think"),
])
def test_who_chooses_a_parser_is_told_which_there_are(args, said):
    status, message = line_of("serve", DEMO, *args)
    assert status == 2 and said in message, message
