"""A map of short texts: similar ones are near each other, in topics with names.

Words become vectors by TF-IDF and a truncated singular value decomposition, topics are found by k-means among the
vectors, and t-SNE (van der Maaten and Hinton 2008) lays them out. All three are scikit-learn's.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

from bactrian.errors import import_optional
from bactrian.figures.chart import list_group_colours, read_colours

# Coordinates of points are whole numbers from 0 to this.
MAP_WIDTH = 10_000
# Of the letters of a label, in a picture of this width, and of a point.
LABEL_SIZE, POINT_RADIUS = 170, 22
_SEED = 20230331
# Words that count; numbers of a vector.
_WORDS, _SIZE = 8192, 64
# Texts that are laid out among each other; the others go between those that they are most like.
_SAMPLE = 4000
_BETWEEN = 3
# Texts of which topics are found, and of which a number of topics is judged.
_GROUPED, _JUDGED = 3000, 1500
# Numbers of topics that are tried first; those beside the best one follow.
_TOPICS = (*range(2, 17), 18, 20, 22, 25, 28, 32, 36, 40)
# Starts of k-means, at most, and texts in all of them: few texts need more starts.
_STARTS, _STARTED = 20, 12_000
# Characters of the name of a topic.
_LONGEST_NAME = 30
# Topics that are named in the picture, the largest ones.
_LABELS = 16
# Share of the width that stays free at each edge, and cells of the grid in which labels find their places.
_MARGIN, _CELLS = 0.07, 250
# Cells between a label and the points of its topic, at most.
_FAR = 40


@dataclass(frozen=True, slots=True)
class MapLabel:
    """The name of a topic in the picture, where it covers no point: its middle, and the point that it belongs to."""

    topic: int
    x: int
    y: int
    point_x: int
    point_y: int


@dataclass(frozen=True, slots=True)
class TextMap:
    """Where each text lies, and its topic; the largest topic is 0."""

    places: Sequence[tuple[int, int]]
    topics: Sequence[int]
    names: Sequence[str]
    labels: Sequence[MapLabel]


def arrange_texts(texts: Sequence[str], report: Callable[[str], None] = lambda _: None) -> TextMap:
    """Return the map of ``texts``; ``report`` receives what is being done.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    # More threads than free cores wait for each other in every round. A limit holds for what is loaded before it.
    _load("sklearn.manifold")
    with import_optional("threadpoolctl", "analysis", "A map").threadpool_limits(max(1, _count_free_cores())):
        numpy = _load("numpy")
        reader = StemReader()
        report("words are being counted")
        weights, words = _weigh_words(texts, reader)
        vectors = _reduce(weights)
        report("topics are being looked for")
        topics = _order_by_size(find_topics(weights, vectors))
        report("places are being looked for")
        places = _scale(_arrange(vectors))
        names = _name_topics(weights, [reader.spell(word) for word in words], topics)
        labels = _place_labels(places, topics, names) if len(texts) else []
        pairs = [(x, y) for x, y in places.tolist()]
        return TextMap(pairs, numpy.asarray(topics).tolist(), names, labels)


def _load(module: str) -> Any:
    return import_optional(module, "analysis", "A map")


def _count_free_cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores - round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else cores


def _weigh_words(texts: Sequence[str], reader: StemReader) -> tuple[Any, list[str]]:
    """Return the weight of each word in each text, and the words."""
    make = _load("sklearn.feature_extraction.text").TfidfVectorizer
    for least in (1,) if len(texts) < 50 else (2, 1):
        vectorizer = make(
            analyzer=reader.list_stems,
            sublinear_tf=True,
            max_features=_WORDS,
            min_df=least,
            dtype=_load("numpy").float32,
        )
        try:
            return vectorizer.fit_transform(texts), list(vectorizer.get_feature_names_out())
        except ValueError:  # No text has a word, or no two share one.
            continue
    return _load("scipy.sparse").csr_matrix((len(texts), 1)), []


def _reduce(weights: Any) -> Any:
    """Return a vector of length 1 for each row, or of length 0 for one without words."""
    size = min(_SIZE, weights.shape[1] - 1, max(weights.shape[0] - 1, 0))
    if size < 2:
        return _load("numpy").asarray(weights.toarray(), "float32")
    reduced = _load("sklearn.decomposition").TruncatedSVD(size, random_state=_SEED).fit_transform(weights)
    return _load("sklearn.preprocessing").normalize(reduced).astype("float32")


