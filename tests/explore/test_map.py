"""Maps put similar texts near each other, and lead to the list."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from bactrian.explore.library_index import is_inside
from bactrian.explore.map_drawing import draw_map
from bactrian.figures.text_map import (
    LABEL_SIZE,
    MAP_WIDTH,
    TextMap,
    arrange_texts,
    draw_map_picture,
    measure_label,
)
from tests.helpers.browser import find_barriers, needs_chromium
from tests.helpers.command import bactrian, start_python
from tests.helpers.explorer import RunningExplorer, explore, run_apart
from tests.helpers.runs import make_run, session

TOPICS = (
    "garden soil seed water plant bloom root leaf",
    "market stock price trade broker share profit loss",
    "engine piston valve torque fuel clutch gear axle",
)


def write_texts(count: int) -> tuple[list[str], np.ndarray]:
    """Texts of five words of a topic and a common one; and the topic of each."""
    draw = Random(3)
    topics = [draw.randrange(3) for _ in range(count)]
    return [" ".join((*draw.sample(TOPICS[topic].split(), 5), "plan")) for topic in topics], np.array(topics)


def make_words(draw: Random, count: int) -> list[str]:
    """Different words that nobody has seen."""
    syllables = "ba ko ri tu me sha lo ven da zi pra no gel fu mik tor qui ham".split()
    words = {"".join(draw.choices(syllables, k=3)) for _ in range(2 * count)}
    return draw.sample(sorted(words), count)


def compare_groups(first: Sequence[int], second: Sequence[int]) -> float:
    """The adjusted Rand index: 1 for the same groups, about 0 for groups that agree by chance.

    It is counted here because scikit-learn takes seconds to load, in each worker that collects this file.
    """
    pairs, left, right = (
        sum(math.comb(count, 2) for count in Counter(labels).values())
        for labels in (zip(first, second, strict=True), first, second)
    )
    expected = left * right / math.comb(len(first), 2)
    return (pairs - expected) / ((left + right) / 2 - expected)


def test_groups_are_compared_as_by_hubert_and_arabie() -> None:
    assert compare_groups([0, 0, 1, 1], [1, 1, 0, 0]) == 1
    assert compare_groups([0, 0, 1, 2], [0, 0, 1, 1]) == pytest.approx(4 / 7)
    assert compare_groups([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topics", "uneven", "seed", "count"),
    [
        (6, True, 2, 120),
        pytest.param(20, False, 1, 1200, marks=pytest.mark.soak),
        pytest.param(12, True, 2, 1200, marks=pytest.mark.soak),
        pytest.param(2, False, 3, 1200, marks=pytest.mark.soak),
    ],
)
def test_topics_without_a_common_word_are_found_whatever_their_number(
    topics: int, uneven: bool, seed: int, count: int
) -> None:
    draw = Random(seed)
    words = make_words(draw, 12 * topics + 30)
    weights = [1 / (topic + 1) ** 0.7 if uneven else 1.0 for topic in range(topics)]
    truth = draw.choices(range(topics), weights, k=count)
    texts = [
        " ".join(draw.sample(words[12 * topic : 12 * topic + 12], 6) + draw.sample(words[-30:], 2))
        for topic in truth
    ]
    made = arrange_texts(texts)
    assert compare_groups(truth, made.topics) >= 0.95
    places, found = np.array(made.places), np.array(made.topics)
    apart = ((places[:300, None] - places[None]) ** 2).sum(axis=2)
    near = np.argsort(apart, axis=1)[:, 1:11]
    assert (found[near] == found[:300, None]).mean() > 0.9
    check_labels(made)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [pytest.param(150, 40, marks=pytest.mark.soak), (100, 30)])
def test_topics_of_few_short_texts_are_told_from_chance(count: int, size: int) -> None:
    """Two texts of a topic hardly share one of its words, and every text shares common ones with most others."""
    draw = Random(1)
    words = make_words(draw, 3 * size + 19)
    truth = draw.choices(range(3), k=count)
    texts = [
        " ".join(draw.sample(words[size * topic : size * (topic + 1)], 4) + draw.sample(words[-19:], 6))
        for topic in truth
    ]
    assert compare_groups(truth, arrange_texts(texts).topics) >= 0.9


def check_labels(made: TextMap) -> None:
    """A label covers no point and no other label, stays in the picture, and stands beside its own topic."""
    places, topics = np.array(made.places), np.array(made.topics)
    assert len(made.labels) >= min(2, len(made.names))
    boxes: list[tuple[float, float, float, float]] = []
    for label in made.labels:
        half = measure_label(made.names[label.topic]) / 2
        left, right, low, high = (
            label.x - half,
            label.x + half,
            label.y - LABEL_SIZE / 2,
            label.y + LABEL_SIZE / 2,
        )
        assert left >= 0 and right <= MAP_WIDTH and low >= 0 and high <= MAP_WIDTH
        covered = (abs(places[:, 0] - label.x) < half) & (abs(places[:, 1] - label.y) < LABEL_SIZE / 2)
        assert not covered.any()
        assert not any(
            left < end and begin < right and low < up and down < high for begin, end, down, up in boxes
        )
        boxes.append((left, right, low, high))
        assert (label.point_x, label.point_y) in {
            tuple(place) for place in places[topics == label.topic].tolist()
        }
        beyond = np.maximum(
            abs(np.array((label.point_x - label.x, label.point_y - label.y))) - (half, LABEL_SIZE), 0
        )
        assert np.hypot(*beyond) < MAP_WIDTH / 5


ON_A_BUSY_COMPUTER = """
import os
import threadpoolctl
from bactrian.figures.text_map import arrange_texts
os.getloadavg = lambda: (99.0, 99.0, 99.0)
used = set()
arrange_texts(
    ["one tea", "two teas", "three cups"] * 4,
    lambda _: used.update(pool["num_threads"] for pool in threadpoolctl.threadpool_info()),
)
print(used)
"""


@pytest.mark.slow
def test_a_map_takes_one_thread_where_no_core_is_free(tmp_path: Path) -> None:
    out, err = start_python(ON_A_BUSY_COMPUTER, cwd=tmp_path).finish()
    assert out.decode() == "{1}\n", err.decode()


@pytest.mark.system
@pytest.mark.parametrize("texts", [[], ["one text"], ["the of"] * 3, ["same words here"] * 60])
def test_few_or_empty_or_equal_texts_have_places(texts: list[str]) -> None:
    made = arrange_texts(texts)
    assert len(made.places) == len(made.topics) == len(texts)
    assert all(0 <= value <= MAP_WIDTH for place in made.places for value in place)
    draw_map_picture([(*place, 0) for place in made.places], made.labels, made.names, [], "few")


def test_a_point_is_inside_or_outside_of_a_polygon() -> None:
    square = "0,0;10,0;10,10;0,10"
    assert is_inside(5, 5, square)
    assert not is_inside(15, 5, square)
    assert not is_inside(5, -1, square)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningExplorer]:
    """An explorer with maps of the tasks and of the instructions of 52 conversations."""
    folder = tmp_path_factory.mktemp("map")
    texts, _ = write_texts(52)
    sessions = [
        session(
            f"s{number:03}",
            task=text,
            texts=[
                f"Instruction: Do {text}.\nInput: None",
                "Solution: Done.",
                f"Instruction: Now {text}.\nInput: x",
            ],
            code=("task_done", "max_messages")[number % 2],
        )
        for number, text in enumerate(texts)
    ]
    red = session("red", task=texts[0], texts=["Instruction: Harm.\nInput: None"], mark="red-team")
    run_apart(make_run(folder / "run.db", [*sessions, red]))
    with explore(folder, "run.db", sessions=53) as one:
        index = next((folder / "cache" / "bactrian" / "explore").glob("index-*.db"))
        for what in ("task", "instruction"):
            draw_map(folder / "run.db", index, 1, what)
        yield one


def open_map(page: Page, one: RunningExplorer, query: str) -> dict[str, float]:
    page.goto(one.link(f"/map?{query}"))
    page.wait_for_selector("[data-ready]")
    box = page.locator("canvas").first.bounding_box()
    assert box is not None
    return {"x": box["x"], "y": box["y"], "width": box["width"], "height": box["height"]}


def wait_until(page: Page, condition: str) -> None:
    """Wait for a condition; the page's own rules forbid ``wait_for_function``."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(condition)


