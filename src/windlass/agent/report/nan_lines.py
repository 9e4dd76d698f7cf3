"""Finds a metric that is NaN or infinite in a line of output, where no metric has been named. Python 3.9."""

from __future__ import annotations

import math
import re
from typing import Optional, Tuple

# Names that mean a metric, alone or as a part: train/loss, val_acc, grad_norm.
_METRIC = (
    rb"loss|err(?:or)?|reward|return|acc(?:uracy)?|score|ppl|perplexity|nll|elbo|mse|mae|rmse|kl|entropy|grad|gradient"
    rb"|objective|cost|likelihood|log_?prob|auc|f1|bleu"
)
_NOT_FINITE = re.compile(
    rb"(?<![A-Za-z])(?P<name>[\w./-]*?(?<![A-Za-z])(?:" + _METRIC + rb")(?![A-Za-z])[\w./-]*)"
    rb"[\"']?\s*(?:[=:|]|\bis\b)?\s*[\"'(\[]*(?:tensor\(|array\()?[\[]*\s*(?P<value>[-+]?(?:nan|inf(?:inity)?))(?![\w.])",
    re.IGNORECASE,
)
_NAME = re.compile(rb"(?<![a-z])(?:" + _METRIC + rb")(?![a-z])", re.IGNORECASE)
_QUICK = re.compile(rb"nan|inf", re.IGNORECASE)
# Bounds begin at infinity: `best_loss: inf` tells only that there was no loss yet. The norm of gradients is infinite
# for some steps while mixed precision finds its scale.
_BOUND = re.compile(
    rb"(?:^|[^a-z])(?:best|min|max|lowest|highest|prev|previous|last|init|initial|grad|gradient|scale)(?:$|[^a-z])",
    re.IGNORECASE,
)


def names_metric(name: str) -> bool:
    """Whether a name is one of the usual names of metrics, or has one as a part."""
    return _NAME.search(name.encode()) is not None


def find_not_finite(line: bytes) -> Optional[Tuple[str, float]]:
    """The name and value of a metric in this line that is NaN or infinite; None where there is none."""
    if not _QUICK.search(line):
        return None
    for match in _NOT_FINITE.finditer(line):
        value = float(match.group("value"))
        before = line[max(0, match.start() - 10) : match.end("name")]
        if math.isnan(value) or not _BOUND.search(before):
            return match.group("name").decode("utf-8", "replace"), value
    return None
