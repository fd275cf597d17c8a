"""The pages in a real browser: filters, sorting, long tables, the keyboard, live figures."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli.browser_window import opening
from palaestra.core.episode import Key
from palaestra.store.notes import Notes, labelled
from palaestra.store.run_folder import RunFolder
from palaestra.store.search_index import TextIndex
from tests.viewer.browser import Watch, chromium, entered, served
from tests.viewer.stores import HOSTILE, RECIPE, TOKEN, make_run, make_training, plain

MANY = 3000
# The window shows rows, not the empty space above and below, and what is in them was fetched.
ROWS_ARE_THERE = """((rows) => rows.every((row) => row.cells[3].textContent) && rows.some((row) =>
    row.getBoundingClientRect().top > 0 && row.getBoundingClientRect().top < innerHeight))(
    [...document.querySelectorAll("table.long tbody tr:not(.space)")])"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root, "eval-a", [plain(Key("eval/test", i), number=i) for i in range(MANY)])
    make_training(root, "train-a", learning_rate=0.1)
    make_training(root, "train-b", learning_rate=0.2)
    hostile = [plain(Key("eval/test", i), saw=t, did=t) for i, t in enumerate(HOSTILE)]
    make_run(root, "hostile", hostile)
    return root


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with served(root) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that must not complain, nor ask anybody but this site."""
    page = browser.new_page(viewport={"width": 1200, "height": 700})
    page.set_default_timeout(20_000)
    watch = Watch(page, address)
    yield entered(page, address)
    page.close()
    assert watch.complaints == []


def until(page: Any, holds: str) -> None:
    """Wait until an expression holds; pages forbid the eval that Playwright's own wait uses."""
    for _ in range(200):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never: {holds}")


def top_row(page: Any) -> str:
    """The first row of the table that the window shows whole."""
    return str(
        page.evaluate(
            """() => [...document.querySelectorAll("table.long tbody tr:not(.space)")]
            .find((row) => row.getBoundingClientRect().top >= 0).cells[0].textContent"""
        )
    )


@pytest.mark.slow
def test_filters_apply_when_they_are_changed_and_the_address_keeps_them(
    page: Any, address: str
) -> None:
    page.goto(f"{address}/run/eval-a/episodes")
    page.select_option("select[name=solved]", "yes")
    page.wait_for_url("**/episodes?solved=yes")
    assert page.text_content("[data-total]") == "750"
    page.click("thead a:text('reward')")
    page.wait_for_url("**sort=reward")
    page.click("thead a:text('reward')")
    page.wait_for_url("**sort=-reward")
    assert page.get_attribute("th[aria-sort]", "aria-sort") == "descending"
    assert page.url.endswith("episodes?solved=yes&sort=-reward")


def test_a_long_table_scrolls_to_any_row_with_few_in_the_page(page: Any, address: str) -> None:
    page.goto(f"{address}/run/eval-a/episodes")
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector(f"a:text-is('eval/test/{MANY - 1}.0')")
    assert page.locator("table.long tbody tr").count() < 150
    page.evaluate("window.scrollTo(0, document.body.scrollHeight / 2)")
    page.wait_for_selector(f"a:text-is('eval/test/{MANY // 2}.0')")
    until(page, "Math.abs(new URL(location.href).searchParams.get('page') - 15) < 3")
    shown = top_row(page)
    page.reload()
    until(page, "scrollY > 10000 && " + ROWS_ARE_THERE)
    number, other = (int(text.split("/")[2].split(".")[0]) for text in (shown, top_row(page)))
    assert abs(number - other) <= 100  # the address keeps the place, to a page


