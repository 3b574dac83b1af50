"""A map of vectors in the plane: PaCMAP (Wang et al. 2021), and k-means for its topics. Only numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float32]
Numbers = NDArray[np.int64]
_NEIGHBOURS, _MIDDLE, _FAR = 10, 5, 20
_PHASES = (100, 100, 250)
_SEED = 20230331
_CHUNK = 2048
_ROUNDS = 12
"""Rounds of k-means."""


def arrange_points(vectors: Points, report: Callable[[float], None] = lambda _: None) -> Points:
    """Return a place in the plane for each vector; near vectors are near. ``report`` receives the share that is done.

    Three kinds of pairs pull or push: near neighbours, the second nearest of six random others, and random others.
    """
    count = len(vectors)
    if count < 2 * _NEIGHBOURS or vectors.shape[1] < 2:
        return _pad(vectors[:, :2])
    draw = np.random.default_rng(_SEED)
    near = find_neighbours(vectors, _NEIGHBOURS)
    report(0.2)
    pairs = (near, _draw_middle(vectors, draw), draw.integers(0, count, (count, _FAR)))
    centred = vectors - vectors.mean(axis=0)
    places = centred @ np.linalg.eigh(centred.T @ centred)[1][:, -2:]
    places = (0.01 * places / (places.std(axis=0) + 1e-9)).astype(np.float32)
    first, second = np.zeros_like(places), np.zeros_like(places)
    steps = sum(_PHASES)
    for step in range(steps):
        slope = np.zeros_like(places)
        for kind, (others, weight) in enumerate(zip(pairs, _weigh(step), strict=True)):
            if weight:
                _pull(places, others, kind, weight, slope)
        first += 0.1 * (slope - first)
        second += 0.001 * (slope**2 - second)
        rate = np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        places -= rate * first / (np.sqrt(second) + 1e-7)
        if step % 10 == 9:
            report(0.2 + 0.8 * (step + 1) / steps)
    return places


def _pad(vectors: Points) -> Points:
    """Return two numbers for each vector, with zeros for those that are missing."""
    padded = np.zeros((len(vectors), 2), np.float32)
    padded[:, : vectors.shape[1]] = vectors
    return padded


def _weigh(step: int) -> tuple[float, float, float]:
    """Return the weights of near, middle and far pairs at a step."""
    if step < _PHASES[0]:
        done = step / _PHASES[0]
        return 2.0, 1000 * (1 - done) + 3 * done, 1.0
    return (3.0, 3.0, 1.0) if step < _PHASES[0] + _PHASES[1] else (1.0, 0.0, 1.0)


def _pull(places: Points, others: Numbers, kind: int, weight: float, slope: Points) -> None:
    """Add the slope of one kind of pairs: each row of ``others`` are the partners of one point."""
    apart = places[:, None, :] - places[others]
    square = 1 + np.einsum("ijk,ijk->ij", apart, apart)
    if kind == 2:
        force = -2 / (1 + square) ** 2
    else:
        scale = (10.0, 10_000.0)[kind]
        force = 2 * scale / (scale + square) ** 2
    apart *= (weight * force)[:, :, None]
    slope += apart.sum(axis=1)
    flat = others.ravel()
    for axis in range(2):
        slope[:, axis] -= np.bincount(flat, apart[:, :, axis].ravel(), len(places)).astype(np.float32)


def _draw_middle(vectors: Points, draw: np.random.Generator) -> Numbers:
    """Return for each vector, several times, the second nearest of six random others."""
    found = np.empty((len(vectors), _MIDDLE), np.int64)
    for column in range(_MIDDLE):
        some = draw.integers(0, len(vectors), (len(vectors), 6))
        for first in range(0, len(vectors), _CHUNK):
            part = slice(first, first + _CHUNK)
            alike = np.einsum("id,ijd->ij", vectors[part], vectors[some[part]])
            second = np.argsort(-alike, axis=1)[:, 1:2]
            found[part, column] = np.take_along_axis(some[part], second, axis=1)[:, 0]
    return found


def find_neighbours(vectors: Points, count: int, cells: int | None = None) -> Numbers:
    """Return the ``count`` nearest others of each vector of length 1, looked for in the eight nearest of ``cells``."""
    total = len(vectors)
    cells = cells or max(1, min(256, total // 200))
    groups, centres = group_points(vectors, cells)
    close = np.argsort(-(centres @ centres.T), axis=1)[:, : min(8, cells)]
    members: list[Numbers] = [np.flatnonzero(groups == cell) for cell in range(cells)]
    found = np.empty((total, count), np.int64)
    for cell, mine in enumerate(members):
        pool = np.flatnonzero(np.isin(groups, close[cell]))
        if len(pool) <= count:
            pool = np.arange(total)
        for first in range(0, len(mine), _CHUNK):
            some = mine[first : first + _CHUNK]
            alike = vectors[some] @ vectors[pool].T
            alike[some[:, None] == pool[None, :]] = -2
            found[some] = pool[np.argpartition(-alike, count - 1, axis=1)[:, :count]]
    return found


def group_points(vectors: Points, count: int) -> tuple[Numbers, Points]:
    """Return the group of each vector and the centres of the groups, by k-means on a sample."""
    draw = np.random.default_rng(_SEED)
    sample = vectors[draw.permutation(len(vectors))[: max(20_000, 10 * count)]]
    centres = sample[draw.choice(len(sample), count, replace=False)].copy()
    for _ in range(_ROUNDS):
        groups = _find_nearest(sample, centres)
        for group in range(count):
            inside = sample[groups == group]
            if len(inside):
                centres[group] = inside.mean(axis=0)
    return _find_nearest(vectors, centres), centres


def _find_nearest(vectors: Points, centres: Points) -> Numbers:
    offset = (centres**2).sum(axis=1) / 2
    return np.concatenate(
        [
            np.argmax(vectors[first : first + _CHUNK] @ centres.T - offset, axis=1)
            for first in range(0, len(vectors), _CHUNK)
        ]
        or [np.empty(0, np.int64)]
    )
