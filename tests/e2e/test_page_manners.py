"""The page at / is legible in light and dark, and can be used by keyboard alone."""
import json
import pathlib

import pytest
from browser import TIGHT, Clients, Keys, Page, answer, delta, end, lists, pytestmark, webdriver  # noqa: F401  (skips where there is no browser)
from server import QuireServer

CONTRAST = (pathlib.Path(__file__).parent / "page_contrast.js").read_text()

RICH = """# A heading

Some *text* with `code`, a [link](https://example.org/), $x^2$, $\\broken{$ and ~~what~~ is <kbd>struck</kbd>.

> quoted

- [x] one
- two

| a | b |
|---|---|
| 1 | 2 |

```python
# a comment
def f(x: int) -> str:
    return "text" + str(12) if x else None
```

```diff
- old
+ new
```

```html
<a href="x">text</a>
```

---
"""


@pytest.fixture(scope="module")
def tight():
    with QuireServer("--live", *TIGHT) as server:
        yield server


@pytest.fixture
def page(tight, tmp_path):
    with Page(tight, tmp_path) as made:
        yield made.open()


def in_both_themes(page):
    """What is hard to see, in light and in dark, a line for each."""
    out = []
    for scheme in ["light", "dark"]:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        page.until(lambda scheme=scheme: page.js("return matchMedia(`(prefers-color-scheme: ${arguments[0]})`).matches", scheme))
        found = page.js(CONTRAST)
        assert found["texts"] > 2 and found["controls"] > 0
        out += [f"{scheme}: {one}" for one in found["bad"]]
    return "\n".join(out)


def probabilities():
    values = [0, -0.3, -0.9, -2, -3, -8]
    tokens = [{"token": f"token{at} ", "logprob": value, "top_logprobs": [{"token": "other", "logprob": -2}]}
              for at, value in enumerate(values)]
    return [{"choices": [{"index": 0, "delta": {"content": one["token"]}, "logprobs": {"content": [one]}}]} for one in tokens] + end()