def draw_around(page: Page, box: dict[str, float]) -> None:
    """Draw around all points."""
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98)]
    at = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in corners]
    page.mouse.move(*at[0])
    page.mouse.down()
    for x, y in at:
        page.mouse.move(x, y, steps=3)
    page.mouse.up()


@needs_chromium
@pytest.mark.soak
def test_a_button_draws_a_map_while_the_page_says_how_far_it_is(tmp_path: Path, page: Page) -> None:
    run_apart(make_run(tmp_path / "run.db", [session("s")]))
    with explore(tmp_path, "run.db", sessions=1) as one:
        page.goto(one.link("/map"))
        page.get_by_role("button", name="Draw the map").click()
        page.wait_for_selector("[data-ready]", timeout=300_000)
        assert page.locator("meta[http-equiv=refresh]").count() == 0
        expect(page.get_by_role("heading", name="Topics")).to_be_visible()


@needs_chromium
@pytest.mark.slow
def test_a_lasso_keeps_the_map_and_shows_list_and_numbers_of_what_is_inside(
    drawn: RunningExplorer, page: Page
) -> None:
    box = open_map(page, drawn, "what=task")
    assert find_barriers(page) == []
    address = page.url
    draw_around(page, box)
    panel = page.get_by_role("complementary", name="What is chosen")
    expect(panel.get_by_role("link", name="53 conversations in a list")).to_be_visible()
    expect(panel.get_by_role("heading", name="Endings")).to_be_visible()
    expect(panel.get_by_text("task done")).to_be_visible()
    expect(panel.get_by_text("Made to study misuse")).to_have_count(0)  # It is the 53rd.
    assert page.url == address
    assert find_barriers(page) == []
    panel.get_by_role("link", name="53 conversations in a list").click()
    page.wait_for_url("**/conversations?**area=**")
    expect(page.get_by_role("link", name=re.compile("Area of the map"))).to_be_visible()


