"""Makes items of the paper in a folder: their runs, what is measured on them, the report and the manifest."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from math import ceil
from pathlib import Path
from typing import Any

from bactrian import __version__
from bactrian.api.run_report import list_settings
from bactrian.api.solution_comparison import RunSeries
from bactrian.errors import BactrianError, InputError, MissingExtra, explain_os_errors
from bactrian.evaluate.comparison import write_page
from bactrian.evaluate.question_sets import list_conversations
from bactrian.figures.chart import PAGE, Chart, Point, Series, write_charts
from bactrian.files.atomic import write_atomically
from bactrian.models.local.weights import find_cache_folder
from bactrian.models.open import find_traits
from bactrian.options import GenerateOptions, SpendingOptions
from bactrian.records.text import to_json, write_count
from bactrian.reproduce.items import PaperItem, load_paper_items
from bactrian.runs.forecast import Forecast, forecast_run, list_asked
from bactrian.runs.wiring import RunOrder
from bactrian.stats.intervals import FEW
from bactrian.store import open_store
from bactrian.train.training import OnEvent, TrainOrder
from bactrian.train.training_folder import list_stage_folders
from bactrian.train.training_recipe import DataSource

Json = dict[str, Any]
PAPER = "arXiv:2303.17760"
REPORT, MANIFEST = "report.json", "manifest.json"
_MARK = "reproduction.json"  # Says that a folder is of this command
_FEW = 30  # Observations below which an interval is too wide to tell most differences


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of the paper beside the one that was made here."""

    label: str
    value: float | None  # A share from 0 to 1, or a number; None if it is not known
    low: float | None = None  # The ends of the 95 % interval
    high: float | None = None
    n: int | None = None  # Observations
    paper: float | None = None
    share: bool = True


@dataclass(slots=True)
class ItemPart:
    """What one step of an item has measured."""

    title: str
    measures: list[Measure] = field(default_factory=list[Measure])
    notes: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])
    # Prompts and turns, with titles
    texts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    picture: str = ""  # A map, as SVG
    # Pictures by an agent: name, and data URL
    drawn: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    failure: str = ""  # Why nothing could be measured


@dataclass(frozen=True, slots=True)
class ReproductionOrder:
    """Where items are made, by which models, and how large."""

    folder: Path
    model: str
    judge: str
    extractor: str
    scale: float = 1.0
    seed: int = 10
    pdf: bool = False
    run_code: bool = False  # True to let an embodied agent run what it writes, in the sandbox

    @property
    def models(self) -> tuple[str, ...]:
        """The models, each once."""
        return tuple(dict.fromkeys((self.model, self.extractor, self.judge)))

    def shrink(self, size: int) -> int:
        """Return a size at this scale, at least one."""
        return max(1, ceil(round(size * self.scale, 6)))


def check_folder(folder: Path) -> None:
    """Check that a folder is new, empty or that of a reproduction; hidden files do not count.

    Raises:
        InputError: it is none of these, or cannot be read.
    """
    with _explain_folder(folder):
        foreign = folder.iterdir() if folder.exists() and not (folder / _MARK).exists() else ()
        if any(not path.name.startswith(".") for path in foreign):
            raise InputError(
                "This folder has files, and no reproduction of the paper made them.",
                where=str(folder),
                next="Name another folder, which may be new.",
            )


def begin_folder(folder: Path) -> None:
    """Make the folder of a reproduction, and mark it as such. Raises InputError if it cannot be written."""
    with _explain_folder(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _MARK).exists():
            with write_atomically(folder / _MARK, overwrite=True) as stage:
                (stage / _MARK).write_text(to_json({"paper": PAPER, "bactrian": __version__}), "utf-8")


def _explain_folder(folder: Path) -> AbstractContextManager[None]:
    return explain_os_errors("This folder cannot be used", folder, "Name another folder, which may be new.")