def fill_talk(page):
    """All that a conversation may show."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    page.script(answer(RICH), {"events": probabilities()}, answer("second"),
                {"events": [delta(reasoning_content="I think."), delta(tool_calls=[call])] + end("tool_calls")})
    page.say("Show all that you have.")
    page.say("How sure are you?")
    page.press(".message.assistant", "Probabilities")
    page.press(".message.assistant", "Regenerate")
    page.idle()
    page.one("button[aria-label='Previous branch']").click()
    page.say("Weather?")
    page.js("document.querySelectorAll('.thought').forEach((one) => { one.open = true; })")
    page.script({"events": [delta(content="half")], "cut": True}, {"status": 400, "body": json.dumps({"error": {"message": "no"}})})
    page.one(".call textarea").send_keys("12 C")
    page.press(".calls", "Send the result")
    page.idle()
    page.say("And now?")


def test_all_of_talk_is_legible(page):
    fill_talk(page)
    page.one("#open-settings").click()
    page.set("temperature", "9")
    page.press(".message.user", "Edit")
    page.js("document.querySelector('.token').focus()")
    assert page.all(".token") and page.all(".bad") and page.all(".problem") and page.one("#alternatives").is_displayed()
    assert in_both_themes(page) == ""
    page.js("document.getElementById('scroller').scrollTop = 0")
    page.until(lambda: page.one("#to-end").is_displayed())
    assert in_both_themes(page) == ""


@pytest.mark.parametrize("opens", ["#open-help", "#delete", "#rename"])
def test_dialogs_are_legible_and_give_the_focus_back(page, opens):
    page.script(answer("hello"))
    page.say("Hello.")
    page.one(opens).send_keys(Keys.ENTER)
    page.until(lambda: page.all("dialog[open]"))
    assert page.js("return document.activeElement.closest('dialog[open]') !== null")
    assert in_both_themes(page) == ""
    for _ in range(8):  # the focus stays inside, or goes to the browser's own controls
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        assert page.js("const at = document.activeElement; return at === document.body || at.closest('dialog[open]') !== null")
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"))
    assert page.js("return '#' + document.activeElement.id") == opens


def test_all_of_look_is_legible(page, tight):
    page.one("#views [data-view=look]").click()
    page.until(lambda: page.all("#look canvas"))
    page.one("#look summary").click()
    assert in_both_themes(page) == ""
    with Clients(tight, 16):
        page.until(lambda: "#" in lists(page)[0] and "#" in lists(page)[1])
        page.one("#look [aria-label='Pause the view']").click()
        assert page.all("#look .runs progress")
        page.js("document.querySelector('#look .runs .ref').click()")
        page.until(lambda: page.all("#look .life"))
        assert in_both_themes(page) == ""
        page.one("#look canvas").send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
        page.until(lambda: "Block" in page.one("#look .life").find_element("xpath", "../..").text)
        assert in_both_themes(page) == ""


# What is drawn, on what it lies: the map and the charts on the page, or on the panel of quire explain; 3:1 (WCAG 2.2, 1.4.11).
DRAWN = """
const done = arguments[0];
import('/page/draw/30_draw.js').then((draw) => {
  draw.readTheme();
  const { theme } = draw, page = getComputedStyle(document.documentElement).getPropertyValue('--page').trim();
  const on = (back, all) => all.map((one) => [one, back]);
  const lie = [...theme.owners, theme.shared, theme.cached, theme.wait, theme.alarm, theme.held, theme.accent];
  done([...on(page, lie), ...on(theme.panel, lie), [theme.cached, theme.cachedBack], [theme.shared, theme.sharedBack], [theme.ink, theme.held]]);
}, (error) => done(String(error)));
"""


def contrast(one, other):
    def luminance(colour):
        parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_what_is_drawn_stands_out_from_what_it_lies_on(page):
    assert round(contrast("#000000", "#ffffff"), 2) == 21 and round(contrast("#777777", "#ffffff"), 2) == 4.48
    for scheme in ["light", "dark"]:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        pairs = page.driver.execute_async_script(DRAWN)
        assert len(pairs) == 31
        assert [(scheme, front, back) for front, back in pairs if contrast(front, back) < 3] == []


def test_the_numbers_in_the_block_map_are_legible(page):
    for scheme in ["light", "dark"]:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        pairs = page.driver.execute_async_script("""
          const done = arguments[0];
          import('/page/draw/30_draw.js').then((draw) => {
            draw.readTheme();
            done(draw.theme.owners.map((owner, i) => [draw.onOwner(i), owner]).concat([[draw.theme.ink, draw.theme.panel]]));
          }, (error) => done(String(error)));""")
        assert len(pairs) == 9
        for ink, back in pairs:
            box = page.js("""
              const box = document.createElement('p');
              box.textContent = '12'; box.id = 'trial'; box.style.cssText = `color: ${arguments[0]}; background: ${arguments[1]}`;
              document.getElementById('desk').prepend(box); return box.id""", ink, back)
            assert [one for one in page.js(CONTRAST)["bad"] if box in one] == [], (scheme, ink, back)
            page.js("document.getElementById('trial').remove()")


# Marks each control that the Tab key should reach; their number.
MARK = """
const controls = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')].filter((one) =>
  one.tabIndex >= 0 && !one.matches(':disabled') && one.checkVisibility({checkVisibilityCSS: true}));