@needs_chromium
@pytest.mark.slow
def test_keys_alone_go_from_point_to_point_open_one_and_find_similar_ones(
    drawn: RunningExplorer, page: Page
) -> None:
    open_map(page, drawn, "what=instruction")
    canvas = page.locator("canvas")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    status = page.locator(".map-view > [role=status]")
    expect(status).to_have_text(re.compile(r"^Programmer × Cook: (Do|Now) "))
    page.keyboard.press("s")
    panel = page.get_by_role("complementary", name="What is chosen")
    expect(panel.get_by_role("heading", name="Similar to this one")).to_be_visible()
    words = set(status.inner_text().split()[-6:])
    similar = panel.get_by_role("listitem")
    expect(similar).to_have_count(20)
    assert sum(len(words & set(text.split())) > 1 for text in similar.all_inner_texts()) > 15
    page.keyboard.press("Escape")
    expect(canvas).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("a")
    expect(panel.get_by_role("heading", name="Endings")).to_be_visible()
    canvas.focus()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("link", name="Open it alone")).to_be_visible()
    expect(panel.get_by_text("Solution", exact=True).first).to_be_visible()
    canvas.focus()
    page.keyboard.press("Tab")
    expect(canvas).not_to_be_focused()


@needs_chromium
@pytest.mark.slow
def test_a_map_shows_all_instructions_hides_what_its_legend_hides_and_stands_beside_another(
    drawn: RunningExplorer, page: Page
) -> None:
    assert len(drawn.get("/map.csv?what=instruction").text.splitlines()) == 1 + 2 * 52 + 1
    open_map(page, drawn, "what=instruction&by=ending&beside=task:run")
    assert page.locator("canvas").count() == 2
    assert find_barriers(page) == []
    inked = """() => {
        const canvas = document.querySelector("canvas"), { width, height } = canvas;
        const bytes = canvas.getContext("2d").getImageData(0, 0, width, height).data;
        return bytes.reduce((sum, byte, place) => sum + (place % 4 === 3 && byte > 0), 0);
    }"""
    button = page.locator(".map-view").first.get_by_role("button", name="max messages 52")
    both = page.evaluate(inked)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    wait_until(page, f"({inked})() < {both}")
    for by in ("messages", "cost", "mark", "kind", "language", "behaviour:role_flip"):
        assert drawn.get(f"/map?by={by}").status == 200
        assert len(drawn.get(f"/map.svg?by={by}").text.split("<circle")) == 54
    assert "Its detector: no finding was read." in drawn.get("/map?by=behaviour:role_flip").text
    assert drawn.get("/map?by=behaviour:x'y").status == 400