@dataclass(slots=True)
class Workshop:
    """What the steps of an item share: the runs of the folder, the limits on all of them, and the files used."""

    order: ReproductionOrder
    """Where items are made, by which models, and how large."""
    series: RunSeries
    """The limits on all runs; one with a forecast runs nothing."""
    spending: SpendingOptions
    """How models are asked."""
    on_training: OnEvent | None = None
    """Receives the events of trainings."""
    tell: Callable[[str], None] = lambda _: None
    """Receives what is being done where no model is asked."""
    needs: Needs | None = None
    """Counts what is needed, for a forecast."""
    used: dict[Path, str] = field(default_factory=dict[Path, str])
    """Runs that were made or read, with their titles."""
    asked: dict[Path, frozenset[str]] = field(default_factory=dict[Path, frozenset[str]])
    """Of runs of conversations, those that an item has at this scale; a larger item may have made more."""

    async def converse(self, name: str, sessions: int) -> Path:
        """Play as many conversations of a shared run as an item needs at this scale, and return the run."""
        spec, path = load_paper_items().runs[name], self.order.folder / f"{name}.db"
        recipe, count = spec.load(), self.order.shrink(sessions)
        jobs: GenerateOptions = {"run_code": self.order.run_code or self.series.forecast is not None}
        if count < recipe.size:
            jobs["sample"] = count
        if length := self.spending.get("reply_length"):
            jobs["parameters"] = {"max_tokens": length}
        if spec.origin:
            jobs |= {"origin": self.order.folder / f"{spec.origin}.db", "keep_tasks": True}
        order = await self.series.run(spec.title, recipe, path, {"": self.order.model}, jobs=jobs)
        if self.series.forecast is None:
            self.asked[path] = await list_asked(order)
        self.used[path] = spec.title
        return path

    async def choose_data(self, runs: Sequence[str], sessions: int) -> list[DataSource]:
        """Play what a stage of a training learns from, and return those conversations, without a larger item's."""
        paths = [await self.converse(name, sessions) for name in runs]
        asked = [sorted(self.asked.get(path, ())) for path in paths]
        return [
            DataSource(path=str(path), sessions=tuple(ids)) for path, ids in zip(paths, asked, strict=True)
        ]

    @contextmanager
    def choose_options(self, **options: Any) -> Generator[None]:
        """Change some of the options of evaluations in the context."""
        before = self.series.options
        self.series.options = {**before, **options}
        try:
            yield
        finally:
            self.series.options = before

    def forecast_training(self, order: TrainOrder, conversations: Sequence[int]) -> None:
        """Count the time of a training on so many conversations in each of its stages, as far as it is not done."""
        if self.needs is not None:
            self.needs.trainings[order.out] = guess_training(order, conversations)

    async def count_ended(self, run: Path) -> int:
        """Return how many conversations of a run have ended; none of a run that is not begun."""
        with suppress(BactrianError):
            return len(await list_conversations(run))
        return 0


# The report and the manifest.


async def describe_run(path: Path, title: str, folder: Path) -> Json:
    """Return how a run was made, as JSON: recipe, models, prompts by hash, seed and versions.

    The path of a model begins at ``folder`` or at the cache folder, so that the manifest is the same elsewhere.
    """
    places = (f"{folder}/", f"{find_cache_folder()}/")
    async with open_store(path, read_only=True) as store:
        commands, content = await store.commands(), await store.recipe() or {}
        prompts = await store.list_prompts()
    hashes = {(name, digest) for name, digest, _ in prompts}
    hashes |= {("engine", digest) for *_, digest in prompts if digest}
    recipe = content.get("recipe", {})
    return {
        "title": title,
        "run": path.name,
        "recipe": recipe.get("name"),
        "settings": list_settings(recipe),
        "models": {
            agent: reduce(lambda text, place: text.replace(place, ""), places, str(name))
            for agent, name in content.get("models", {}).items()
        },
        "prompts": [{"name": name, "hash": digest} for name, digest in sorted(hashes)],
        "seed": content.get("seed"),
        "plan_sha256": hashlib.sha256(to_json(content).encode()).hexdigest(),
        "versions": list(dict.fromkeys(command.version for command in commands)),
    }


