"""Letters for cells that are not available, and the reasons that the letters stand for."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsight_prof.reports.page.formats import NA
from nsight_prof.reports.page.frame import letters
from nsight_prof.reports.profile.view_models import KernelRow


@dataclass
class Footnotes:
    """Gives each reason a letter when a cell first needs it."""

    letters: dict[str, str] = field(default_factory=dict)

    def mark(self, text: str, kernel: KernelRow, column: str) -> str:
        """Return a cell as it is, or "n/a (b)" where it is not available for a known reason."""
        reasons = (gap.reason for gap in kernel.missing if gap.column == column)
        reason = next(reasons, "")
        if text != NA or not reason:
            return text
        letter = self.letters.setdefault(reason, letters(len(self.letters)))
        return f"{NA} ({letter})"

    def take(self) -> list[tuple[str, str]]:
        """Return (letter, reason) of all cells marked so far, and start afresh."""
        taken = [(letter, reason) for reason, letter in self.letters.items()]
        self.letters.clear()
        return taken
