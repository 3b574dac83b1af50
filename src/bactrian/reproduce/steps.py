"""The steps of the paper's items: each makes what it needs, and returns what it has measured."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from mimetypes import guess_type
from pathlib import Path
from typing import Any, cast

from bactrian.analyze.aggregate import measure
from bactrian.analyze.behaviours import LIKELY
from bactrian.analyze.learned import PAPER
from bactrian.analyze.report import build_report
from bactrian.api.map_texts import MAP_TEXTS, draw_topics, make_map
from bactrian.api.measurements import SampleOrder, choose_problems, compare_stages, find_stages, measure_code
from bactrian.api.solution_comparison import compare_role_plays, guess_comparison, run_comparison
from bactrian.api.status import describe_usage
from bactrian.evaluate.comparison import OUTCOMES, NoVerdict, load_paper
from bactrian.evaluate.known_answers import StageModel
from bactrian.evaluate.question_sets import EXAMPLES, SETS, load_questions
from bactrian.evaluate.votes import read_tally
from bactrian.models.open import ModelOptions, find_traits
from bactrian.options import ScoreOptions
from bactrian.protocol.pack import load_engine_prompts, load_pack
from bactrian.recipes.load import load_recipe
from bactrian.records.run import Finding
from bactrian.records.text import write_count
from bactrian.reproduce.items import Action, ItemStep, PaperItem, PaperTraining, load_paper_items
from bactrian.reproduce.reproduction import (
    ItemPart,
    Measure,
    ReproductionOrder,
    Workshop,
    build_manifest,
    write_item,
)
from bactrian.store import open_store
from bactrian.store.locations import name_files_folder
from bactrian.train.training import TrainOrder, check_libraries, train_recipe
from bactrian.train.training_recipe import load_train_recipe

Json = dict[str, Any]
_LONGEST = 600  # Characters of a turn that a report shows
_BOTH = 0.75  # Power of the scale by which both the problems of HumanEval and their samples shrink
# Makes a step of the item of this name. A forecast runs nothing and returns no part.
StepFunction = Callable[[ItemStep, str, Workshop], Awaitable[Sequence[ItemPart]]]


async def make_item(item: PaperItem, workshop: Workshop, command: str = "") -> Json | None:
    """Make an item, and return its report, which tells the ``command``; None for a forecast.

    Raises:
        BactrianError: it cannot go on; all results so far are stored.
    """
    parts: list[ItemPart] = []
    workshop.used.clear()
    for step in item.steps:
        parts += await STEPS[step.do](step, item.name, workshop)
    if workshop.series.forecast is not None:
        return None
    order: ReproductionOrder = workshop.order
    return write_item(item, order, parts, await build_manifest(item, order, workshop.used, command))


# Solutions beside each other: tables 1, 8 and 9.


async def _compare(step: ItemStep, name: str, workshop: Workshop) -> Sequence[ItemPart]:
    order, series = workshop.order, workshop.series
    run, count = await workshop.converse(step.run, step.tasks), order.shrink(step.tasks)
    folder = order.folder / name / f"{step.run}-{count}"
    against: Path | None = None
    ways = ("extraction", step.other)
    if step.other in load_paper_items().runs:
        ways, against = ("extraction", "against"), await workshop.converse(step.other, step.tasks)
    ended = [await workshop.count_ended(path) for path in (run, against) if path is not None]
    if series.forecast is not None and min(ended) < count:
        guess = guess_comparison(folder, ways, count, order.model, order.extractor)
        await run_comparison(guess, [order.judge], series)
        return ()
    spec = load_paper_items().runs[step.run]
    # The built-in model's solutions are short by its window: most are cut, and a warning says so.
    cut = series.options["judge_cut"] or any(find_traits(name).small for name in order.models)
    try:
        with workshop.choose_options(tasks=count, out=folder, against=against, judge_cut=cut):
            compared = await compare_role_plays(
                run, [order.judge], series, order.model, order.extractor, ways, workshop.asked.get(run)
            )
    except NoVerdict as error:
        return [ItemPart(spec.title, failure=f"{error.what} {error.next}")]
    finally:
        for path in sorted(folder.glob("*.db")):
            workshop.used[path] = f"{spec.title}: {path.stem}"
    if compared.report is None:
        return ()
    report = compared.report
    titles = {**report["titles"], **step.titles}
    parts = [_describe_pair(pair, titles, spec.title) for pair in report["comparisons"]]
    parts[0].warnings = report["warnings"]
    for part in parts:  # What a report calls by the names of runs is called as in the paper here.
        for way, title in step.titles.items():
            part.notes = [line.replace(report["titles"][way], title) for line in part.notes]
            part.warnings = [line.replace(report["titles"][way], title) for line in part.warnings]
    tally = await read_tally(folder)
    if tally["votes"]:
        parts.append(_describe_votes(tally, spec.title))
    return parts


def _describe_pair(pair: Json, titles: Mapping[str, str], data: str) -> ItemPart:
    first, second = (titles[way] for way in pair["pair"])
    paper = next(iter(pair["paper"]), None)
    judge = f"; paper: {paper['judge']}" if paper else ""
    n = sum(pair["counts"][outcome] for outcome in OUTCOMES)
    if not n:
        return ItemPart(
            f"{data}, judge {pair['judge']}", failure=_explain_unread(pair["judge"], pair["replies"])
        )
    measures = _list_outcomes(pair["shares"], n, paper, f"{second} wins", f"{first} wins")
    return ItemPart(f"{data}, judge {pair['judge']}{judge}", measures, [pair["verdict"]])


def _explain_unread(judge: str, replies: int) -> str:
    return (
        f"No verdict of {judge} could be read: {replies:,} replies without two scores. Name another --judge."
    )


def _describe_votes(tally: Json, data: str) -> ItemPart:
    paper = next(iter(tally["paper"]), None)
    measures = _list_outcomes(tally["pooled"], tally["votes"], paper, "Other wins", "Role-play wins")
    voters = write_count(tally["voters"], "voter")
    return ItemPart(f"{data}, {voters}" + ("; paper: people" if paper else ""), measures)


def _list_outcomes(shares: Json, n: int, paper: Json | None, loss: str, win: str) -> list[Measure]:
    """Return the shares of draws, losses and wins, each with the paper's."""
    measures: list[Measure] = []
    for outcome, label in zip(OUTCOMES, ("draw", loss, win), strict=True):
        printed = None if paper is None else float(paper[outcome]) / 100
        of = shares[outcome]
        measures.append(Measure(label, of["value"], of["low"], of["high"], n, printed))
    return measures


