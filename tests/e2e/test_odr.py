"""tools/check_odr.py sees names that stand for two things, and only those."""
import json
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools/check_odr.py"

DECODER = """#pragma once
namespace quire {{
struct Decoder {{
  {body}
  int get() const {{ return {value}; }}
}};
}}  // namespace quire
"""
USER = """#include "{header}"
namespace quire {{
int {name}(const Decoder& decoder) {{ return decoder.get(); }}
}}
"""


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def check(root, *args):
    ran = subprocess.run([sys.executable, CHECK, "--root", root, *args], capture_output=True, text=True)
    return ran.returncode, ran.stdout


def build(root, sources):
    """The objects of (source, flags), as CMake's Ninja files would make them."""
    commands = []
    for number, (source, flags) in enumerate(sources):
        command = f"c++ -std=c++20 -g1 {flags} -I{root}/src -o {number}.o -c {root}/{source}"
        subprocess.run(command.split(), cwd=root, check=True)
        commands.append({"directory": str(root), "command": command, "file": f"{root}/{source}"})
    (root / "compile_commands.json").write_text(json.dumps(commands))


@pytest.fixture
def clash(tmp_path):
    """Two classes of one name, as quire once had them."""
    write(tmp_path, {
        "src/model/decoder.h": DECODER.format(body="int a = 1;", value="a"),
        "src/tokenize/decoder.h": DECODER.format(body="int a = 1;\n  int b = 2;", value="b"),
        "src/model/user.cpp": USER.format(header="model/decoder.h", name="model"),
        "src/tokenize/user.cpp": USER.format(header="tokenize/decoder.h", name="tokenize"),
    })
    return tmp_path


def test_two_classes_of_one_name_in_the_sources(clash):
    code, said = check(clash)
    assert code == 1
    assert said == "src/tokenize/decoder.h:3: quire::Decoder is also defined in src/model/decoder.h:3\n"


@pytest.mark.parametrize("optimised", ["-O0", "-O2"])
def test_two_classes_of_one_name_in_the_objects(clash, optimised):
    build(clash, [("src/model/user.cpp", optimised), ("src/tokenize/user.cpp", optimised)])
    code, said = check(clash, clash)
    assert code == 1
    assert "quire::Decoder::get() const is declared in line 5:7 for src/model/user.cpp, 6:7 for src/tokenize/user.cpp" in said


def test_one_class_used_twice(clash):
    write(clash, {"src/tokenize/user.cpp": USER.format(header="model/decoder.h", name="tokenize")})
    (clash / "src/tokenize/decoder.h").unlink()
    build(clash, [("src/model/user.cpp", "-O0"), ("src/tokenize/user.cpp", "-O2")])
    assert check(clash)[0] == 0
    code, said = check(clash, clash)
    assert (code, said) == (0, "one definition rule: 1 inline functions in 2 objects have a place each\n")


def test_what_two_instruction_sets_define_weakly(clash):
    (clash / "src/tokenize/decoder.h").unlink()
    build(clash, [("src/model/user.cpp", "-O0"), ("src/model/user.cpp", "-O0 -mavx2")])
    code, said = check(clash, clash)
    assert code == 1
    assert "quire::Decoder::get() const is weak in src/model/user.cpp (any machine)" in said and "(-mavx2)" in said


def test_names_that_never_meet(tmp_path):
    item = "namespace quire { struct Item {}; }\n"
    hidden = "namespace quire {\nnamespace {\nstruct Item {};\n}\n}\n"
    inner = "namespace quire { struct Box { struct Item {}; }; struct Item; template <> struct Less<Item> {}; }\n"
    write(tmp_path, {
        "tests/a/a_test.cpp": item,
        "tests/b/b_test.cpp": item,
        "src/base/hidden.cpp": hidden,
        "src/tokenize/hidden.cpp": hidden,
        "src/tokenize/inner.h": inner,
    })
    assert check(tmp_path) == (0, "one definition rule: 3 types have a name each\n")
    write(tmp_path, {"tests/a/other_test.cpp": item})
    code, said = check(tmp_path)
    assert (code, said) == (1, "tests/a/other_test.cpp:1: quire::Item is also defined in tests/a/a_test.cpp:1\n")
    write(tmp_path, {"tests/a/other_test.cpp": hidden, "src/base/item.h": item})
    code, said = check(tmp_path)
    assert code == 1 and said.count("\n") == 2


def test_a_constant_that_hides_a_headers(tmp_path):
    source = "namespace quire::{0} {{\nnamespace {{\nconstexpr int kMost = 2;\nconstexpr int kOwn[kMost] = {{}};\n}}\n}}\n"
    write(tmp_path, {
        "src/serve/limits.h": "#pragma once\nnamespace quire::serve {\ninline constexpr int kMost = 1;\n}\n",
        "src/serve/other.cpp": source.format("other"),
        "tests/serve/limits_test.cpp": source.format("serve"),
    })
    assert check(tmp_path)[0] == 0
    write(tmp_path, {"src/serve/fields.cpp": source.format("serve")})
    assert check(tmp_path) == (1, "src/serve/fields.cpp:3: kMost hides that of src/serve/limits.h\n")
