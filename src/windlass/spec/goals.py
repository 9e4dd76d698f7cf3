"""Whether a metric is to be small or large, and how a command line names one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from windlass.model import Metric

GOALS = {"minimize": "minimize", "maximize": "maximize", "min": "minimize", "max": "maximize"}
# Parts of names that mean more is better. All others, `loss` and `error` among them, are minimized. A number at the end
# changes nothing: `acc1`, `AP50` and `rouge2` are accuracies, precisions and recalls too.
_MORE_IS_BETTER = re.compile(
    r"(?:val|valid|test|train|eval|dev|mean|avg|best|final|m|n|w|ep|log|roc|pr|bal|balanced|micro|macro|sacre)?"
    r"(?:acc|accuracy|accuracies|auc|auroc|aucroc|auprc|aupr|aucpr|ap|map|f\d|fbeta|fscore|fmeasure|precision|recall|prec"
    r"|sensitivity|specificity|tpr|tnr|iou|dice|jaccard|bleu|rouge|rougel|rougelsum|meteor|chrf|cider|rewards?|rew|returns?|ret"
    r"|scores?|success|successes|wins?|winrate|elo|psnr|ssim|snr|sdr|sisdr|stoi|pesq|mos|r2|rsquared|elbo|likelihood|loglik"
    r"|ndcg|mrr|hits?|hitrate|throughput|fps|correct|kappa|qwk|mcc|nmi|ari|ami|silhouette|purity|pearson|spearman|kendall"
    r"|corr|correlation|gain|profit|sharpe)\d*"
)
# Names of several parts, here with single spaces between them: top-1, rank_1, R^2, r-squared, exact_match.
_MORE_IN_PARTS = re.compile(
    r"\b(?:top ?(?:\d+|k)|rank ?\d+|r ?2|r squared|exact match|em|f measure|explained variance|solve rate|win rate)\b"
)
_AT = re.compile(r"(?<![a-z0-9])(?:p|r|pass|maj)@")  # R@1, P@10 and pass@1
_LESS_IS_BETTER = re.compile(  # also beside one of those: accuracy_error, brier_score, fid_score
    r"[a-z]*loss(?:es)?|[a-z]*errors?|err|regret|[rn]?mse|mae|mape|rmsle|nll|ppl|perplexity|brier|fid|kid|lpips|wer|cer"
    r"|distance|divergence|latency|\w*misses|failures?|fails?"
)
# neg_log_likelihood is minimized, neg_mean_squared_error maximized.
_NEGATED = re.compile(r"neg|negative|minus")
_PART = re.compile(r"[^a-z0-9]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # valAcc, testLoss


def guess_goal(name: str) -> str:
    """The goal of a metric for which none was given, by what its name says: accuracy is maximized, loss minimized."""
    parts = _PART.split(name.lower())
    parts += _PART.split(_CAMEL.sub(" ", name).lower())
    is_less = any(_LESS_IS_BETTER.fullmatch(part.rstrip("0123456789")) for part in parts)
    is_more = not is_less and _means_more(name.lower(), parts)
    if (is_less or is_more) and any(_NEGATED.fullmatch(part) for part in parts):
        is_more = not is_more
    return "maximize" if is_more else "minimize"


def _means_more(name: str, parts: Sequence[str]) -> bool:
    if any(_MORE_IS_BETTER.fullmatch(part) for part in parts):
        return True
    return bool(_MORE_IN_PARTS.search(" ".join(parts)) or _AT.search(name))


def parse_metric(text: str) -> Metric:
    """A metric from ``name`` or ``name:goal``."""
    name, _, goal = text.rpartition(":")
    if name and goal in GOALS:
        return Metric(name, GOALS[goal])  # type: ignore[arg-type]
    return Metric(text, guess_goal(text))  # type: ignore[arg-type]