# What happens in conversations: figures 1, 7 to 10, 16, 18 and 19.


async def _measure_runs(step: ItemStep, workshop: Workshop) -> AsyncIterator[tuple[str, Json, list[Finding]]]:
    """Play the runs of a step, and yield for each its title, its report and its findings; a forecast yields nothing.

    Of runs on the same tasks, the tasks count that all of them have.
    """
    specs = load_paper_items().runs
    paths = {name: await workshop.converse(name, step.sessions) for name in step.runs}
    if workshop.series.forecast is not None:
        return
    counted = {name: workshop.asked[path] for name, path in paths.items()}
    if any(specs[name].origin for name in step.runs):
        first, *others = counted.values()
        counted = dict.fromkeys(counted, first.intersection(*others))
    for name, path in paths.items():
        title = step.titles.get(name, specs[name].title)
        workshop.tell(f"{title}: conversations are being measured")
        findings: list[Finding] = []
        async with open_store(path, read_only=True) as store:
            part = await measure(store, findings.extend, only=counted[name])
            report = build_report(name, part, await describe_usage(store))
        yield title, report, findings


async def _count_endings(step: ItemStep, _name: str, workshop: Workshop) -> Sequence[ItemPart]:
    parts: list[ItemPart] = []
    async for title, report, _ in _measure_runs(step, workshop):
        endings = report["endings"].items()
        n = report["sessions"] - report["open"]
        parts.append(ItemPart(title, [_read_share(code.replace("_", " "), of, n) for code, of in endings]))
    return parts