@needs_chromium
@pytest.mark.system
def test_a_finger_scrolls_over_a_map_and_the_wheel_too(drawn: RunningExplorer, page: Page) -> None:
    box = open_map(page, drawn, "what=task")
    canvas = page.locator("canvas")
    assert canvas.evaluate("one => getComputedStyle(one).touchAction") in (
        "manipulation",
        "pan-x pan-y pinch-zoom",
    )
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.wheel(0, 200)
    wait_until(page, "scrollY > 100")
    page.get_by_role("button", name="Draw around points").click()
    assert canvas.evaluate("one => getComputedStyle(one).touchAction") == "none"


@needs_chromium
@pytest.mark.slow
def test_on_a_phone_what_is_opened_comes_into_sight_and_an_enlarged_map_follows_the_finger(
    drawn: RunningExplorer, chromium: Browser
) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page = context.new_page()
    open_map(page, drawn, "what=task")
    canvas = page.locator("canvas")
    finger = context.new_cdp_session(page)

    def move(*lines: Sequence[tuple[float, float]]) -> None:
        """Put a finger down at the begin of each line, move them along, and lift them."""
        for place in range(20):
            points = [
                {"id": number, "x": x + (other_x - x) * place / 19, "y": y + (other_y - y) * place / 19}
                for number, ((x, y), (other_x, other_y)) in enumerate(lines)
            ]
            kind = "touchMove" if place else "touchStart"
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            page.wait_for_timeout(16)  # a frame
        finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    # Over the map, one finger scrolls the page and two enlarge it, as they do anywhere else.
    box = canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + 150, box["y"] + 100
    move([(x, y), (x, y - 200)])
    wait_until(page, "scrollY > 100")
    canvas.evaluate("one => one.scrollIntoView({ block: 'center' })")
    box = canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + 150, box["y"] + 100
    move([(x - 20, y), (x - 100, y)], [(x + 20, y), (x + 100, y)])
    wait_until(page, "visualViewport.scale > 1.5")
    move([(x - 100, y), (x - 10, y)], [(x + 100, y), (x + 10, y)])
    wait_until(page, "visualViewport.scale < 1.1")
    canvas.press("ArrowRight")
    canvas.press("Enter")
    expect(page.get_by_role("button", name="Similar to this one")).to_be_in_viewport()
    canvas.press("+")
    expect(canvas).to_have_class("large")
    assert canvas.evaluate("one => getComputedStyle(one).touchAction") == "none"
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    before, x, y = canvas.evaluate("one => one.toDataURL()"), box["x"] + 200, box["y"] + 200
    move([(x, y), (x - 80, y)])
    page.wait_for_timeout(200)
    assert canvas.evaluate("one => one.toDataURL()") != before
    context.close()