@pytest.mark.parametrize("path", ["/run/eval-a/episodes", "/", "/run/train-a", "/search?q=door"])
def test_no_page_is_wider_than_a_narrow_window(page: Any, address: str, path: str) -> None:
    page.set_viewport_size({"width": 375, "height": 667})
    page.goto(address + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


@pytest.mark.parametrize("width", [375, 700, 900, 1100])
def test_every_row_shows_outcome_and_reward_whatever_the_window_is_wide(
    page: Any, address: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 667})
    page.goto(f"{address}/run/eval-a/episodes")
    page.evaluate("window.scrollTo(0, document.body.scrollHeight / 3)")
    until(page, "scrollY > 10000 && " + ROWS_ARE_THERE)
    hidden = page.evaluate(
        """() => [...document.querySelectorAll("table.long tbody tr:not(.space)")].flatMap((row) =>
            [row.cells[0], row.cells[3], row.cells[4]].filter((cell) => {
              const place = cell.getBoundingClientRect();
              return !cell.textContent || place.width < 20 || place.left < 0
                || place.right > window.innerWidth;
            }).map((cell) => cell.textContent))"""
    )
    assert hidden == []
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector(f"a:text-is('eval/test/{MANY - 1}.0')")


def test_a_window_made_narrow_keeps_the_place_in_a_long_table(page: Any, address: str) -> None:
    page.goto(f"{address}/run/eval-a/episodes?page=16")
    until(page, "scrollY > 10000 && " + ROWS_ARE_THERE)
    before = int(top_row(page).split("/")[2].split(".")[0])
    height = page.evaluate("document.body.scrollHeight")
    page.set_viewport_size({"width": 375, "height": 667})
    until(page, f"document.body.scrollHeight > {height} && " + ROWS_ARE_THERE)
    assert abs(int(top_row(page).split("/")[2].split(".")[0]) - before) <= 2


def test_the_table_and_the_search_are_reached_by_the_keyboard(page: Any, address: str) -> None:
    page.goto(f"{address}/run/eval-a/episodes")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus("table.long tbody a")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "eval/test/1.0"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("a/b")
    assert page.input_value("form.find input") == "a/b"


def test_chosen_runs_are_laid_over_each_other(page: Any, address: str) -> None:
    page.goto(address)
    for name in ("train-a", "train-b"):
        page.check(f"input[value={name}]")
    page.click("button:text('learning curves')")
    page.wait_for_url("**/curves?run=*")
    assert page.locator("path.line").count() == 2
    page.select_option("select[name=metric]", "entropy")
    page.wait_for_url("**metric=entropy")


def test_words_are_indexed_and_found_while_one_waits(page: Any, address: str) -> None:
    page.goto(f"{address}/search?q=run:eval-a+forward")
    page.wait_for_selector(f"[role=status] strong:text-is('{MANY:,}')")
    assert page.locator(".hits li").count() == 30