async def _count_flakes(step: ItemStep, _name: str, workshop: Workshop) -> Sequence[ItemPart]:
    parts: list[ItemPart] = []
    async for title, report, findings in _measure_runs(step, workshop):
        of, n = report["behaviours"]["flake_reply"], report["sessions"]
        mean = of["per_session"]
        flakes = sum(each.behaviour == "flake_reply" and each.confidence >= LIKELY for each in findings)
        parts.append(
            ItemPart(
                title,
                [
                    Measure("flake messages", flakes, n=n, share=False),
                    Measure(
                        "flake messages a conversation",
                        mean["mean"],
                        mean["low"],
                        mean["high"],
                        n,
                        share=False,
                    ),
                    _read_share("conversations with one", of, n),
                ],
            )
        )
    return parts


async def _show_behaviours(step: ItemStep, _name: str, workshop: Workshop) -> Sequence[ItemPart]:
    parts: list[ItemPart] = []
    async for title, report, findings in _measure_runs(step, workshop):
        part = ItemPart(title)
        for code in PAPER:
            part.measures.append(
                _read_share(code.replace("_", " "), report["behaviours"][code], report["sessions"])
            )
            sure = (each for each in findings if each.behaviour == code and each.confidence >= LIKELY)
            quote = next(sure, None)
            if quote is not None:
                where = f"{code.replace('_', ' ')}: session {quote.session}, turn {quote.turn}"
                part.texts.append((where, _shorten(quote.quote)))
        parts.append(part)
    return parts


def _read_share(label: str, of: Json, n: int) -> Measure:
    return Measure(label, of["rate"], of["low"], of["high"], n)


async def _show_conversation(step: ItemStep, _name: str, workshop: Workshop) -> Sequence[ItemPart]:
    parts: list[ItemPart] = []
    for name in step.runs:
        path = await workshop.converse(name, step.sessions)
        if workshop.series.forecast is not None:
            continue
        async with open_store(path, read_only=True) as store:
            sessions = [session async for session in store.sessions()]
        for session in sessions:  # one, or one for each stage
            ending = session.ending.code.replace("_", " ") if session.ending else "unfinished"
            part = ItemPart(load_paper_items().runs[name].title, notes=[f"Ending: {ending}."])
            part.measures.append(Measure("messages", len(session.turns), n=1, share=False))
            if step.acts:
                blocks = sum(len(turn.uses) for turn in session.turns)
                part.measures.append(Measure("blocks of code that were run", blocks, n=1, share=False))
                part.drawn = _read_pictures(name_files_folder(path, session.id))
                part.measures.append(Measure("pictures", len(part.drawn), n=1, share=False))
                if not blocks:
                    part.notes.append("The model wrote no code, so nothing was drawn.")
            part.texts.append(("Task", str(session.task.text)))
            part.texts += [(f"{turn.number} {turn.role}", _shorten(turn.text)) for turn in session.turns]
            parts.append(part)
    return parts


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _read_pictures(folder: Path) -> list[tuple[str, str]]:
    """Return the pictures in a folder, each with its name and as a data URL, in which a page runs no script."""
    kinds = ((path, guess_type(path.name)[0] or "") for path in sorted(folder.glob("*")))
    return [
        (path.name, f"data:{kind};base64,{b64encode(path.read_bytes()).decode()}")
        for path, kind in kinds
        if kind.startswith("image/")
    ]


# Maps: figures 11 to 14.