async def build_manifest(
    item: PaperItem, order: ReproductionOrder, used: Mapping[Path, str], command: str
) -> Json:
    """Return all that a reader needs to repeat an item."""
    return {
        "item": item.name,
        "paper": PAPER,
        "command": command,
        "scale": order.scale,
        "seed": order.seed,
        "models": {"agents": order.model, "extractor": order.extractor, "judge": order.judge},
        "bactrian": __version__,
        "python": platform.python_version(),
        "system": f"{sys.platform} {platform.machine()}",
        "runs": [
            await describe_run(path, title, order.folder) for path, title in used.items() if path.exists()
        ],
    }


def explain_meaning(item: PaperItem, order: ReproductionOrder, parts: Sequence[ItemPart]) -> Iterator[str]:
    """Yield what the numbers of a report can and cannot mean."""
    counts = [measure.n for part in parts for measure in part.measures if measure.n is not None]
    if not counts:
        return
    if any(find_traits(name).small for name in order.models):
        yield (
            "The built-in model has 135 million parameters and is far weaker than the paper's. Its numbers show that "
            "each step works; they say nothing for or against the paper's claims."
        )
    elif any(name.startswith("scripted:") for name in order.models):
        yield "The replies are from a script: they show that each step works, and nothing about a model."
    else:
        yield "The paper used gpt-3.5-turbo and GPT-4 of 2023, which no longer exist: other models give other numbers."
    if item.is_judged and order.judge == order.model:
        yield "The judge is the model that it judges: it may prefer its own words."
    if min(counts) < _FEW:
        advice = ": compare the intervals, not the values."
        if min(counts) < FEW:
            advice = ", too few for an interval: a larger --scale gives more."
        yield f"Some numbers are from {write_count(min(counts), 'observation')}{advice}"


