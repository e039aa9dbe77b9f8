#!/usr/bin/env python3
"""Puts files into C++, compressed, as what src/page/files.h declares: embed_files.py OUTPUT PATH=FILE...

PATH is where the server shows the file. A string literal compiles in a fraction of the time that an array of numbers takes. The
same files give the same bytes.
"""
import gzip
import hashlib
import pathlib
import re
import sys

# Developer tools would ask for the map, which is not embedded.
SOURCE_MAP = re.compile(rb"^//# sourceMappingURL=.*\n?", re.M)
# Octal escapes end after three digits, whatever follows. No "?": there are no trigraphs.
ESCAPES = [chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in range(256)]
# Debian 12's node-dompurify (2.4.1+dfsg+~2.4.0-2+deb12u1) has two conditions of its fix for CVE-2024-45801 exchanged: sanitize()
# reads a variable of another function, so that it throws whatever it is given. As DOMPurify has them:
REPAIRS = [
    (b"""      /*
       * Remove an element if nested too deeply to avoid mXSS
       * or if the __depth might have been tampered with
       */
      if (shadowNode.__depth >= MAX_NESTING_DEPTH || numberIsNaN(shadowNode.__depth)) {
        _forceRemove(body.firstChild);
""", b"""      /* Remove first element node (ours) if FORCE_BODY is set */
      if (body && FORCE_BODY) {
        _forceRemove(body.firstChild);
"""),
    (b"        if (shadowNode.__depth >= MAX_NESTING_DEPTH) {\n",
     b"        if (shadowNode.__depth >= MAX_NESTING_DEPTH || numberIsNaN(shadowNode.__depth)) {\n"),
]
LINE = 4096
TEXT = """#include "page/files.h"

namespace quire::page {
namespace {

constexpr File kFiles[] = {
@FILES@};

}  // namespace

std::span<const File> files() { return kFiles; }

}  // namespace quire::page
"""


def literal(data):
    lines = (data[at:at + LINE] for at in range(0, len(data), LINE))
    return "\n    ".join('"' + "".join(ESCAPES[byte] for byte in line) + '"' for line in lines)


def main():
    entries = sorted(entry.split("=", 1) for entry in sys.argv[2:])
    out = []
    for path, file in entries:
        data = SOURCE_MAP.sub(b"", pathlib.Path(file).read_bytes())
        if path == "/page/lib/purify.js" and REPAIRS[0][0] in data:
            for wrong, right in REPAIRS:
                if data.count(wrong) != 1:
                    sys.exit(f"{file}: it is neither DOMPurify's nor that of Debian 12; see REPAIRS in {sys.argv[0]}")
                data = data.replace(wrong, right)
        packed = gzip.compress(data, compresslevel=9, mtime=0)
        out.append(f'{{"{path}",\n    std::string_view({literal(packed)}, {len(packed)}),\n'
                   f'    {len(data)}, "{hashlib.sha256(data).hexdigest()[:32]}"}},\n')
    pathlib.Path(sys.argv[1]).write_text(TEXT.replace("@FILES@", "".join(out)), encoding="ascii")


if __name__ == "__main__":
    main()