async def _draw_map(step: ItemStep, _name: str, workshop: Workshop) -> Sequence[ItemPart]:
    path = await workshop.converse(step.run, step.sessions)
    if workshop.series.forecast is not None:
        return ()
    title = f"{load_paper_items().runs[step.run].title}: {MAP_TEXTS[step.texts].lower()}"

    def tell(what: str) -> None:
        workshop.tell(f"{title}: {what}")

    texts, made = await make_map([path], step.texts, tell, workshop.asked[path])
    sizes = Counter(made.topics)
    picture = draw_topics(made, title)
    measures = [
        Measure(made.names[topic], sizes[topic] / len(texts), n=len(texts)) for topic in sorted(sizes)
    ]
    return [ItemPart(title, measures, picture=picture)]


# Models: tables 2 and 3.


async def _score_code(step: ItemStep, name: str, workshop: Workshop) -> Sequence[ItemPart]:
    order, series = workshop.order, workshop.series
    problems = len(choose_problems({}))
    # Both get smaller, and so does their product.
    shrunk = replace(order, scale=min(1.0, order.scale**_BOTH))
    path = order.folder / f"{name}-{shrunk.shrink(problems)}x{shrunk.shrink(step.samples)}.db"
    limits = cast("ScoreOptions", {**workshop.spending, **series.find_left(path)})
    limits["limit"] = shrunk.shrink(problems)
    if find_traits(order.model).small:
        limits["reply_length"] = step.reply_length
    asked = SampleOrder(
        order.model, path, shrunk.shrink(step.samples), step.temperatures, series.follow, series.forecast
    )
    if series.forecast is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    measured = await measure_code(asked, None, limits)
    if measured.score is None:
        return ()
    workshop.used[path] = "Samples of HumanEval"
    score = measured.score
    part = ItemPart(f"{order.model}: {score.problems} of {score.whole} problems")
    for temperature, passes in (score.by_temperature or {"": score.passes}).items():
        part.measures += [
            Measure(f"pass@{of.k}, temperature {temperature}", of.value, of.low, of.high, score.problems)
            for of in passes
        ]
    return [part]


async def _judge_stages(step: ItemStep, name: str, workshop: Workshop) -> Sequence[ItemPart]:
    order, series = workshop.order, workshop.series
    if series.forecast is None:
        check_libraries()  # before conversations are paid for that nothing could be trained on
    models: dict[str, StageModel] = {}
    for folder, training in step.trainings.items():
        models |= await _train(training, folder, step, name, workshop)
    limit = None if order.scale >= 1 else order.shrink(step.tasks)
    out = order.folder / name / f"questions-{limit or 'all'}"
    try:
        # Answers are judged although they are cut, as for every model on this computer.
        judge_length = step.reply_length if find_traits(order.judge).small else None
        with workshop.choose_options(judge_cut=True, judge_reply_length=judge_length):
            compared = await compare_stages(
                tuple(models.values()),
                step.questions,
                [order.judge],
                series,
                out=out,
                limit=limit,
                pairs=step.pairs,
                tell=workshop.tell,
                longest=step.reply_length,
            )
    except NoVerdict as error:
        return [ItemPart("Stages", failure=f"{error.what} {error.next}")]
    for path in sorted(out.glob("*/*.db")):
        workshop.used[path] = f"{path.parent.name}: {path.stem}"
    parts: list[ItemPart] = []
    for row in (compared.report or {"rows": ()})["rows"]:
        n = sum(row[key] for key in ("draw", "first_wins", "second_wins"))
        of = row["second_rate"]
        part = ItemPart(f"{row['questions']}: {row['first']} and {row['second']}")
        if not n:
            part.failure = _explain_unread(row["judge"], 2 * row["unreadable"])
        if row["paper"]:
            part.notes.append(
                "The paper (draw/first/second): {draw}/{first_wins}/{second_wins}.".format(**row["paper"])
            )
        part.notes += [
            "Here (draw/first/second): {draw}/{first_wins}/{second_wins}.".format(**row),
            row["verdict"],
        ]
        if n:
            part.measures.append(Measure("second's win rate", of["value"], of["low"], of["high"], n))
        parts.append(part)
    if compared.report is not None:
        parts[0].warnings = compared.report["warnings"]
    return parts