def write_item(item: PaperItem, order: ReproductionOrder, parts: Sequence[ItemPart], manifest: Json) -> Json:
    """Write the report of an item as a page and as JSON, and its manifest; return the report.

    Raises:
        InputError: a file cannot be written.
    """
    folder = order.folder / item.name
    with _explain_folder(folder):
        folder.mkdir(parents=True, exist_ok=True)
        figures = _draw_figures(item, parts, folder)
    report: Json = {
        **item.model_dump(include={"name", "title", "section", "paper", "differs"}),
        "label": item.label,
        "scale": order.scale,
        "models": list(order.models),
        "meaning": list(explain_meaning(item, order, parts)),
        "parts": [asdict(part) for part in parts],
        "figures": figures,
        "manifest": manifest,
    }
    for suffix in (".html", ".pdf") if order.pdf else (".html",):
        write_page(folder / f"report{suffix}", "reproduction.html.j2", report)
    for name, content in (
        (MANIFEST, manifest),
        (REPORT, report),
    ):  # the report last: it says that the item is made
        with write_atomically(folder / name, overwrite=True) as stage:
            (stage / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")
    return report


def _draw_figures(item: PaperItem, parts: Sequence[ItemPart], folder: Path) -> list[str]:
    """Write the charts and maps of an item as files, and return each as SVG for its page."""
    pictures = [part.picture for part in parts if part.picture]
    for number, picture in enumerate(pictures, start=1):
        (folder / f"{item.name}-map-{number}.svg").write_text(picture, "utf-8")
    if (chart := build_chart(item, parts)) is not None:
        with suppress(MissingExtra):
            write_charts([chart], folder, PAGE)
            drawn = (folder / f"{chart.name}.svg").read_text("utf-8")
            pictures.append(drawn[drawn.index("<svg") :])
    return pictures


def build_chart(item: PaperItem, parts: Sequence[ItemPart]) -> Chart | None:
    """Return the chart of the shares of an item, the paper's beside those made here; None without a share.

    An item may name a measure instead, which is then compared between its parts.
    """
    caption = f"{item.label} of {PAPER}. Lines are 95 % intervals."
    if item.chart:
        compared: list[Point] = [
            (place, of.value, of.low, of.high)
            for place, part in enumerate(parts)
            for of in part.measures
            if of.label == item.chart and of.value is not None
        ]
        titles = [part.title for part in parts]
        return Chart(
            item.name, item.title, item.chart, "", [Series(item.chart, compared)], caption, "rates", titles
        )
    shown = [(part, [of for of in part.measures if of.share]) for part in parts if not part.picture]
    labels = list(dict.fromkeys(of.label for _, measures in shown for of in measures))
    series: list[Series] = []
    for part, measures in shown:
        here: list[Point] = [
            (labels.index(of.label), of.value, of.low, of.high) for of in measures if of.value is not None
        ]
        printed: list[Point] = [
            (labels.index(of.label), of.paper, None, None) for of in measures if of.paper is not None
        ]
        title, _, judge = part.title.partition("; paper: ")
        paper = f"{title.partition(', ')[0]}: paper, {judge}" if judge else f"{title}: paper"
        name = f"{title}: here" if printed else title
        series += [Series(who, of) for who, of in ((name, here), (paper, printed)) if of]
    if not series:
        return None
    return Chart(item.name, item.title, "share", "", series, caption, "rates", labels, shares=True)


def read_state(folder: Path, item: PaperItem) -> str:
    """Return what of an item is in a folder: ``made at scale …``, ``begun`` or nothing."""
    try:
        report = json.loads((folder / item.name / REPORT).read_text("utf-8"))
        failed = " in part" if has_failed(report) else ""
        return f"made{failed} at scale {report['scale']:g} by {report['models'][0]}"
    except (OSError, ValueError, LookupError, TypeError):  # a file that is not ours
        return "begun" if (folder / item.name).exists() else ""


def has_failed(report: Json) -> bool:
    """Return True if a part of a report could not be measured."""
    return any(part["failure"] for part in report["parts"])


# The forecast.


@dataclass(slots=True)
class Needs:
    """What items need, by run: a run that several items share counts once, at its largest."""

    runs: dict[Path, Forecast] = field(default_factory=dict[Path, Forecast])
    trainings: dict[Path, float] = field(default_factory=dict[Path, float])  # Seconds, by folder

    async def add(self, order: RunOrder, title: str) -> None:  # noqa: ARG002 - as a forecast function is called
        """Count the rest of a run."""
        self.merge(Needs({order.run: await forecast_run(order)}))

    def merge(self, other: Needs) -> None:
        """Count the runs of another item."""
        for run, forecast in other.runs.items():
            self.runs[run] = max(self.runs.get(run, forecast), forecast, key=lambda of: of.calls.value)
        self.trainings |= other.trainings

    def add_up(self) -> Forecast | None:
        """Return the forecast of all runs together; None if no model is asked."""
        asking = [forecast for forecast in self.runs.values() if forecast.calls.value]
        if not asking:
            return None
        models, training = reduce(Forecast.plus, asking), sum(self.trainings.values())
        return replace(models, seconds=models.seconds.plus(training, training, 2 * training))


# Measured on two cores with the built-in model: tokens that are learned a second, those of a conversation with its
# prompts, and the seconds of a stage's begin and end, in which its model is read, written and checked.
_LEARNED_A_SECOND, _LEARNED, _STAGE_SECONDS = 140.0, 1000, 25.0


def guess_training(order: TrainOrder, conversations: Sequence[int]) -> float:
    """Return the seconds that a training of the built-in model will take, with so many conversations in each stage."""
    recipe = order.read_recipe()
    stages = list_stage_folders(order.out, [stage.name for stage in recipe.stages])[1:]
    seconds, seen = 0.0, 0
    for folder, count in zip(stages, conversations, strict=True):
        seen = seen + count if recipe.origin == "union" else count
        if not folder.is_complete:
            seconds += _STAGE_SECONDS + seen * _LEARNED * recipe.training.epochs / _LEARNED_A_SECOND
    return seconds
