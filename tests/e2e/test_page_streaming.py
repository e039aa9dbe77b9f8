"""How the page at / shows an answer while it grows: nothing jumps, and what is read, scrolled or typed stays."""
import time

import pytest
from browser import Page, answer, delta, import_long, pytestmark  # noqa: F401  (skips where there is no browser)
from server import QuireServer

TEXT = """A first paragraph with **bold words**, some `code`, a [link](https://example.org/a/long/target) and $x^2 + y^2$.

- one item
- another **item** that is long enough to wrap in a narrow window, and then it goes on for a while
  1. nested
  2. again

| Name | What it does | Cost |
|------|--------------|-----:|
| quire | serves models to many | 1 |
| a much longer name in this row | short | 20000 |
| x | and a very long description in this cell, which makes the column wider than it was | 3 |

```python
def f(x):
    # a comment in a very long line, so long that it does not fit into the box and has to be scrolled sideways by the reader
    return "text"
```

## A heading

Some more text after it, $$\\int_0^1 x\\,dx$$ and the end.

$$
\\sum_{i=0}^n i
$$
and a line right below it, $$\\frac{1}{2}$$

\\[ y = \\frac{a}{b} \\]

1. first
2. second

> quoted words

---

The last paragraph.
"""

# Counts what the browser calls a layout shift; and, since it knows none of elements that are drawn anew, looks at each frame
# whether the answer got shorter or a block of it, once there, moved or became another kind of block.
WATCH = """
window.shift = 0; window.jumps = []; window.frames = 0;
new PerformanceObserver((list) => { for (const one of list.getEntries()) window.shift += one.value; }).observe({type: 'layout-shift'});
const body = document.querySelector('.assistant .body');
let height = 0, tops = [], kinds = [];
const look = () => {
  const box = body.getBoundingClientRect();
  if (box.height < height - 0.5) window.jumps.push(`from ${height} to ${box.height} pixels: …${body.innerText.slice(-30)}`);
  const now = [...body.children].map((one) => one.getBoundingClientRect().top - box.top);
  now.forEach((top, at) => { if (Math.abs(top - (tops[at] ?? top)) > 0.5) window.jumps.push(`block ${at} from ${tops[at]} to ${top}`); });
  [...body.children].forEach((one, at) => {
    const kind = `${one.firstElementChild?.tagName} ${one.firstElementChild?.className}`;
    if (kind !== (kinds[at] ??= kind)) window.jumps.push(`block ${at} was ${kinds[at]} and is ${kind}: …${body.innerText.slice(-30)}`);
    kinds[at] = kind;
  });
  [height, tops] = [box.height, now];
  window.frames += 1;
  requestAnimationFrame(look);
};
look();
"""


@pytest.fixture(scope="module")
def server():
    with QuireServer() as running:
        yield running


@pytest.fixture
def page(server, tmp_path):
    with Page(server, tmp_path) as made:
        yield made.open()


def size(page, width):
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 860, "deviceScaleFactor": 1, "mobile": False})
    page.until(lambda: page.js("return innerWidth") == width)


@pytest.mark.parametrize("width, step", [(420, 1), (420, 4), (1400, 1), (1400, 4)])
def test_nothing_jumps_while_an_answer_grows(page, width, step):
    size(page, width)
    page.script(answer("So. ", *[TEXT[at:at + step] for at in range(0, len(TEXT), step)], every=3 * step))
    page.say("Show me.", wait=False)
    page.until(lambda: page.texts() and page.texts()[0])
    page.js(WATCH)
    page.idle()
    assert page.js("return window.frames") > 50
    assert page.js("return window.jumps") == []
    assert page.js("return window.shift") < 0.01
    # What watches does see a jump.
    page.js("document.querySelector('.assistant .body').prepend('one line more', document.createElement('br')); document.getElementById('bar').style.height = '200px'")
    page.until(lambda: page.js("return window.shift") > 0.01 and page.js("return window.jumps").__len__() > 0)


def test_code_and_a_table_that_grow_stay_where_they_are_scrolled(page):
    size(page, 420)
    wide = "value value value " * 8
    for begin, more, box in [("```text\n" + wide, f"\n{wide}", ".code-box pre"), (f"|a|b|\n|-|-|\n|{wide.replace(' ', '_')}|2|", f"\n|{wide}|2|", ".wide-box")]:
        page.script(answer(begin + more, *[more] * 12, every=100))
        page.say("Go.", wait=False)
        page.until(lambda box=box: page.js("return document.querySelector(arguments[0])?.scrollWidth > 500", box))
        page.js("window.box = document.querySelector(arguments[0]); box.scrollLeft = 120", box)
        page.idle()
        assert page.js("return [box.isConnected, box.scrollLeft]") == [True, 120]
        page.js(
            "document.getElementById('new-conversation').click()")


