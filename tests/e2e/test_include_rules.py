"""tools/check_includes.py sees what a file of src/ may not include or open, and only that."""
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools/check_includes.py"


def check(root, files):
    for name, text in files.items():
        path = root / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ran = subprocess.run([sys.executable, CHECK, "--root", root], capture_output=True, text=True)
    return ran.returncode, ran.stdout


def function(lines):
    """With so many lines between its first and its last; a lambda, and braces in a string."""
    inside = ['  const auto each = [](int i) { return "{" + i; };', "  if (a) {", "  }"]
    return "int Pool::add(int a) {\n" + "\n".join(inside + ["  ++a;"] * (lines - len(inside))) + "\n}\n"


@pytest.mark.parametrize("name, text, said", [
    ("engine/a.h", "namespace quire {\nclass A {};\n}\n", "src/engine/a.h: namespace quire, where quire::engine is this library's"),
    ("engine/a.h", "namespace quire::serve {\nclass A {};\n}\n", "namespace quire::serve, where quire::engine"),
    ("backend/cpu/a.h", "namespace quire::backend {\nclass A {};\n}\n", "quire::backend::cpu is this library's"),
    ("api/a.h", "namespace quire::engine {\nclass A {};\n}\n", "namespace quire::engine, where quire::api"),
    ("base/a.h", "namespace quire::base {\nclass A {};\n}\n", "where quire is this library's"),
    ("base/a.h", '#include "control/b.h"\n', "base may not include control/b.h"),
    ("control/a.cpp", "#include <chrono>\n", "<chrono> in the control plane"),
    ("control/a.h", '#include "base/d.h"\n', "src/base/e.h: <filesystem> in the control plane, which includes it"),
    ("control/a.cpp", "// ;\n" * 401, "src/control/a.cpp has 401 non-blank lines, more than 400"),
    ("engine/a.cpp", "// ;\n" * 501, "src/engine/a.cpp has 501 non-blank lines, more than 500"),
    ("control/kv/a.cpp", "namespace quire::control {\n\n" + function(59) + "}\n",
     "src/control/kv/a.cpp:3: Pool::add has 61 lines, more than 60"),
    ("engine/a.cpp", "const char* a = getenv(\"A\");\n", "getenv is for src/cli alone"),
])
def test_what_is_refused(tmp_path, name, text, said):
    code, output = check(tmp_path, {"control/b.h": "", "base/d.h": '#include "base/e.h"\n', "base/e.h": "#include <filesystem>\n",
                                    name: text})
    assert code == 1 and said in output


def test_what_is_allowed(tmp_path):
    forward = "namespace quire::record {\nclass RunWriter;\nstruct Node;\n}  // namespace quire::record\n\n"
    code, output = check(tmp_path, {
        "control/b.h": "#include <vector>\nnamespace quire::control {\nclass B {};\n}\n",
        "engine/a.h": '#include "control/b.h"\n' + forward + "namespace quire::engine {\nclass A {};\n}\n",
        "kernels/a.cpp": "namespace quire::kernels::cpu::avx2 {\nclass A {};\n}\n",
        "api/quire/d.h": "namespace quire::api {\nclass D {};\n}\nnamespace quire {\nclass D {};\n}\n",
        "base/c.h": "namespace quire {\nclass C {};\n}\n",
        "base/e.h": "#include <filesystem>\n",  # as long as the control plane does not include it
        "control/c.cpp": "namespace quire::control {\n\n" + function(58) + function(58) + "}\n",
    })
    assert code == 0, output