def test_a_search_reports_how_far_the_index_is_and_goes_on_by_itself(
    page: Any, address: str, root: Path
) -> None:
    run = make_run(root, "held", [plain(Key("eval/test", i)) for i in range(500)])
    with RunFolder.read(run) as opened:
        TextIndex(run).extend(opened.database, seconds=0.0)
    with closing(sqlite3.connect(run / "search-1.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # holds the index up
        page.goto(f"{address}/search?q=forward+run:held")
        page.wait_for_selector("[role=status]:has-text('at least 1 episodes so far')")
        page.wait_for_selector(".indexing li:has-text('1 of 500 episodes') progress[max='500']")
        other.execute("ROLLBACK")
    page.wait_for_selector("[role=status] strong:text-is('500')")
    page.wait_for_selector(".indexing", state="detached")
    assert "at least" not in page.text_content("main")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(browser: Any, address: str, scheme: str) -> None:
    page = entered(browser.new_page(color_scheme=scheme), address)
    page.goto(f"{address}/run/train-a")
    lowest = page.evaluate(CONTRAST)
    page.close()
    assert lowest >= 4.5, f"contrast {lowest:.2f} (WCAG AA asks for 4.5)"


CONTRAST = """() => {
  const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let lowest = 21;
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || node.closest("svg, .unseen, option")) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))];
    lowest = Math.min(lowest, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return lowest;
}"""


@pytest.mark.slow
def test_figures_of_a_run_that_goes_on_move_and_the_page_stays(
    page: Any, address: str, root: Path
) -> None:
    with RunFolder.create(root / "live", RECIPE) as run:
        for number in range(40):
            run.database.finish(plain(Key("eval/test", number), number=4 * number))
            run.database.add_metrics("rl", number, {f"m{i}": 1.0 for i in range(30)})
        page.goto(f"{address}/run/live")
        page.wait_for_selector(".live:text('running')")
        page.evaluate("window.scrollTo(0, 900)")
        page.click("summary")
        place = page.evaluate("window.scrollY")
        for number in range(40, 50):
            run.database.finish(plain(Key("eval/test", number), number=4 * number))
        page.wait_for_selector(".facts a:text-is('50')")
        assert abs(page.evaluate("window.scrollY") - place) <= 2
        assert page.evaluate("document.querySelector('details').open")
        page.goto(f"{address}/run/live/episodes")
        assert page.text_content("[data-total]") == "50"
        run.database.finish(plain(Key("eval/test", 50)))
        page.wait_for_selector("[data-total]:text-is('51')", timeout=60_000)  # a busy machine
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        page.wait_for_selector("a:text-is('eval/test/50.0')")
        page.goto(f"{address}/run/live")
    page.wait_for_selector(".live", state="detached")


def test_a_note_is_written_from_a_form_of_the_site(page: Any, address: str, root: Path) -> None:
    page.goto(f"{address}/run/eval-a")
    page.evaluate(
        """() => {
          const form = document.createElement("form");
          form.method = "post";
          form.action = location.pathname + "/notes";
          for (const [name, value] of [["episode", "eval/test/3.0"], ["labels", "good"]]) {
            const field = document.createElement("input");
            [field.name, field.value] = [name, value];
            form.append(field);
          }
          document.body.append(form);
          form.submit();
        }"""
    )
    page.wait_for_selector(".notes a:text-is('eval/test/3.0')")
    assert labelled(root / "eval-a") == {Key("eval/test", 3): {"good": "yes"}}
    Notes.open(root / "eval-a").remove(1)


def test_a_file_leads_the_browser_in_and_a_foreign_page_writes_nothing(
    browser: Any, address: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(
        "webbrowser.open", found.append
    )  # the address that the desktop's browser would open
    with opening(f"{address}/?token={TOKEN}"):
        page = browser.new_page()
        while not found:
            page.wait_for_timeout(20)
        page.goto(found[0])
        page.wait_for_url(f"{address}/")
        page.wait_for_selector("h1:text('Runs')")
    other = address.replace("127.0.0.1", "localhost")
    (tmp_path / "foreign.html").write_text(
        f"""<form method="post" action="{address}/run/eval-a/notes">
        <input name="episode" value="eval/test/0.0"><input name="text" value="forged"></form>
        <a href="{address}/run/eval-a">leads here</a>"""
    )
    page.goto((tmp_path / "foreign.html").as_uri())
    page.evaluate("document.forms[0].submit()")
    page.wait_for_selector("text=?token=")
    assert Notes.open(root / "eval-a").all() == []
    page.goto((tmp_path / "foreign.html").as_uri())
    page.click("a")
    page.wait_for_selector("h1:text('eval-a')")  # a link from elsewhere leads in
    page.goto(f"{other}/run/eval-a")
    page.wait_for_selector("text=?token=")  # it is another site, by its name
    page.close()


def test_hostile_episodes_run_nothing(page: Any, address: str) -> None:
    for path in ("/run/hostile", "/run/hostile/episodes", "/search?q=run:hostile+title"):
        page.goto(address + path)
        page.wait_for_timeout(200)
        assert "owned" not in page.title()


def test_a_saved_page_needs_nothing_else(
    browser: Any, page: Any, address: str, tmp_path: Path
) -> None:
    page.goto(f"{address}/run/train-a")
    with page.expect_download() as download:
        page.click("a.save")
    file = tmp_path / "saved.html"
    download.value.save_as(file)
    context = browser.new_context(offline=True)
    saved = context.new_page()
    watch = Watch(saved, file.as_uri())
    saved.goto(file.as_uri())
    assert saved.locator("svg.chart path.line").count() > 3
    padding = saved.evaluate("getComputedStyle(document.querySelector('.facts')).paddingTop")
    assert padding == "12px"  # the style sheet is in it
    assert saved.locator("script, main a[href^='/']").count() == 0
    context.close()
    assert watch.complaints == []