def test_what_could_become_something_else_waits(page):
    def shown(text):
        return page.driver.execute_async_script(
            "import('/page/talk/markdown.js').then(({settled}) => arguments[1](settled(arguments[0])))", text)
    for text, settled in [
        ("text\n-", "text\n"), ("text\n- ", "text\n"), ("text\n- a", "text\n- a"), ("text\n1", "text\n"), ("text\n1.", "text\n"),
        ("text\n``", "text\n"), ("##", ""), ("# a", "# a"), ("> ", ""), ("", ""), ("a", "a"), ("a\n", "a\n"),
        ("t\n\n| a | b", "t\n\n"), ("t\n\n| a | b |\n", "t\n\n"), ("t\n\n| a |\n|--", "t\n\n"), ("| a |\n|---|\n", "| a |\n|---|\n"),
        ("| a |\n|---|\n| 1", "| a |\n|---|\n| 1"), ("see [this](http://e", "see this"), ("see [this](http://e)", "see [this](http://e)"),
        ("t\n\n$", "t\n\n"), ("t\n\n$$\nx^2", "t\n\n"), ("t\n\n$$\nx^2\n$$\nand", "t\n\n$$\nx^2\n$$\nand"), ("t\n\n\\[ x", "t\n\n"),
        ("t\n\n\\[ x \\] y", "t\n\n"),
        ("t\n\n\\[ x \\] y\nz", "t\n\n\\[ x \\] y\nz"), ("t\n\n\\[\nx\n\\]", "t\n\n"), ("t\n\n$$\nx\n$", "t\n\n"), ("so $$x$$", "so $$x$$"),
        ("it costs $$ or $$$", "it costs $$ or $$$"),
        ("a [1, 2", "a [1, 2"), ("f(x) [a] (b", "f(x) [a] (b"),
    ]:
        assert shown(text) == settled, text
    # And once the answer ends, it is shown.
    page.script(answer("text\n\n", "-"))
    page.say("List?")
    assert page.texts()[0].split()[0] == "text" and page.all(".assistant .block li")


def test_math_that_is_wrong_is_shown_as_it_is_written(page):
    page.script(answer("Good: $x^2$. Bad: $\\broken{$ and $$\\frac{1$$"))
    page.say("Math.")
    assert len(page.all(".assistant math")) == 1
    assert [one.text for one in page.all(".bad-math")] == ["$\\broken{$", "$$\\frac{1$$"]


def test_right_to_left_text(page):
    size(page, 420)
    page.script(answer("هذا **نص** عربي مع `code` وكلمة English.\n\n- أولاً\n\n| الاسم | القيمة |\n|---|---|\n| واحد | 1 |\n\n"
                       "```python\nprint('سلام')\n```\n\nAn English paragraph (at the end)."))
    page.say("مرحبا، كيف حالك؟")
    ways = page.js("return [...document.querySelectorAll('.assistant .block')].map((one) => getComputedStyle(one).direction)")
    assert ways == ["rtl", "rtl", "rtl", "ltr", "ltr"]
    assert page.js("return getComputedStyle(document.querySelector('.user .piece')).direction") == "rtl"
    assert page.js("return getComputedStyle(document.querySelector('.assistant pre')).direction") == "ltr"
    # Arabic begins at the right: the first paragraph ends where the message does, and the table's first column is the rightmost.
    lefts = page.js("return [...document.querySelectorAll('.assistant th')].map((one) => one.getBoundingClientRect().left)")
    assert lefts[0] > lefts[1]
    assert page.js("return document.documentElement.scrollWidth") <= 420
    page.one("#entry").send_keys("שלום")
    assert page.js("return getComputedStyle(document.getElementById('entry')).direction") == "rtl"
    assert "مرحبا" in page.one("#title").text


def test_a_long_conversation_is_typed_in_while_an_answer_grows(page, tmp_path):
    """10,000 messages: no task of the page's thread takes long."""
    import_long(page, tmp_path)
    page.script({"events": [delta(content="word ")] * 300, "every": 10, "hold": True})
    page.say("Go on.", wait=False)
    page.until(lambda: page.texts()[-1].startswith("word"))
    page.js("window.longest = 0; new PerformanceObserver((list) => { for (const one of list.getEntries()) "
            "window.longest = Math.max(window.longest, one.duration); }).observe({type: 'longtask'})")
    entry = page.one("#entry")
    for word in ["typed ", "while ", "it ", "grows"]:
        entry.send_keys(word)
        time.sleep(0.3)
    assert entry.get_attribute("value") == "typed while it grows"
    print("longest task, ms:", page.js("return window.longest"))
    assert page.js("return window.longest") < 250
    page.one("#stop").click()
    page.idle()