def find_topics(weights: Any, vectors: Any) -> Any:
    """Return the topic of each text: k-means with the number of topics that are clearest.

    How clear topics are is the silhouette, less that of the same words dealt to other texts (the idea of Tibshirani,
    Walther and Hastie 2001): of few short texts, many small groups are clear by chance.
    """
    numpy = _load("numpy")
    draw = numpy.random.default_rng(_SEED)
    chosen = draw.permutation(len(vectors))[:_GROUPED]
    sample, dealt = vectors[chosen], _reduce(_deal_words(weights[chosen], draw))
    most = min(len(chosen) // 4, len(numpy.unique(sample, axis=0)) - 1)
    tried: dict[int, tuple[float, Any]] = {}

    def attempt(counts: Iterable[int]) -> int:
        for count in counts:
            if count not in tried and 2 <= count <= most:
                (clear, found), (by_chance, _) = _group(sample, count), _group(dealt, count)
                tried[count] = clear - by_chance, found
        return max(tried, key=lambda count: tried[count][0], default=0)

    if not (best := attempt(_TOPICS)):
        return numpy.zeros(len(vectors), int)
    below = max((count for count in tried if count < best), default=1)
    above = min((count for count in tried if count > best), default=best)
    return tried[attempt(range(below + 1, above))][1].predict(vectors)


def _deal_words(weights: Any, draw: Any) -> Any:
    """Return the weights of the same words in other texts, each in as many as before."""
    numpy, columns = _load("numpy"), weights.tocsc()
    rows = [draw.choice(weights.shape[0], size, replace=False) for size in numpy.diff(columns.indptr)]
    columns.indices = numpy.concatenate(rows).astype(columns.indices.dtype)
    return columns.tocsr()


def _group(vectors: Any, count: int) -> tuple[float, Any]:
    """Return how clear the groups of k-means are, and k-means itself."""
    kmeans, metrics = _load("sklearn.cluster").KMeans, _load("sklearn.metrics")
    starts = min(_STARTS, _STARTED // len(vectors))
    found = kmeans(count, init="k-means++", n_init=starts, random_state=_SEED).fit(vectors)
    try:
        judged = min(_JUDGED, len(vectors))
        score = metrics.silhouette_score(vectors, found.labels_, sample_size=judged, random_state=_SEED)
    except ValueError:  # What was drawn is of one group.
        return -1.0, found
    return float(score), found


def _order_by_size(topics: Any) -> Any:
    """Return topics by numbers from 0, the largest first."""
    numpy = _load("numpy")
    counts = numpy.bincount(topics, minlength=1)
    ranks = numpy.empty(len(counts), int)
    ranks[numpy.argsort(-counts, kind="stable")] = numpy.arange(len(counts))
    return ranks[topics]


def _arrange(vectors: Any) -> Any:
    """Return a place in the plane for each vector: t-SNE of a sample, and others between their nearest of it."""
    numpy = _load("numpy")
    count = len(vectors)
    spread = vectors - vectors.mean(axis=0) if count else vectors
    if count < 5 or vectors.shape[1] < 2 or float(numpy.abs(spread).max(initial=0)) < 1e-6:
        return numpy.pad(vectors[:, :2], ((0, 0), (0, max(0, 2 - vectors.shape[1]))))
    chosen = numpy.random.default_rng(_SEED).permutation(count)[:_SAMPLE]
    sample = vectors[chosen]
    layout = _load("sklearn.manifold").TSNE(
        perplexity=min(30.0, (len(sample) - 1) / 3), init="random", max_iter=500, random_state=_SEED
    )
    places = layout.fit_transform(sample)
    if len(chosen) == count:
        ordered = numpy.empty_like(places)
        ordered[chosen] = places
        return ordered
    between = _load("sklearn.neighbors").KNeighborsRegressor(_BETWEEN, weights="distance")
    return between.fit(sample, places).predict(vectors)


def _scale(places: Any) -> Any:
    """Return places as whole numbers; one in 500 points at each edge may lie outside and is moved to it."""
    numpy = _load("numpy")
    if not len(places):
        return numpy.zeros((0, 2), int)
    low, high = numpy.quantile(places, [0.002, 0.998], axis=0)
    inside = MAP_WIDTH * (1 - 2 * _MARGIN)
    scaled = (places - (low + high) / 2) / max(float((high - low).max()), 1e-6) * inside + MAP_WIDTH / 2
    return numpy.clip(scaled, MAP_WIDTH * _MARGIN / 2, MAP_WIDTH * (1 - _MARGIN / 2)).astype(int)


def _name_topics(weights: Any, words: Sequence[str], topics: Any) -> list[str]:
    """Return up to three words for each topic: those that are much commoner in it than elsewhere."""
    numpy = _load("numpy")
    present = (weights > 0).astype("float32")
    everywhere = numpy.asarray(present.sum(axis=0)).ravel()
    names: list[str] = []
    for topic in range(int(topics.max(initial=-1)) + 1):
        inside = numpy.asarray(present[topics == topic].sum(axis=0)).ravel()
        scores = inside * inside / numpy.maximum(everywhere, 1)
        order: list[int] = numpy.argsort(-scores, kind="stable")[:3].tolist()
        best = [words[column] for column in order if scores[column] > 0]
        while len(", ".join(best)) > _LONGEST_NAME and len(best) > 1:
            best.pop()
        names.append(", ".join(best)[:_LONGEST_NAME] or "without words")
    return names


def _place_labels(places: Any, topics: Any, names: Sequence[str]) -> list[MapLabel]:
    """Return labels that cover neither points nor each other, each beside the points of its topic."""
    numpy, image = _load("numpy"), _load("scipy.ndimage")
    cell = MAP_WIDTH / _CELLS
    taken = numpy.zeros((_CELLS, _CELLS), bool)
    at = numpy.clip((places / cell).astype(int), 0, _CELLS - 1)
    taken[at[:, 1], at[:, 0]] = True
    free = ~image.binary_dilation(taken, iterations=int(POINT_RADIUS // cell) + 1)
    rows, columns = numpy.indices(free.shape)
    labels: list[MapLabel] = []
    for topic, name in enumerate(names[:_LABELS]):
        own = numpy.zeros(free.shape)
        mine = at[topics == topic]
        numpy.add.at(own, (mine[:, 1], mine[:, 0]), 1)
        dense = image.gaussian_filter(own, 5) * (own > 0)
        crowd = dense > 0.3 * dense.max()
        top, left = numpy.unravel_index(int(dense.argmax()), dense.shape)
        across, up = int(measure_label(name) / cell / 2) + 2, int(LABEL_SIZE * 0.65 / cell) + 1
        box = (2 * up + 1, 2 * across + 1)
        # Where the whole box of the label is free; outside of the picture nothing is.
        fits = image.minimum_filter(free, box, mode="constant", cval=False)
        if not fits.any():
            continue
        beyond_x = numpy.maximum(abs(columns - left) - across, 0)
        beyond_y = numpy.maximum(abs(rows - top) - up, 0)
        to_own, to_others = (
            image.minimum_filter(image.distance_transform_edt(empty), box, mode="nearest")
            for empty in (~crowd, ~taken | (own > 0))
        )
        # Near where most of its points are, and not nearer to those of another topic.
        astray = numpy.maximum(to_own + 2 - to_others, 0)
        cost = numpy.where(fits, to_own + astray + 0.4 * numpy.hypot(beyond_x, beyond_y), numpy.inf)
        y, x = (int(value) for value in numpy.unravel_index(int(cost.argmin()), cost.shape))
        if to_own[y, x] > _FAR:
            continue  # The legend names it.
        free[y - up : y + up + 1, x - across : x + across + 1] = False
        middle = numpy.array([(x + 0.5) * cell, (y + 0.5) * cell])
        belongs = places[topics == topic][crowd[mine[:, 1], mine[:, 0]]]
        half = numpy.array([measure_label(name) / 2, LABEL_SIZE * 0.6])
        apart = numpy.maximum(abs(belongs - middle) - half, 0)
        nearest = belongs[int((apart**2).sum(axis=1).argmin())].tolist()
        labels.append(MapLabel(topic, *(int(value) for value in (*middle, *nearest))))
    return labels


def measure_label(name: str) -> float:
    """Return the width of a label, in the coordinates of the map; rather too much than too little."""
    return LABEL_SIZE * sum(1.02 if east_asian_width(sign) in "WF" else 0.6 for sign in name)


# The words of a text: in lower case, without the commonest, by their approximate stems.


STOP_WORDS = frozenset(
    (
        "a an the and or but of to in on at by for from with without into onto as is are was were be been "
        "being am it its this that these those i you he she we they me him her us them my your his our their "
        "so then than too also not no do does did done has have had will would can could may might shall "
        "should must there here which who whom whose what when where how if please each every all any some "
        "more most very just only own same such up out about per none"
    ).split()
)

_ENDINGS = "ations ation ments ment ings ing ions ion ies ers ed es ly er s e".split()
_STEM = 6
_TOKEN = re.compile(r"[^\W_]+")
# Chinese, Japanese, Thai, Lao and Khmer have no spaces between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


def tokenize(text: str) -> list[str]:
    """Return the words of ``text`` in lower case; for scripts without spaces, pairs of adjacent characters."""
    tokens: list[str] = []
    for token in _TOKEN.findall(text.lower()):
        if len(token) == 1 or token.isascii() or _UNSPACED.search(token) is None:
            tokens.append(token)
        else:
            tokens += [token[i : i + 2] for i in range(len(token) - 1)]
    return tokens


def stem(word: str) -> str:
    """Return an approximate stem of an English word: ``evaluate`` and ``evaluation`` give ``evalu``."""
    # British and American spelling; analysis, analyse, analyze.
    word = word.replace("z", "s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    # write, writing; plan, planned
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:_STEM]


class StemReader:
    """Returns the stems of a text, and remembers how each was spelled."""

    def __init__(self) -> None:
        self._spellings: dict[str, Counter[str]] = {}

    def list_stems(self, text: str) -> list[str]:
        """Return the stems of the words that say something."""
        return list(self._read(text))

    def _read(self, text: str) -> Iterator[str]:
        for word in tokenize(text):
            if word not in STOP_WORDS and (len(word) > 1 or not word.isascii()) and not word.isdecimal():
                key = stem(word)
                self._spellings.setdefault(key, Counter())[word] += 1
                yield key

    def spell(self, key: str) -> str:
        """Return the commonest spelling of a stem."""
        return self._spellings[key].most_common(1)[0][0]


# The picture of a map, as SVG: points, the names of topics beside them, and a legend.


_LEGEND, _LINE = 4200, 300


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A colour of a picture: what it stands for, how often that occurs, and the colour's number."""

    name: str
    count: int
    group: int


def draw_map_picture(
    points: Iterable[tuple[int, int, int]],
    labels: Sequence[MapLabel],
    names: Sequence[str],
    legend: Sequence[LegendEntry],
    title: str,
) -> str:
    """Return the SVG of a map.

    Args:
        points: x, y and colour group of each text.
        labels: Where names of topics stand.
        names: The name of each topic.
        legend: What the colours mean.
        title: What the points are, for people who do not see them.
    """
    colours, ink = list_group_colours(), read_colours()["ink"][0]
    groups: list[list[str]] = [[] for _ in colours]
    for x, y, group in points:
        groups[group].append(f'<circle cx="{x}" cy="{MAP_WIDTH - y}" r="{POINT_RADIUS}"/>')
    drawn = [
        f'<g fill="{colour}" fill-opacity=".85">{"".join(dots)}</g>'
        for colour, dots in zip(colours, groups, strict=True)
        if dots
    ]
    for label in labels:
        drawn += _draw_label(label, names[label.topic])
    for line, entry in enumerate(legend):
        y = MAP_WIDTH * 0.07 + line * _LINE
        drawn.append(
            f'<rect x="{MAP_WIDTH + 100}" y="{y - 130:g}" width="150" height="150" fill="{colours[entry.group]}"/>'
            f'<text x="{MAP_WIDTH + 340}" y="{y:g}" font-size="{LABEL_SIZE}">'
            f"{escape(entry.name)} ({entry.count:,})</text>"
        )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {MAP_WIDTH + _LEGEND} {MAP_WIDTH}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{MAP_WIDTH + _LEGEND}" height="{MAP_WIDTH}" fill="#fff"/>',
            f'<g font-family="system-ui, sans-serif" fill="{ink}">',
            *drawn,
            "</g>",
            "</svg>\n",
        )
    )


def _draw_label(label: MapLabel, name: str) -> Iterable[str]:
    """Yield the name of a topic, after a line to its points if it stands apart from them."""
    y = MAP_WIDTH - label.y
    half = (measure_label(name) / 2, LABEL_SIZE * 0.6)
    edge_x = min(max(label.point_x, label.x - half[0]), label.x + half[0])
    edge_y = min(max(MAP_WIDTH - label.point_y, y - half[1]), y + half[1])
    if abs(edge_x - label.point_x) + abs(edge_y - (MAP_WIDTH - label.point_y)) > LABEL_SIZE:
        yield (
            f'<line x1="{edge_x:g}" y1="{edge_y:g}" x2="{label.point_x}" y2="{MAP_WIDTH - label.point_y}"'
            f' stroke="{read_colours()["soft"][0]}" stroke-width="12"/>'
        )
    yield (
        f'<text x="{label.x}" y="{y + LABEL_SIZE * 0.35:g}" text-anchor="middle" font-size="{LABEL_SIZE}"'
        f' font-weight="600">{escape(name)}</text>'
    )
