"""Whether a metric is to be small or large, and how a command line names one."""

from __future__ import annotations

import re

from windlass.model import Metric

GOALS = {"minimize": "minimize", "maximize": "maximize", "min": "minimize", "max": "maximize"}
# Parts of names that mean more is better. All others, `loss` and `error` among them, are minimized.
_MORE_IS_BETTER = re.compile(
    r"acc|accuracy|auc|auroc|auprc|ap|map|f1|fscore|precision|recall|sensitivity|specificity|iou|miou|dice|jaccard|bleu"
    r"|rouge|meteor|rewards?|rew|returns?|ret|score|success|wins?|winrate|psnr|ssim|r2|elbo|likelihood|ndcg|mrr|hits|top1|top5"
    r"|throughput|fps|correct|kappa|mcc"
)
_LESS_IS_BETTER = frozenset({"loss", "error", "err", "regret"})  # also beside one of those: accuracy_error
_PART = re.compile(r"[^a-z0-9]+")


def guess_goal(name: str) -> str:
    """The goal of a metric for which none was given, by what its name says: accuracy is maximized, loss minimized."""
    parts = _PART.split(name.lower())
    if not _LESS_IS_BETTER.isdisjoint(parts):
        return "minimize"
    return "maximize" if any(_MORE_IS_BETTER.fullmatch(part) for part in parts) else "minimize"


def parse_metric(text: str) -> Metric:
    """A metric from ``name`` or ``name:goal``."""
    name, _, goal = text.rpartition(":")
    if name and goal in GOALS:
        return Metric(name, GOALS[goal])  # type: ignore[arg-type]
    return Metric(text, guess_goal(text))  # type: ignore[arg-type]
