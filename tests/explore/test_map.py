"""Maps put similar texts near each other, and lead to the list."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from random import Random

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from sklearn.metrics import adjusted_rand_score

from bactrian.explore.library_index import is_inside
from bactrian.figures.map_picture import draw_map_picture
from bactrian.figures.text_map import LABEL_SIZE, MAP_WIDTH, TextMap, arrange_texts, measure_label
from tests.helpers.browser import find_barriers, needs_chromium
from tests.helpers.explorer import explore
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


@pytest.mark.system
@pytest.mark.parametrize(("topics", "uneven", "seed"), [(20, False, 1), (12, True, 2), (2, False, 3)])
def test_topics_without_a_common_word_are_found_whatever_their_number(
    topics: int, uneven: bool, seed: int
) -> None:
    draw = Random(seed)
    words = make_words(draw, 12 * topics + 30)
    weights = [1 / (topic + 1) ** 0.7 if uneven else 1.0 for topic in range(topics)]
    truth = draw.choices(range(topics), weights, k=1200)
    texts = [
        " ".join(draw.sample(words[12 * topic : 12 * topic + 12], 6) + draw.sample(words[-30:], 2))
        for topic in truth
    ]
    made = arrange_texts(texts)
    assert adjusted_rand_score(truth, made.topics) >= 0.95
    places, found = np.array(made.places), np.array(made.topics)
    apart = ((places[:300, None] - places[None]) ** 2).sum(axis=2)
    near = np.argsort(apart, axis=1)[:, 1:11]
    assert (found[near] == found[:300, None]).mean() > 0.9
    check_labels(made)


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


@needs_chromium
@pytest.mark.system
def test_a_map_is_drawn_and_a_lasso_leads_to_its_conversations(tmp_path: Path, page: Page) -> None:
    texts, _ = write_texts(150)
    sessions = [session(f"s{number:03}", task=text, texts=["x"]) for number, text in enumerate(texts)]
    made = threading.Thread(target=lambda: asyncio.run(make_run(tmp_path / "run.db", sessions)))
    made.start()
    made.join()
    with explore(tmp_path, "run.db", sessions=150) as one:
        page.goto(one.link("/map"))
        page.get_by_role("button", name="Draw the map").click()
        expect(page.get_by_role("heading", name="Topics")).to_be_visible(timeout=60_000)
        assert find_barriers(page) == []
        box = page.locator("#map").bounding_box()
        assert box is not None
        corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98)]
        page.wait_for_timeout(300)
        page.mouse.move(box["x"] + box["width"] * 0.02, box["y"] + box["height"] * 0.02)
        page.mouse.down()
        for x, y in corners:
            page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y)
        page.mouse.up()
        page.wait_for_url("**/conversations?**area=**")
        expect(page.get_by_role("link", name=re.compile("Area of the map"))).to_be_visible()
        count = page.get_by_role("heading", level=1).inner_text()
        assert int(count.split()[0]) > 140
        page.goto(one.link("/map"))
        page.locator("table a").first.click()
        page.wait_for_url("**/conversations?**")
        topic = int(page.get_by_role("heading", level=1).inner_text().split()[0])
        assert 0 < topic < 150
        assert len(one.get("/map.csv").text.splitlines()) == 151
        assert one.get("/map.svg").text.count("<circle") == 150
        assert one.get("/conversations?area=task:1,2").status == 400
        assert json.loads(one.get("/conversations.json?area=task:0,0;1,0;0,1").text)["count"] <= 10