controls.forEach((one, at) => { one.dataset.stop = at; });
window.nextStop = controls.length;
return controls.map((one) => one.outerHTML.slice(0, 100));
"""
# Of the element with the focus, where `before` was the stop before it: [its stop, what is wrong with its place].
STOP = """
const [before] = arguments, now = document.activeElement, last = document.querySelector(`[data-stop="${before}"]`);
const box = now.getBoundingClientRect(), was = last?.getBoundingClientRect();
const wrong = [];
const at = document.elementFromPoint(Math.min(innerWidth - 1, box.left + box.width / 2), Math.min(innerHeight - 1, box.top + box.height / 2));
if (!at || !(now.contains(at) || at.contains(now))) wrong.push('it is covered or out of sight');
const inside = last && (last.contains(now) || now.contains(last));
if (was && !inside && box.bottom <= was.top + 1 && box.left < was.right && box.right > was.left) wrong.push('it is above the one before');
if (was && !inside && box.right <= was.left + 1 && box.top < was.bottom && box.bottom > was.top) wrong.push('it is left of the one before');
// What came into the list of messages since the controls were marked.
if (now.dataset.stop === undefined && now !== document.body) now.dataset.stop = window.nextStop++;
return [now === document.body ? null : Number(now.dataset.stop), wrong.map((one) => one + ': ' + now.outerHTML.slice(0, 100))];
"""


def walk(page):
    """Presses Tab from the start of the page until it is left; all that is wrong, a line for each."""
    controls = page.js(MARK)
    page.js("document.querySelector('[data-stop=\"1\"]').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.SHIFT, Keys.TAB)
    seen, wrong = [], []
    while True:
        stop, faults = page.js(STOP, seen[-1] if seen else -1)
        if stop is None or stop in seen:
            break
        seen.append(stop)
        wrong += faults + page.js(CONTRAST, f'[data-stop="{stop}"]')["bad"]
        webdriver.ActionChains(page.driver).send_keys(Keys.TAB).perform()
    there = set(page.js("return [...document.querySelectorAll('[data-stop]')].map((one) => Number(one.dataset.stop))"))
    missed = [f"it is not reached: {controls[at]}" for at in sorted((set(range(len(controls))) - set(seen)) & there)]
    assert len(seen) > 5
    return "\n".join(wrong + missed)


def size(page, width):
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 860, "deviceScaleFactor": 1, "mobile": False})
    page.until(lambda: page.js("return innerWidth") == width)


@pytest.mark.parametrize("width", [420, 1400])
def test_tab_reaches_all_of_talk_in_order_and_the_focus_is_seen(page, width):
    size(page, width)
    fill_talk(page)
    assert walk(page) == ""
    page.one("#open-settings").click()
    page.set("temperature", "9")
    if width > 1000:  # else the settings lie over the messages, and close when the focus leaves them
        assert walk(page) == ""


@pytest.mark.parametrize("view, width", [("look", 420), ("look", 1400), ("both", 1400)])
def test_tab_reaches_all_of_look_in_order_and_the_focus_is_seen(page, tight, view, width):
    size(page, width)
    page.one(f"#views [data-view={view}]").click()
    page.until(lambda: page.all("#look canvas"))
    with Clients(tight, 16):
        page.until(lambda: "#" in lists(page)[0] and "#" in lists(page)[1])
        page.one("#look [aria-label='Pause the view']").click()
        page.js("document.querySelector('#look .runs .ref').click()")
        page.until(lambda: page.all("#look .life"))
    assert walk(page) == ""


def test_drawers_close_when_the_focus_leaves_them(page):
    size(page, 420)
    for opens, drawer, first in [("#open-side", "#side", "#new-conversation"), ("#open-settings", "#settings", "#set-system")]:
        page.one(opens).send_keys(Keys.ENTER)
        page.until(lambda drawer=drawer: page.one(drawer).is_displayed())
        assert page.driver.switch_to.active_element == page.one(first)
        page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        assert not page.one(drawer).is_displayed() and page.driver.switch_to.active_element == page.one(opens)
        page.one(opens).send_keys(Keys.ENTER)
        webdriver.ActionChains(page.driver).send_keys(Keys.TAB).perform()
        assert page.one(drawer).is_displayed()
        page.js("document.getElementById('entry').focus()")
        assert not page.one(drawer).is_displayed() and page.one(opens).get_attribute("aria-expanded") == "false"


def test_the_focus_stays_when_an_answer_is_drawn(page):
    def focused():
        return page.js("const at = document.activeElement; return [at.textContent, at.closest('.message')?.ariaLabel ?? '']")
    page.script(answer("first"), answer("second"))
    page.say("Which?")
    page.js("[...document.querySelectorAll('.assistant button')].find((one) => one.textContent === 'Regenerate').focus()")
    webdriver.ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    page.until(lambda: page.texts() == ["second"])
    assert focused()[1].endswith("message 2 of 2")
    # While another answer comes, somebody copies an earlier one.
    page.script(answer(*["word "] * 30, every=30))
    page.say("More?", wait=False)
    page.js("[...document.querySelectorAll('.assistant button')].find((one) => one.textContent === 'Copy').focus()")
    page.idle()
    assert focused()[0] == "Copy" and "message 2 of 4" in focused()[1]


# What axe-core would say of the roles, names and references that the page uses.
ROLES = """
const bad = [], say = (what, one) => bad.push(`${what}: ${one.outerHTML.slice(0, 120)}`);
const all = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility());
const roles = new Set(['application', 'feed', 'group', 'img', 'status', 'tooltip']);
const text = (one) => one.textContent.trim();
const named = (one) => one.getAttribute('aria-label') || (one.getAttribute('aria-labelledby') ?? '').split(' ').map((id) => document.getElementById(id)?.textContent ?? '').join(' ').trim();
for (const one of all('[role]')) if (!roles.has(one.getAttribute('role'))) say('another role', one);
for (const one of all('[role=application], [role=group], [role=feed], [role=img], section, nav, aside, dialog, form')) {
  if (!named(one) && !(one.matches('section') && one.querySelector('h2, h3')) && !one.matches('#settings-form, dialog form')) say('no name', one);
}
for (const one of document.querySelectorAll('[aria-controls], [aria-labelledby], [aria-describedby]')) {
  for (const name of ['aria-controls', 'aria-labelledby', 'aria-describedby']) {
    for (const id of (one.getAttribute(name) ?? '').split(' ').filter(Boolean)) if (!document.getElementById(id)) say(`${name} of nothing`, one);
  }
}
for (const one of all('[aria-pressed], [aria-expanded], [aria-invalid], [aria-busy]')) {
  for (const name of ['aria-pressed', 'aria-expanded', 'aria-invalid', 'aria-busy']) {
    if (one.hasAttribute(name) && !['true', 'false'].includes(one.getAttribute(name))) say(`${name} is neither true nor false`, one);
  }
}
for (const one of all('[role=feed] .message')) {
  if (one.tagName !== 'ARTICLE' || !(Number(one.ariaPosInSet) >= 1) || !(Number(one.ariaSetSize) >= Number(one.ariaPosInSet)) || !named(one)) say('no article of the feed', one);
}
for (const one of all('button, a[href], summary')) if (!text(one) && !named(one)) say('no name', one);
// Who speaks to the browser says what is seen. (Without letters it is a picture.)
const plain = (words) => words.toLowerCase().replace(/\\s+/g, ' ').trim();
for (const one of all('button, a[href], summary')) {
  if (one.hasAttribute('aria-label') && /[a-z]/i.test(text(one)) && !plain(named(one)).includes(plain(text(one)))) say('its name lacks what is seen', one);
}
for (const one of all('input, select, textarea')) if (![...one.labels ?? []].some(text) && !named(one)) say('no label', one);
for (const one of all('[aria-hidden=true]')) if (one.matches(':focus-within') || one.querySelector('button, a[href], input, [tabindex]')) say('hidden, and takes the focus', one);
for (const one of all('button button, a button, button a, summary button')) say('a control within another', one);
for (const one of all('ul > :not(li), ol > :not(li)')) say('no item of its list', one);
for (const one of all('dl > :not(dt, dd, div)')) say('no part of its list', one);
let level = 0;
for (const one of all('h1, h2, h3, h4, h5, h6')) {
  if (one.closest('.body')) continue;
  if (Number(one.tagName[1]) > level + 1) say(`a heading after one of level ${level}`, one);
  level = Number(one.tagName[1]);
}
const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
for (const id of new Set(ids.filter((one, at) => ids.indexOf(one) !== at))) bad.push(`twice: #${id}`);
for (const one of all('img, canvas, svg')) if (!named(one) && one.getAttribute('aria-hidden') !== 'true' && !one.getAttribute('alt')) say('a picture without words', one);
if (document.documentElement.lang !== 'en' || !document.title) bad.push('no language or title');
return bad.join('\\n');
"""


def test_roles_names_and_references_are_right(page, tight):
    fill_talk(page)
    page.one("#open-settings").click()
    page.set("temperature", "9")
    page.js("document.querySelector('.token').focus()")
    assert page.js(ROLES) == ""
    page.one("#views [data-view=both]").click()
    page.until(lambda: page.all("#look canvas"))
    with Clients(tight, 16):
        page.until(lambda: "#" in lists(page)[0] and "#" in lists(page)[1])
        page.one("#look [aria-label='Pause the view']").click()
        page.js("document.querySelector('#look .runs .ref').click()")
        page.js("document.querySelector('#look details').open = true")
        page.until(lambda: page.all("#look .life"))
        assert page.js(ROLES) == ""
    page.js("document.querySelector('#send').textContent = ''; document.querySelector('.message').removeAttribute('aria-label')")
    assert page.js(ROLES).count("\n") == 1, "it does see faults"


def test_nothing_moves_where_motion_is_unwelcome(page):
    moving = "return document.getAnimations().length"
    page.script({"events": [delta(role="assistant")], "hold": True})
    page.say("Wait.", wait=False)
    page.until(lambda: page.all(".waiting"))
    assert page.js(moving) > 0
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]})
    page.until(lambda: page.js(moving) == 0)
    page.one("#stop").click()


def test_look_fits_windows_from_360_to_2560_pixels(page, tight):
    with Clients(tight, 16):
        for view in ["look", "both"]:
            for width in [360, 420, 768, 1100, 1400, 2560]:
                size(page, width)
                if not page.one(f"#views [data-view={view}]").is_displayed():
                    assert width < 1100
                    continue
                page.one(f"#views [data-view={view}]").click()
                page.until(lambda: page.all("#look canvas") and "#" in lists(page)[1])
                assert page.js("return document.documentElement.scrollWidth") <= width
                assert page.js("const look = document.getElementById('look'); return look.scrollWidth - look.clientWidth") <= 0, (view, width)
