"""Runs jobs that ask a model for one solution of a programming problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from bactrian.evaluate.problems.problem import Problem
from bactrian.generate.jobs.answer import AnswerJobs, AnswerPlayer
from bactrian.generate.jobs.base import JobContext
from bactrian.generate.scheduler import Job
from bactrian.prompts.engine import render_prompt
from bactrian.recipes.job_specs import Answer
from bactrian.recipes.registry import find_recipe_model
from bactrian.recipes.schema import Recipe
from bactrian.records.session import Session


class Completion(Answer):
    """Each job is one solution of a problem. The axes are problem, temperature and sample."""

    key: ClassVar[str] = "completion"


class CompletionJobs(AnswerJobs):
    """Runs jobs that ask for one solution."""

    spec = Completion

    async def open(self, context: JobContext) -> AnswerPlayer:
        """Return the player of the problems."""
        return CompletionPlayer(self.plan, self.job, context)


class CompletionPlayer(AnswerPlayer):
    """Asks for one solution, at the temperature of its job."""

    def _session(self, job: Job) -> Session:
        session = super()._session(job)
        sampling = session.provenance.sampling["assistant"]
        temperature = float(job.values["temperature"])
        asked = {"assistant": replace(sampling, temperature=temperature)}
        return replace(session, provenance=replace(session.provenance, sampling=asked))


def build_recipe(
    name: str, problems: Sequence[Problem], temperatures: Sequence[float], samples: int
) -> Recipe:
    """Return the recipe that asks for ``samples`` solutions of each problem at each temperature."""
    completes = all(problem.completes for problem in problems)
    axes = {
        "problem": [problem.prompt for problem in problems],
        "temperature": [f"{temperature:g}" for temperature in temperatures],
        "sample": [str(number) for number in range(1, samples + 1)],
    }
    template = "completion_question" if completes else "solution_question"
    content = {
        "name": name,
        "description": name,
        "axes": [{"name": key, "given": items, "count": len(items)} for key, items in axes.items()],
        Completion.key: {
            "role": "Programmer",
            "system": render_prompt("completion_system"),
            "question": render_prompt(template, problem="{{ problem }}").strip(),
            "max_tokens": 1024,
        },
    }
    return find_recipe_model([Completion.key]).model_validate(content)
