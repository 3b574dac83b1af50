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

from bactrian.explore.library_index import is_inside
from bactrian.explore.map_drawing import arrange_points, compute_vectors, count_words, find_neighbours
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


def test_neighbours_and_places_belong_to_the_same_topic() -> None:
    texts, topics = write_texts(150)
    vectors = compute_vectors(count_words(texts), 16)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    near = find_neighbours(vectors, 10, cells=4)
    assert (topics[near] == topics[:, None]).mean() > 0.95
    assert (near != np.arange(150)[:, None]).all()
    places = arrange_points(vectors)
    apart = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (topics[np.argsort(apart, axis=1)[:, :10]] == topics[:, None]).mean() > 0.9


def test_the_decomposition_is_that_of_a_full_one() -> None:
    texts, _ = write_texts(80)
    table = count_words(texts)
    dense = np.zeros((80, len(table.words)), np.float32)
    for row in range(80):
        inside = slice(table.starts[row], table.starts[row + 1])
        dense[row, table.columns[inside]] = table.weights[inside]
    left, values, _ = np.linalg.svd(dense, full_matrices=False)
    best = (left * values)[:, :3]
    best /= np.linalg.norm(best, axis=1, keepdims=True)
    assert np.allclose(compute_vectors(table, 3) @ compute_vectors(table, 3).T, best @ best.T, atol=0.05)


@pytest.mark.parametrize("texts", [[], ["one text"], ["the of"] * 3, ["same words here"] * 60])
def test_few_or_empty_or_equal_texts_have_places(texts: list[str]) -> None:
    places = arrange_points(compute_vectors(count_words(texts)))
    assert places.shape == (len(texts), 2)
    assert np.isfinite(places).all()


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