@pytest.mark.system
def test_a_map_hides_the_texts_that_were_made_to_study_misuse(drawn: RunningExplorer) -> None:
    number = next(
        place
        for place, line in enumerate(drawn.get("/map.csv?what=instruction").text.splitlines()[1:])
        if line.startswith("red,")
    )
    assert "Harm" not in drawn.get(f"/map/text?what=instruction&point={number}").text
    assert drawn.get("/map/text?what=instruction&point=9999").status == 404
    assert drawn.get("/conversations?area=task:1,2").status == 400
    assert json.loads(drawn.get("/conversations.json?area=task:0,0;1,0;0,1").text)["count"] <= 10


@needs_chromium
@pytest.mark.slow
def test_one_command_writes_the_map_of_runs_as_a_picture_or_as_a_page_that_works_alone(
    tmp_path: Path, page: Page
) -> None:
    texts, _ = write_texts(14)
    sessions = [
        session(f"s{number}", texts=[f"Instruction: {text} </script>.\nInput: None"] * 3)
        for number, text in enumerate(texts)
    ]
    red = session("red", texts=["Instruction: Harm.\nInput: None"], mark="red-team")
    run_apart(make_run(tmp_path / "run.db", [*sessions, red]))
    bactrian("explore", "run.db", "--map", "map.svg", "--texts", "instruction", cwd=tmp_path)
    assert (tmp_path / "map.svg").read_text().count("<circle") >= 29
    bactrian("explore", "run.db", "--map", "map.html", "--texts", "instruction", cwd=tmp_path)
    assert "Harm" not in (tmp_path / "map.html").read_text()
    page.on("request", lambda asked: pytest.fail(asked.url) if asked.url.startswith("http") else None)
    page.goto((tmp_path / "map.html").as_uri())
    page.wait_for_selector("[data-ready]")
    assert find_barriers(page) == []
    page.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("s")
    panel = page.get_by_role("complementary", name="What is chosen")
    expect(panel.get_by_role("listitem").filter(has_text="</script>").first).to_contain_text("message")
    for wrong in ("map.svg", "map.pdf"):
        made = bactrian("explore", "run.db", "--map", wrong, cwd=tmp_path)
        assert made.returncode == 2
        assert wrong in made.stderr


@needs_chromium
@pytest.mark.system
def test_the_parts_of_a_map_find_points_and_areas(drawn: RunningExplorer, page: Page) -> None:
    page.goto(drawn.link("/help"))
    found = page.evaluate("""async () => {
        const { readPoints, isInside, findNearest, findNext, simplify } = await import("/static/map.js");
        const bytes = new DataView(new ArrayBuffer(20));
        [[0, 0, 0], [100, 0, 1], [200, 10, 2], [0, 300, 0]].forEach(([x, y, group], i) => {
            bytes.setUint16(5 * i, x, true); bytes.setUint16(5 * i + 2, y, true); bytes.setUint8(5 * i + 4, group);
        });
        const points = readPoints(bytes.buffer), none = new Set(), square = [[0, 0], [10, 0], [10, 10], [0, 10]];
        return {
            xs: [...points.xs], groups: [...points.groups],
            inside: [isInside(5, 5, square), isInside(15, 5, square), isInside(5, -1, square)],
            near: [[5, 1], [50, 1], [500, 9]].map(([reach, not]) => findNearest(points, 90, 5, reach, new Set([not]))),
            other: findNearest(points, 90, 5, 50, none),
            next: [[1, 0], [0, 1], [0, -1]].map(([x, y]) => findNext(points, 0, x, y, none)),
            corners: simplify(Array.from({ length: 400 }, (_, i) => [i + 0.4, 0])).length,
        };
    }""")
    assert found == {
        "xs": [0, 100, 200, 0],
        "groups": [0, 1, 2, 0],
        "inside": [True, False, False],
        "near": [-1, -1, 1],
        "other": 1,
        "next": [1, 3, 0],
        "corners": 40,
    }