async def _train(
    training: PaperTraining, name: str, step: ItemStep, item: str, workshop: Workshop
) -> dict[str, StageModel]:
    """Play what a training learns from, train its stages, and return those to compare; a forecast trains nothing."""
    order, stages = workshop.order, training.stages.items()
    data = {stage: await workshop.choose_data(runs, step.sessions) for stage, runs in stages}
    sizes = [len(runs) * order.shrink(step.sessions) for _, runs in stages]
    folder = order.folder / item / f"{name}-{order.shrink(step.sessions)}"
    # A whole training has the paper's epochs; a small one is to show that it works.
    epochs = ("epochs=3",) if order.scale >= 1 else ("epochs=1",)
    command = TrainOrder(training.recipe, folder, data, (*training.settings, *epochs))
    if workshop.series.forecast is not None:
        workshop.forecast_training(command, sizes)
        return {model: StageModel(model, "local") for model in training.models}
    folder.parent.mkdir(parents=True, exist_ok=True)
    await train_recipe(command, workshop.on_training)
    trained = {stage.name: stage.model for stage in find_stages([str(folder)], ModelOptions())}
    labels = load_paper()["models"]
    return {
        model: StageModel(model, trained[stage], labels.get(model, ""))
        for model, stage in training.models.items()
    }


# What needs no model: prompts, settings, questions, and what another program measures.


async def _show_prompts(step: ItemStep, _name: str, workshop: Workshop) -> Sequence[ItemPart]:  # noqa: ARG001
    part = ItemPart(f"Prompt pack {step.pack}" if step.pack else "Prompts")
    if step.pack:
        pack = load_pack(step.pack)
        part.notes.append(f"SHA-256 of the pack: {pack.hash}")
        part.texts += [(name, pack.templates[name]) for name in step.templates]
    part.texts += [(name, load_engine_prompts().templates[name]) for name in step.engine]
    if step.recipe:
        recipe = load_recipe(step.recipe)
        part.title = f"Recipe {step.recipe}"
        part.texts += [(f"{axis.count} of {axis.name}", axis.ask) for axis in recipe.axes if axis.ask]
        part.texts += [(key, of) for key, of in recipe.job if key in ("system", "question")]
    return [part]


async def _show_settings(step: ItemStep, _name: str, workshop: Workshop) -> Sequence[ItemPart]:  # noqa: ARG001
    training = load_train_recipe(step.recipe).training
    here: Json = training.model_dump()
    here["accumulation"] = training.batch / (training.per_device * training.devices)
    measures = [
        Measure(name.replace("_", " "), float(here[name]), paper=value, share=False)
        for name, value in step.printed.items()
    ]
    notes = [
        f"bactrian train {step.recipe} --show",
        f"precision {training.precision}, schedule {training.schedule}",
    ]
    return [ItemPart(f"Recipe {step.recipe}", measures, notes)]


async def _show_questions(step: ItemStep, _name: str, workshop: Workshop) -> Sequence[ItemPart]:  # noqa: ARG001
    sets = [load_questions(name) for name in SETS]
    return [
        ItemPart(
            f"{len(of.questions)} questions: {of.name}",
            texts=[("", text) for text in of.questions[:EXAMPLES]],
        )
        for of in sets
    ]


async def _show_printed(step: ItemStep, _name: str, workshop: Workshop) -> Sequence[ItemPart]:  # noqa: ARG001
    scale = 100 if step.share else 1
    measures = [
        Measure(name, None, paper=value / scale, share=step.share) for name, value in step.printed.items()
    ]
    return [ItemPart("The paper's numbers", measures, list(step.commands))]


STEPS: Mapping[Action, StepFunction] = {
    "behaviours": _show_behaviours,
    "compare": _compare,
    "converse": _show_conversation,
    "elsewhere": _show_printed,
    "endings": _count_endings,
    "flakes": _count_flakes,
    "humaneval": _score_code,
    "map": _draw_map,
    "prompts": _show_prompts,
    "questions": _show_questions,
    "settings": _show_settings,
    "stages": _judge_stages,
}
