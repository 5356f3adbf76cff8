"""Tables of scores, with a row for each model."""

from collections.abc import Sequence
from typing import ClassVar

from keras_mhmcmc import _table

LEVELS = (50, 90, 95)  # of the intervals in a `RegressionTable`, in percent


class _ScoreTable(_table.ColumnTable):
    """Scores of models on one data set, with a row for each model."""

    _heads: ClassVar[dict[str, str]]  # what is printed above each column

    def __init__(self, rows: Sequence[_table.Row]) -> None:
        self.rows = _table.checked_rows(rows, list(self._heads))

    def _head(self, name: str) -> str:
        """Return what is printed above a column, or nothing to leave it out."""
        return self._heads.get(name, "")

    def _printed(self) -> _table.Printed:
        shown = [name for name in self.rows[0] if self._head(name)]
        lines = [["", *map(self._head, shown)]]
        for row in self.rows:
            cells = [
                str(row[name]) if name == "members" else _table.number(row[name])
                for name in shown
            ]
            lines.append([str(row["model"]), *cells])
        return _table.Printed(lines)


class EvaluationTable(_ScoreTable):
    """Scores of classifiers on one data set, with a row for each model.

    | column | holds |
    |---|---|
    | `model` | the model's name |
    | `members` | number of networks or passes whose probabilities are averaged |
    | `accuracy` | share of correct predictions |
    | `nll` | mean negative log-likelihood, in nats |
    | `brier` | Brier score, between 0 and 2 |
    | `ece` | expected calibration error, over bins of equal width |
    | `adaptive_ece` | the same over bins with equal numbers of examples |
    | `classwise_ece` | mean calibration error of the classes |
    | `aurc` | area under the risk-coverage curve |
    | `entropy` | mean predictive entropy, in nats |
    | `mutual_information` | mean mutual information of label and member, in nats |
    | `auroc_<name>` | area under the ROC curve, with the entropy as the score |
    | `auroc_mi_<name>` | the same with the mutual information as the score |
    | `aupr_<name>` | area under the precision-recall curve, with the entropy |
    | `aupr_mi_<name>` | the same with the mutual information as the score |

    <name> is a set of `ood`, or "ood" for a single array. Scores that need members are
    NaN for a model without members. They are printed as a dash. The printed table
    leaves out `adaptive_ece`, `classwise_ece` and `aupr_...`, to fit the line; `rows`,
    `column` and `to_pandas` have them.

    Args:
        rows: list of at least one dict with these keys.

    Raises:
        ValueError: `rows` has another type or other keys.
    """

    _heads: ClassVar[dict[str, str]] = {
        "members": "members",
        "accuracy": "accuracy",
        "nll": "NLL",
        "brier": "Brier",
        "ece": "ECE",
        "adaptive_ece": "",
        "classwise_ece": "",
        "aurc": "AURC",
        "entropy": "entropy",
        "mutual_information": "MI",
    }

    def _head(self, name: str) -> str:
        if name.startswith("auroc_mi_"):  # such as "AUROC MI kmnist"
            return f"AUROC MI {name.removeprefix('auroc_mi_')}"
        if name.startswith("auroc_"):
            return f"AUROC {name.removeprefix('auroc_')}"
        return super()._head(name)


class RegressionTable(_ScoreTable):
    """Scores of regressions on one data set, with a row for each model.

    | column | holds |
    |---|---|
    | `model` | the model's name |
    | `members` | number of networks or passes in the predictive mixture |
    | `noise_std` | root mean square of the noise's deviation, in units of the target |
    | `member_std` | root mean square of the deviation between members, in these units |
    | `rmse` | root mean squared error of the mean prediction, in these units |
    | `nll` | mean negative log density of the targets, in nats per example |
    | `crps` | continuous ranked probability score, in units of the target |
    | `calibration_error` | mean gap of expected and observed share, 19 intervals |
    | `coverage_50`, `coverage_90`, `coverage_95` | share of targets in the intervals |
    | `width_50`, `width_90`, `width_95` | mean width of the central intervals |

    `member_std` is NaN for a model without members, and printed as a dash.

    Args:
        rows: list of at least one dict with these keys.

    Raises:
        ValueError: `rows` has another type or other keys.
    """

    _heads: ClassVar[dict[str, str]] = {
        "members": "members",
        "noise_std": "noise",
        "member_std": "spread",
        "rmse": "RMSE",
        "nll": "NLL",
        "crps": "CRPS",
        "calibration_error": "cal. error",
        **{f"coverage_{level}": f"in {level}%" for level in LEVELS},
        **{f"width_{level}": f"width {level}%" for level in LEVELS},
    }
